"""One rule says who is in a set, wherever sets, sizes or coverage are asked for."""

import pickle

import numpy as np
import pytest

from evencover import RowGroupedPredictor, predict_to_folder, write_report
from evencover.data import as_source
from evencover.predictors import make_predictor, method_names


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(500, 7, seed=2)


def block_of(rows, labels=None):
    return next(as_source(rows, labels).blocks())


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("score", ["softmax", "aps", "pas"])
@pytest.mark.parametrize("method", method_names())
def test_the_rule_gives_the_predictors_sets_sizes_and_coverage(data, method, score):
    rows, labels = data
    fitted = make_predictor(method, score=score).fit(rows[:300], labels[:300])
    rule = pickle.loads(pickle.dumps(fitted.rule()))
    block = block_of(rows[300:], labels[300:])
    sets = fitted.predict_set(rows[300:])
    assert rule.sets(block) == sets
    sizes, covered, top = rule.coverage(block)
    np.testing.assert_array_equal(sizes, sets.sizes)
    np.testing.assert_array_equal(covered, sets.contains(labels[300:]))
    np.testing.assert_array_equal(top, rows[300:].argmax(axis=1))


def test_a_rule_is_frozen(data):
    rule = make_predictor("standard").fit(*data).rule()
    with pytest.raises(AttributeError):
        rule.exact = True


# The defects of 0.1.0 that a reader found ---------------------------------------------------------


@pytest.fixture
def by_site(data):
    sites = np.array(["north", "south"])[np.arange(500) % 2]
    return RowGroupedPredictor(score="aps").fit(*data, groups=sites), sites


@pytest.mark.filterwarnings("ignore:About .* copies of calibration rows")
def test_groups_of_rows_have_a_report_and_folders(by_site, data, tmp_path):
    fitted, sites = by_site
    rows, labels = data.rows[:-1], data.labels[:-1]
    page = write_report(fitted, tmp_path / "page.html", rows, labels, groups=sites[:-1])
    assert "the threshold of the row&#39;s group" in page.read_text() or (
        "threshold of the row's group" in page.read_text()
    )
    found = predict_to_folder(fitted, rows, tmp_path / "sets", groups=sites[:-1], ending=".npz")
    assert found.n_rows == 499
    with np.load(tmp_path / "sets" / "part-00000.npz") as stored:
        sets = fitted.predict_set(rows, groups=sites[:-1])
        np.testing.assert_array_equal(stored["indices"], sets.indices)


def test_predicting_leaves_the_callers_source_alone(data):
    fitted = make_predictor("standard").fit(*data, class_names=list("abcdefg"))
    source = as_source(data.rows)
    assert fitted.predict_set(source).class_names == list("abcdefg")
    assert source.class_names is None


def test_the_page_says_aim_where_no_class_has_a_guarantee(data, tmp_path):
    fitted = make_predictor("standard").fit(data.rows[:300], data.labels[:300])
    page = write_report(fitted, tmp_path / "p.html", data.rows[300:], data.labels[300:]).read_text()
    assert "The aim: the true class is in the set" in page
    assert "no single class is promised" in page
    assert "The promise: the true class" not in page


def test_a_grouped_model_is_restored_not_made_by_a_check(data, tmp_path, monkeypatch):
    from evencover import load, save
    from evencover.predictors.grouped import GroupedPredictor

    fitted = GroupedPredictor(groups=list("xxyyzzz")).fit(*data)
    save(fitted, tmp_path / "m.safetensors")
    monkeypatch.setattr(GroupedPredictor, "_check_state", lambda self: None)
    loaded = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict_p(data.rows), fitted.predict_p(data.rows))
