"""Calibrating on out-of-fold probabilities."""

import warnings

import numpy as np
import pytest

from evencover import ClasswisePredictor, EvencoverWarning, InputError, from_cross_val


@pytest.fixture(scope="module")
def rows(simulate):
    return simulate(2000, 5)


def test_all_rows_calibrate(rows):
    fitted = from_cross_val(*rows, np.arange(2000) % 5, ClasswisePredictor(alpha=0.2))
    expected = ClasswisePredictor(alpha=0.2).fit(*rows)
    np.testing.assert_array_equal(fitted.thresholds_, expected.thresholds_)
    named = from_cross_val(*rows, ["a", "b"] * 1000, class_names=list("vwxyz"))
    assert named.class_names_ == tuple("vwxyz")
    assert named.method == "pooled"


def test_a_fold_whose_model_is_another_is_told(rows):
    """Five tests at 1 in 1000 together; equal folds raise none."""
    probabilities, labels = rows
    folds = np.arange(2000) % 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvencoverWarning)
        from_cross_val(probabilities, labels, folds, "standard")
    worse = probabilities.copy()
    worse[folds == 3] = np.roll(worse[folds == 3], 1, axis=1)
    with pytest.warns(
        EvencoverWarning, match=r"Fold 3 differs from the others: .* of its 400 examples"
    ):
        from_cross_val(worse, labels, folds, "standard")


@pytest.mark.parametrize("folds", [[0] * 2000, [0, 1], [[0, 1]] * 2000])
def test_bad_folds_are_refused(rows, folds):
    with pytest.raises(InputError, match="'folds' must"):
        from_cross_val(*rows, folds)


def test_labels_and_folds_with_an_index_join_rows_with_an_index(simulate):
    pandas = pytest.importorskip("pandas")
    rows, labels = simulate(300, 4)
    folds = np.arange(300) % 3
    names = [f"case {number}" for number in range(300)]
    expected = from_cross_val(rows, labels, folds, "standard")
    other = np.random.default_rng(0).permutation(300)
    found = from_cross_val(
        pandas.DataFrame(rows, index=names),
        pandas.Series(labels, index=names).iloc[other],
        pandas.Series(folds, index=names).iloc[other[::-1]],
        "standard",
    )
    assert found.thresholds_.tolist() == expected.thresholds_.tolist()
