"""Confidence intervals and data warnings of evaluation keep their stated rates."""

import numpy as np
import pytest
from depth import size

from evencover import StandardPredictor
from evencover.evaluation.metrics import Tally
from evencover.evaluation.report import CoverageReport
from evencover.predictors.shift_checks import distance, score_histogram

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

TRUTHS = {
    "at 0.9": lambda k: np.full(k, 0.9),
    "even from 0.8 to 1": lambda k: np.linspace(0.8, 1, k),
    "skewed": lambda k: np.random.default_rng(5).beta(9, 1, size=k),
    "a tenth at 0.5": lambda k: np.where(np.arange(k) < k // 10, 0.5, 0.92),
}


@pytest.mark.parametrize("n_rows", [2, 5, 20])
@pytest.mark.parametrize("n_classes", [50, 500])
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_interval_of_true_gap_covers_the_truth(truth, n_classes, n_rows):
    """In at least 93% of test sets, less 3 standard errors: 0.3% false alarms at the boundary."""
    coverage = TRUTHS[truth](n_classes)
    gap = 100 * np.sqrt(((coverage - 0.9) ** 2).mean())
    rng, counts = np.random.default_rng(n_rows), np.full(n_classes, n_rows)
    repetitions, hits = size(short=150, deep=4000), 0
    for _ in range(repetitions):
        tally = Tally(counts, rng.binomial(n_rows, coverage), np.zeros(3, dtype=np.int64))
        low, high = CoverageReport.from_tally(tally, 0.1).true_gap_interval
        hits += low <= gap <= high
    assert hits / repetitions >= 0.93 - 3 * np.sqrt(0.93 * 0.07 / repetitions)


def test_the_score_check_rarely_doubts_rows_of_the_same_kind():
    """Of 150 rows: one false alarm in 10,000 stated. The chance of 2 in 600 is 0.17%.

    A chi-square test over bins whose edges are calibration scores raises 1 in 200, 3 in 600.
    """
    rng, n_alarms = np.random.default_rng(7), 0
    repetitions = size(short=600, deep=40_000)
    for _ in range(repetitions):
        scores, labels = rng.random(300), rng.integers(0, 2, 150)
        edges, counts = StandardPredictor().fit_scores(scores[:150], labels, 2).fit_.score_bins
        n_alarms += distance(counts, score_histogram(edges, scores[150:]), ordered=True) is not None
    assert n_alarms <= size(short=1, deep=10)


def test_the_score_check_finds_harder_rows():
    """150 calibration rows and half of 1000 rows with another label: found every time."""
    rng = np.random.default_rng(8)
    for _ in range(size(short=3, deep=100)):
        rows = rng.dirichlet(np.full(4, 0.3), 1150)
        labels = (rows.cumsum(axis=1) < rng.random((1150, 1))).sum(axis=1)
        fitted = StandardPredictor().fit(rows[:150], labels[:150])
        harder = np.where(rng.random((1000, 1)) < 1 / 2, np.roll(rows[150:], 1, axis=1), rows[150:])
        said = fitted.evaluate(harder, labels[150:]).data_warnings
        assert any("scores of the true labels" in each for each in said)
