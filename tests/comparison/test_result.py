"""Recommendations that noise cannot fool, exclusions, and what is called significant."""

import json
from dataclasses import replace

import numpy as np
import pytest
from depth import size

from evencover import compare
from evencover.comparison import Candidate, Comparison
from evencover.evaluation.metrics import Tally
from evencover.evaluation.report import CoverageReport

K = 30
GOLDEN = """\
30 classes, 40 calibration examples each, target 90%, 6 random splits

                         classes  shortfall   labels   overall
                       below 90%  in points  per set  coverage
> pooled + softmax             0        2.0      4.0     90.1%  best trade-off
  rc3p + softmax               0        1.8      5.0     90.4%  most even
  standard + softmax          10       12.5      2.0     86.3%  coverage too low
  clustered + softmax          0        3.2      5.0     89.7%  runner-up
  1 more: rows()

Classes below 90%: significantly, at a 5% false discovery rate. Shortfall: how
far a typical class falls below 90%, noise-corrected.

Recommended: pooled + softmax
Compared with standard + softmax, 0 instead of 10 classes are below 90% and the
shortfall is 2.0 instead of 12.5 points, for 2.0 more labels per set.
Coverage significantly below 90%: standard + softmax."""


def candidate(
    name, size, coverage=0.9, cost=None, n_splits=6, seed=0, noise=0.1, counts=40, **more
):
    """A candidate with sets of about this size and rows covered at this rate."""
    rng = np.random.default_rng(seed)
    reports, costs = [], []
    for _ in range(n_splits):
        counts = np.broadcast_to(counts, K)
        covered = rng.binomial(counts, coverage)
        sizes = np.bincount(np.full(counts.sum(), round(size)), minlength=K + 1)
        reports.append(CoverageReport.from_tally(Tally(counts, covered, sizes), 0.1))
        costs.append((size if cost is None else cost) + noise * rng.normal())
    return Candidate(name, "softmax", tuple(reports), tuple(costs), **more)


def comparison(*candidates, **more):
    return Comparison(candidates, 0.1, len(candidates[0].reports), 1200, 1200, **more)


def test_the_lowest_cost_is_recommended_and_others_are_shown():
    small = candidate("small", 2, np.linspace(0.8, 1.0, K), cost=8, seed=1)
    even = candidate("even", 9, 0.9, cost=11, seed=2)
    balanced = candidate("balanced", 4, np.linspace(0.85, 0.95, K), cost=6, seed=3)
    found = comparison(small, even, balanced)
    assert (found.recommended, found.smallest, found.most_even) == (balanced, small, even)
    assert [row["note"] for row in found.rows()] == ["smallest", "most even", "best trade-off"]
    assert found.selection == [balanced, even, small]
    assert found.reason.startswith("Recommended: balanced + softmax\n")


def test_the_short_table_leads_to_a_decision():
    """Golden: what a person sees."""
    found = comparison(
        candidate("pooled", 4, np.linspace(0.85, 0.95, K), cost=6, seed=3),
        candidate("classwise", 9, 0.9, cost=11, seed=2),
        candidate("standard", 2, np.linspace(0.6, 1.2, K).clip(0, 1), cost=8, seed=1),
        candidate("clustered", 5, np.linspace(0.84, 0.97, K), cost=6.1, seed=4),
        candidate("rc3p", 5, 0.91, cost=9, seed=4),
        calibration_size=40,
    )
    assert str(found) == GOLDEN


@pytest.mark.parametrize(("cost", "is_offered"), [(11.5, True), (12.5, False)])
def test_alternatives_are_not_twice_as_costly(cost, is_offered):
    best = candidate("best", 4, np.linspace(0.8, 1.0, K), cost=6, noise=0)
    even = candidate("even", 20, 0.95, cost=cost, noise=0)
    assert comparison(best, even).most_even is (even if is_offered else best)


