"""Cutoffs from reviewed predictions: precision computed from the law of simulated reviews.

Within a class, scores are quantiles of a known distribution and P(right | class, score) is known,
so what a cutoff keeps has an exact precision. Seeds are fixed.
"""

import numpy as np
import pytest
from depth import size
from scipy.special import expit, ndtri
from scipy.stats import binom

from evencover import fit_cutoffs

QUANTILES = ndtri((np.arange(400) + 0.5) / 400)


KINDS = ("normal", "clean", "hard", "two", "steep", "scales", "ties", "uneven")


class Law:
    """Classes with intercepts and slopes of their own; scores are logits beyond [0, 1]."""

    def __init__(self, n_classes, seed, kind="normal"):
        rng = np.random.default_rng(seed)
        self.kind = kind
        self.intercepts = rng.normal(-1 if kind == "hard" else 1, 1.5, n_classes)
        if kind == "clean":  # half of the classes are nearly always right
            self.intercepts[rng.random(n_classes) < 0.5] = 5.0
        if kind == "two":
            self.intercepts = np.where(rng.random(n_classes) < 0.7, 4.0, -1.0)
        self.slopes = np.exp(rng.normal(1.2 if kind == "steep" else 0.2, 0.4, n_classes))
        self.shifts = rng.normal(0, 2 if kind == "scales" else 0.7, n_classes)

    def scores(self, classes, normal):
        logits = 3 * (1.2 * normal + self.shifts[classes])
        return np.minimum(logits, 2) if self.kind == "ties" else logits

    def chances(self, classes, normal):
        x = 1.2 * normal + self.shifts[classes]
        return expit(self.intercepts[classes] + self.slopes[classes] * x)

    def review(self, n, rng):
        """Review n predictions of each class, or n on average if classes are uneven."""
        n_classes = len(self.shifts)
        each = rng.geometric(1 / n, n_classes) if self.kind == "uneven" else n
        classes = np.repeat(np.arange(n_classes), each)
        normal = rng.normal(size=len(classes))
        is_right = rng.random(len(classes)) < self.chances(classes, normal)
        return classes, self.scores(classes, normal), is_right

    def kept(self, cutoffs):
        """Share of each class's predictions that are kept, and their precision."""
        classes = np.arange(len(self.shifts))[:, None]
        is_kept = self.scores(classes, QUANTILES) >= cutoffs[:, None]
        right = (is_kept * self.chances(classes, QUANTILES)).sum(axis=1)
        return is_kept.mean(axis=1), right / np.maximum(1, is_kept.sum(axis=1))


def names_of(classes):
    return [f"{k:05}" for k in classes]


@pytest.mark.parametrize("n", [5, 10, 30])
@pytest.mark.parametrize("n_classes", [5, 60, 2000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_precision_of_what_is_kept_reaches_the_accuracy(kind, n_classes, n):
    """Mean over repetitions and classes; false alarms: 0.1%.

    Limits of the precision from a class's own reviews hold in 90% of the classes or more.
    """
    rng, found, shares, inside = np.random.default_rng(1), [], [], []
    for seed in range(max(size(1, 4), size(short=800, deep=3000) // n_classes)):
        law = Law(n_classes, seed, kind)
        classes, scores, is_right = law.review(n, rng)
        cutoffs = fit_cutoffs(names_of(classes), scores, is_right, accuracy=0.9)
        share, precision = law.kept(cutoffs.cutoffs)
        low, high = cutoffs.interval.T
        shares.append(share.mean())
        inside += ((low <= precision) & (precision <= high))[share > 0].tolist()
        found.append(precision[share > 0])
    means = np.array([each.mean() for each in found if len(each)])
    found = np.concatenate(found)
    # Classes of one repetition share a curve. Few classes are kept by other laws than the first.
    error = max(found.std() / np.sqrt(len(found)), means.std() / np.sqrt(len(means)))
    assert found.mean() >= 0.9 - 0.01 - (0 if kind == "normal" else 3 * error)
    assert error < 0.02
    assert np.mean(inside) >= 0.9
    assert np.mean(shares) > (0.02 if kind == "hard" else 0.2)


@pytest.mark.parametrize("n", [5, 10])
def test_few_classes_that_are_seldom_right_reach_the_accuracy(n):
    """Few reviews say little of the curve where it matters, so its error must be allowed for.

    The most likely curve alone gave a mean precision of 0.883.
    """
    rng, found = np.random.default_rng(7), []
    for seed in range(size(short=150, deep=600)):
        law = Law(20, 100 + seed, "hard")
        classes, scores, is_right = law.review(n, rng)
        cutoffs = fit_cutoffs(names_of(classes), scores, is_right, accuracy=0.9).cutoffs
        share, precision = law.kept(cutoffs)
        found += precision[share > 0].tolist()
    assert len(found) > 200
    assert np.mean(found) >= 0.9 - 0.01


@pytest.mark.parametrize("kind", ["normal", "scales", "ties"])
def test_a_class_that_falls_short_is_seldom_guaranteed(kind):
    """Of the classes that pass, at most 10% fall short. False alarms: 0.1%."""
    rng, n_wrong, n_passed = np.random.default_rng(2), 0, 0
    for seed in range(size(short=20, deep=400)):
        law = Law(20, seed, kind)
        classes, scores, is_right = law.review(80, rng)
        found = fit_cutoffs(names_of(classes), scores, is_right, accuracy=0.8, random_state=seed)
        precision = law.kept(found.cutoffs)[1]
        n_passed += found.is_guaranteed.sum()
        n_wrong += (found.is_guaranteed & (precision < 0.8)).sum()
    assert n_passed > 50
    assert n_wrong <= binom(n_passed, 0.1).ppf(0.999)


def test_a_bad_class_passes_its_test_once_in_ten():
    """One class in forty falls just short at any cutoff. False alarms: 0.1%.

    The other classes are good, so it is usually kept. With 34 reviews, 25 of them for the test, a
    class that is right just often enough passes in 9.8% of the cases.
    """
    rng, n_bad, n_passed = np.random.default_rng(4), 0, 0
    for seed in range(size(short=6, deep=100)):
        classes = np.repeat(np.arange(2000), 34)
        is_right = rng.random(len(classes)) < np.where(classes % 40, 0.97, 0.799)
        scores = rng.normal(size=len(classes))
        found = fit_cutoffs(names_of(classes), scores, is_right, accuracy=0.8, random_state=seed)
        n_bad += len(found.cutoffs[::40])
        n_passed += found.is_guaranteed[::40].sum()
    assert 0.05 * n_bad < n_passed <= binom(n_bad, 0.1).ppf(0.999)
