"""`target_prevalence=`: coverage under class frequencies that calibration did not have.

Class y has scores Beta(a_y, 1), so coverage under any frequencies is computed, not estimated. The
mean over calibrations has a standard error of about 0.003 in the short form, so the limit of 0.01
is three of them: false alarms 0.3%.
"""

import numpy as np
import pytest
from depth import size

from evencover import StandardPredictor, estimate_prevalence
from evencover.predictors import make_predictor

pytestmark = pytest.mark.filterwarnings("ignore:.*examples for clustering")

# Easy classes are ten times as frequent in calibration as hard ones; then it is the other way.
SHAPE = np.array([0.3, 0.35, 0.4, 0.45, 0.5, 5.0, 5.5, 6.0, 6.5, 7.0])
FREQUENT = np.repeat([10.0, 1.0], 5)
OWN = {"clustered": {"gamma": 0.5, "n_clusters": 2}}


def mean_coverage(method, target, **parameters):
    """Over calibrations, of rows with the target frequencies."""
    rng = np.random.default_rng(30)
    share, coverage = target / target.sum(), []
    for repetition in range(size(short=16, deep=300)):
        labels = rng.choice(10, 6000, p=FREQUENT / FREQUENT.sum())
        scores = rng.random(6000) ** (1 / SHAPE[labels])
        predictor = make_predictor(method, random_state=repetition, **OWN.get(method, {}))
        predictor.set_params(**parameters).fit_scores(scores, labels, 10)
        coverage.append(share @ np.minimum(predictor.thresholds_, 1) ** SHAPE)
    return np.mean(coverage)


@pytest.mark.parametrize("method", ["standard", "clustered", "pooled"])
@pytest.mark.parametrize("target", [FREQUENT[::-1], np.ones(10)], ids=["reversed", "uniform"])
def test_coverage_is_that_of_the_target(method, target):
    """Within 0.01 of 0.9, where STANDARD without it is off by more than 0.03."""
    given = "uniform" if (target == 1).all() else target
    assert abs(mean_coverage(method, target, target_prevalence=given) - 0.9) < 0.01
    assert abs(mean_coverage("standard", target) - 0.9) > 0.03


def test_the_target_can_be_estimated_from_rows_without_labels():
    """A model whose probabilities are right; the sum of absolute errors is below 0.05.

    With 20,000 rows it is about 0.02, with a standard deviation below 0.01: false alarms 0.3%.
    """
    rng = np.random.default_rng(31)
    centres = 1.2 * rng.normal(size=(10, 8))

    def draw(n, frequencies):
        labels = rng.choice(10, n, p=frequencies / frequencies.sum())
        x = centres[labels] + rng.normal(size=(n, 8))
        logits = x @ centres.T - (centres**2).sum(axis=1) / 2 + np.log(FREQUENT)
        rows = np.exp(logits - logits.max(axis=1, keepdims=True))
        return rows / rows.sum(axis=1, keepdims=True), labels

    rows, labels = draw(20_000, FREQUENT)
    predictor = StandardPredictor().fit(rows, labels)
    new, truth = draw(20_000, FREQUENT[::-1])
    target = estimate_prevalence(predictor, new)
    assert np.abs(target - FREQUENT[::-1] / FREQUENT.sum()).sum() < 0.05
    fitted = StandardPredictor(target_prevalence=target).fit(rows, labels)
    assert abs(fitted.predict_set(new).contains(truth).mean() - 0.9) < 0.01
    assert abs(predictor.predict_set(new).contains(truth).mean() - 0.9) > 0.03
