"""save and load: what was written comes back the same; damaged and altered models are rejected."""

import json
import os
import pickle
import random
import re
import sys
import warnings
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from operator import setitem

import numpy as np
import oracle
import pytest
from depth import IS_DEEP, size
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.naive_bayes import GaussianNB

from evencover import (
    APS,
    PAS,
    RAPS,
    SAPS,
    ConformalClassifier,
    EvencoverWarning,
    InputError,
    Softmax,
    load,
    save,
)
from evencover.persistence import FORMAT
from evencover.predictors import PREDICTORS, make_predictor, method_names
from evencover.predictors.fit import checksum

# What is compared here is two predictors, on the rows at hand.
pytestmark = pytest.mark.filterwarnings("ignore:About .* copies of calibration rows")


METHODS = method_names()
# One without a state, two with one, one with ranks and one with the values of labels.
DAMAGED = METHODS if IS_DEEP else ["standard", "clustered", "fuzzy", "rc3p", "pooled"]
NAMES = ["Ελληνικά", "日本語", "español", "naïve 🐟", 'quote " and \\', "two w", "é\u0301", "plain"]


def fitted(data, method="clustered", **parameters):
    if method == "clustered":
        parameters = {"gamma": 0.4, "n_clusters": 2} | parameters
    parameters["exact"] = parameters.get("exact", False) and "exact" in PREDICTORS[method].supports
    return make_predictor(method, **parameters).fit(*data, class_names=np.array(NAMES))


def contents(path):
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return arrays, json.loads(file.metadata()["evencover"])


def tamper(path, change):
    """Change the arrays or the metadata of a model, and write it as a valid safetensors file."""
    arrays, about = contents(path)
    change(arrays, about)
    about.pop("checksum", None)  # whoever means to deceive makes a new one
    about["checksum"] = checksum(about, arrays)
    save_file(arrays, path, {"evencover": json.dumps(about)})


def assert_refused(path, words="damaged"):
    with pytest.raises(InputError, match=f"Cannot read '{re.escape(str(path))}'.*{words}"):
        load(path)


def assert_same(first, second, data):
    np.testing.assert_array_equal(first.thresholds_, second.thresholds_)
    assert first.predict_set(data.rows) == second.predict_set(data.rows)
    np.testing.assert_array_equal(
        oracle.p_values_of(first, data.rows), oracle.p_values_of(second, data.rows)
    )
    held_out = data.rows[:-1], data.labels[:-1]
    assert first.evaluate(*held_out).to_dict() == second.evaluate(*held_out).to_dict()


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, 8, seed=3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_saving_a_classifier_tells_what_to_save(path):
    X, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 4
    model = ConformalClassifier(GaussianNB(), "standard").fit(X, y)
    with pytest.raises(InputError, match="'predictor_'"):
        save(model, path)
    with pytest.raises(InputError, match="GaussianNB"):
        save(model.estimator_, path)
    assert not path.exists()
    save(model.predictor_, path)
    assert load(path).predict_set(model.predict_proba(X)) == model.predict_set(X)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "score",
    [
        *("aps", Softmax(), APS(randomize=False), RAPS(randomize=True, penalty=0.3, k_reg=1)),
        *(SAPS(penalty=0.1), PAS(), PAS([1, 2, 3, 4, 5, 6, 7, 8])),
    ],
)
def test_a_loaded_predictor_answers_as_the_saved_one(data, path, method, exact, score):
    predictor = fitted(data, method, score=score, exact=exact, keep_top=True, random_state=7)
    save(predictor, path)
    loaded = load(path)
    assert type(loaded) is type(predictor)
    assert_same(predictor, loaded, data)
    before, after = predictor.get_params(), loaded.get_params()
    assert before | {"score": None} == after | {"score": None}
    assert loaded.class_names_ == tuple(NAMES)
    np.testing.assert_equal(loaded.fit_.to_arrays(), predictor.fit_.to_arrays())
    assert loaded.fit_.digest == predictor.fit_.digest


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize(
    "alpha",
    [0.1, "0.1", Fraction(1, 3), "1/3", 1 / 3, Decimal("0.059"), np.float32(0.01), np.float64(0.3)],
)
@pytest.mark.parametrize("n", [9, 99, 100, 299])
def test_alpha_is_kept_as_it_was_written(simulate, path, alpha, n):
    # float32 0.01 is a little less than 1/100, which is another rank at n = 99.
    predictor = make_predictor("standard", alpha=alpha, exact=True).fit(*simulate(n, 3))
    save(predictor, path)
    loaded = load(path)
    np.testing.assert_equal(loaded.fit_.thresholds, predictor.fit_.thresholds)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o007, 0o660)])
