"""Coverage in parts of the test rows: by size of the set, and in slabs of the features."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.errors import InputError
from evencover.evaluation.statistics import share_with_limits
from evencover.validation import real_number, whole_number

LEAST_ROWS = 20  # of a stratum, below which its coverage is mostly noise


class Stratum(NamedTuple):
    """The rows with sets of `smallest` to `largest` classes, and a 95% interval of coverage."""

    smallest: int
    largest: int
    rows: int
    covered: int
    coverage: float
    coverage_low: float
    coverage_high: float


def strata_by_size(size_counts: IntArray, covered_sizes: IntArray) -> list[Stratum]:
    """Divide rows into strata by the size of their set: 0, 1, 2, 3 to 5, 6 to 10, 11 to 20, ...

    Both inputs (K + 1,) count rows by size. Strata without rows are left out.

    >>> strata = strata_by_size(np.array([1, 4, 0, 1, 1]), np.array([0, 3, 0, 1, 1]))
    >>> [(stratum.smallest, stratum.largest, stratum.coverage) for stratum in strata]
    [(0, 0, 0.0), (1, 1, 0.75), (3, 4, 1.0)]
    """
    n_classes, strata = len(size_counts) - 1, []
    starts, power = [0, 1, 2, 3], 1
    while starts[-1] <= n_classes:
        starts += [5 * power + 1, 10 * power + 1, 20 * power + 1]
        power *= 10
    for first, after in pairwise(starts):
        rows, covered = int(size_counts[first:after].sum()), int(covered_sizes[first:after].sum())
        if rows:
            last, shares = min(after - 1, n_classes), share_with_limits(covered, rows).tolist()
            strata.append(Stratum(first, last, rows, covered, *shares))
    return strata


class WorstSlab(NamedTuple):
    """The slab of lowest coverage: rows x with `low` <= direction · x <= `high`.

    One part of the rows chose it among all slabs; `coverage` and `n_rows` are those of the rest, of
    which the slab contains a `share`.
    """

    coverage: float
    n_rows: int
    share: float
    direction: FloatArray
    low: float
    high: float


def worst_slab(
    is_covered: Array,
    features: Any,
    *,
    delta: float = 0.1,
    n_directions: int = 1000,
    test_size: float = 0.75,
    random_state: int = 0,
) -> WorstSlab:
    """Find the slab of the feature space with the lowest coverage, and measure it on other rows.

    A slab has the rows between two parallel planes, and at least a share `delta` of all rows
    (Cauchois et al. 2021). The lowest coverage of many slabs is low by chance alone, so rows that
    had no part in the search measure it, as in Romano et al. (2020).

    Parameters
    ----------
    is_covered
        (N,) whether the set of each row contains its label.
    features
        (N, D) numbers that describe the rows: inputs, an embedding, or the probabilities.
    delta
        The smallest share of rows in a slab.
    n_directions
        Number of random directions to search.
    test_size
        Share of the rows that measure coverage in the slab; the others choose it.
    random_state
        Seed of the directions, and of the division of the rows.

    >>> x = np.linspace(0, 1, 2000)[:, None]
    >>> slab = worst_slab(x[:, 0] < 0.8, x, n_directions=2)
    >>> slab.coverage, round(slab.share, 1)
    (0.0, 0.2)
    """
    owner = "worst_slab"
    real_number(delta, "delta", owner, 0.0, 1.0, open_low=True, open_high=True)
    real_number(test_size, "test_size", owner, 0.0, 1.0, open_low=True, open_high=True)
    whole_number(n_directions, "n_directions", owner, 1)
    x = to_numpy(features, "'features'")
    if x.ndim != 2 or len(x) != len(is_covered) or x.dtype.kind not in "fiub":
        raise InputError(
            "'features' must be a matrix of numbers with one row per set. Got type "
            f"{x.dtype} and shape {x.shape} for {len(is_covered)} sets."
        )
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        raise InputError("'features' must be finite. Got NaN or an infinite number.")
    rng = np.random.default_rng(random_state)
    order = rng.permutation(len(x))
    measuring, choosing = np.split(order, [round(test_size * len(x))])
    if not len(measuring) or not len(choosing):
        raise InputError(f"A search for the worst slab needs more rows. Got {len(x)}.")
    directions = rng.standard_normal((n_directions, x.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = [lowest_between(x[choosing] @ v, is_covered[choosing], delta) for v in directions]
    worst = min(range(n_directions), key=lambda number: found[number])
    direction, (_, low, high) = directions[worst], found[worst]
    position = x[measuring] @ direction
    is_inside = (position >= low) & (position <= high)
    n_rows, n_covered = int(is_inside.sum()), int(is_covered[measuring][is_inside].sum())
    coverage = n_covered / n_rows if n_rows else float("nan")
    return WorstSlab(coverage, n_rows, float(is_inside.mean()), direction, low, high)


def lowest_between(
    position: FloatArray, is_covered: Array, delta: float
) -> tuple[float, float, float]:
    """Return the lowest coverage between two positions with a share `delta` of rows, and these.

    Rows at equal positions stay together. The search is exact: it starts from the coverage of all
    rows and looks for rows from i to j that have fewer hits than this coverage implies, which
    lowers it, until there are none (Dinkelbach 1967).

    >>> lowest_between(np.arange(6.0), np.array([1, 1, 0, 1, 0, 1]), 0.5)
    (0.333..., 2.0, 4.0)
    """
    order = np.argsort(position, kind="stable")
    position = position[order]
    hits = np.append(0, np.cumsum(is_covered[order]))
    n, n_least = len(position), ceil(delta * len(position) - 1e-9)
    is_bound = np.concatenate([[True], position[1:] > position[:-1], [True]])
    starts = np.arange(n - n_least + 1)  # of rows i to j - 1, which are n_least at least
    first, after = 0, n
    while True:
        # Integers, so that no rounding makes two windows of equal coverage differ.
        excess = hits * (after - first) - np.arange(n + 1) * (hits[after] - hits[first])
        best_start = np.where(is_bound[starts], excess[starts], np.iinfo(np.int64).min)
        best_start = np.maximum.accumulate(best_start)
        gain = np.where(is_bound[n_least:], excess[n_least:] - best_start, np.iinfo(np.int64).max)
        j = int(gain.argmin())
        if gain[j] >= 0:
            coverage = (hits[after] - hits[first]) / (after - first)
            return float(coverage), float(position[first]), float(position[after - 1])
        is_start = is_bound[starts[: j + 1]] & (excess[starts[: j + 1]] == best_start[j])
        first, after = int(is_start.argmax()), j + n_least
