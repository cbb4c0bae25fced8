"""compare() on the bundled data, as people call it."""

from __future__ import annotations

import time
from typing import Any


def comparing(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of one call with four methods and three scores. Jobs have: n_splits."""
    import evencover
    from evencover.data import load_languages

    rows, labels, _ = load_languages()
    few = slice(0, 2000)
    evencover.compare(rows[few, :20] + 1 / 40, labels[few] % 20, from_logits=True, n_splits=2)
    start = time.perf_counter()
    found = evencover.compare(
        rows,
        labels,
        methods=["standard", "classwise", "clustered", "pooled"],
        scores=["softmax", "aps", "raps"],
        n_splits=job["n_splits"],
    )
    return {
        "seconds": time.perf_counter() - start,
        "version": evencover.__version__,
        "pick": found.best.method,
    }
