"""TrueGap is unbiased, Shortfall has its exact law, and false discoveries are under control."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from evencover.evaluation.metrics import Tally
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.statistics import (
    likely_below,
    root_mean,
    squared_gaps,
    squared_shortfalls,
    true_gap,
)


@pytest.mark.parametrize("alpha", [0.1, 0.3])
@pytest.mark.parametrize("hits", [[1, 0, 0], [1, 1, 1], [1, 0, 0, 1, 1], [1] * 9 + [0, 0, 0]])
def test_a_shortfall_takes_the_pairs_whose_other_rows_are_below(hits, alpha):
    total, n = 0.0, len(hits)
    for i, j in itertools.permutations(range(n), 2):
        others = sum(hits) - hits[i] - hits[j]
        if others < (n - 2) * (1 - alpha) - 1e-9:
            total += (hits[i] - (1 - alpha)) * (hits[j] - (1 - alpha))
    estimate = squared_shortfalls(np.array([sum(hits)]), np.array([n]), alpha)
    assert estimate[0] == pytest.approx(1e4 * total / (n * (n - 1)))


@pytest.mark.parametrize("coverage", [0.3, 0.8, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("n_rows", [3, 9, 20, 62])
def test_the_expected_values_are_exact(coverage, n_rows):
    """Over all numbers of covered rows: no sampling, so no tolerance but rounding."""
    covered = np.arange(n_rows + 1)
    chance = binom.pmf(covered, n_rows, coverage)
    counts, square = np.full(n_rows + 1, n_rows), (100 * (coverage - 0.9)) ** 2
    assert chance @ squared_gaps(covered, counts, 0.1) == pytest.approx(square, abs=1e-8)
    below = binom.cdf(np.ceil((n_rows - 2) * 0.9 - 1e-9) - 1, n_rows - 2, coverage)
    shortfall = chance @ squared_shortfalls(covered, counts, 0.1)
    assert shortfall == pytest.approx(square * below, abs=1e-8)


def test_a_shortfall_ignores_coverage_above_the_target_and_takes_an_alpha_per_class():
    counts = np.array([50, 40, 2, 0])
    assert root_mean(squared_shortfalls(counts, counts, 0.1)) == 0
    assert np.isnan(squared_shortfalls(counts, counts, 0.1)).tolist() == [False, False, True, True]
    assert np.isnan(root_mean(squared_shortfalls(counts[2:], counts[2:], 0.1)))
    covered, alpha = np.array([25, 30, 1, 0]), np.array([0.1, 0.3, 0.1, 0.1])
    by_class = [squared_shortfalls(covered[[k]], counts[[k]], alpha[k])[0] for k in range(2)]
    assert squared_shortfalls(covered, counts, alpha)[:2].tolist() == by_class


def test_noise_alone_is_no_gap_and_being_in_every_set_is_one():
    rng = np.random.default_rng(0)
    counts = np.full(2000, 4)
    right = true_gap(rng.binomial(4, 0.9, size=2000), counts, 0.1)
    always = true_gap(counts, counts, 0.1)
    assert right.gap < 3
    assert always.gap == pytest.approx(10)
    assert always.low < 10 < always.high
    wrong_report = CoverageReport.from_tally(Tally(counts, counts, np.bincount([5] * 8000)), 0.1)
    right_report = CoverageReport.from_tally(
        Tally(counts, rng.binomial(4, 0.9, size=2000), np.bincount([5] * 8000)), 0.1
    )
    assert right_report.covgap > wrong_report.covgap  # what CovGap says: noise fools it
    assert right_report.true_gap < wrong_report.true_gap


def test_reports_show_the_interval_of_the_gap():
    rng = np.random.default_rng(1)
    rows, covered = np.full(300, 20), rng.binomial(20, 0.8, size=300)
    report = CoverageReport.from_tally(Tally(rows, covered, np.bincount([5] * 6000)), 0.1)
    low, high = report.true_gap_interval
    assert 8 < low < report.true_gap < high < 12
    assert report.to_dict()["true_gap_interval"] == [low, high]
    assert f"{low:.1f} to {high:.1f}" in "".join(report.lines(everything=True))
    alone = CoverageReport.from_tally(Tally(rows[:1], covered[:1], np.bincount([5] * 20)), 0.1)
    assert alone.to_dict()["true_gap_interval"] == [None, None]


def test_of_the_classes_named_few_are_innocent_and_the_guilty_are_found():
    rng = np.random.default_rng(3)
    truth = np.where(np.arange(500) < 50, 0.6, 0.9)
    false, found = [], []
    for _ in range(100):
        named = likely_below(rng.binomial(40, truth), np.full(500, 40), 0.1)
        false.append(named[50:].sum() / max(1, named.sum()))
        found.append(named[:50].mean())
    assert np.mean(false) <= 0.05 + 3 * np.std(false) / 10
    assert np.mean(found) > 0.8
