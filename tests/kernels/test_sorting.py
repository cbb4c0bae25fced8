"""Orders of rows: C++ and NumPy agree, and both are what the words say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evencover._kernels import native, reference

NUMBERS = st.sampled_from([0.0, -0.0, 0.5, -np.inf, np.inf, 5e-324, 1e308]) | st.floats(
    allow_nan=False
)
LONG = {
    "uniform": lambda rng, n: rng.random(n),
    "of both signs": lambda rng, n: rng.normal(size=n),
    "tied": lambda rng, n: rng.integers(0, 9, n) / 8,
    "near 1": lambda rng, n: 1 - 1e-14 * rng.integers(0, 60, n) / 8,
    "of every size": lambda rng, n: rng.choice([1e-300, 1, 1e300], n) * rng.integers(-5, 5, n),
    "saturated": lambda rng, n: np.where(rng.random(n) < 0.5, np.inf, rng.random(n)),
    "ascending": lambda _, n: np.arange(n) / n,
    "descending": lambda _, n: -np.arange(n) / n,
    "bits": lambda rng, n: rng.integers(0, 2**64, n, dtype=np.uint64),
    "few bits": lambda rng, n: rng.integers(0, 3, n, dtype=np.uint64) << np.uint64(62),
}


@given(st.lists(NUMBERS) | st.lists(st.integers(0, 2**64 - 1)))
def test_numbers_are_in_order_and_equal_ones_as_they_came(numbers):
    values = np.array(numbers, dtype=np.uint64 if numbers and type(numbers[0]) is int else float)
    expected = sorted(range(len(numbers)), key=lambda i: values[i])
    assert native.ascending(values).tolist() == expected
    assert reference.ascending(values).tolist() == expected


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("n", [3000, pytest.param(2**20 + 9, marks=pytest.mark.deep)])
def test_many_numbers(kind, n):
    values = LONG[kind](np.random.default_rng(0), n)
    np.testing.assert_array_equal(native.ascending(values), np.argsort(values, kind="stable"))


@given(st.lists(st.integers(-1, 6)), st.data())
def test_rows_of_a_group_stay_in_order(groups, data):
    groups = np.array(groups, dtype=np.int64)
    some = data.draw(st.permutations(range(len(groups))))[: data.draw(st.integers(0, len(groups)))]
    for rows in (None, np.array(some, dtype=np.int64)):
        came = list(range(len(groups))) if rows is None else rows.tolist()
        expected = sorted(came, key=lambda row: groups[row])
        sizes = [sum(groups[row] <= g for row in came) for g in range(-1, 7)]
        for kernels in (native, reference):
            order, offsets = kernels.by_group(groups, 7, rows)
            assert (order.tolist(), offsets.tolist()) == (expected, sizes)
    own = groups + 1
    earlier = [(own[:i] == own[i]).sum() for i in range(len(own))]
    assert native.rank_within(own, 8).tolist() == earlier
    assert reference.rank_within(own, 8).tolist() == earlier


def test_many_groups():
    groups = np.random.default_rng(0).integers(-1, 200_000, 300_000)
    for one, other in zip(
        native.by_group(groups, 200_000), reference.by_group(groups, 200_000), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("groups", "rows"), [([0, 2], None), ([-2], None), ([0], [1]), ([0], [-1])]
)
def test_groups_and_rows_that_do_not_exist_are_refused(groups, rows):
    rows = None if rows is None else np.array(rows)
    with pytest.raises(ValueError, match="must exist"):
        native.by_group(np.array(groups), 2, rows)
    with pytest.raises(ValueError, match="must exist"):
        native.rank_within(np.array([-1, *groups]), 2)
