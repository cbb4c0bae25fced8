"""A group label per row: every row is judged by its own group's calibration rows."""

import numpy as np
import pytest

import evencover.data.source as source_module
from evencover import (
    PAS,
    ClasswisePredictor,
    InputError,
    RowGroupedPredictor,
    Softmax,
    StandardPredictor,
    evaluate,
    load,
    save,
)
from evencover.predictors import make_predictor

SITES = np.array(["north", "south", "west"])


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, 6, seed=8)


@pytest.fixture(scope="module")
def sites():
    return SITES[np.random.default_rng(0).choice(3, 400, p=[0.6, 0.3, 0.1])]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("score", ["softmax", "aps", PAS([1, 2, 3, 4, 5, 6])], ids=str)
def test_every_group_alone_is_standard_on_its_own_rows(data, sites, score, exact):
    how = {"score": score, "exact": exact, "random_state": 3}
    ids = np.arange(400) + 7
    fitted = RowGroupedPredictor(**how).fit(*data, groups=sites, ids=ids)
    sets = fitted.predict_set(data.rows, groups=sites, ids=ids)
    p = fitted.predict_p(data.rows, groups=sites, ids=ids)
    for place, site in enumerate(SITES):
        own = np.flatnonzero(sites == site)
        alone = StandardPredictor(**how).fit(data.rows[own], data.labels[own], ids=ids[own])
        assert (alone.thresholds_ == fitted.thresholds_[place]).all()
        assert sets[own] == alone.predict_set(data.rows[own], ids=ids[own])
        assert (p[own] == alone.predict_p(data.rows[own], ids=ids[own])).all()


@pytest.mark.parametrize("method", ["standard", "classwise", "clustered", "pooled", "macro"])
@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_any_method_over_groups_sees_groups_for_classes(data, sites, method):
    fitted = RowGroupedPredictor(over_groups=method).fit(*data, groups=sites)
    index = np.searchsorted(SITES, sites)
    other = make_predictor(method).fit_scores(Softmax().true_label(*data), index, 3)
    assert fitted.thresholds_.tolist() == other.thresholds_.tolist()


def test_one_group_is_standard_and_classes_as_groups_have_classwise_thresholds(data):
    one = RowGroupedPredictor().fit(*data, groups=[0] * 400)
    standard = StandardPredictor().fit(*data)
    assert one.predict_set(data.rows, groups=[0] * 400) == standard.predict_set(data.rows)
    by_label = RowGroupedPredictor().fit(*data, groups=data.labels)
    classwise = ClasswisePredictor().fit(*data)
    assert by_label.thresholds_.tolist() == classwise.thresholds_.tolist()


def test_blocks_do_not_matter(data, sites, monkeypatch):
    fitted = RowGroupedPredictor(score="aps", exact=True).fit(*data, groups=sites)
    sets = fitted.predict_set(data.rows, groups=sites)
    p = fitted.predict_p(data.rows, groups=sites)
    monkeypatch.setattr(source_module, "BLOCK_ELEMENTS", 6 * 7)
    again = RowGroupedPredictor(score="aps", exact=True).fit(*data, groups=sites)
    assert again.thresholds_.tolist() == fitted.thresholds_.tolist()
    assert again.predict_set(data.rows, groups=sites) == sets
    assert (again.predict_p(data.rows, groups=sites) == p).all()


def test_evaluation_is_that_of_the_sets(data, sites):
    fitted = RowGroupedPredictor().fit(data.rows[:300], data.labels[:300], groups=sites[:300])
    test, known, where = data.rows[300:], data.labels[300:], sites[300:]
    report = fitted.evaluate(test, known, groups=where)
    sets = fitted.predict_set(test, groups=where)
    expected = evaluate(sets, known, calibration_counts=fitted.class_counts_)
    assert report.to_dict() == expected.to_dict()
    assert report.worst_classes(1)[0].threshold is None


@pytest.mark.parametrize("over", ["classwise", "pooled"])
def test_a_loaded_predictor_answers_as_the_saved_one(data, sites, tmp_path, over):
    fitted = RowGroupedPredictor(over_groups=over, score="aps").fit(*data, groups=sites)
    save(fitted, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.group_names_ == list(SITES)
    sets = fitted.predict_set(data.rows, groups=sites)
    assert loaded.predict_set(data.rows, groups=sites) == sets
    p = fitted.predict_p(data.rows, groups=sites)
    assert (loaded.predict_p(data.rows, groups=sites) == p).all()


def test_groups_are_needed_known_and_one_per_row(data, sites):
    fitted = RowGroupedPredictor().fit(*data, groups=sites)
    for groups in (None, sites[:-1]):
        with pytest.raises(InputError, match="'groups'"):
            RowGroupedPredictor().fit(*data, groups=groups)
    for groups in (["east"] * 400, sites[:3], None):
        for call in (fitted.predict_set, fitted.predict_p):
            with pytest.raises(InputError, match="'groups'"):
                call(data.rows, groups=groups)
    with pytest.raises(InputError, match="'groups'"):
        fitted.evaluate(*data)
    with pytest.raises(InputError, match="not calibrated yet"):
        RowGroupedPredictor().predict_set(data.rows, groups=sites)
