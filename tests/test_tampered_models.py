"""A damaged model is rejected by its checksum; an altered one by types, shapes and parameters."""

import random
from contextlib import suppress

import numpy as np
import pytest
from depth import size
from model_files import METHODS, assert_refused, contents, fitted, tamper, without_checksum

from evencover import InputError, load, save
from evencover.predictors import predictor_class
from evencover.predictors.state import digest


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, 8, seed=3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


OTHER_TYPES = {
    "a matrix": lambda v: v[None].copy(),
    "a number": lambda v: np.array(v.flat[0]),
    "float32": lambda v: v.astype(np.float32),
    "int32": lambda v: v.astype(np.int32),
}
OTHER_SIZES = {
    "longer": lambda v: np.append(v, v[-1:], axis=0),
    "shorter": lambda v: v[:-1].copy(),
    "empty": lambda v: v[:0].copy(),
}


@pytest.mark.parametrize("method", METHODS)
def test_the_type_and_shape_of_every_array_are_checked(data, path, method):
    save(fitted(data, method, exact=True), path)
    whole, state = path.read_bytes(), predictor_class(method).all_state()
    for name in contents(path)[0]:
        is_by_class = state[name].shape[0] in "KL"
        for change in (OTHER_TYPES | (OTHER_SIZES if is_by_class else {})).values():
            path.write_bytes(whole)
            with np.errstate(invalid="ignore"):  # infinity as an integer
                tamper(
                    path,
                    lambda arrays, _, change=change, name=name: arrays.update(
                        {name: change(arrays[name])}
                    ),
                )
            assert_refused(path, name)


@pytest.mark.parametrize("place", ["method", "parameters", "fitted"])
def test_every_part_of_the_metadata_is_needed(data, path, place):
    save(fitted(data), path)
    tamper(path, lambda _, about: about.pop(place))
    assert_refused(path, place)


@pytest.mark.parametrize("place", ["parameters", "fitted"])
def test_every_value_of_the_metadata_is_needed(data, path, place):
    save(fitted(data), path)
    whole = path.read_bytes()
    for key in contents(path)[1][place]:
        path.write_bytes(whole)
        tamper(path, lambda _, about, key=key: about[place].pop(key))
        assert_refused(path, key)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("alpha", value) for value in (0, 1, 2, -0.1, None, "x", [0.1], True)),
        *(("score", value) for value in (None, "sofmax", [], {}, {"name": "raps", "k_reg": "5"})),
        *(("exact", value) for value in (1, None)),
        *(("random_state", value) for value in (-1, "x", 0.5, None)),
        *(("temperature", value) for value in (0, "x", None)),
        *(("gamma", value) for value in (7, None, [])),
        *(("n_clusters", value) for value in ("many", 0, None)),
        ("unknown", 1),
    ],
)
def test_every_parameter_is_checked(data, path, name, value):
    save(fitted(data), path)
    tamper(path, lambda _, about: about["parameters"].update({name: value}))
    assert_refused(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("n_classes_", value) for value in (9, 7, 8.0, "8", None, -8, True)),
        *(("n_calibration_", value) for value in (399, "400", None)),
        *(("class_names_", value) for value in (["a"] * 7, "abcdefgh", list(range(8)), 5)),
        *(("fingerprints_", value) for value in (5, [[1, 2]])),
        *(("n_clusters_", value) for value in ("2", None)),
        *(("gamma_", value) for value in ("x", [])),
        *(("guarantee_", value) for value in ([[1]], None, 5)),
    ],
)
def test_the_type_of_every_fitted_value_is_checked(data, path, name, value):
    save(fitted(data), path)
    tamper(path, lambda _, about: about["fitted"].update({name: value}))
    assert_refused(path)


@pytest.mark.parametrize("method", ["x", None, [], "standard", "pooled"])
def test_another_method_is_noticed(data, path, method):
    save(fitted(data), path)
    tamper(path, lambda _, about: about.update(method=method))
    assert_refused(path)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_without_its_checksum_is_rejected(data, path, method):
    save(fitted(data, method), path)
    without_checksum(path)
    assert_refused(path, "checksum")


def test_random_damage_is_rejected(data, path):
    """Whatever byte changes, the checksum or the file's own structure shows it."""
    predictor = fitted(data, exact=True)
    save(predictor, path)
    whole, rng = path.read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    n_files, n_rejected = size(100, 3000), 0
    for _ in range(n_files):
        damaged = bytearray(whole)
        place = rng.randrange(header if rng.random() < 0.5 else len(whole))
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with suppress(InputError):
            assert digest(load(path)) == digest(predictor)  # a blank of the header, say
            continue
        n_rejected += 1
    assert n_rejected > 0.9 * n_files
