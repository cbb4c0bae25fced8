"""The paper's table: its numbers, what is bold, and how it compares with the published one."""

from itertools import product

import pytest

from evencover import InputError
from evencover.evaluation.metrics import metric_names
from evencover.experiments import Results
from evencover.experiments.results import Published, make_table, published


def record(repetition, covgap, avg_size, **changes):
    """A row of results as the paper's own study would have it."""
    row = dict.fromkeys(metric_names(), 0.5) | {
        "dataset": "imagenet", "simulated": False, "score": "softmax", "method": "standard",
        "parameters": "", "exact": False, "n_avg": 20, "alpha": 0.1, "n_classes": 1000,
        "gamma": None, "M": None, "repetition": repetition, "covgap": covgap,
        "avg_size": avg_size, "size_median": 1,
    }  # fmt: skip
    return row | changes


def study(*records, title="A <study> of 50% & more_"):
    part = {"records": list(records), "classes": [], "class_names": None}
    return Results({"title": title}, [part], True)


@pytest.fixture
def table():
    """STANDARD as published (5.2 and 1.9), CLASSWISE far off, one's own method without a number."""
    return make_table(
        study(
            *(record(r, 5.2 + 0.1 * (r - 1), 1.9) for r in range(3)),
            *(record(r, 9.0 + r, 23.0, method="classwise") for r in range(3)),
            *(record(r, 5.4, 2.0 + r, method="mine", parameters="depth=3") for r in range(3)),
        )
    )


def test_the_published_numbers_are_those_of_table_1():
    row = {"dataset": "imagenet", "score": "aps", "method": "clustered", "n_avg": 50}
    row |= {"exact": False, "parameters": "", "alpha": 0.1, "n_classes": 1000}
    assert published(row, "covgap") == (2.3, 0.0)
    assert published(row, "avg_size") == (27.2, 0.5)
    assert published(row, "frac_undercovered") is None
    others = {"n_avg": 30, "exact": True, "alpha": 0.2, "method": "mine", "n_classes": 100}
    for key, value in (others | {"parameters": "gamma=0.2", "dataset": "languages"}).items():
        assert published(row | {key: value}, "covgap") is None


def test_all_of_table_1_is_there():
    classes = {"imagenet": 1000, "cifar-100": 100, "places365": 365, "inaturalist": 633}
    methods = ("standard", "classwise", "clustered")
    for d, s, m, n in product(classes, ("softmax", "aps", "raps"), methods, (10, 20, 50, 75)):
        row = record(0, 0, 0, dataset=d, score=s, method=m, n_avg=n, n_classes=classes[d])
        assert published(row, "covgap") is not None
        assert published(row, "avg_size") is not None


@pytest.mark.parametrize(
    ("mean", "error", "agrees"),
    [
        (5.2, 0.0, True),
        (5.44, 0.0, True),  # 1.96 x 0.1 + 0.05 = 0.246
        (5.45, 0.0, False),
        (5.52, 0.1, True),  # 1.96 x sqrt(0.02) + 0.05 = 0.327
        (5.53, 0.1, False),
        (4.88, 0.1, True),
        (4.87, 0.1, False),
        (5.44, None, True),
    ],
)
def test_the_joint_error(mean, error, agrees):
    assert Published(5.2, 0.1).agrees_with(mean, error) is agrees


def test_numbers_verdicts_and_the_best(table):
    standard, classwise, mine = table.lines
    assert standard.entries[0].text == "5.2 (0.1)"
    assert standard.entries[0].verdict == "5.2 (0.0) ="
    assert standard.entries[0].is_best
    assert classwise.entries[0].text == "10.0 (0.6)"
    assert classwise.entries[0].verdict == "5.4 (0.0) ≠"
    assert classwise.entries[1].verdict == "23.0 (0.9) ="
    assert not classwise.entries[0].is_best
    assert mine.method == "MINE (depth=3)"
    assert mine.entries[0].verdict == ""
    assert mine.entries[0].agrees is None
    assert mine.entries[0].is_best  # 5.4 is within 0.2 of 5.2
    assert not any(line.entries[1].is_best for line in table.lines)  # sizes are not ranked
    assert "Within it: 3 of 4." in table.notes[-1]


def test_a_gap_below_test_noise_is_no_better_than_the_noise():
    """CLASSWISE is below the floor of 8.3; what is within 0.2 of the floor is as good."""
    gaps = {"classwise": (8.0, 9.0), "clustered": (8.4, 5.9), "pooled": (8.8, 5.0)}
    found = make_table(
        study(
            *(
                record(r, gap, 2.0, method=method, true_gap=true, covgap_noise_floor=8.3)
                for method, (gap, true) in gaps.items()
                for r in range(2)
            )
        ),
        metrics=["covgap", "true_gap", "avg_size"],
    )
    best = {line.method: [entry.is_best for entry in line.entries] for line in found.lines}
    assert best == {
        "CLASSWISE": [True, False, False],
        "CLUSTERED": [True, False, False],
        "POOLED": [False, True, False],
    }
    assert "Bold: best CovGap and TrueGap, within 0.2." in found.notes[0]


RENDERED = {
    "text": ["*5.2 (0.1)", "published", "≠"],
    "markdown": [
        "| imagenet | softmax | STANDARD | **5.2 (0.1)** [5.2 (0.0) =] |",
        "CLASSWISE | 10.0 (0.6) [5.4 (0.0) ≠] |",
    ],
    "latex": [
        r"\textsc{standard} & \textbf{5.2} (0.1) {\color{gray}[5.2 (0.0) $=$]}",
        r"A $<$study> of 50\% \& more\_",
    ],
    "html": [
        "A &lt;study&gt; of 50% &amp; more_",
        "<b>5.2 (0.1)</b><small>5.2 (0.0) =</small>",
        '<small class="off">5.4 (0.0) ≠</small>',
    ],
}


@pytest.mark.parametrize("style", RENDERED)
def test_every_style_marks_the_best_and_escapes_names(table, style):
    text = table.render(style)
    assert [part for part in RENDERED[style] if part not in text] == []


def test_simulated_data_are_marked():
    table = make_table(study(record(0, 5.0, 2.0, simulated=True)))
    assert table.lines[0].dataset == "imagenet (simulated)"
    assert any("not a replication" in note for note in table.notes)
    assert table.lines[0].entries[0].text == "5.0 (–)"


def test_every_format_of_a_real_study(results):
    table = make_table(results)
    assert table.n_avg == (10, 20)
    assert len(table.lines) == 9
    for style in ("text", "markdown", "latex", "html"):
        assert table.render(style)
    assert len(make_table(results, exact=True, metrics=["frac_undercovered"]).lines) == 9


def test_missing_results_are_rejected(results, table):
    with pytest.raises(InputError, match="n_avg"):
        make_table(results, n_avg=[50])
    with pytest.raises(InputError, match="'size'"):
        make_table(results, metrics=["size"])
    with pytest.raises(InputError, match="'word'"):
        table.render("word")
    with pytest.raises(InputError, match="exact"):
        make_table(study(record(0, 5.0, 2.0)), exact=True)
