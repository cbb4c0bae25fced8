"""Confusions: only what is shown is kept, and it is what would have been shown."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evencover.evaluation.report import Confusions


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=200))
def test_the_most_frequent_are_those_that_are_shown(pairs):
    true, first = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    every = Confusions.of(true, first, 9)
    few = every.most_frequent()
    assert [few.of_class(index) for index in range(9)] == [every.of_class(i) for i in range(9)]
    assert len(few.pairs) <= 5 * 9
    assert (np.diff(few.pairs) > 0).all()
