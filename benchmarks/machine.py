"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np

from benchmarks.cores import n_cores


def describe() -> dict[str, Any]:
    """Processor, cores, memory, load, versions, and which kernels evencover runs on."""
    import evencover
    from evencover import _kernels

    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu_model(),
        "cores": n_cores(),
        "memory_gigabytes": round(_total_memory() / 1e9, 1),
        # What else the machine was doing: over 1 the times are not to be trusted.
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "evencover": evencover.__version__,
        "kernels": _kernels.NAME,
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _total_memory() -> int:
    if sys.platform == "win32":
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
