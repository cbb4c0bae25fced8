"""The true gap is unbiased, and classes are named with false discoveries under control."""

import itertools

import numpy as np
import pytest

from evencover.evaluation.report import CoverageReport, Tally
from evencover.evaluation.statistics import likely_below, squared_gaps, true_gap


@pytest.mark.parametrize("alpha", [0.1, 0.3])
@pytest.mark.parametrize("hits", [[1, 0], [1, 1, 1], [1, 0, 0, 1, 1]])
def test_it_is_the_mean_over_pairs_of_rows(hits, alpha):
    pairs = [(a - (1 - alpha)) * (b - (1 - alpha)) for a, b in itertools.permutations(hits, 2)]
    found = squared_gaps(np.array([sum(hits)]), np.array([len(hits)]), alpha)
    assert found[0] == pytest.approx(1e4 * np.mean(pairs))


@pytest.mark.parametrize("coverage", [0.9, 0.95, 0.6])
@pytest.mark.parametrize("n_rows", [2, 3, 9])
def test_its_mean_over_test_sets_is_the_truth(coverage, n_rows):
    """200,000 classes; 4 standard errors, false alarm 1 in 16,000 for each of nine."""
    covered = np.random.default_rng(n_rows).binomial(n_rows, coverage, size=200_000)
    squares = squared_gaps(covered, np.full(200_000, n_rows), 0.1)
    error = squares.std() / np.sqrt(len(squares))
    assert abs(squares.mean() - (100 * (coverage - 0.9)) ** 2) < 4 * error


def test_noise_alone_is_no_gap_and_being_in_every_set_is_one():
    rng = np.random.default_rng(0)
    counts = np.full(2000, 4)
    right = true_gap(rng.binomial(4, 0.9, size=2000), counts, 0.1)
    always = true_gap(counts, counts, 0.1)
    assert right.gap < 3
    assert always.gap == pytest.approx(10)
    assert always.low < 10 < always.high
    assert always.n_classes == 2000
    wrong_report = CoverageReport.from_tally(Tally(counts, counts, np.bincount([5] * 8000)), 0.1)
    right_report = CoverageReport.from_tally(
        Tally(counts, rng.binomial(4, 0.9, size=2000), np.bincount([5] * 8000)), 0.1
    )
    assert right_report.covgap > wrong_report.covgap  # what CovGap says: noise fools it
    assert right_report.true_gap < wrong_report.true_gap


def test_classes_with_one_row_are_skipped_and_counted():
    found = true_gap(np.array([1, 0, 3]), np.array([1, 1, 3]), 0.1)
    assert found.n_classes == 1
    assert np.isnan(true_gap(np.array([1]), np.array([1]), 0.1).gap)


def test_reports_show_the_interval_of_the_gap():
    rng = np.random.default_rng(1)
    rows, covered = np.full(300, 20), rng.binomial(20, 0.8, size=300)
    report = CoverageReport.from_tally(Tally(rows, covered, np.bincount([5] * 6000)), 0.1)
    low, high = report.true_gap_interval
    assert 8 < low < report.true_gap < high < 12
    assert report.to_dict()["true_gap_interval"] == [low, high]
    assert f"{low:.1f} to {high:.1f}" in str(report)
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


def test_a_class_without_rows_is_not_named():
    assert likely_below(np.array([0, 0]), np.array([0, 30]), 0.1).tolist() == [False, True]