@pytest.mark.parametrize(
    ("size", "price"),
    [(4, ", for 2.0 more labels"), (1, ", with 1.0 fewer labels"), (2, ", with sets of the same")],
)
def test_the_gain_is_stated_with_its_price(size, price):
    standard = candidate("standard", 2, np.where(np.arange(K) < 10, 0.2, 1.0), cost=9)
    reason = comparison(candidate("pooled", size, 0.9, cost=5, seed=1), standard).reason
    start = "Compared with standard + softmax, 0 instead of 10 classes are below 90% and the "
    assert reason.splitlines()[1].startswith(start)
    assert price in reason
    baseline = candidate("standard", 2, cost=3)
    assert "It is the baseline" in comparison(baseline, candidate("pooled", 4, cost=9)).reason


@pytest.mark.parametrize(
    ("n_usual", "n_rare", "named"),
    [
        (300, 30, ["common", "usual"]),
        (300, 300, ["common", "usual", "rare"]),
        (30, 30, ["common", "usual", "rare"]),  # one precise class alone would say too little
    ],
)
def test_undercovered_classes_are_named_if_their_coverage_is_precise(n_usual, n_rare, named):
    names = ("common", "usual", "rare", *map(str, range(3, K)))
    counts = np.array([300, n_usual, n_rare, *[40] * (K - 3)])
    low = np.array([0.3, 0.4, 0.5, *[0.95] * (K - 3)])

    def with_names(name, **more):
        plain = candidate(name, counts=counts, **more)
        return replace(plain, reports=[replace(r, class_names=names) for r in plain.reports])

    before = with_names("standard", size=1, coverage=low, cost=9)
    after = with_names("pooled", size=2, coverage=0.9, cost=5)
    lines = [line for line in comparison(before, after).reason.splitlines() if "->" in line]
    assert [name for name in names[:3] if f"{name}\N{NO-BREAK SPACE}" in lines[0]] == named
    assert ("1 more" in lines[0]) == (len(named) == 2)


def test_candidates_that_cost_as_much_as_all_classes_are_not_offered():
    full = candidate("full", K, 0.9, cost=K, noise=0)
    missing = candidate("missing", 2, 0.9, cost=K + 5, seed=3)
    honest = candidate("honest", 4, np.linspace(0.8, 1.0, K), cost=5)
    found = comparison(full, missing, honest)
    assert found.recommended is found.smallest is found.most_even is honest
    assert [row["costs_too_much"] for row in found.rows()] == [True, True, False]
    assert "full + softmax, missing + softmax" in found.reason


def test_what_has_the_sets_of_standard_is_named():
    standard, other = candidate("standard", 2, seed=1), candidate("clustered", 2, seed=2)
    same = replace(standard, method="clustered")
    assert "same sets as standard: clustered + softmax." in comparison(standard, same).reason
    assert "same sets" not in comparison(standard, other).reason
    labels = np.arange(240) % 12  # too few classes for two clusters
    rows = np.random.default_rng(0).dirichlet(np.ones(12), 240) + 0.2 * np.eye(12)[labels]
    found = compare(rows / rows.sum(axis=1, keepdims=True), labels, scores="aps", n_splits=2)
    assert "same sets as standard: clustered + aps." in found.reason


@pytest.mark.parametrize("cost", [K - 0.01, K + 0.01])
def test_the_cost_of_all_classes_is_no_cliff(cost):
    alike = candidate("a", 20, cost=cost, noise=0), candidate("b", 9, cost=cost + 1, noise=0)
    assert comparison(*alike).recommended is alike[0]
    assert ("classes cost no more" in comparison(*alike).reason) == (cost > K)


def test_of_two_unequal_classes_the_rare_one_is_covered():
    """95:5 and a sharp model: STANDARD has sets of one label, and hardly covers the rare class."""
    rng = np.random.default_rng(0)
    labels = (rng.random(3000) < 0.05).astype(int)
    odds = np.exp(1.5 * (rng.normal(size=3000) + 1.5 * labels) - 1.125) * 5 / 95
    rows = np.column_stack([1 / (1 + odds), odds / (1 + odds)])
    found = compare(rows, labels, n_splits=4)

    def rare(candidate):
        return np.mean([report.class_coverage[1] for report in candidate.reports])

    assert rare(found.candidates[0]) < 0.3
    assert rare(found.recommended) > 0.85
    assert found.recommended.mean("avg_size") > 1


