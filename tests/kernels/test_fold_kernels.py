"""What cross-fitting asks of the kernels: the same bits from both, and what plain Python says."""

from math import inf

import numpy as np
import pytest
from kernels.same_bits import same_bits

from evencover._kernels import Blends, LeftOut


def ordered_rows(rng, n, n_classes, n_different):
    """Labels of rows in the order of their scores, and how many rows have a lower score."""
    scores = np.sort(rng.integers(0, n_different, n))
    return scores, rng.integers(0, n_classes, n), np.searchsorted(scores, scores)


@pytest.mark.parametrize("n_different", [1, 20, 10**9])
@pytest.mark.parametrize("n", [1, 2, 200])
def test_rows_that_are_left_out(n, n_different):
    rng = np.random.default_rng([n, n_different])
    scores, labels, first = ordered_rows(rng, n, 6, n_different)
    fold = rng.integers(0, 3, n).astype(np.int8)
    for number in (-1, 0, 2):
        found = LeftOut(*same_bits("left_out", labels, first, fold, number, 7))
        held, kept = fold == number, fold != number
        np.testing.assert_array_equal(found.labels, labels[kept])
        for y in range(7):
            own = found.places[found.offsets[y] : found.offsets[y + 1]]
            np.testing.assert_array_equal(own, np.flatnonzero(labels[kept] == y))
            out = slice(found.held_offsets[y], found.held_offsets[y + 1])
            its, others = scores[held & (labels == y)], scores[kept]
            same = scores[kept & (labels == y)]
            np.testing.assert_array_equal(found.held_labels[out], np.full(len(its), y))
            np.testing.assert_array_equal(found.held_places[out], [(others < s).sum() for s in its])
            np.testing.assert_array_equal(found.held_below[out], [(same < s).sum() for s in its])
            np.testing.assert_array_equal(found.held_first[out], [(scores < s).sum() for s in its])
        middles = [(scores[kept] < s).sum() + (scores[kept] <= s).sum() for s in scores[kept]]
        np.testing.assert_array_equal(found.middles, middles)


def test_no_rows_are_left():
    none = np.empty(0, dtype=np.int64)
    same_bits("left_out", none, none, none.astype(np.int8), 0, 3)
    rows = np.zeros(4, dtype=np.int64)
    same_bits("left_out", rows, rows, rows.astype(np.int8), 0, 3)


@pytest.mark.parametrize("n", [1, 511, 512, 3000])
def test_blends(n):
    rng = np.random.default_rng(n)
    counts = rng.integers(1, 40, n).astype(float)
    expected = rng.random((3, n))
    expected[2] = np.round(expected[2], 1)  # many are equal
    kinds, strengths = np.array([0, 1, 2, 2, 0]), np.array([30.0, 0.0, inf, 100.0, inf])
    blends = Blends(np.floor(rng.random(n) * counts), counts, expected, kinds, strengths)
    for ingredient in range(5):
        levels = np.sort(blends.levels(ingredient))
        for rank in {0, n // 2, int(0.9 * n), n - 1}:
            assert same_bits("blended_quantile", blends, ingredient, rank) == [levels[rank]]
    weights = rng.dirichlet(np.ones(5))
    (together,) = same_bits("blended_levels", blends, weights)
    wanted = sum(weight * blends.levels(i) for i, weight in enumerate(weights))
    np.testing.assert_allclose(together, wanted)
