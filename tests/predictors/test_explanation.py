"""A predictor explains a class: where its threshold comes from, who has a say, what would help."""

import numpy as np
import pytest

from evencover.predictors import make_predictor, method_names


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(900, 8, seed=6, long_tail=True)


def explained(data, method, class_index, **parameters):
    fitted = make_predictor(method, **parameters).fit(data.rows[:600], data.labels[:600])
    report = fitted.evaluate(data.rows[600:], data.labels[600:])
    return fitted, fitted.explain(report, class_index)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("method", method_names())
def test_every_method_explains_every_class(data, method):
    for class_index in (0, 7):
        fitted, found = explained(data, method, class_index)
        assert found.name == str(class_index)
        assert found.threshold == fitted.thresholds_[class_index]
        assert not found.weights or sum(found.weights.values()) == pytest.approx(1)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_the_group_behind_a_threshold_is_named(data):
    fitted, found = explained(data, "classwise", 0)
    n_rows = fitted.class_counts_[0]
    assert f"{n_rows} calibration scores of this class" in found.origin
    _, found = explained(data, "standard", 0)
    assert "600 calibration scores of all classes" in found.origin
    fitted, found = explained(data, "clustered", 0, gamma=0.5, n_clusters=2)
    cluster = fitted.cluster_of_class_[0]
    n_others = (fitted.cluster_of_class_ == cluster).sum() - 1
    assert f"shared with {n_others} other" in found.origin


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_a_threshold_of_zero_is_zero(data):
    fitted = make_predictor("standard").fit_scores(np.zeros(20), np.arange(20) % 8, 8)
    report = fitted.evaluate(data.rows[1:], data.labels[1:])
    assert fitted.explain(report, 3).threshold == 0
