"""Run the whole benchmark: ``python -m benchmarks``, or with ``--small`` a check of the harness."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import alone, comparisons, data, report
from benchmarks.harness import CACHE, RESULTS, describe_machine, write_results
from benchmarks.plan import ALPHA, FULL, QUICK, SMALL, Plan


def run(plan: Plan) -> dict[str, Any]:
    """Measure everything."""
    results: dict[str, Any] = {
        "small": plan.n_rows < FULL.n_rows,
        "machine": describe_machine(),
        "data": {"rows": plan.n_rows, "classes": plan.n_classes, "alpha": ALPHA},
    }
    print(f"evencover runs on {results['machine']['kernels']} kernels", flush=True)
    calibration = data.make(plan.n_rows, plan.n_classes, seed=1)
    test = data.make(plan.n_rows, plan.n_classes, seed=2)
    pythons = comparisons.interpreters(plan)
    results["agreement"] = comparisons.check_all(plan, pythons, calibration, test)
    results["comparisons"] = comparisons.compare_all(plan, pythons, calibration, test)
    results["memory"] = alone.memory(plan, test)
    results["everyday"] = {"one_row": alone.one_row(plan, pythons, calibration, test)}
    return results


def main() -> int:
    """Run, print, write; the exit code is 1 if sets differ that must agree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--small", action="store_true", help="tiny arrays, no peers: for CI")
    parser.add_argument("--quick", action="store_true", help="small arrays, with peers")
    parser.add_argument("--repetitions", type=int, help="fresh processes per contestant")
    parser.add_argument("--peers", nargs="*", choices=FULL.peers, help="only these peers")
    parser.add_argument("--skip-memory", action="store_true", help="do not write the 4 GB file")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()

    plan = QUICK if options.quick else SMALL if options.small else FULL
    out = (options.out or (CACHE / "small" if options.small else RESULTS)).resolve()
    changes: dict[str, Any] = {}
    if options.repetitions is not None:
        changes["repetitions"] = options.repetitions
    if options.peers is not None:
        changes["peers"] = tuple(options.peers)
    if options.skip_memory:
        changes["memory_times"] = 0
    results = run(replace(plan, **changes) if changes else plan)

    write_results(out, "peers", results, report.markdown(results))
    disagreeing = [each for each in results["agreement"] if each.get("agrees") is False]
    return 1 if disagreeing else 0


if __name__ == "__main__":
    sys.exit(main())
