"""Confidence intervals of evaluation keep their stated rates."""

import numpy as np
import pytest
from depth import size

from evencover.evaluation.metrics import Tally
from evencover.evaluation.report import CoverageReport

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
