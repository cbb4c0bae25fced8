"""`target_prevalence=`: coverage under class frequencies that calibration did not have.

Class y has scores Beta(a_y, 1), so coverage under any frequencies is computed, not estimated. The
mean over calibrations has a standard error of about 0.003 in the short form, so the limit of 0.01
is three of them: false alarms 0.3%.
"""

import numpy as np
import pytest
from depth import size

from evencover import EvencoverWarning, StandardPredictor, estimate_prevalence
from evencover.predictors import make_predictor

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

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


def drawn(rng, centers, frequencies, n_rows, believed):
    """Rows of Gaussian classes, with the probabilities of a model trained at other frequencies."""
    labels = rng.choice(len(centers), n_rows, p=frequencies / frequencies.sum())
    x = centers[labels] + rng.normal(size=(n_rows, centers.shape[1]))
    logits = x @ centers.T - (centers**2).sum(axis=1) / 2 + np.log(believed)
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    return rows / rows.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("believed", [FREQUENT, np.ones(10)], ids=["calibration", "other"])
def test_the_target_can_be_estimated_from_rows_without_labels(believed):
    """Whatever frequencies the model was trained at; the sum of absolute errors is below 0.05.

    With 20,000 rows it is about 0.02, with a standard deviation below 0.01: false alarms 0.3%.
    """
    rng = np.random.default_rng(31)
    centers = 1.2 * rng.normal(size=(10, 8))
    rows, labels = drawn(rng, centers, FREQUENT, 20_000, believed)
    predictor = StandardPredictor().fit(rows, labels)
    new, truth = drawn(rng, centers, FREQUENT[::-1], 20_000, believed)
    found = estimate_prevalence(predictor, new, rows, labels)
    errors = found.prevalence - FREQUENT[::-1] / FREQUENT.sum()
    assert found.is_shift
    assert np.abs(errors).sum() < 0.05
    assert 0.3 < np.sqrt((errors**2).mean() / (found.standard_error**2).mean()) < 3
    assert 1000 < found.effective_rows < 10_000
    fitted = StandardPredictor(target_prevalence=found.prevalence).fit(rows, labels)
    assert abs(fitted.predict_set(new).contains(truth).mean() - 0.9) < 0.01
    assert abs(predictor.predict_set(new).contains(truth).mean() - 0.9) > 0.012


@pytest.mark.parametrize("scale", [0.6, 1.2])
def test_no_shift_is_found_where_there_is_none(scale):
    """The model was trained at other frequencies than those of calibration and new rows."""
    rng = np.random.default_rng(32)
    for _ in range(size(short=3, deep=50)):
        centers, believed = scale * rng.normal(size=(10, 10)), rng.dirichlet(np.full(10, 2.0))
        rows, labels = drawn(rng, centers, FREQUENT, 2000, believed)
        new, _ = drawn(rng, centers, FREQUENT, 2000, believed)
        predictor = StandardPredictor().fit(rows, labels)
        found = estimate_prevalence(predictor, new, rows, labels).prevalence
        assert np.abs(found - FREQUENT / FREQUENT.sum()).sum() / 2 < 0.1


def test_an_estimate_that_is_noise_is_not_used():
    """200 classes that nearly coincide, 600 rows: sets stay those of calibration frequencies."""
    rng = np.random.default_rng(33)
    for _ in range(size(short=3, deep=50)):
        centers, frequencies = 0.15 * rng.normal(size=(200, 10)), rng.dirichlet(np.full(200, 2.0))
        shifted = frequencies * np.exp(2 * rng.normal(size=200))
        rows, labels = drawn(rng, centers, frequencies, 600, frequencies)
        new, _ = drawn(rng, centers, shifted, 600, frequencies)
        predictor = StandardPredictor().fit(rows, labels)
        with pytest.warns(EvencoverWarning, match="sampling noise"):
            found = estimate_prevalence(predictor, new, rows, labels)
        assert not found.is_shift
        np.testing.assert_array_equal(found.prevalence, predictor.class_counts_ / 600)
        assert found.effective_rows == pytest.approx(600)
        fitted = StandardPredictor(target_prevalence=found.prevalence).fit(rows, labels)
        assert fitted.predict_set(new) == predictor.predict_set(new)
