"""How many cores this process may use."""

from __future__ import annotations

import os


def n_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
