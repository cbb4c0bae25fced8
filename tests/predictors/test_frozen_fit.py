"""Laws of a fit: nothing outside changes it, and it is replaced whole or not at all."""

import inspect
import itertools
import sys
from copy import deepcopy

import numpy as np
import pytest
from depth import IS_DEEP, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from evencover import PAS, InputError, load, save
from evencover.predictors import make_predictor, method_names
from evencover.predictors.fit import Fit, checksum

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

METHODS = method_names()
N_CLASSES = 6
# Parameters that users hold references to, and another value of every parameter.
BY_CLASS = {
    "standard": {"alpha": {str(y): 0.1 + 0.02 * y for y in range(N_CLASSES)}},
    "classwise": {"alpha": {"0": 0.2, "default": 0.1}},
    "clustered": {"alpha": np.linspace(0.1, 0.3, N_CLASSES), "gamma": 0.4, "n_clusters": 2},
    "pooled": {"alpha": [0.1, 0.2] * 3},
    "grouped": {"groups": list("aabbcc")},
}
OTHER = {
    "alpha": 0.31, "score": "saps", "exact": True, "keep_top": False, "from_logits": True,
    "random_state": 9, "floor": 0.31, "confidence": 0.77,
    "gamma": 0.31, "n_clusters": 3, "groups": [0, 1] * 3,
}  # fmt: skip
once_per_method = settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(300, N_CLASSES, seed=3)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Run every step where it can be interrupted."""
    monkeypatch.setenv("EVENCOVER_THREADS", "1")


def spoil(value):
    """Overwrite what can be overwritten in a value that a user holds."""
    if isinstance(value, np.ndarray) and value.flags["W"]:
        value[...] = value.flat[0] if value.dtype.kind in "UO" else 0
    elif isinstance(value, list):
        value[:] = value[:1] * len(value)
    elif isinstance(value, dict):
        for name in value:
            value[name] = 0.5
    elif isinstance(value, tuple):
        for item in value:
            spoil(item)


def answers(fitted, rows):
    """All that a predictor says and keeps."""
    attributes = [name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")]
    return (
        checksum(*Fit.of(fitted).to_arrays()),
        fitted.predict_set(rows).to_lists(),
        [repr(getattr(fitted, name)) for name in attributes if name != "fit_"],
    )


@pytest.mark.parametrize("method", METHODS)
@once_per_method
@given(
    score=st.sampled_from(["softmax", "raps", "pas"]),
    text_ids=st.booleans(),
    of_scores=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_nothing_that_users_hold_changes_a_fit(data, method, score, text_ids, of_scores, dtype):
    rows, labels = data.rows.astype(dtype), data.labels.copy()
    ids = [f"row {i}" for i in range(len(rows))] if text_ids else np.arange(len(rows)) * 7
    names = [str(y) for y in range(N_CLASSES)]
    prevalence = np.arange(1.0, N_CLASSES + 1)
    parameters = {**BY_CLASS.get(method, {}), "score": PAS(prevalence) if score == "pas" else score}
    parameters = {
        name: value.copy() if isinstance(value, np.ndarray | list | dict) else value
        for name, value in parameters.items()
    }
    predictor = make_predictor(method, **parameters)
    ranks = np.ones(len(rows), dtype=np.int64)
    scores = rows[:, 0].astype(np.float64)
    if of_scores and score == "softmax":
        predictor.fit_scores(scores, labels, N_CLASSES, ids=ids, ranks=ranks, class_names=names)
    else:
        predictor.fit(rows, labels, ids=ids, class_names=names)
    before, before_thresholds = answers(predictor, data.rows), repr(predictor.thresholds_)
    for held in (rows, labels, ids, names, prevalence, scores, ranks):
        assert not isinstance(held, np.ndarray) or held.flags["W"]  # it is the user's
        spoil(held)
    for name in dir(predictor):
        if name.endswith("_") and not name.startswith("_"):
            spoil(getattr(predictor, name))
    spoil(tuple(vars(predictor.fit_).values()))
    spoil(tuple(predictor.get_params(deep=True)))
    assert answers(predictor, data.rows) == before
    for name, value in parameters.items():  # which the predictor holds, too
        whole = deepcopy(value)
        spoil(value)
        if not np.array_equal(value, whole):
            with pytest.raises(InputError, match=f"'{name}' .*'fit' again"):
                predictor.predict_set(data.rows)
            assert repr(predictor.thresholds_) == before_thresholds
        setattr(predictor, name, whole)
    assert answers(predictor, data.rows) == before


class Interruption(BaseException):
    """As Ctrl-C: no code of ours catches it."""


def is_step(frame, event):
    """Whether a function of ours is called; a generator may be closed, where errors are lost."""
    code = frame.f_code
    is_generator = bool(code.co_flags & inspect.CO_GENERATOR)
    return event == "call" and "/evencover/" in code.co_filename and not is_generator


def interrupted(function, step):
    """Raise at the call number `step` of a function of ours; return whether there are as many."""
    calls = itertools.count()

    def raise_at_step(frame, event, argument):
        if is_step(frame, event) and next(calls) == step:
            raise Interruption

    sys.setprofile(raise_at_step)
    try:
        function()
    except Interruption:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize("method", METHODS if IS_DEEP else ["standard", "clustered", "pooled"])
@once_per_method
@given(steps=st.data())
def test_a_fit_is_replaced_whole_or_not_at_all(data, tmp_path, method, steps):
    rows, labels = data
    fitted = make_predictor(method, score="aps", **BY_CLASS.get(method, {}))
    fitted.fit(rows[:150], labels[:150])
    scores, ranks = rows[150:, 0], np.ones(150, dtype=np.int64)
    before, old_fit = answers(fitted, rows), fitted.fit_
    path = tmp_path / "model.safetensors"
    save(fitted, path, force=True)
    for change in (
        lambda: fitted.fit(rows[150:], labels[150:]),
        lambda: fitted.partial_fit(rows[150:], labels[150:]),
        lambda: fitted.fit_scores(scores, labels[150:], N_CLASSES, ranks=ranks),
        lambda: fitted.with_alpha(0.3),
        lambda: load(path),
        lambda: save(fitted, path, force=True),
    ):
        for _ in range(2):  # the first one fills caches
            n_steps = count_steps(change)
            fitted.fit_ = old_fit
        last = n_steps - 1
        step = steps.draw(st.integers(0, last) | st.integers(last - 8, last))
        assert interrupted(change, step)
        assert fitted.fit_ is old_fit
        assert answers(fitted, rows) == before
        assert answers(load(path), rows) == before


def count_steps(function):
    """Count the calls of functions of ours."""
    n_steps = 0

    def count(frame, event, argument):
        nonlocal n_steps
        n_steps += is_step(frame, event)

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return n_steps


@pytest.mark.parametrize("method", METHODS)
def test_a_parameter_changed_after_fit_is_refused_with_the_remedy(data, tmp_path, method):
    fitted = make_predictor(method).fit(*data)
    before = answers(fitted, data.rows)
    for name, value in fitted.get_params().items():
        other = not value if isinstance(value, bool) else OTHER.get(name, 0.31)
        fitted.set_params(**{name: other})
        remedy = "'with_alpha'" if name == "alpha" else "'fit' again"
        for use in (
            lambda: fitted.predict_set(data.rows),
            lambda: fitted.evaluate(*data),
            lambda: save(fitted, tmp_path / "model.safetensors"),
        ):
            with pytest.raises(InputError, match=f"'{name}' .*{remedy}"):
                use()
        fitted.set_params(**{name: value})
    assert not list(tmp_path.iterdir())
    assert answers(fitted, data.rows) == before


@pytest.mark.parametrize("method", METHODS)
def test_a_model_file_has_every_array_once(data, tmp_path, method):
    fitted = make_predictor(method, score="aps", **BY_CLASS.get(method, {})).fit(*data)
    save(fitted, tmp_path / "model.safetensors")
    arrays = load_file(tmp_path / "model.safetensors")
    for (name, first), (other, second) in itertools.combinations(arrays.items(), 2):
        assert not np.array_equal(first, second), (name, other)
