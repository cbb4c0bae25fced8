"""The paper's table: its numbers, and how they compare with the published ones."""

import csv
import re

import pytest

from evencover import InputError
from evencover.evaluation.metrics import metric_names
from evencover.experiments import Results, make_table
from evencover.experiments.table import beside_published, published


def record(repetition, covgap, avg_size, **changes):
    """A row of results as the paper's own study would have it."""
    row = dict.fromkeys(metric_names(), 0.5) | {
        "dataset": "imagenet", "simulated": False, "score": "softmax", "method": "standard",
        "parameters": "", "exact": False, "n_avg": 20, "alpha": 0.1, "n_classes": 1000,
        "gamma": None, "M": None, "repetition": repetition, "covgap": covgap,
        "avg_size": avg_size, "size_median": 1, "cost": 3.0,
    }  # fmt: skip
    return row | changes


def study(*records, title="A <study> of 50% & more_"):
    unit = {"title": title, "records": list(records), "classes": [], "class_names": {}}
    return Results([unit], is_complete=True)


@pytest.fixture
def results_as_published():
    """STANDARD as published (5.2 and 1.9), CLASSWISE far off, one's own method without a number."""
    return study(
        *(record(r, 5.2 + 0.1 * (r - 1), 1.9) for r in range(3)),
        *(record(r, 9.0 + r, 23.0, method="classwise") for r in range(3)),
        *(record(r, 5.4, 2.0 + r, method="mine", parameters="depth=3") for r in range(3)),
    )


def cells(text):
    """The rows of a Markdown table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_published_numbers_are_those_of_table_1():
    row = {"dataset": "imagenet", "score": "aps", "method": "clustered", "n_avg": 50}
    row |= {"exact": False, "parameters": "", "alpha": 0.1, "n_classes": 1000}
    assert published(row, "covgap") == (2.3, 0.0)
    assert published(row, "avg_size") == (27.2, 0.5)
    others = {"n_avg": 30, "exact": True, "alpha": 0.2, "method": "mine", "n_classes": 100}
    for key, value in (others | {"parameters": "gamma=0.2", "dataset": "languages"}).items():
        assert published(row | {key: value}, "covgap") is None


@pytest.mark.parametrize(
    ("mean", "error", "agrees"),
    [
        (4.9, 0.0, True),
        (5.14, 0.0, True),  # 1.96 x 0.1 + 0.05 = 0.246
        (5.15, 0.0, False),
        (5.22, 0.1, True),  # 1.96 x sqrt(0.02) + 0.05 = 0.327
        (5.23, 0.1, False),
        (4.58, 0.1, True),
        (4.57, 0.1, False),
        (5.14, None, True),
    ],
)
def test_the_joint_error(mean, error, agrees):
    row = record(0, mean, 2.5, covgap_se=error, method="clustered", n_avg=10)
    assert published(row, "covgap") == (4.9, 0.1)
    assert beside_published(row, "covgap").endswith("=" if agrees else "≠")


def test_numbers_and_verdicts(results_as_published):
    text = make_table(results_as_published)
    standard, classwise, mine = cells(text)
    assert standard == [
        "imagenet", "softmax", "STANDARD", "5.2 (0.1) [5.2 (0.0) =]", "1.9 (0.0) [1.9 (0.0) =]",
    ]  # fmt: skip
    assert classwise[3:] == ["10.0 (0.6) [5.4 (0.0) ≠]", "23.0 (0.0) [23.0 (0.9) =]"]
    assert mine[2:] == ["MINE (depth=3)", "5.4 (0.0)", "3.0 (0.6)"]
    assert "Within it: 3 of 4." in text


def test_latex_and_csv_hold_the_same_numbers(results_as_published):
    text = make_table(results_as_published, "latex")
    assert r"STANDARD & \textbf{5.2} (0.1) {[}5.2 (0.0) $=${]}" in text
    assert r"A $<$study$>$ of 50\% \& more\_" in text
    head, *rows = csv.reader(make_table(results_as_published, "csv").splitlines())
    assert head == ["data set", "score", "method", "n_avg=20 CovGap", "n_avg=20 AvgSize"]
    assert rows == cells(make_table(results_as_published))


def test_simulated_data_are_marked():
    text = make_table(study(record(0, 5.0, 2.0, simulated=True)))
    assert cells(text)[0][0] == "imagenet (simulated)"
    assert cells(text)[0][3].startswith("5.0 (–)")
    assert "not a replication" in text


def test_missing_results_are_rejected(results):
    assert len(cells(make_table(results, exact=True))) == 9
    assert cells(make_table(results, n_avg=[20]))[0][3:] == cells(make_table(results))[0][5:7]
    with pytest.raises(InputError, match="30"):
        make_table(results, n_avg=[30])
    with pytest.raises(InputError, match="'word'"):
        make_table(results, "word")
    with pytest.raises(InputError, match="exact"):
        make_table(study(record(0, 5.0, 2.0)), exact=True)


def test_latex_is_well_formed_and_names_do_not_recur():
    """Environments and braces close, math is on or off, and rows have a cell per column."""
    names = {"dataset": r"[a_b]^~\ {", "score": "aps"}
    records = [
        record(r, gap, 2.0, method=method, n_avg=n, **names)
        for n in (10, 20)
        for method, gap in (("standard", 5.0), ("classwise", 5.2), ("clustered", 5.3))
        for r in range(2)
    ]
    text = make_table(study(*records, *(record(0, 1.0, 2.0, n_avg=n) for n in (10, 20))), "latex")
    plain = re.sub(r"\\.", "", text)  # without escaped signs
    assert "$$" not in plain
    assert plain.count("$") % 2 == 0
    assert plain.count("{") == plain.count("}")
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    assert opened == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    for row in rows:
        spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", row))
        assert len(re.findall(r"(?<!\\)&", row)) + 1 + spans == len(columns)
        assert not row.startswith("[")
    assert text.count("textasciicircum") == 1
    assert [row.count(r"\textbf") for row in rows[2:]] == [2, 2, 0, 2]
