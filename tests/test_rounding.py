"""Rows that sum to 1 only up to rounding are divided by their sum; others are rejected."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring import score_matrix

from evencover import APS, EvencoverWarning, InputError, Softmax, StandardPredictor
from evencover.rounding import SUM_TOLERANCE, rounded_off

pytestmark = pytest.mark.filterwarnings("ignore:.*have no calibration examples")
DIVIDED = "divided by their sum"


def rounded_rows(n_rows, n_classes, digits, concentration=0.2, seed=0):
    rng = np.random.default_rng(seed)
    return np.round(rng.dirichlet(np.full(n_classes, concentration), n_rows), digits)


def matrix(rows, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        return score_matrix(Softmax(), rows, **options)


def test_four_digits_of_many_classes_are_accepted_and_said_so():
    rows = rounded_rows(400, 214, 4)
    off = np.abs(rows.sum(axis=1) - 1)
    assert (off > SUM_TOLERANCE[8]).any()
    with pytest.warns(EvencoverWarning, match=DIVIDED):
        scores = score_matrix(Softmax(), rows)
    sums = (1 - scores).sum(axis=1)
    assert np.abs(sums[off > SUM_TOLERANCE[8]] - 1).max() < 1e-12


def test_rows_within_the_tolerance_stay_as_they_are():
    rows = rounded_rows(400, 214, 4)
    is_near = np.abs(rows.sum(axis=1) - 1) < 0.9 * SUM_TOLERANCE[8]
    assert 100 < is_near.sum() < 400
    assert (matrix(rows)[is_near] == score_matrix(Softmax(), rows[is_near])).all()
    assert (matrix(rows)[is_near] == 1 - rows[is_near]).all()


@settings(max_examples=60, deadline=None)
@given(
    n_classes=st.integers(2, 300),
    digits=st.integers(2, 6),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_a_row_is_treated_alike_alone_and_among_others(n_classes, digits, seed, dtype):
    rows = rounded_rows(12, n_classes, digits, seed=seed).astype(dtype)
    alone = []
    for row in rows:
        try:
            alone.append(matrix(row[None])[0])
        except InputError:
            alone.append(None)
    good = [place for place, scores in enumerate(alone) if scores is not None]
    if good:
        assert (matrix(rows[good]) == np.stack([alone[place] for place in good])).all()
    if len(good) < len(rows):
        with pytest.raises(InputError):
            matrix(rows)


@settings(max_examples=60, deadline=None)
@given(n_classes=st.integers(2, 300), digits=st.integers(3, 6), seed=st.integers(0, 10**6))
def test_rounding_moves_a_sum_no_further_than_the_rule_allows(n_classes, digits, seed):
    rng = np.random.default_rng(seed)
    rows = np.round(rng.dirichlet(np.ones(n_classes), 8), digits)
    off = np.abs(rows.sum(axis=1) - 1)
    assert (off <= np.maximum(rounded_off(rows), SUM_TOLERANCE[8])).all()


def test_random_numbers_stay_those_of_the_row():
    rows = rounded_rows(300, 214, 4)
    off = np.abs(rows.sum(axis=1) - 1) > SUM_TOLERANCE[8]
    assert off.any()
    with pytest.warns(EvencoverWarning, match=DIVIDED):
        together = score_matrix(APS(), rows, ids=np.arange(300))
    with pytest.warns(EvencoverWarning, match=DIVIDED):
        alone = score_matrix(APS(), rows[off], ids=np.flatnonzero(off))
    assert (together[off] == alone).all()


def test_a_single_row_of_a_service_gets_the_set_of_the_file(tmp_path):
    rows = rounded_rows(300, 214, 4)
    labels = rows.argmax(axis=1)
    names = ",".join(f"class {place}" for place in range(214))
    np.savetxt(tmp_path / "p.csv", rows, "%.4f", ",", header=names, comments="")
    with pytest.warns(EvencoverWarning, match=DIVIDED):
        fitted = StandardPredictor(score="aps").fit(rows, labels, class_names=names.split(","))
    with pytest.warns(EvencoverWarning, match=DIVIDED):
        sets = fitted.predict_set(tmp_path / "p.csv", ids=np.arange(300))
    rule = fitted.rule()
    for place in range(300):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvencoverWarning)
            alone = rule.predict_set(rows[place][None], ids=[place])
        assert alone.to_lists()[0] == sets.to_lists()[place]


TOP_FIVE = np.zeros(100)
TOP_FIVE[:5] = [0.55, 0.21, 0.1, 0.05, 0.04]
MODEL = np.full(50, 0.014)
MODEL[7] = 1 - MODEL.sum() + 0.014


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (TOP_FIVE, "5 numbers and 95 zeros, so these are the top classes only"),
        (100 * MODEL, "percentages; divide them by 100"),
        (np.where(np.arange(50) == 3, np.nan, MODEL), "NaN in row 0, class 3: a missing value"),
        (np.full(50, 1 / 3), "sigmoids"),
        (np.full(4, 0.2), "steps of 0.01 explain at most 0.02; write more digits"),
    ],
)
def test_the_error_names_the_cause(row, cause):
    with pytest.raises(InputError, match=cause) as caught:
        score_matrix(Softmax(), row[None])
    assert "from_logits" not in str(caught.value)


@pytest.mark.parametrize("row", [[3.0, -1.0, 2.0], [3.0, 2.0, 0.5], [-0.25, 0.5, 0.75]])
def test_only_numbers_outside_0_and_1_may_be_logits(row):
    with pytest.raises(InputError, match="from_logits=True"):
        score_matrix(Softmax(), np.array([row]))


def test_probabilities_of_four_digits_are_not_taken_for_logits():
    rows = rounded_rows(200, 214, 4)
    fitted = StandardPredictor(from_logits=True).fit(
        {"logits": np.log(rows + 1e-6)}, rows.argmax(axis=1)
    )
    with pytest.raises(InputError, match="Got probabilities"):
        fitted.predict_set(rows)
