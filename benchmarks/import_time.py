"""Time ``import evencover`` next to ``import numpy``: ``python -m benchmarks.import_time``.

Medians over fresh processes, in turn, timed inside the process to exclude Python's startup.
tests/cli/test_imports.py checks which packages are loaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import RESULTS

STATEMENTS = {
    "numpy": "import numpy",
    "evencover": "import evencover",
    "predictor": "from evencover import ClusteredPredictor",
}
PROGRAM = """
import time
start = time.perf_counter()
{}
print(time.perf_counter() - start)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS / "import_time.json")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(options.processes):
        for name, statement in STATEMENTS.items():
            command = [sys.executable, "-c", PROGRAM.format(statement)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds[name].append(float(done.stdout))
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, median in medians.items():
        print(f"{1e3 * median:8.1f} ms  {STATEMENTS[name]}")
    result = {
        "processes": options.processes,
        "median_seconds": medians,
        "over_numpy_seconds": medians["predictor"] - medians["numpy"],
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
