"""Bad input gets one sentence; good input of any kind gets in."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from evencover import (
    PAS,
    ClasswisePredictor,
    EvencoverWarning,
    FuzzyPredictor,
    GroupedPredictor,
    InputError,
    InterpolatedPredictor,
    MacroPredictor,
    PooledPredictor,
    RC3PPredictor,
    StandardPredictor,
    load,
    save,
)
from evencover.classes import align_classes
from evencover.predictors import make_predictor, method_names

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore:.*too few for a finite threshold")

GOOD = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [1.0, 0.0, 0.0]])
LABELS = [0, 1, 2, 0]


def refused(*parts):
    """One line of an InputError with these parts, in order."""
    return pytest.raises(InputError, match=r"^[^\n]*" + ".*".join(parts) + "[^\n]*$")


def changed(row, column, value):
    rows = GOOD.copy()
    rows[row, column] = value
    return rows


NOT_SHARES = [0, 1, -0.1, 1.5, np.nan, np.inf, 1j, True, None, "ten", "", [1]]
NOT_WHOLE = [-1, 1.5, None, "1", True]
BAD_PARAMETERS = [
    *(("standard", "random_state", value) for value in (*NOT_WHOLE, 2**64)),
    *(("standard", name, "yes") for name in ("exact", "keep_top", "from_logits")),
    *(("clustered", "gamma", value) for value in NOT_SHARES),
    *(("clustered", "n_clusters", value) for value in (*NOT_WHOLE, 0, 2.0)),
    *(("standard", "score", value) for value in (None, 3, "zzz", {}, "sotfmax")),
]


@pytest.mark.parametrize("alpha", [*NOT_SHARES, Fraction(3, 2), "1/0", "nan"], ids=repr)
@pytest.mark.parametrize("method", method_names())
def test_alpha_is_a_number_between_0_and_1(method, alpha):
    with refused("'alpha'"):
        make_predictor(method, alpha=alpha).fit(GOOD, LABELS)


@pytest.mark.parametrize(("method", "name", "value"), BAD_PARAMETERS)
def test_parameters_are_checked_by_fit(method, name, value):
    with refused("Unknown score" if name == "score" else f"'{name}'"):
        make_predictor(method, **{name: value}).fit(GOOD, LABELS)


def test_unknown_names_suggest_known_ones():
    for wrong, right in (("sotfmax", "softmax"), ("apps", "aps"), ("RAPSS", "raps")):
        with refused(f"did you mean '{right}'"):
            StandardPredictor(score=wrong).fit(GOOD, LABELS)
    with refused("did you mean 'clustered'"):
        make_predictor("clusterd")
    with refused("None"):
        make_predictor(None)


@pytest.mark.parametrize("score", ["softmax", "aps", "raps"])
@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (changed(2, 1, np.nan), "NaN in row 2, class 1"),
        (changed(2, 1, np.inf), "row 2, class 1"),
        (changed(2, 1, -np.inf), "row 2, class 1"),
        (changed(1, 0, -0.25), "-0.25 in row 1, class 0"),
        (changed(1, 0, -1e-12), "-1e-12 in row 1, class 0"),
        (changed(1, 0, 0.5), "Row 1 sums to 1.25, .*off by 0.25"),
        (changed(3, 0, 0.99), "Row 3 sums to 0.99"),
        (changed(3, 0, 0), "Row 3 sums to 0,"),
        (changed(3, 0, 1e300), "Row 3"),
        (GOOD * 100, "Row 0 sums to 100"),
    ],
)
def test_rows_are_probabilities(score, rows, found):
    fitted = StandardPredictor(score=score).fit(GOOD, LABELS)
    for call in (
        lambda: StandardPredictor(score=score).fit(rows, LABELS),
        lambda: fitted.predict_set(rows),
        lambda: fitted.predict_p(rows),
        lambda: fitted.evaluate(rows, LABELS),
    ):
        with refused(found):
            call()


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (GOOD[0], "'probabilities'"),
        (GOOD[None], r"shape \(1, 4, 3\)"),
        (np.ones((4, 1)), "at least 2 classes"),
        (np.ones((4, 0)), "at least 2 classes"),
        ([[0.5, 0.5], [1.0]], "different lengths"),
        (np.array([["a", "b"]] * 4), "'probabilities'"),
        (GOOD.astype(complex), "'probabilities'"),
        (3.0, "'probabilities'"),
        (iter([]), "one entry per row"),
    ],
)
def test_wrong_shapes(rows, found):
    with refused(found):
        StandardPredictor().fit(rows, LABELS)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ([0, 1, 3, 0], "Got 3 in row 2"),
        ([0, -1, 2, 0], "Got -1 in row 1"),
        ([0.0, 1.0, 2.0, 0.0], "float64"),
        ([0, None, 2, 0], "missing labels"),
        ([0, np.nan, 2, 0], "missing labels"),
        ([True, False, True, False], "bool"),
        (["0", "1", "two", "0"], "integers"),
        ([0, 1, 2], "3 labels for 4 rows"),
        ([0, 1, 2, 0, 1], "5 labels for 4 rows"),
        ([[0, 1], [2, 0]], r"\(2, 2\)"),
        (3, "'labels'"),
        (np.array("a"), "'labels'"),
        (None, "--labels"),
    ],
)
def test_labels_are_class_indices(labels, found):
    with refused(found):
        StandardPredictor().fit(GOOD, labels)


@pytest.mark.parametrize(
    "ids", [[1, 2, 3], [1, 2, 3, 4, 5], [1.0, 2.5, 3.0, 4.0], [None, 1, 2, 3], [[1, 2], [3, 4]]]
)
def test_ids_are_one_per_row(ids):
    fitted = StandardPredictor(score="aps").fit(GOOD, LABELS)
    for call in (
        lambda: StandardPredictor().fit(GOOD, LABELS, ids=ids),
        lambda: StandardPredictor().fit(iter([GOOD]), LABELS, ids=ids),
        lambda: fitted.predict_set(GOOD, ids=ids),
        lambda: fitted.predict_set(iter([GOOD[:2], GOOD[2:]]), ids=ids),
    ):
        with refused("'ids'"):
            call()


@pytest.mark.parametrize("kind", [np.ma.array, lambda *a, **k: list(np.ma.array(*a, **k))])
def test_masked_entries_are_refused_in_rows_labels_and_ids(kind):
    hidden = [False, True, False, False]
    rows = kind(GOOD, mask=np.outer(hidden, [0, 0, 1]))
    labels, ids = kind(LABELS, mask=hidden), kind([1, 2, 3, 4], mask=hidden)
    fitted = StandardPredictor().fit(GOOD, LABELS)
    for name, entry in {
        "probabilities": lambda: fitted.predict_set(rows),
        "labels": lambda: fitted.evaluate(GOOD, labels),
        "ids": lambda: fitted.predict_set(GOOD, ids=ids),
    }.items():
        with refused(f"'{name}'", "(?i:masked).* row 1"):
            entry()
    with refused("'probabilities'", "masked .* row 1"):
        fitted.rule().predict_set(rows)
    with refused("'probabilities'", "masked .* row 1"):
        StandardPredictor().fit(iter([(rows, LABELS)]))
    open_rows, open_labels = np.ma.array(GOOD), np.ma.array(LABELS, mask=False)
    same = StandardPredictor().fit(open_rows, open_labels)
    assert same.predict_set(open_rows) == fitted.predict_set(GOOD)


def test_ids_that_end_in_a_zero_character_are_ids_of_their_own(simulate):
    rows, labels = simulate(200, 5)
    fitted = StandardPredictor(score="aps").fit(rows, labels)
    one = np.full((40, 5), 0.2)
    ids = [f"{n}" for n in range(20)] + [f"{n}\0" for n in range(20)]
    sets = fitted.predict_set(one, ids=ids)
    assert sets.sizes[:20].tolist() != sets.sizes[20:].tolist()
    alone = [fitted.predict_set(one[:1], ids=[each]).sizes[0] for each in ids]
    assert sets.sizes.tolist() == alone


@pytest.mark.parametrize("method", method_names())
def test_prediction_needs_calibration(method):
    predictor = make_predictor(method)
    for call in (predictor.predict_set, predictor.predict_p):
        with refused("not calibrated"):
            call(GOOD)
    with refused("not calibrated yet"):
        predictor.evaluate(GOOD, LABELS)
    with refused("labels"):
        StandardPredictor().fit(GOOD, LABELS).evaluate(GOOD)


def test_prediction_needs_the_classes_of_calibration():
    fitted = StandardPredictor().fit(GOOD, LABELS)
    for call in (fitted.predict_set, fitted.predict_p, lambda p: fitted.evaluate(p, [0])):
        with refused("3 classes", "Got 2"):
            call(np.full((1, 2), 0.5))


@pytest.mark.parametrize(
    "method",
    [
        *(StandardPredictor, ClasswisePredictor, RC3PPredictor, MacroPredictor, FuzzyPredictor),
        *(InterpolatedPredictor, lambda: GroupedPredictor(groups=[0, 1, 1])),
    ],
)
def test_a_class_never_seen_is_a_warning_with_the_count(method):
    with pytest.warns(EvencoverWarning, match="1 of 3 classes have no calibration"):
        method().fit(GOOD[:2], [0, 1])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*have no calibration examples")
        method().fit(GOOD, LABELS)


@pytest.mark.filterwarnings("default")
def test_classes_with_too_few_rows_are_a_warning_with_the_count(simulate):
    rows, labels = simulate(60, 4)  # some 15 of each
    with pytest.warns(EvencoverWarning, match="4 of 4 classes have calibration examples, but too"):
        ClasswisePredictor(alpha=0.02).fit(rows, labels)
    with pytest.warns(EvencoverWarning, match="4 of 4 classes have calibration examples, but too"):
        StandardPredictor(alpha=0.1).fit(rows[:8], np.arange(8) % 4)
    for method in (PooledPredictor(split="holdout"), FuzzyPredictor()):  # a fifth sets the level
        with pytest.warns(EvencoverWarning, match="4 of 4 classes have .* too few for a finite"):
            method.fit(rows[:40], np.arange(40) % 4)


def module(name):
    return pytest.importorskip(name)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def columns(p):
    return {f"class {k}": p[:, k] for k in range(p.shape[1])}


BACKWARDS = np.arange(300)[::-1] / 2  # an index that is no ids
KINDS = {
    "lists": lambda p, y: (p.tolist(), y.tolist()),
    "tuples": lambda p, y: (tuple(map(tuple, p.tolist())), tuple(y.tolist())),
    "Fortran": lambda p, y: (np.asfortranarray(p), y.astype(np.uint8)),
    "strided": lambda p, y: (p.repeat(2, axis=0).repeat(3, axis=1)[::2, ::3], y.repeat(2)[::2]),
    "big endian": lambda p, y: (p.astype(">f8"), y.astype(">i4")),
    "read only": lambda p, y: (read_only(p), read_only(y)),
    "column of labels": lambda p, y: (p, y[:, None]),
    "pandas": lambda p, y: (pd.DataFrame(p, index=BACKWARDS), pd.Series(y, index=BACKWARDS)),
    "pandas, nullable": lambda p, y: (pd.DataFrame(p), pd.Series(y, dtype="Int64")),
    "polars": lambda p, y: (module("polars").DataFrame(p), module("polars").Series(y)),
    "Arrow": lambda p, y: (module("pyarrow").table(columns(p)), module("pyarrow").array(y)),
    "Arrow lists": lambda p, y: (
        module("pyarrow").FixedSizeListArray.from_arrays(p.ravel(), p.shape[1]),
        module("pyarrow").array(y),
    ),
    "torch": lambda p, y: (
        module("torch").tensor(p, requires_grad=True),
        module("torch").tensor(y),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", method_names())
def test_any_kind_of_array_gives_the_same_sets(simulate, quietly, method, kind):
    p, y = simulate(300, 7)
    given_p, given_y = KINDS[kind](p, y)
    expected = quietly(make_predictor(method, score="aps"), p, y)
    predictor = quietly(make_predictor(method, score="aps"), given_p, given_y)
    assert predictor.thresholds_.tolist() == expected.thresholds_.tolist()
    assert predictor.predict_set(given_p) == expected.predict_set(p)


CLASSES = ["oak", "elm", "ash", "fir", "yew"]
COUNTS = [50, 50, 3, 8, 3]


def ways_to_name(values):
    """Give values of the classes in another order, by name, in every way there is."""
    order = [3, 0, 4, 2, 1]
    names, moved = [CLASSES[i] for i in order], [values[i] for i in order]
    return {
        "mapping": dict(zip(names, moved, strict=True)),
        "Series": pd.Series(moved, index=names),
        "pairs": list(zip(names, moved, strict=True)),
    }


WAYS = list(ways_to_name(COUNTS))


def uses(values):
    """Give a predictor for each parameter with one value per class."""
    return {
        "prevalence": lambda: StandardPredictor(score=PAS(values)),
        "groups": lambda: GroupedPredictor(groups=values),
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("parameter", list(uses([])))
def test_values_by_class_are_aligned_by_name(simulate, tmp_path, parameter, way):
    rows, labels = simulate(400, 5)
    named = ways_to_name(COUNTS)[way]
    expected = uses(COUNTS)[parameter]().fit(rows, labels)
    found = uses(named)[parameter]().fit(rows, labels, class_names=CLASSES)
    np.testing.assert_array_equal(found.thresholds_, expected.thresholds_)
    assert found.predict_set(rows) == expected.predict_set(rows)
    save(found, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.predict_set(rows) == expected.predict_set(rows)
    refit = type(again)(**again.get_params()).fit(rows, labels, class_names=CLASSES[::-1])
    assert (refit.thresholds_ != expected.thresholds_).any()


@pytest.mark.parametrize("parameter", list(uses([])))
def test_values_by_class_go_by_index_without_names(simulate, parameter):
    rows, labels = simulate(400, 5)
    expected = uses(COUNTS)[parameter]().fit(rows, labels)
    for keys in ([4, 2, 0, 1, 3], ["4", "2", "0", "1", "3"], pd.RangeIndex(4, -1, -1)):
        named = pd.Series([COUNTS[int(key)] for key in keys], index=keys)
        found = uses(named)[parameter]().fit(rows, labels)
        np.testing.assert_array_equal(found.thresholds_, expected.thresholds_)
    plain = pd.Series(COUNTS)  # its default index names nothing
    found = uses(plain)[parameter]().fit(rows, labels, class_names=CLASSES)
    np.testing.assert_array_equal(found.thresholds_, expected.thresholds_)


@pytest.mark.parametrize("parameter", list(uses([])))
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"oak": 1, "elm": 2, "ash": 3}, ["2 of them", "fir", "yew"]),
        (dict.fromkeys([*CLASSES, "larch"], 1), ["1 unknown", "larch"]),
        (pd.Series(1, index=[*CLASSES, "elm"]), ["elm"]),
        (pd.Series(1, index=[4, 3, 2, 1, 0]), ["5 of them", "oak", "5 unknown"]),
        ([1, 2, 3, 4], ["Got 4 for 5 classes"]),
    ],
    ids=["missing", "unknown", "twice", "numbers for names", "short"],
)
def test_values_that_do_not_fit_the_classes_are_refused(simulate, parameter, values, words):
    with refused(f"'{parameter}'", *words):
        uses(values)[parameter]().fit(*simulate(400, 5), class_names=CLASSES)


def test_a_default_holds_for_classes_that_are_not_named():
    values = {"ash": 0.05, "default": 0.1}
    found = align_classes(values, CLASSES, 5, "alpha", default="default")
    assert found.tolist() == [0.1, 0.1, 0.05, 0.1, 0.1]
    with refused("'alpha'", "4 of them"):
        align_classes({"ash": 0.05}, CLASSES, 5, "alpha", default="default")
    with refused("'alpha'", "unknown", "default"):
        align_classes(values, CLASSES, 5, "alpha")


def test_class_names_may_be_given_by_index(simulate):
    rows, labels = simulate(400, 5)
    by_index = {4: "yew", 0: "oak", 2: "ash", 1: "elm", 3: "fir"}
    for names in (by_index, pd.Series(by_index), pd.Series(CLASSES)):
        assert StandardPredictor().fit(rows, labels, class_names=names).class_names_ == tuple(
            CLASSES
        )
    with refused("'class_names'", "4 for 5"):
        StandardPredictor().fit(rows, labels, class_names={0: "a", 1: "b", 2: "c", 3: "d"})
