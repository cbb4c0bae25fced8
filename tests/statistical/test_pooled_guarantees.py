"""POOLED covers 1 - alpha of new rows, with continuous scores, ties and copies.

Scores are drawn from laws that we know, so the coverage of a fitted predictor is computed, not
estimated: only calibrations are repeated.
"""

import numpy as np
import pytest
from depth import size
from scipy.stats import binom, norm

from evencover import (
    ClasswisePredictor,
    ClusteredPredictor,
    GroupedPredictor,
    PooledPredictor,
    StandardPredictor,
)

K = 60
MEANS = norm.ppf((np.arange(K) + 0.5) / K)
REPETITIONS = size(short=60, deep=400)

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def chance_inside(fitted, scores, classes):
    """Compute the probability that a score is within its class's threshold."""
    within = (scores <= fitted.thresholds_[classes]).astype(float)
    if fitted.limits_.lower is None:
        return within
    chance = fitted.limits_.upper_probability[classes]
    return chance * within + (1 - chance) * (scores <= fitted.limits_.lower[classes])


def mean_and_error(coverage):
    return np.mean(coverage), np.std(coverage, ddof=1) / np.sqrt(len(coverage))


def continuous(predictor, n_per_class, seed, copies=1):
    """True coverage averaged over classes, after a calibration with normal scores."""
    labels = np.repeat(np.arange(K), n_per_class)
    scores = MEANS[labels] + np.random.default_rng(seed).normal(size=len(labels))
    fitted = predictor.fit_scores(np.tile(scores, copies), np.tile(labels, copies), K)
    return norm.cdf(fitted.thresholds_ - MEANS).mean()


def tied(predictor, n_per_class, n_values, seed):
    """The same with scores of few distinct values: shares of votes against the true class."""
    rng = np.random.default_rng(seed)
    against = 0.15 + 0.5 * np.arange(K) / K  # how often a vote is for another class
    labels = np.repeat(np.arange(K), n_per_class)
    scores = rng.binomial(n_values - 1, against[labels]) / (n_values - 1)
    fitted = predictor.fit_scores(scores, labels, K)
    new, classes = np.meshgrid(np.arange(n_values), np.arange(K))
    law = binom.pmf(new, n_values - 1, against[:, None])
    return (law * chance_inside(fitted, new / (n_values - 1), classes)).sum(axis=1).mean()


def test_holdout_keeps_the_marginal_guarantee():
    """By exchangeability the mean coverage lies between 0.9 and 0.9 + 1/61."""
    coverage = [
        continuous(PooledPredictor(split="holdout", strength=20, random_state=seed), 5, 1000 + seed)
        for seed in range(size(short=100, deep=4000))
    ]
    mean, error = mean_and_error(coverage)
    assert 0.9 - 4 * error < mean < 0.9 + 1 / 61 + 4 * error


@pytest.mark.parametrize("n_per_class", [1, 2, 3])
@pytest.mark.parametrize("split", ["crossfit", "holdout"])
def test_few_examples_of_every_class_suffice(split, n_per_class):
    """Variance within and between classes cannot be told apart with one example of each."""
    coverage = [
        continuous(PooledPredictor(split=split, random_state=seed), n_per_class, 4000 + seed)
        for seed in range(REPETITIONS)
    ]
    assert 0.885 < np.mean(coverage) < 0.95


@pytest.mark.parametrize("split", ["crossfit", "holdout"])
@pytest.mark.parametrize("copies", [1, 2, 5])
def test_copies_do_no_harm(split, copies):
    """Of 360 rows, each once, twice or five times; at least 0.895 in the deep form."""
    coverage = [
        continuous(PooledPredictor(split=split, random_state=seed), 6, 2000 + seed, copies)
        for seed in range(REPETITIONS)
    ]
    mean, error = mean_and_error(coverage)
    assert max(0.895, 0.9 - 3 * error) - size(short=3, deep=0) * error < mean < 0.93


@pytest.mark.parametrize("split", ["crossfit", "holdout"])
@pytest.mark.parametrize("n_values", [3, 5, 10])
def test_ties_do_no_harm(split, n_values):
    coverage = [
        tied(PooledPredictor(split=split, random_state=seed), 5, n_values, 3000 + seed)
        for seed in range(REPETITIONS)
    ]
    mean, error = mean_and_error(coverage)
    assert max(0.895, 0.9 - 3 * error) - size(short=3, deep=0) * error < mean < 0.93


EXACT = {
    "standard": StandardPredictor(exact=True),
    "classwise": ClasswisePredictor(exact=True),
    "clustered": ClusteredPredictor(exact=True, n_clusters=3, gamma=0.4),
    "grouped": GroupedPredictor(exact=True, groups=np.arange(K) // 6),
    "pooled": PooledPredictor(exact=True, split="holdout"),
}


@pytest.mark.parametrize("n_values", [3, 5, 10])
@pytest.mark.parametrize("method", EXACT)
def test_exact_coverage_is_exact_with_ties(method, n_values):
    """Within 3 standard errors of 0.9."""
    coverage = [
        tied(EXACT[method].with_params(random_state=seed), 12, n_values, 4000 + seed)
        for seed in range(REPETITIONS)
    ]
    mean, error = mean_and_error(coverage)
    assert abs(mean - 0.9) < 3 * error


def test_without_randomization_ties_make_sets_larger():
    """The law above would notice: STANDARD without exact=True covers more than 0.9."""
    coverage = [
        tied(StandardPredictor(random_state=seed), 12, 5, 4000 + seed)
        for seed in range(REPETITIONS)
    ]
    mean, error = mean_and_error(coverage)
    assert mean > 0.9 + 5 * error
