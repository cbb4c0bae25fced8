"""Drift of set sizes and predicted classes from a reference, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evencover.arrays import IntArray
from evencover.monitoring.evidence import difference_log_e, e_values, raised

# Set sizes are counted in bins: 0, 1, 2, 3 to 5, 6 to 10, ...; the last has no end.
SIZE_EDGES = np.array([0, 1, 2, 3, 6, 11, 21, 51, 101, 1001])


class Drift(NamedTuple):
    """Compare one fraction of the sets with the reference.

    ``what`` names it; ``before`` and ``now`` are the fractions; ``e_value`` is the evidence that
    they differ; ``drifted`` is whether it is significant, at a false discovery rate.
    """

    what: str
    before: float
    now: float
    e_value: float
    drifted: bool


def drift_bins(sizes: IntArray, top_classes: IntArray) -> IntArray:
    """Return the bins (n, 2) that count each row: of its set size, and of its top class."""
    size_bins = np.searchsorted(SIZE_EDGES, sizes, side="right") - 1
    return np.stack([size_bins, top_classes + len(SIZE_EDGES)], axis=-1)


def drifts(counts: IntArray, level: float, class_names: Sequence[str] | None) -> list[Drift]:
    """Compare counts (2, B + K) of the reference and now, the most significant difference first."""
    n_before, n_now = counts[:, : len(SIZE_EDGES)].sum(axis=1).tolist()
    if not n_before or not n_now:
        return []
    names = [f"sets of {_size_name(size_bin)}" for size_bin in range(len(SIZE_EDGES))]
    n_classes = counts.shape[1] - len(SIZE_EDGES)
    names += [f"rows predicted as {name}" for name in class_names or range(n_classes)]
    bins = np.flatnonzero(counts.sum(axis=0))
    before, now = counts[:, bins]
    log_e = difference_log_e(
        np.stack([before, n_before - before], axis=-1), np.stack([now, n_now - now], axis=-1)
    )
    drifted = raised(log_e, level)
    order = np.argsort(-log_e, kind="stable")
    columns = bins, before / n_before, now / n_now, e_values(log_e), drifted
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    return [Drift(names[number], *values) for number, *values in rows]


def _size_name(size_bin: int) -> str:
    first = int(SIZE_EDGES[size_bin])
    if size_bin == len(SIZE_EDGES) - 1:
        return f"{first} classes or more"
    last = int(SIZE_EDGES[size_bin + 1]) - 1
    if first == last:
        return {0: "no class", 1: "one class"}.get(first, f"{first} classes")
    return f"{first} to {last} classes"
