"""A damaged or altered model is never believed: every array and every value is checked."""

import random

import numpy as np
import pytest
from depth import size
from model_files import METHODS, assert_refused, contents, fitted, tamper, without_checksum

from evencover import InputError, load, save
from evencover.predictors import PREDICTORS, predictor_class


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, 8, seed=3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


ARRAY_CHANGES = {
    "longer": lambda v: np.append(v, v[-1]),
    "shorter": lambda v: v[:-1].copy(),
    "empty": lambda v: v[:0].copy(),
    "a matrix": lambda v: v[None].copy(),
    "a number": lambda v: np.array(v[0]),
    "float32": lambda v: v.astype(np.float32),
    "int32": lambda v: v.astype(np.int32),
    "uint8": lambda v: v.astype(np.uint8),
    "first + 1": lambda v: np.append(v[:1] + 1, v[1:]),
    "last impossible": lambda v: np.append(
        v[:-1], v.dtype.type(np.nan if v.dtype == float else -9)
    ),
    "beyond": lambda v: np.append(v[:-1], v.dtype.type(10**6)),
    "reversed": lambda v: v[::-1].copy(),
}

# The largest score or level may be any number; which class had how many rows decides no set; and
# POOLED has one coin for all classes.
HARMLESS = {
    *(("beyond", name) for name in ("group_scores_", "pooled_scores_", "calibration_levels_")),
    *(("beyond", name) for name in ("own_scores_", "row_scores_", "held_out_")),
    *(("reversed", name) for name in ("class_counts_", "upper_probability_")),
    # Ids decide nothing where nothing is split.
    *((what, "row_ids_") for what in ("first + 1", "last impossible", "beyond", "reversed")),
}
# Equal for all classes, or infinite and still so.
HARMLESS_THRESHOLDS = {("macro", "reversed"), ("rc3p", "first + 1")}


# What earlier versions did not write, and what only a target prevalence needs.
LATER = ("score_edges_", "score_counts_", "row_sample_")
LATER += ("target_prevalence_", "group_weights_", "level_weights_")
ARRAYS = [
    (cls.method, name)
    for cls in map(predictor_class, METHODS)
    if cls.method not in ("standard", "classwise")
    for name, field in cls.all_state().items()
    if field.shape is not None
    if not name.startswith("kept_")  # nothing follows from them; see predictors/test_updating.py
    if cls.supports_exact or name not in ("lower_thresholds_", "upper_probability_")
    if name not in LATER
]


@pytest.mark.parametrize(("method", "name"), ARRAYS)
def test_every_array_is_checked(data, path, method, name):
    save(fitted(data, method, exact=True), path)
    whole = path.read_bytes()
    tamper(path, lambda arrays, _: arrays.pop(name))
    assert_refused(path)
    for what, change in ARRAY_CHANGES.items():
        path.write_bytes(whole)
        if (what, name) in HARMLESS:
            continue
        if name == "thresholds_" and (method, what) in HARMLESS_THRESHOLDS:
            continue
        with np.errstate(invalid="ignore"):  # infinity as an integer
            tamper(
                path, lambda arrays, _, change=change: arrays.update({name: change(arrays[name])})
            )
        assert_refused(path)


@pytest.mark.parametrize("method", METHODS)
def test_a_changed_threshold_is_noticed(data, path, method):
    save(fitted(data, method), path)
    tamper(path, lambda arrays, _: arrays["thresholds_"].__setitem__(3, 0.123))
    assert_refused(path, "do not follow from its scores")


def test_unsorted_scores_are_noticed(data, path):
    save(fitted(data, "classwise"), path)
    tamper(path, lambda arrays, _: arrays["group_scores_"].__setitem__(slice(0, 2), [0.2, 0.1]))
    assert_refused(path, "not sorted")


@pytest.mark.parametrize("place", ["method", "parameters", "fitted"])
def test_every_part_of_the_metadata_is_needed(data, path, place):
    save(fitted(data), path)
    tamper(path, lambda _, about: about.pop(place))
    assert_refused(path, place)


@pytest.mark.parametrize("place", ["parameters", "fitted"])
def test_every_value_of_the_metadata_is_needed(data, path, place):
    save(fitted(data), path)
    whole = path.read_bytes()
    for key in contents(path)[1][place].keys() - set(PREDICTORS[METHODS[0]].later):
        path.write_bytes(whole)
        tamper(path, lambda _, about, key=key: about[place].pop(key))
        assert_refused(path, key)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("alpha", value) for value in (0, 1, 2, -0.1, None, "x", [0.1], True, 0.5)),
        *(("score", value) for value in (None, "sofmax", [], {}, {"name": "raps", "k_reg": "5"})),
        *(("exact", value) for value in (1, None, True)),
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
        *(("fingerprints_", value) for value in (5, None, ["text"], [["text", "5"]])),
        *(("n_clusters_", value) for value in (3, "2", None)),
        *(("gamma_", value) for value in ("x", [])),
        *(
            ("guarantee_", value)
            for value in ([], [[1]], None, 5, [[0, *"abcdef"], [1, *"abcdef"]])
        ),
    ],
)
def test_every_fitted_value_is_checked(data, path, name, value):
    save(fitted(data), path)
    tamper(path, lambda _, about: about["fitted"].update({name: value}))
    assert_refused(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("level_", value) for value in (0.5, "x", None)),
        *(("ingredients_", value) for value in (5, None, [[1]], [["normal", "x", 1.0]])),
    ],
)
def test_every_fitted_value_of_pooling_is_checked(data, path, name, value):
    save(fitted(data, "pooled"), path)
    tamper(path, lambda _, about: about["fitted"].update({name: value}))
    assert_refused(path)


@pytest.mark.parametrize("method", ["x", None, [], "standard", "classwise", "pooled"])
def test_another_method_is_noticed(data, path, method):
    save(fitted(data), path)
    tamper(path, lambda _, about: about.update(method=method))
    assert_refused(path)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:.*has no checksum")
def test_random_damage_is_refused_even_without_a_checksum(data, path, method):
    """Files with random bytes changed: an InputError, or the thresholds that were saved."""
    predictor = fitted(data, method, exact=True)
    save(predictor, path)
    without_checksum(path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    rng = random.Random(0)
    refused = 0
    n_files = size(100, 300)
    for _ in range(n_files):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 8])):
            place = rng.randrange(header if rng.random() < 0.5 else len(whole))
            damaged[place] = rng.choice(
                [damaged[place] ^ 1 << rng.randrange(8), rng.randrange(256)]
            )
        path.write_bytes(damaged)
        try:
            loaded = load(path)
        except InputError:
            refused += 1
        else:
            np.testing.assert_array_equal(loaded.thresholds_, predictor.thresholds_)
            loaded.predict_set(data.rows[:5])
            loaded.predict_p(data.rows[:5])
    assert n_files / 2 < refused < n_files  # some bytes (a fingerprint, a name) matter to nobody
