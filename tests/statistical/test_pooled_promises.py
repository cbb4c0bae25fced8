"""POOLED covers as it promises, on scores whose distribution is known."""

import numpy as np
from depth import size
from scipy.stats import norm

from evencover import PooledPredictor

K = 60
MEANS = norm.ppf((np.arange(K) + 0.5) / K)


def mean_coverage(predictor, n_per_class, seed):
    """The true coverage, averaged over classes, after a calibration with normal scores."""
    labels = np.repeat(np.arange(K), n_per_class)
    scores = MEANS[labels] + np.random.default_rng(seed).normal(size=len(labels))
    return norm.cdf(predictor.fit_scores(scores, labels, K).thresholds_ - MEANS).mean()


def test_holdout_keeps_the_marginal_guarantee():
    """Coverage averaged over calibrations of 300 rows is at least 0.9.

    The mean of 400 is known to within 0.0021 (one standard error); by exchangeability it lies
    between 0.9 and 0.9 + 1/61, so a fall of four standard errors below 0.9, which happens by
    chance in 3 of 100,000 seeds, is a broken guarantee.
    """
    coverage = []
    for seed in range(size(short=100, deep=4000)):
        predictor = PooledPredictor(split="holdout", prior=4, strength=20, random_state=seed)
        coverage.append(mean_coverage(predictor, 5, 1000 + seed))
    error = np.std(coverage, ddof=1) / np.sqrt(len(coverage))
    assert error < 0.05 / np.sqrt(len(coverage))
    assert 0.9 - 4 * error < np.mean(coverage) < 0.9 + 1 / 61 + 4 * error


def test_crossfit_covers_near_the_aim():
    """Over calibrations of 600 rows; the standard error of the mean of 40 is about 0.002."""
    coverage = []
    for seed in range(size(short=20, deep=400)):
        coverage.append(mean_coverage(PooledPredictor(), 10, 2000 + seed))
    assert abs(np.mean(coverage) - 0.9) < 0.01
