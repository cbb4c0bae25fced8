"""Rows that join later: `partial_fit` is `fit` on all rows, for every method and score."""

from itertools import pairwise, product

import numpy as np
import pytest
from depth import IS_DEEP

from evencover import (
    APS,
    PAS,
    RAPS,
    SAPS,
    ClasswisePredictor,
    EvencoverWarning,
    InputError,
    StandardPredictor,
    load,
    save,
)
from evencover.predictors import PREDICTORS, make_predictor, method_names

K, CUT = 6, 250
SCORES = ["softmax", "aps", APS(randomize=False), RAPS(k_reg=1), SAPS(), PAS()]
pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, K, seed=12)


IDS = [f"patient {number}" for number in range(400)]


def made(method, **parameters):
    own = {"gamma": 0.4, "n_clusters": 2} if method == "clustered" else {}
    return make_predictor(method, **own, **parameters)


def assert_same(first, second):
    """Everything that a file holds is the same, bit for bit, but which inputs are known."""
    (about, arrays), (other_about, other_arrays) = first.fit_.to_arrays(), second.fit_.to_arrays()
    del about["fit"]["inputs"], other_about["fit"]["inputs"]
    assert about == other_about
    assert arrays.keys() == other_arrays.keys()
    for name in arrays:
        assert arrays[name].dtype == other_arrays[name].dtype
        np.testing.assert_array_equal(arrays[name], other_arrays[name], err_msg=name)


@pytest.mark.parametrize(
    ("score", "with_ids", "exact"),
    list(product(SCORES, [True, False], [True, False]))
    if IS_DEEP
    else [("aps", False, True), (RAPS(k_reg=1), True, False), (PAS(), True, False)],
    ids=str,
)
@pytest.mark.parametrize("method", method_names())
def test_partial_fit_is_fit_on_all_rows(data, method, score, with_ids, exact):
    rows, labels = data
    exact = exact and "exact" in PREDICTORS[method].supports

    def named(start, stop):
        return {"ids": IDS[start:stop]} if with_ids else {}

    whole = made(method, score=score, exact=exact).fit(rows, labels, **named(0, 400))
    parts = made(method, score=score, exact=exact)
    parts.fit(rows[:CUT], labels[:CUT], **named(0, CUT))
    for start, stop in ((CUT, 300), (300, 301), (301, 400)):
        parts.partial_fit(rows[start:stop], labels[start:stop], **named(start, stop))
    assert_same(whole, parts)
    assert whole.predict_set(rows[:50]) == parts.predict_set(rows[:50])


@pytest.mark.parametrize(
    "method", method_names() if IS_DEEP else ["standard", "clustered", "pooled", "fuzzy", "rc3p"]
)
def test_a_window_is_fit_on_the_newest_rows(data, method):
    rows, labels = data
    ids = {"ids": IDS}
    newest = made(method, score="aps").fit(rows[150:], labels[150:], ids=IDS[150:])
    first = {"ids": IDS[:CUT]}
    by_window = made(method, score="aps").fit(rows[:CUT], labels[:CUT], **first)
    by_window.partial_fit(rows[CUT:], labels[CUT:], ids=IDS[CUT:], window=250)
    assert_same(by_window, newest)
    wide = made(method, score="aps").fit(rows[:CUT], labels[:CUT], **first)
    wide.partial_fit(rows[CUT:], labels[CUT:], ids=IDS[CUT:], window=10_000)
    assert_same(wide, made(method, score="aps").fit(rows, labels, **ids))


def test_places_are_counted_on_after_a_window(data):
    """A third part gets the random numbers that it has in the whole input."""
    rows, labels = data
    parts = StandardPredictor(score="aps").fit(rows[:100], labels[:100])
    parts.partial_fit(rows[100:200], labels[100:200], window=50)
    parts.partial_fit(rows[200:300], labels[200:300])
    whole = StandardPredictor(score="aps").fit(rows[:300], labels[:300])
    np.testing.assert_array_equal(parts.fit_.rows.scores, whole.fit_.rows.scores[150:])
    assert parts.n_calibration_ == 150


def test_scores_given_as_such_can_be_updated(data):
    rows, labels = data
    scores = 1 - rows[np.arange(400), labels]
    parts = ClasswisePredictor().fit_scores(scores[:CUT], labels[:CUT], K)
    parts.partial_fit(rows[CUT:], labels[CUT:])
    assert_same(parts, ClasswisePredictor().fit(rows, labels))


