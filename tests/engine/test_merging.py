"""Results of parts become one, whether or not it is known how many rows there are."""

import numpy as np
import pytest

from evencover.engine.blocks import gathered, joined

PARTS = [
    (np.array([0.5, 0.25]), np.array([3, 1], dtype=np.uint8)),
    (np.array([0.75]), np.array([2], dtype=np.uint8)),
]


@pytest.mark.parametrize("n_rows", [3, None])
def test_parts_are_put_one_after_the_other(n_rows):
    for ours, expected in zip(gathered(iter(PARTS), n_rows), joined(PARTS), strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)


def test_a_source_with_too_many_rows_is_read_to_its_end():
    seen = []
    gathered((seen.append(part) or part for part in PARTS), 1)
    assert len(seen) == 2
