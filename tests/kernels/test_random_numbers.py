"""The random numbers of rows are the same bits in both kernels; see tests/test_randomness.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.cases import DTYPES
from kernels.compare import same_bits

from evencover._kernels import Draws


@given(
    seed=st.integers(0, 2**64 - 1),
    use=st.integers(0, 9),
    ids=st.lists(st.integers(0, 2**64 - 1), max_size=20),
)
def test_numbers_of_ids(seed, use, ids):
    for name in ("random_bits", "uniforms"):
        same_bits(name, seed, use, np.array(ids, dtype=np.uint64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 3, 15, 16, 17, 31, 32, 33, 1000])
def test_keys_of_rows(dtype, k):
    rng = np.random.default_rng(k)
    rows = (rng.normal(size=(9, k)) * 100).astype(dtype)
    rows[2, rng.random(k) < 0.5] = -np.inf
    rows[3] = 0
    rows[4] = -rows[3]
    if dtype == np.float64:
        rows[5] *= 1e300  # beyond float32
    same_bits("row_keys", rows, Draws(first=2**40))
    same_bits("row_numbers", rows, Draws(5, 1, 2))


@given(
    labels=st.lists(st.integers(0, 7), max_size=600),
    start=st.integers(0, 2**40),
    largest=st.sampled_from([0, 2**62, 2**64 - 1]),
    stride=st.integers(1, 8),
)
def test_labels_are_hashed_and_sampled(labels, start, largest, stride):
    """The last label is of no class."""
    same_bits("sample_labels", np.array(labels, dtype=np.int64), start, 7, largest, stride)
