"""The key of a row's random numbers: its id, or a mix of its content and its place."""

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evencover import APS, EvencoverWarning, StandardPredictor, _kernels
from evencover._kernels import Draws

finite = st.floats(-60000, 60000, width=16)


@given(
    hnp.arrays(np.float16, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=finite),
    st.integers(0, 2**50),
)
def test_keys_are_the_oracles_whatever_the_type(rows, first):
    expected = oracle.row_keys(rows, first)
    for dtype in (np.float16, np.float32, np.float64):
        assert _kernels.row_keys(rows.astype(dtype), Draws(first=first)).tolist() == expected


@given(hnp.arrays(np.float64, (3, 7), elements=st.floats(allow_nan=False)))
def test_keys_of_doubles_see_every_digit_that_counts(rows):
    with np.errstate(over="ignore"):
        assert _kernels.row_keys(rows, Draws()).tolist() == oracle.row_keys(rows)
    nudged = rows.copy()
    nudged[0, 3] = 0.1
    nudged[1, 3] = np.nextafter(0.1, 1)
    nudged[2] = nudged[0]
    nudged[1, [0, 1, 2, 4, 5, 6]] = nudged[0, [0, 1, 2, 4, 5, 6]]
    keys = [int(_kernels.row_keys(nudged[i : i + 1], Draws())[0]) for i in range(3)]
    assert keys[0] == keys[2] != keys[1]


def test_equal_rows_differ_by_place_and_only_by_it():
    rows = np.full((50, 4), 0.25)
    keys = _kernels.row_keys(rows, Draws())
    assert len(set(keys.tolist())) == 50
    alone = [int(_kernels.row_keys(rows[i : i + 1], Draws())[0]) for i in range(50)]
    assert set(alone) == {int(keys[0])}
    cut = [_kernels.row_keys(rows[at : at + 7], Draws(first=at)) for at in range(0, 50, 7)]
    assert np.concatenate(cut).tolist() == keys.tolist()


def test_saturated_rows_of_different_classes_differ():
    rows = np.eye(3000, dtype=np.float32)
    keys = np.concatenate([_kernels.row_keys(row[None], Draws()) for row in rows])
    assert len(set(keys.tolist())) == 3000


def test_ids_are_keys_and_keep_equal_rows_apart():
    row = np.full((1, 4), 0.25)
    first, second = (APS().matrix(row, ids=[name]) for name in ("patient 7", "patient 8"))
    assert (first != second).any()
    assert (APS().matrix(row) == APS().matrix(row)).all()


def test_calibrating_and_predicting_share_no_number(simulate):
    rows, labels = simulate(200, 5)
    for ids in (None, np.arange(200)):
        one = APS().true_label(rows, labels, ids=ids)
        other = APS().matrix(rows, ids=ids)[np.arange(200), labels]
        assert (one != other).all()


def test_softmax_draws_nothing(simulate, monkeypatch):
    rows, labels = simulate(50, 5)
    predictor = StandardPredictor().fit(rows, labels)
    assert not predictor.score_.draws(0, None).any
    assert predictor.score_.draws(0, None, exact=True).any


@pytest.mark.parametrize("score", ["softmax", "aps", "saps"])
@pytest.mark.parametrize("exact", [False, True])
def test_types_of_equal_values_give_equal_sets(simulate, score, exact):
    rows, labels = simulate(300, 9, dtype=np.float16)
    halves = rows.astype(np.float16)
    predictor = StandardPredictor(score=score, exact=exact).fit(halves, labels)
    sets = predictor.predict_set(halves)
    for dtype in (np.float32, np.float64):
        assert predictor.predict_set(halves.astype(dtype)) == sets


def test_repeated_ids_get_a_note(simulate):
    rows, labels = simulate(60, 3)
    with pytest.warns(EvencoverWarning, match="58 of 60"):
        StandardPredictor().fit(rows, labels, ids=np.arange(60) % 2)