def known(predictor, rows, labels):
    """Whether evaluation reports that rows calibrated."""
    found = predictor.evaluate(rows, labels).data_warnings
    return any("used for calibration" in each for each in found)


@pytest.mark.parametrize("with_ids", [True, False])
def test_every_input_that_calibrated_is_known(data, with_ids, tmp_path):
    """There are 60 rows at first, and two more inputs of 20."""
    rows, labels = data
    edges = [0, 60, 80, 100]
    fitted = StandardPredictor(score="aps")
    for start, stop in pairwise(edges):
        ids = {"ids": IDS[start:stop]} if with_ids else {}
        learn = fitted.partial_fit if start else fitted.fit
        learn(rows[start:stop], labels[start:stop], **ids)
    save(fitted, tmp_path / "model.safetensors")
    for predictor in (fitted, load(tmp_path / "model.safetensors")):
        for start, stop in [*pairwise(edges), (0, 80), (0, 100)]:
            assert known(predictor, rows[start:stop], labels[start:stop])
        for start, stop in [(100, 160), (0, 59), (1, 60)]:
            assert not known(predictor, rows[start:stop], labels[start:stop])


def test_rows_that_leave_calibration_are_forgotten(data):
    rows, labels = data
    fitted = StandardPredictor().fit(rows[:60], labels[:60])
    fitted.partial_fit(rows[60:80], labels[60:80], window=70)  # ten of the first stay out
    assert known(fitted, rows[:60], labels[:60])
    fitted.partial_fit(rows[80:100], labels[80:100], window=40)
    assert not known(fitted, rows[:60], labels[:60])
    assert known(fitted, rows[60:80], labels[60:80])
    assert known(fitted, rows[80:100], labels[80:100])


def test_rows_that_depend_on_others_cannot_be_updated(data, tmp_path):
    rows, labels = data
    given = StandardPredictor(score=PAS()).fit_scores(np.linspace(-1, 0, 400), labels, K)
    with pytest.raises(InputError, match="cannot be updated"):
        given.partial_fit(rows, labels)
    save(given, tmp_path / "model.safetensors", force=True)
    with pytest.raises(InputError, match="cannot be updated"):
        load(tmp_path / "model.safetensors").partial_fit(rows, labels)
    assert (given.with_alpha(0.3).thresholds_ < given.thresholds_).all()


def test_rows_with_ids_stay_with_ids(data):
    rows, labels = data
    with_ids = StandardPredictor().fit(rows[:CUT], labels[:CUT], ids=IDS[:CUT])
    with pytest.raises(InputError, match="must have ids"):
        with_ids.partial_fit(rows[CUT:], labels[CUT:])
    with pytest.warns(EvencoverWarning, match="150 of 400 rows have the id of an earlier row"):
        with_ids.partial_fit(rows[CUT:], labels[CUT:], ids=IDS[:150])


def test_ids_are_ignored_where_the_calibration_rows_have_none(data):
    rows, labels = data
    parts = StandardPredictor(score="aps").fit(rows[:CUT], labels[:CUT])
    with pytest.warns(EvencoverWarning, match="ids of .* are ignored"):
        parts.partial_fit(rows[CUT:], labels[CUT:], ids=IDS[CUT:])
    whole = StandardPredictor(score="aps").fit(rows, labels)
    np.testing.assert_array_equal(parts.thresholds_, whole.thresholds_)


def test_a_window_must_keep_rows_and_a_refusal_changes_nothing(data):
    rows, labels = data
    fitted = StandardPredictor().fit(rows[:CUT], labels[:CUT])
    before = fitted.thresholds_.copy()
    with pytest.raises(InputError, match="'window'"):
        fitted.partial_fit(rows[CUT:], labels[CUT:], window=0)
    with pytest.raises(InputError, match="needs labels"):
        fitted.partial_fit(rows[CUT:])
    with pytest.raises(InputError, match="classes of the calibration"):
        fitted.partial_fit(rows[:, :3] / rows[:, :3].sum(axis=1, keepdims=True), labels % 3)
    np.testing.assert_array_equal(fitted.thresholds_, before)
    assert fitted.n_calibration_ == CUT
