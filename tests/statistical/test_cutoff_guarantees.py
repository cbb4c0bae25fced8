"""Cutoffs from reviewed predictions: precision computed from the law of simulated reviews.

Within a class, scores are quantiles of a known distribution and P(right | class, score) is known,
so what a cutoff keeps has an exact precision. Seeds are fixed.
"""

import numpy as np
import pytest
from depth import size
from scipy.special import expit, ndtri
from scipy.stats import binom

from evencover import InputError
from evencover.predictors.cutoffs import fewest_tested, fit_cutoffs

QUANTILES = ndtri((np.arange(400) + 0.5) / 400)


class Law:
    """Classes with intercepts and slopes of their own; scores are logits beyond [0, 1]."""

    def __init__(self, n_classes, seed, *, clean=0.0):
        rng = np.random.default_rng(seed)
        self.intercepts = rng.normal(1, 1.5, n_classes)
        self.intercepts[rng.random(n_classes) < clean] = 5.0
        self.slopes = np.exp(rng.normal(0.2, 0.4, n_classes))
        self.shifts = rng.normal(0, 0.7, n_classes)

    def scores(self, classes, normal):
        return 3 * (1.2 * normal + self.shifts[classes])

    def chances(self, classes, scores):
        return expit(self.intercepts[classes] + self.slopes[classes] * scores / 3)

    def review(self, n, rng):
        classes = np.repeat(np.arange(len(self.shifts)), n)
        scores = self.scores(classes, rng.normal(size=len(classes)))
        return classes, scores, rng.random(len(classes)) < self.chances(classes, scores)

    def kept(self, cutoffs):
        """Share of each class's predictions that are kept, and their precision."""
        classes = np.arange(len(self.shifts))[:, None]
        scores = self.scores(classes, QUANTILES)
        is_kept = scores >= cutoffs[:, None]
        right = (is_kept * self.chances(classes, scores)).sum(axis=1)
        return is_kept.mean(axis=1), right / np.maximum(1, is_kept.sum(axis=1))


def names_of(classes):
    return [f"{k:05}" for k in classes]


@pytest.mark.parametrize("n", [5, 10, 30])
@pytest.mark.parametrize("n_classes", [5, 60, 2000])
def test_the_mean_precision_of_what_is_kept_reaches_the_accuracy(n_classes, n):
    """Mean over repetitions and classes; the standard error is below .005."""
    rng, found, shares = np.random.default_rng(1), [], []
    for seed in range(max(2, size(short=800, deep=8000) // n_classes)):
        law = Law(n_classes, seed)
        classes, scores, is_right = law.review(n, rng)
        cutoffs = fit_cutoffs(names_of(classes), scores, is_right, accuracy=0.9).cutoffs
        share, precision = law.kept(cutoffs)
        shares.append(share.mean())
        found.append(precision[share > 0])
    assert np.mean(np.concatenate(found)) >= 0.9 - 0.01
    assert np.mean(shares) > 0.2


def test_a_guaranteed_class_reaches_the_accuracy_with_the_stated_confidence():
    """Of the classes that pass, at most 10% fall short. False alarms: 0.1%."""
    rng, passed, failures = np.random.default_rng(2), 0, 0
    for seed in range(size(short=20, deep=400)):
        law = Law(20, seed)
        classes, scores, is_right = law.review(80, rng)
        found = fit_cutoffs(names_of(classes), scores, is_right, accuracy=0.8, random_state=seed)
        precision = law.kept(found.cutoffs)[1]
        passed += found.is_guaranteed.sum()
        failures += (found.is_guaranteed & (precision < 0.8)).sum()
    assert passed > 50
    assert failures <= binom(passed, 0.1).ppf(0.999)


def test_too_few_reviews_guarantee_nothing_and_enough_do():
    fewest = fewest_tested(0.9, 0.9)
    assert 0.9**fewest <= 0.1 < 0.9 ** (fewest - 1)
    for n, expected in ((29, False), (60, True)):
        scores, right = np.linspace(0, 1, 2 * n), np.ones(2 * n, dtype=bool)
        found = fit_cutoffs(["a", "b"] * n, scores, right, accuracy=0.9)
        assert found.is_guaranteed.tolist() == [expected] * 2
        assert found.n_reviewed.tolist() == found.n_right.tolist() == [n, n]


def test_cutoffs_rise_and_fall_with_the_scores():
    """Any rising function of the scores gives the same reviews kept."""
    law, rng = Law(30, 3), np.random.default_rng(3)
    classes, scores, is_right = law.review(10, rng)
    names = names_of(classes)
    first = fit_cutoffs(names, scores, is_right)
    second = fit_cutoffs(names, 1e6 + np.exp(scores), is_right)
    kept = first.is_accepted(names, scores)
    assert np.array_equal(kept, second.is_accepted(names, 1e6 + np.exp(scores)))
    assert 0.2 < kept.mean() < 0.9
    assert not first.is_accepted(["unknown"], [1e9]).any()
    never = np.isinf(first.cutoffs)
    assert np.isnan(first.expected[never]).all()
    low, high = first.interval[~never].T
    assert (first.expected[~never] >= 0.9).all()
    assert ((low <= first.expected[~never]) & (first.expected[~never] <= high + 1e-12)).all()


def test_one_bad_class_does_not_lower_the_others():
    """A clean class keeps all, a class that is always wrong nothing."""
    classes = np.repeat(np.arange(40), 8)
    scores = np.tile(np.linspace(0.1, 0.9, 8), 40)
    found = fit_cutoffs(names_of(classes), scores, classes != 7, accuracy=0.9)
    assert np.isinf(found.cutoffs[7])
    assert (np.delete(found.cutoffs, 7) == 0.1).all()


def test_what_cannot_be_reviews_is_refused():
    with pytest.raises(InputError, match="row 1"):
        fit_cutoffs(["a", "b"], [0.5, np.nan], [True, False])
    with pytest.raises(InputError, match="2, 1 and 2"):
        fit_cutoffs(["a", "b"], [0.5], [True, False])
    with pytest.raises(InputError, match="accuracy"):
        fit_cutoffs(["a"], [0.5], [True], accuracy=1.5)
