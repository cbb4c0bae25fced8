"""Accuracy among accepted predictions, computed from the law of simulated predictions.

The accuracy of a fitted rule is an integral over the known distribution of probabilities, not an
estimate from test rows. Seeds are fixed.
"""

import numpy as np
import pytest
from depth import size
from scipy.special import expit
from scipy.stats import binom

from evencover.predictors import acceptance
from evencover.predictors.acceptance import Predictions, fit_acceptance

GRID = (np.arange(1000) + 0.5) / 1000  # quantiles of the scores 1 - p within a class


class Law:
    """Predictions of K classes: scores 1 - p = U^3, and P(right) from score and class.

    With `confused`, class 0 is predicted with p near 1 and nearly always wrong, as a model does
    that has never seen another class. Others differ by random intercepts, which the model knows;
    the shape of P(right), a sigmoid of p itself, it does not know.
    """

    def __init__(self, n_classes, *, confused):
        rng = np.random.default_rng(n_classes)
        self.weights = rng.dirichlet(np.ones(n_classes))
        self.intercepts = rng.normal(0, 1, n_classes)
        self.confused = confused

    def scores(self, classes, u):
        return np.where(self.is_confused(classes), 1e-4 * u, u**3)

    def chance(self, classes, scores):
        usual = expit(4.5 - 6 * scores + self.intercepts[classes])
        return np.where(self.is_confused(classes), 0.02, usual)

    def is_confused(self, classes):
        return self.confused & (classes == 0)

    def draw(self, n_rows, rng):
        classes = rng.choice(len(self.weights), n_rows, p=self.weights)
        scores = self.scores(classes, rng.random(n_rows))
        return Predictions(scores, classes, rng.random(n_rows) < self.chance(classes, scores))

    def accuracies(self, rule):
        """Share of predictions that each class has accepted, and their accuracy."""
        classes = np.arange(len(self.weights))[:, None]
        scores = self.scores(classes, GRID)
        is_accepted = rule.is_accepted(np.broadcast_to(classes, scores.shape), scores)
        right = (is_accepted * self.chance(classes, scores)).mean(axis=1)
        return self.weights * is_accepted.mean(axis=1), self.weights * right


@pytest.fixture(params=[False, True], ids=["as it is", "untested"])
def untested(request, monkeypatch):
    """With every proposal taken as it is, the confidence must be missed."""
    if request.param:
        monkeypatch.setattr(acceptance, "_passes", lambda n_tested, *rest: n_tested > 0)
    return request.param


@pytest.mark.parametrize("confused", [False, True], ids=["", "confused"])
@pytest.mark.parametrize(
    ("n_classes", "accuracy"), [(5, 0.9), (5, 0.95), (60, 0.9), (60, 0.95), (500, 0.9)]
)
def test_the_accuracy_is_reached_with_the_stated_confidence(n_classes, accuracy, confused):
    """Failures: at most 10% plus noise. False alarms: 0.1% each."""
    law, rng, failures, shares = Law(n_classes, confused=confused), np.random.default_rng(1), 0, []
    n_rows, repetitions = 1500, size(short=15, deep=1000)
    for repetition in range(repetitions):
        found = law.draw(n_rows, rng)
        ids = np.arange(n_rows, dtype=np.uint64)
        rule = fit_acceptance(found, n_classes, ids, accuracy=accuracy, random_state=repetition)
        accepted, right = law.accuracies(rule)
        shares.append(accepted.sum())
        failures += right.sum() < accuracy * accepted.sum()
    assert failures <= binom(repetitions, 0.1).ppf(0.999)
    assert np.mean(shares) > 0.05  # a rule that accepts nothing would pass the first line


def test_the_test_of_the_second_half_is_needed(untested):
    law, rng, failures, n_rows = Law(60, confused=True), np.random.default_rng(2), 0, 300
    repetitions = size(short=60, deep=100)
    for repetition in range(repetitions):
        found, ids = law.draw(n_rows, rng), np.arange(n_rows, dtype=np.uint64)
        rule = fit_acceptance(found, 60, ids, accuracy=0.95, random_state=repetition)
        accepted, right = law.accuracies(rule)
        failures += right.sum() < 0.95 * accepted.sum()
    assert (failures > binom(repetitions, 0.1).ppf(0.999)) == untested


def test_a_class_that_passes_is_guaranteed():
    """Of the classes that pass, at most 10% fall short. False alarms: 0.1%."""
    law, rng, passed, failures = Law(5, confused=True), np.random.default_rng(3), 0, 0
    for repetition in range(size(short=15, deep=1000)):
        found, ids = law.draw(4000, rng), np.arange(4000, dtype=np.uint64)
        rule = fit_acceptance(found, 5, ids, accuracy=0.9, random_state=repetition)
        accepted, right = law.accuracies(rule)
        passed += rule.is_guaranteed.sum()
        failures += (rule.is_guaranteed & (right < 0.9 * accepted)).sum()
        assert not rule.is_guaranteed[0]
    assert passed > 10
    assert failures <= binom(passed, 0.1).ppf(0.999)


def test_the_model_finds_the_line_and_the_intercepts():
    """Compare with the true probabilities of right predictions, where there are many rows."""
    law, rng = Law(20, confused=False), np.random.default_rng(4)
    found = law.draw(60_000, rng)
    model = acceptance.RightModel(found, 20)
    cells = found.classes * len(model.limits) + model.bins
    truth = law.chance(found.classes, found.scores)
    n = np.bincount(cells, minlength=model.probabilities.size)
    mean = np.bincount(cells, truth, model.probabilities.size) / np.maximum(n, 1)
    error = np.abs(model.probabilities.ravel() - mean)[n > 0]
    assert np.average(error, weights=n[n > 0]) < 0.03
