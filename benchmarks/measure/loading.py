"""Input for a job, and a small data set to warm up on."""

from __future__ import annotations

from typing import Any

import numpy as np


def load(arrays: dict[str, str], n_rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of the files, in memory."""
    if n_rows is None:
        return np.load(arrays["probabilities"]), np.load(arrays["labels"])
    rows = np.load(arrays["probabilities"], mmap_mode="r")[:n_rows]
    return np.array(rows), np.load(arrays["labels"])[:n_rows]


def warm_up(contestant: Any) -> None:
    """Run it once on little data, so that lazy imports and thread pools are not timed.

    Few classes with many rows each, so that clustering happens too.
    """
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(20), size=2000).astype(np.float32)
    labels = np.arange(2000) % 20
    contestant.calibrate(contestant.prepare(rows), contestant.prepare(labels))
    contestant.predict(contestant.prepare(rows[:100]))
