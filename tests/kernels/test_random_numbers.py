"""The random numbers of rows are the same bits in both kernels, and Philox's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.made import DTYPES
from kernels.same_bits import same_bits

from evencover._kernels import Draws


def philox(counter, key):
    """Philox4x32-10 in whole numbers."""
    low = 0xFFFFFFFF
    a, b, c, d = counter
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = second >> 32 ^ b ^ key[0], second & low, first >> 32 ^ d ^ key[1], first & low
        key = (key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low
    return [a, b, c, d]


def test_known_answers_of_philox():
    # Random123's kat_vectors for philox4x32 with 10 rounds.
    for counter, key, answer in [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]:  # fmt: skip
        words, given_key, expected = (
            [int(word, 16) for word in each.split()] for each in (counter, key, answer)
        )
        assert philox(words, given_key) == expected


@given(
    seed=st.integers(0, 2**64 - 1),
    use=st.integers(0, 9),
    ids=st.lists(st.integers(0, 2**64 - 1), max_size=20),
)
def test_numbers_of_ids(seed, use, ids):
    half = 0xFFFFFFFF
    expected = [philox((i & half, i >> 32, use, 0), (seed & half, seed >> 32)) for i in ids]
    ids = np.array(ids, dtype=np.uint64)
    [bits] = same_bits("random_bits", seed, use, ids)
    assert bits.tolist() == [a << 32 | b for a, b, _, _ in expected]
    same_bits("uniforms", seed, use, ids)


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
