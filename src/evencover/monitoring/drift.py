"""Drift without labels: do set sizes and predicted classes come as they used to?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evencover.monitoring.counts import SIZE_EDGES, Counts
from evencover.monitoring.evidence import difference_log_e, raised


class Drift(NamedTuple):
    """One share of the sets, then and now.

    ``what`` it is a share of; ``before`` and ``now``, the shares; ``e_value``, the evidence that
    they differ; ``drifted``, whether it is enough, at most a share of these being wrong on average.
    """

    what: str
    before: float
    now: float
    e_value: float
    drifted: bool


def drifts(counts: Counts, level: float, class_names: Sequence[str] | None) -> list[Drift]:
    """Every share that can be compared, the clearest difference first; none without both sides."""
    n_before, n_now = counts.sizes.sum(axis=1).tolist()
    if not n_before or not n_now:
        return []
    names = [f"sets of {_size_name(place)}" for place in range(len(SIZE_EDGES))]
    names += [
        f"rows predicted as {name}"
        for name in (range(counts.n_classes) if class_names is None else class_names)
    ]
    before, now = np.concatenate([counts.sizes, counts.tops], axis=1)
    seen = np.flatnonzero((before + now) > 0)
    log_e = difference_log_e(
        np.stack([before[seen], n_before - before[seen]], axis=-1),
        np.stack([now[seen], n_now - now[seen]], axis=-1),
    )
    drifted = raised(log_e, level)
    found = [
        Drift(
            names[place],
            float(before[place] / n_before),
            float(now[place] / n_now),
            float(np.exp(min(evidence, 709.0))),
            bool(is_clear),
        )
        for place, evidence, is_clear in zip(seen, log_e, drifted, strict=True)
    ]
    order = np.argsort(-log_e, kind="stable")
    return [found[place] for place in order]


def _size_name(place: int) -> str:
    first = int(SIZE_EDGES[place])
    if place == len(SIZE_EDGES) - 1:
        return f"{first} classes or more"
    last = int(SIZE_EDGES[place + 1]) - 1
    if first == last:
        return {0: "no class", 1: "one class"}.get(first, f"{first} classes")
    return f"{first} to {last} classes"
