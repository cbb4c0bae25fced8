"""`confidence=`: how often one calibration covers less than 1 - alpha, against the exact value.

Scores have distributions that we know, so the coverage of a fitted predictor is computed, not
estimated. Of n rows, rank k covers less than 1 - alpha with probability
P(Beta(k, n + 1 - k) < 1 - alpha), exactly. Seeds are fixed. Each comparison with that value fails
for 5% of seeds drawn at random in the deep form (two standard errors of 2000 calibrations), for
0.3% in the short form (three of 300). The share is held against 1 - confidence where the exact
value is three standard errors below it: false alarms 0.1%.
"""

import numpy as np
import pytest
from depth import size
from scipy.stats import beta

from evencover import (
    ClasswisePredictor,
    ClusteredPredictor,
    GroupedPredictor,
    StandardPredictor,
)
from evencover.quantiles import conformal_ranks

N = size(short=150, deep=2000)  # simulated calibrations
ERRORS = size(short=3, deep=2)  # how many standard errors a share may be off
# The rows of each class; the chance of falling short is well below a tenth for all of them.
COUNTS = np.array([30, 47, 100])


def chance_below(n, alpha=0.1, confidence=0.9):
    """That rank k of n distinct scores covers less than 1 - alpha."""
    k = int(conformal_ranks(np.array([n]), alpha, confidence)[0])
    return beta(k, n + 1 - k).cdf(1 - alpha) if k <= n else 0.0


def agrees(is_below, exact, confidence=0.9):
    share, error = np.mean(is_below), np.sqrt(exact * (1 - exact) / len(is_below))
    assert abs(share - exact) <= ERRORS * error
    assert exact <= 1 - confidence
    if exact + 3 * error <= 1 - confidence:
        assert share <= 1 - confidence


@pytest.mark.parametrize(
    ("n", "alpha", "confidence"), [(60, 0.1, 0.9), (400, 0.1, 0.9), (150, 0.2, 0.95)]
)
def test_standard_falls_short_as_rarely_as_was_asked_for(n, alpha, confidence):
    """Uniform scores: a threshold is its own coverage. False alarms: see above."""
    rng = np.random.default_rng([23, n])
    predictor, labels = StandardPredictor(alpha=alpha, confidence=confidence), np.arange(n) % 2
    coverage = np.array(
        [predictor.fit_scores(rng.random(n), labels, 2).thresholds_[0] for _ in range(N)]
    )
    agrees(coverage < 1 - alpha, chance_below(n, alpha, confidence), confidence)
    usual = StandardPredictor(alpha=alpha)  # the check would see a rank on average
    short = [usual.fit_scores(rng.random(n), labels, 2).thresholds_[0] for _ in range(100)]
    assert np.mean(np.array(short) < 1 - alpha) > 2 * (1 - confidence)


@pytest.mark.parametrize("grouped", [False, True])
def test_each_class_or_group_falls_short_as_rarely_as_was_asked_for(grouped):
    """Class y has scores Beta(a_y, 1): coverage is threshold^a_y. Two comparisons."""
    rng = np.random.default_rng(21)
    shape, labels = np.array([0.5, 1.0, 4.0]), np.repeat(np.arange(3), COUNTS)
    coverage = []
    for _ in range(N):
        scores = rng.random(len(labels)) ** (1 / shape[labels])
        method = GroupedPredictor if grouped else ClasswisePredictor
        fitted = method(confidence=0.9).fit_scores(scores, labels, 3)
        coverage.append(fitted.thresholds_**shape)
    for y, n in enumerate(COUNTS):
        agrees(np.array(coverage)[:, y] < 0.9, chance_below(n))


def test_each_cluster_falls_short_as_rarely_as_was_asked_for():
    """The share over all calibrations, against the mean of their exact values.

    Labels are drawn at random, so a cluster's scores are the mixture of its classes'.
    """
    rng = np.random.default_rng(22)
    shape = np.array([0.4, 0.5, 0.6, 0.45, 6.0, 7.0, 8.0, 6.5])
    is_below, exact = [], []
    for repetition in range(size(short=40, deep=2000)):
        labels = rng.integers(0, 8, 480)
        scores = rng.random(480) ** (1 / shape[labels])
        fitted = ClusteredPredictor(
            gamma=0.6, n_clusters=2, confidence=0.9, random_state=repetition
        ).fit_scores(scores, labels, 8)
        for cluster in range(2):
            members = fitted.cluster_of_class_ == cluster
            coverage = (fitted.thresholds_[members] ** shape[members]).mean()
            is_below.append(coverage < 0.9)
            exact.append(chance_below(int(fitted.fit_.groups.scores.counts[cluster])))
    agrees(np.array(is_below), np.mean(exact))
