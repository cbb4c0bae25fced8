"""Advice that noise cannot fool: who is picked, who never is, and what is called clear."""

from xml.etree import ElementTree

import numpy as np
import pytest
from depth import size

from evencover import InputError, compare
from evencover.comparison import Candidate, Comparison
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.tally import Tally

K = 30


def candidate(name, size, coverage=0.9, cost=None, n_splits=6, seed=0, noise=0.1, infinite=0.0):
    """A candidate with sets of about this size and rows covered at this rate."""
    rng = np.random.default_rng(seed)
    reports, costs = [], []
    for _ in range(n_splits):
        counts = np.full(K, 40)
        covered = rng.binomial(counts, coverage)
        sizes = np.bincount(np.full(K * 40, round(size)), minlength=K + 1)
        reports.append(CoverageReport.from_tally(Tally(counts, covered, sizes), 0.1))
        costs.append((size if cost is None else cost) + noise * rng.normal())
    return Candidate(name, "softmax", tuple(reports), tuple(costs), infinite)


def comparison(*candidates, **more):
    return Comparison(candidates, 0.1, len(candidates[0].reports), 1200, 1200, **more)


def test_the_lowest_cost_is_picked_and_three_points_are_named():
    small = candidate("small", 2, np.linspace(0.7, 1.0, K), cost=8, seed=1)
    even = candidate("even", 9, 0.9, cost=11, seed=2)
    balanced = candidate("balanced", 4, np.linspace(0.85, 0.95, K), cost=6, seed=3)
    found = comparison(small, even, balanced)
    assert (found.pick, found.smallest, found.most_even) == (balanced, small, even)
    assert found.reason.startswith("Use balanced with softmax: it has the lowest cost")
    assert "Smallest sets: small with softmax, 2.0 classes fewer in a set" in found.reason
    assert "Most even: even with softmax, 5.0 classes more in a set" in found.reason


def test_sets_that_say_nothing_are_never_advised():
    full = candidate("full", 20, 1.0, cost=1)
    unlimited = candidate("unlimited", 9, 1.0, cost=1, infinite=0.8)
    honest = candidate("honest", 4, 0.9, cost=5)
    found = comparison(full, unlimited, honest)
    assert found.pick is found.smallest is found.most_even is honest
    assert [row["note"] for row in found.rows()][:2] == ["says nothing"] * 2
    assert "Never advised" in found.reason
    assert "full with softmax, unlimited with softmax" in found.reason


def test_limits_restrict_the_advice():
    small, large = candidate("small", 2, 0.86, cost=9), candidate("large", 6, 0.9, cost=5)
    assert comparison(small, large).pick is large
    assert comparison(small, large, max_size=3).pick is small
    assert comparison(small, large, min_coverage=0.89).pick is large
    assert "Nothing here has sets of at most 1 classes" in comparison(small, max_size=1).reason


def test_what_is_not_allowed_is_never_advised():
    """The lowest cost of what says something is named instead; if nothing does, that is said."""
    full, honest = candidate("full", 20, 1.0, cost=1), candidate("honest", 4, 0.9, cost=5)
    found = comparison(full, honest, min_coverage=0.95)
    assert found.pick is honest
    assert found.note(honest) == ""
    assert "Use " not in found.reason
    assert found.reason.startswith(
        "Nothing whose sets say something has a coverage of at least 0.95. "
        "The lowest cost is that of honest with softmax: its sets hold 4.0 classes"
    )
    alone = comparison(full).reason
    assert alone.startswith("None of these has sets that say much")
    assert "Use " not in alone
    assert "Never advised" not in alone


def test_coverage_clearly_below_the_aim_is_flagged():
    short, right = candidate("short", 3, 0.85), candidate("right", 4, 0.9)
    found = comparison(short, right)
    assert found.covers_too_little(short)
    assert not found.covers_too_little(right)
    assert "Covering clearly less than 90% of all rows: short with softmax" in found.reason


def test_of_equal_candidates_hardly_ever_one_is_called_clearly_worse():
    """Twelve of the same cost, many tables: any clear one in at most 5%, and 3 errors on top."""
    rng = np.random.default_rng(5)
    report = candidate("any", 3).reports[0]
    accused, n_tables = 0, size(short=100, deep=1000)
    for _ in range(n_tables):
        table = [
            Candidate(str(n), "softmax", (report,) * 10, tuple(5 + rng.normal(size=10)))
            for n in range(12)
        ]
        found = Comparison(tuple(table), 0.1, 10, 1200, 1200)
        accused += any(found.difference_to_best(each).is_clear for each in table)
    assert accused / n_tables <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_tables)


def test_a_large_difference_is_called_clear():
    found = comparison(candidate("a", 3, cost=5), candidate("b", 3, cost=9, seed=4))
    assert found.difference_to_best(found.candidates[1]).is_clear
    assert found.rows()[1]["note"] in ("", "most even", "smallest")


def test_a_notebook_shows_a_table_and_little_text(simulate):
    found = compare(*simulate(300, 4), methods=["standard", "classwise"], n_splits=2)
    assert len(repr(found)) < 2000
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + 6
    drawing = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    marks = drawing.findall("circle")
    for candidate, mark in zip(found.candidates, marks, strict=True):
        assert mark.findtext("title").startswith(f"{candidate.name}: ")
    by_size = sorted(zip(found.candidates, marks, strict=True), key=lambda p: p[0].mean("avg_size"))
    assert [int(mark.get("cx")) for _, mark in by_size] == sorted(int(m.get("cx")) for m in marks)
    by_gap = sorted(zip(found.candidates, marks, strict=True), key=lambda p: -p[0].mean("true_gap"))
    assert [int(mark.get("cy")) for _, mark in by_gap] == sorted(int(m.get("cy")) for m in marks)
    names = {text.text for text in drawing.findall("text")}
    assert {found.pick.name, found.smallest.name, found.most_even.name} <= names


def test_of_two_candidates_the_other_has_no_number():
    found = comparison(candidate("a", 3, cost=5), candidate("b", 3, cost=5.01, seed=4))
    assert "not clearly below the other)" in found.reason


def test_the_table_fits_a_terminal(simulate):
    found = compare(*simulate(300, 4), n_splits=2)
    assert max(map(len, str(found).splitlines()[:-1])) <= 80


@pytest.mark.parametrize("name", ["max_size", "min_coverage"])
def test_bad_limits_are_refused(simulate, name):
    with pytest.raises(InputError, match=f"'{name}' parameter of compare"):
        compare(*simulate(300, 4), methods=["standard"], n_splits=2, **{name: -1})
