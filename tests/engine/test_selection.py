"""The exact k-th smallest from histograms: any floats, any ties, any parts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from evencover.engine import selection
from evencover.engine.selection import (
    Extent,
    Search,
    added,
    floats_of,
    histogram,
    order_keys,
    refine,
    select,
)

FLOATS = st.one_of(
    st.floats(allow_nan=False, width=64),
    st.sampled_from([0.0, -0.0, 1.0, np.nextafter(1.0, 2), 5e-324, -5e-324, np.inf, -np.inf]),
    st.integers(0, 3).map(float),
)


@given(st.lists(FLOATS, min_size=2, max_size=30))
def test_keys_have_the_order_of_the_floats_and_give_them_back(values):
    values = np.array(values)
    keys = order_keys(values)
    assert (np.argsort(keys, kind="stable") == np.argsort(values, kind="stable")).all()
    assert (floats_of(keys) == values).all()
    assert (np.diff(keys[np.argsort(keys)].astype(object)) >= 0).all()


@given(
    st.lists(FLOATS, min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([1, 1 << 6, 1 << 18]),
    st.randoms(use_true_random=False),
)
def test_every_rank_is_found_whatever_the_parts(values, n_groups, n_ranks, n_parts, cells, random):
    values = np.array(values)
    groups = np.array([random.randint(-1, n_groups - 1) for _ in values])
    places = np.array([random.randrange(n_parts) for _ in values])
    ranks = np.array(
        [[random.randint(0, len(values) + 1) for _ in range(n_groups)] for _ in range(n_ranks)]
    )
    parts = [
        (order_keys(values[places == part]), groups[places == part]) for part in range(n_parts)
    ]
    extent = added(Extent.of(keys, own, n_groups) for keys, own in parts)
    n_passes = 0

    def count(search):
        nonlocal n_passes
        n_passes += 1
        return added(histogram(keys, own, search) for keys, own in parts)

    before = selection.MOST_CELLS
    selection.MOST_CELLS = cells
    try:
        found = select(ranks, extent, count)
    finally:
        selection.MOST_CELLS = before
    assert n_passes <= 32  # 2 bits of 64 a pass at least
    for (row, group), rank in np.ndenumerate(ranks):
        own = np.sort(values[groups == group])
        if 1 <= rank <= len(own):
            wanted = own[rank - 1]
            assert floats_of(found.low)[row, group] == wanted
            assert found.ranks[row, group] == rank - (own < wanted).sum()


@given(arrays.arrays(np.float64, 40, elements=st.floats(0, 1)))
def test_extents_add_up(values):
    keys, groups = order_keys(values), np.arange(40) % 3
    halves = [Extent.of(keys[half], groups[half], 3) for half in (slice(0, 7), slice(7, None))]
    for mine, theirs in zip(added(halves), Extent.of(keys, groups, 3), strict=True):
        assert mine.tolist() == theirs.tolist()


def test_the_widest_interval_there_is():
    values = np.array([-np.inf, -1e300, -1.0, 0.0, 1.0, 1e300, np.inf, np.inf])
    keys, groups = order_keys(values), np.zeros(8, dtype=np.int64)
    for cells in (4, 1 << 10):
        search = Search.begin(np.arange(1, 9)[:, None], Extent.of(keys, groups, 1))
        search = search._replace(n_cells=cells)
        for _ in range(64):
            search = refine(search, histogram(keys, groups, search))
        assert search.is_over
        assert floats_of(search.low)[:, 0].tolist() == values.tolist()