def test_a_shortfall_takes_three_test_rows_of_a_class():
    """It is not known here, and every form of the result says so."""
    rng = np.random.default_rng(0)
    rows, labels = rng.dirichlet(np.ones(K), 4 * K), np.repeat(np.arange(K), 4)
    rows[np.arange(4 * K), labels] += 1
    rows /= rows.sum(axis=1, keepdims=True)
    found = compare(rows, labels, scores=["softmax"], n_splits=2, calibration_sizes=2)
    assert {row["shortfall"] for row in found.rows()} == {None}
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["candidates"] == found.rows()
    lines = found.table(found.candidates).splitlines()[2:]
    assert {line.split()[-5] for line in lines} == {"–"}
    assert found.most_even is None


def test_coverage_significantly_below_the_target_is_never_recommended():
    short, right = candidate("short", 2, 0.85, cost=3), candidate("right", 4, 0.9, cost=5)
    found = comparison(short, right)
    assert found.covers_too_little(short)
    assert not found.covers_too_little(right)
    assert found.recommended is found.smallest is found.most_even is right
    assert "below 90%: short + softmax" in found.reason
    nothing = comparison(short, short)
    assert nothing.recommended is nothing.smallest is nothing.most_even is None
    assert nothing.best is short
    assert nothing.to_dict()["recommended"] is None
    assert nothing.reason.startswith("No candidate reaches 90%")


def test_a_method_is_judged_by_the_coverage_that_it_targets():
    """Common classes are covered less than rare ones: 82% of all rows, 90% of a class on average.

    The smallest classes have 5 rows, so the mean over classes varies more than a share of all.
    """
    counts = np.where(np.arange(K) < 5, 200, 5)
    coverage = np.where(np.arange(K) < 5, 0.8, 0.92)
    about = {"cost": 3, "counts": counts, "coverage": coverage}
    right = candidate("right", 4, cost=5)
    macro = candidate("macro", 2, **about, target="macro_coverage")
    found = comparison(macro, right)
    assert not found.covers_too_little(macro)
    assert found.recommended is macro
    marginal = candidate("marginal", 2, **about)
    assert comparison(marginal, right).recommended is right
    about["coverage"] = coverage - 0.15
    short = candidate("short", 2, **about, target="macro_coverage")
    assert comparison(short, right).covers_too_little(short)


def test_of_equal_candidates_hardly_ever_one_is_called_significantly_worse():
    """Twelve of the same cost: any significant one in at most 5% of tables, plus 3 errors."""
    rng = np.random.default_rng(5)
    report = candidate("any", 3).reports[0]
    accused, n_tables = 0, size(short=100, deep=1000)
    for _ in range(n_tables):
        table = [
            Candidate(str(n), "softmax", (report,) * 10, tuple(5 + rng.normal(size=10)))
            for n in range(12)
        ]
        found = Comparison(tuple(table), 0.1, 10, 1200, 1200)
        accused += any(found.difference_to_best(each).is_significant for each in table)
    assert accused / n_tables <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_tables)


def test_candidates_with_tied_costs_are_marked():
    near, far = candidate("near", 3, cost=5.01, seed=4), candidate("far", 3, cost=9)
    found = comparison(candidate("best", 3, cost=4.9), near, far)
    assert [found.is_tied(each) for each in found.candidates] == [False, True, False]
    lines = found.summary(everything=True).splitlines()
    marks = ["=" in line for line in lines if " + softmax  " in line]
    assert marks == [False, True, False]
    assert max(map(len, lines)) <= 80


def test_roles_next_to_a_smaller_but_costly_candidate_state_their_limit():
    best = candidate("best", 4, 0.9, cost=6, noise=0)
    tiny = candidate("tiny", 1, 0.9, cost=30, noise=0)
    notes = [row["note"] for row in comparison(best, tiny).rows()]
    assert "smallest at a low cost" in notes[0]
    assert "smallest" not in notes[1]