def test_permissions_follow_the_umask(data, path, mask, mode):
    old = os.umask(mask)
    try:
        save(fitted(data, "standard"), path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == mode


def test_only_calibrated_predictors_can_be_saved(path):
    with pytest.raises(InputError, match="not calibrated"):
        save(make_predictor("standard"), path)
    assert not path.exists()


@pytest.mark.parametrize("stated", [FORMAT + 1, FORMAT - 1, None, 0, str(FORMAT)])
def test_another_format_is_refused_and_names_its_writer(data, path, stated):
    save(fitted(data, "standard"), path)
    tamper(path, lambda _, about: about.update(format=stated, version="7.3.1", method="new"))
    assert_refused(path, "7.3.1")


OTHER_ARRAYS = (
    lambda v: v[None].copy(),
    lambda v: np.array(v.flat[0]),
    lambda v: v.astype(np.float32),
    lambda v: v.astype(np.int32),
    lambda v: v[:-1].copy(),
    lambda v: np.append(v, v[-1:], axis=0),
    lambda v: v[:0].copy(),
)


@pytest.mark.parametrize("method", DAMAGED)
def test_the_type_and_shape_of_every_array_are_checked(data, path, method):
    """A sample of rows may be shorter, because how many there are depends on their content."""
    alpha = {"alpha": [0.1, 0.2] * 4} if "class alpha" in PREDICTORS[method].supports else {}
    save(fitted(data, method, exact=True, **alpha), path)
    whole = path.read_bytes()
    for name in contents(path)[0]:
        for change in OTHER_ARRAYS:
            path.write_bytes(whole)
            with np.errstate(invalid="ignore"):  # infinity as an integer
                changed = {name: change(contents(path)[0][name])}
            tamper(path, lambda arrays, _, changed=changed: arrays.update(changed))
            assert_refused(path)


@pytest.mark.parametrize("method", DAMAGED)
def test_every_array_is_needed_and_no_other(data, path, method):
    save(fitted(data, method), path)
    whole = path.read_bytes()
    for name in contents(path)[0]:
        path.write_bytes(whole)
        tamper(path, lambda arrays, _, name=name: arrays.pop(name))
        assert_refused(path)
    path.write_bytes(whole)
    tamper(path, lambda arrays, _: arrays.update(more=np.ones(3)))
    assert_refused(path, "more")


def paths(value, *keys):
    """Every key and index below a value of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*keys, key)
        if isinstance(item, dict | list):
            yield from paths(item, *keys, key)


def parent(value, keys):
    for key in keys[:-1]:
        value = value[key]
    return value


def test_every_value_of_the_metadata_is_needed(data, path):
    save(fitted(data), path)
    whole, about = path.read_bytes(), contents(path)[1]
    for keys in paths(about):
        if keys[0] in ("version", "checksum") or isinstance(keys[-1], int):
            continue
        path.write_bytes(whole)
        tamper(path, lambda _, about, keys=keys: parent(about, keys).pop(keys[-1]))
        assert_refused(path, "")


HUGE = 10**400  # and other numbers that would take for ever
LONG = ["1e-9999999999", "1E+99999999999", "1e-9_999_999_999", "0." + "1" * 9999, "1/" + "9" * 4000]
OTHERS = [None, True, -1, 0, 7, 2**40, 2**70, HUGE, 0.5, -0.1, 1e999, "x", "", [], [1], {}, *LONG]


@pytest.mark.parametrize("method", DAMAGED)
def test_any_other_value_in_the_metadata_is_refused_or_gives_sets(data, path, method):
    """Whoever makes a new checksum gets a model that works, or InputError: nothing else."""
    alpha = {"alpha": [0.1, 0.2] * 4} if "class alpha" in PREDICTORS[method].supports else {}
    groups = {"groups": list("aabbccdd")} if method == "grouped" else {}
    save(fitted(data, method, score=RAPS(), **alpha, **groups), path)
    whole, about = path.read_bytes(), contents(path)[1]
    rng, n_refused, n_values = random.Random(method), 0, 0
    for keys in paths(about):
        if keys[0] in ("version", "checksum"):
            continue
        for other in OTHERS if IS_DEEP else rng.sample(OTHERS, 4):
            path.write_bytes(whole)
            change = {"keys": keys, "other": other}
            tamper(
                path,
                lambda _, a, c=change: setitem(parent(a, c["keys"]), c["keys"][-1], c["other"]),
            )
            n_values += 1
            try:
                model = load(path)
            except InputError:
                n_refused += 1
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EvencoverWarning)
                assert_works(model, data)
    assert n_refused > 0.7 * n_values


def assert_works(model, data):
    """Everything that a user may ask of a model gives an answer, or InputError."""
    for ask in (
        lambda: model.predict_set(data.rows[:20]),
        lambda: model.predict_p(data.rows[:20]),
        lambda: model.evaluate(data.rows[:-1], data.labels[:-1]),
        lambda: model.guarantee_text,
        lambda: model.with_alpha(0.3),
        lambda: model.fit_.digest,
    ):
        with suppress(InputError):
            ask()


@pytest.mark.parametrize("method", DAMAGED)
def test_any_other_number_in_an_array_is_refused_or_gives_sets(data, path, method):
    save(fitted(data, method, score="aps"), path)
    whole, rng, n_values = path.read_bytes(), np.random.default_rng(1), size(2, 50)
    for name, array in contents(path)[0].items():
        extreme = [np.inf, -np.inf, np.nan, 1e300] if array.dtype.kind == "f" else [2**40, 0]
        extreme += [-1, -(2**62)] if array.dtype == np.int64 else []
        for number in extreme[:: 1 if n_values > 2 else 2]:
            for _ in range(n_values):
                changed = array.copy()
                changed.flat[rng.integers(array.size)] = number
                path.write_bytes(whole)
                tamper(path, lambda arrays, _, n=name, c=changed: arrays.update({n: c}))
                with suppress(InputError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", EvencoverWarning)
                    assert_works(load(path), data)


@pytest.mark.parametrize("method", DAMAGED)
def test_a_model_without_its_checksum_is_rejected(data, path, method):
    save(fitted(data, method), path)
    arrays, about = contents(path)
    del about["checksum"]
    save_file(arrays, path, {"evencover": json.dumps(about)})
    assert_refused(path, "checksum")


@pytest.mark.parametrize("method", DAMAGED)
def test_a_flipped_bit_changes_nothing_or_is_rejected(data, path, method):
    """Some bits of the header, such as blanks, mean nothing."""
    predictor = fitted(data, method, score="aps", exact=True)
    save(predictor, path)
    whole, rng = path.read_bytes(), random.Random(method)
    header, n_flips, n_read = 8 + int.from_bytes(whole[:8], "little"), size(10, 3000), 0
    for number in range(n_flips):
        damaged = bytearray(whole)
        damaged[rng.randrange(header if number % 2 else len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with suppress(InputError):
            assert load(path).fit_.digest == predictor.fit_.digest
            n_read += 1
    assert n_read < 0.1 * n_flips + 3


class Bomb:
    """Unpickling it raises SystemExit."""

    def __reduce__(self):
        return sys.exit, ()


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 8, b"\xff" * 64, b"hello", pickle.dumps(Bomb())], ids=str
)
def test_other_files_are_rejected_and_no_code_is_run(path, content):
    assert_refused(path, "no such file")
    assert_refused(path.parent, "a folder")
    path.write_bytes(content)
    assert_refused(path, "")


FORMATS = [f'{{"format": {number}}}' for number in (FORMAT, "9" * 5000)]
TEXTS = ["", "{", "[]", "null", "7", "[" * 100_000, *FORMATS]


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, *({"evencover": t} for t in TEXTS)])
def test_other_safetensors_are_rejected(path, metadata):
    save_file({"thresholds_": np.ones(3)}, path, metadata)
    assert_refused(path, "")


def test_every_truncation_is_refused(data, path):
    save(fitted(data), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert_refused(path, "")
    path.write_bytes(whole + b"\0")
    assert_refused(path, "")
