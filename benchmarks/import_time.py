"""What ``import evencover`` costs beside ``import numpy``: ``python benchmarks/import_time.py``.

Medians over fresh processes, taken in turn and timed inside the process, so that starting Python
does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

STATEMENTS = {
    "numpy": "import numpy",
    "evencover": "import evencover",
    "predictor": "from evencover import ClusteredPredictor",
}
LAZY = ("sklearn", "matplotlib", "pyarrow", "dask", "pandas", "rich", "cyclopts")
PROGRAM = """
import json, sys, time
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
print(json.dumps([seconds, [name for name in {lazy} if name in sys.modules]]))
"""


def measure(processes: int) -> dict[str, object]:
    """Median seconds of each statement, and the heavy packages that it loaded."""
    seconds: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    loaded: dict[str, list[str]] = {}
    for _ in range(processes):
        for name, statement in STATEMENTS.items():
            program = PROGRAM.format(statement=statement, lazy=LAZY)
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True
            )
            elapsed, loaded[name] = json.loads(done.stdout)
            seconds[name].append(elapsed)
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "processes": processes,
        "statements": STATEMENTS,
        "median_seconds": medians,
        "over_numpy_seconds": medians["predictor"] - medians["numpy"],
        "heavy_packages_loaded": loaded,
    }


def main() -> int:
    """Print and write; the exit code is 1 if evencover loads what it should load lazily."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=20)
    default = Path(__file__).resolve().parent / "results" / "import_time.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    result = measure(options.processes)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for name, median in result["median_seconds"].items():  # type: ignore[attr-defined]
        print(f"{1e3 * median:8.1f} ms  {STATEMENTS[name]}")
    guilty = {k: v for k, v in result["heavy_packages_loaded"].items() if v}  # type: ignore[attr-defined]
    print(f"loads at import: {guilty}" if guilty else "loads no heavy package at import")
    return 1 if guilty else 0


if __name__ == "__main__":
    sys.exit(main())
