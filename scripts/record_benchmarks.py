"""Run a benchmark and write its main results as tables of the site: steps of `make evidence`.

python scripts/record_benchmarks.py peers|reading|cluster|serving|monitoring|topk|compare [--quick]

A benchmark writes all results to .cache/bench/results, and this script writes the tables of pages
to docs/evidence. Timings need an idle machine. With --quick, each takes about a minute, to see that
the pages build: its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from evidence_output import write_table, write_text

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".cache" / "bench" / "results"
TITLES = {"mapie": "MAPIE {}", "torchcp": "TorchCP {}", "numpy_sort": "NumPy {} by hand"}
README_ROWS = (
    ("clustered", "aps", "torchcp"),
    ("standard", "aps", "mapie"),
    ("standard", "softmax", "torchcp"),
)


def read(name: str) -> Any:
    """Return the results that a benchmark wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def title(record: dict[str, Any]) -> str:
    """Return the name and version of a contestant."""
    name, version = record["contestant"], record["version"].split()[0]
    return TITLES.get(name, f"{name} {{}}").format(version)


def seconds(number: float) -> str:
    """Write seconds with two significant digits; whole seconds from 10 on."""
    return f"{number:,.0f} s" if number >= 10 else f"{number:.2g} s"


def peers() -> None:
    """Compare with other packages."""
    results = read("peers")
    if any(one.get("agrees") is False for one in results["agreement"]):
        sys.exit("the sets of a package differ from ours: see .cache/bench/results/peers.md")
    records = [one for one in results["comparisons"] if "error" not in one]
    heads = ["method", "score", "package", "calibrate", "predict", "peak memory"]
    write_table("performance.csv", [heads, *(peer_row(one) for one in records)])
    found = {(one["method"], one["score"], one["contestant"]): one for one in records}
    rows = []
    for method, score, name in README_ROWS:
        ours, theirs = found[method, score, "evencover"], found[method, score, name]
        cells = [f"{total(one)}, {megabytes(one)}" for one in (ours, theirs)]
        rows.append([f"`{method}`, {score}", cells[0], f"{title(theirs)}: {cells[1]}"])
    write_table(
        "performance_readme.csv", [["calibrate + predict", "evencover", "other package"], *rows]
    )
    machine, memory = results["machine"], results["memory"]
    write_text(
        "performance.md",
        f"The machine had {machine['cores']} cores ({machine['cpu']}) and a load of "
        f"{machine['load_before']} before the run, with Python {machine['python']} and\n"
        f"NumPy {machine['numpy']}. The slowest run of a job took {spread(records):.0%} longer "
        "than the fastest, as a median over jobs.",
    )
    write_text(
        "performance_memory.md",
        f"From a file of {memory['input_bytes'] / 1e9:.0f} GB ({memory['rows']:,} rows of "
        f"{memory['classes']:,} classes), CLUSTERED with APS calibrates in "
        f"{memory['calibrate_seconds']:.1f} s and predicts in\n"
        f"{memory['predict_seconds']:.1f} s, and it needs "
        f"{memory['peak_private_bytes'] / 1e6:.0f} MB of memory besides the system's file cache.",
    )
    one_row = [
        [score, *(f"{1e6 * by_name[name]['seconds']:.0f} µs" for name in names)]
        for names in [("evencover", "torchcp", "mapie")]
        for score, by_name in results["everyday"]["one_row"].items()
        if all("seconds" in by_name.get(name, {}) for name in names)
    ]
    write_table("performance_one_row.csv", [["score", "evencover", "TorchCP", "MAPIE"], *one_row])


def spread(records: list[dict[str, Any]]) -> float:
    """Return how much longer the slowest run of a job takes than the fastest: the median job."""
    times = [
        [run["calibrate_seconds"] + run["predict_seconds"] for run in one["runs"]]
        for one in records
    ]
    return statistics.median(max(runs) / min(runs) - 1 for runs in times)


def peer_row(record: dict[str, Any]) -> list[str]:
    """Return the times and the memory of one contestant."""
    return [
        f"`{record['method']}`",
        record["score"],
        title(record),
        seconds(record["calibrate_seconds"]),
        seconds(record["predict_seconds"]),
        megabytes(record),
    ]


def total(record: dict[str, Any]) -> str:
    """Return the time of calibration and prediction together."""
    return seconds(record["calibrate_seconds"] + record["predict_seconds"])


def megabytes(record: dict[str, Any]) -> str:
    """Return the memory over the input."""
    return f"{record['peak_bytes_over_input'] / 1e6:,.0f} MB"


def reading() -> None:
    """Compare the reading of files with their own libraries."""
    rows = [
        [
            f"`{one['file']}`",
            f"{1e3 * one['evencover_seconds']:.0f} ms",
            f"{1e3 * min(one['whole_seconds'], one['pieces_seconds']):.0f} ms",
        ]
        for one in read("reading")["files"]
    ]
    write_table("reading.csv", [["file", "evencover", "its own library"], *rows])


def cluster() -> None:
    """Compare one thread, one worker and two workers."""
    results = read("cluster")
    rows = []
    for job in ("calibrate", "predict", "evaluate"):
        times = [
            f"{statistics.median(results['seconds'][job][run]):.2f} s"
            for run in ("thread", "worker", "workers")
        ]
        speedup = results["ratios"][job]["speedup_of_two_workers"]
        rows.append([job, *times, f"{speedup:.2f}"])
    heads = ["", "one thread", "one worker", "two workers", "speedup of two workers"]
    write_table("cluster.csv", [heads, *rows])
    gigabytes = 4e-9 * results["rows"] * results["classes"]
    rate = gigabytes / statistics.median(results["seconds"]["calibrate"]["worker"])
    together = results["ratios"]["together"]["speedup_of_two_workers"]
    write_text(
        "cluster.md",
        f"Over the three steps together, two workers are {together:.2f} times as fast as one. A "
        "second process reads the same file\n"
        f"{results['plain_read']['speedup_of_two_processes']:.2f} times as fast without computing "
        f"anything. One worker calibrates at {rate:.1f} GB/s.",
    )


def serving() -> None:
    """List requests per second and the processor time of one request."""
    results = read("serving")
    if any(one["errors"] for one in results["sets"]):
        sys.exit("requests failed: see .cache/bench/results/serving.md")
    rows = [
        [
            one["request"],
            one["connections"],
            f"{one['per_second']:.0f}",
            f"{one['p50_ms']:.1f} ms",
            f"{one['p99_ms']:.1f} ms",
            "" if one["cpu_ms"] != one["cpu_ms"] else f"{one['cpu_ms']:.2f} ms",
        ]
        for one in results["sets"]
    ]
    heads = ["request", "connections", "per second", "median", "99%", "processor time"]
    write_table("serving.csv", [heads, *rows])
    rows = [
        [one["request"].split(",")[0], f"{one['p50_ms']:.1f} ms", f"{one['cpu_ms']:.1f} ms"]
        for one in results["monitor"]
    ]
    write_table("serving_monitor.csv", [["request", "median", "processor time"], *rows])


def monitoring() -> None:
    """List delays until an alarm, and false alarms by the arrival of labels."""
    found = read("delays")
    cases = [case for case in next(iter(found.values())) if case != "false alarms"]
    heads = [f"to {float(fallen):.0%} after {int(good):,}" for fallen, good in map(after, cases)]
    rows = [
        [name, f"{one['false alarms']:.2f}", *(delay(one[case]) for case in cases)]
        for name, one in found.items()
    ]
    write_table("monitoring_delays.csv", [["monitor", "false alarms", *heads], *rows])
    rows = [[name, f"{share:.2f}"] for name, share in read("label_arrival").items()]
    write_table("monitoring_arrival.csv", [["arrival of labels", "false alarms"], *rows])


def after(case: str) -> list[str]:
    """Split a case: to which coverage, after how many labels."""
    return case.split(" after ")


def delay(labels: float) -> str:
    """Write a delay; streams end after 3000 labels."""
    return "3000+" if labels > 3000 else f"{labels:.0f}"


class Benchmark(NamedTuple):
    """A module, its options in full and in a quick run, and how to write its tables."""

    module: str
    options: str
    quick: str
    record: Callable[[], None]


BENCHMARKS = {
    "peers": Benchmark("benchmarks", "", "--quick", peers),
    "reading": Benchmark("benchmarks.reading", "", f"--small --out {RESULTS}", reading),
    "cluster": Benchmark("benchmarks.cluster", "", "--rows 100000 --repetitions 1", cluster),
    "serving": Benchmark(
        "benchmarks.serving",
        "--requests 4000 --labels 5000",
        "--requests 200 --labels 200",
        serving,
    ),
    "monitoring": Benchmark("benchmarks.delays", "--streams 60", "--streams 2", monitoring),
    # What they print is their table.
    "topk": Benchmark("benchmarks.topk", "", "--rows 20000 --repeats 1", lambda: None),
    "compare": Benchmark("benchmarks.alone", "", "--quick", lambda: None),
}


def main() -> None:
    """Run one benchmark and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="to see that the pages build")
    arguments = parser.parse_args()
    name = arguments.name
    benchmark = BENCHMARKS[name]
    options = benchmark.quick if arguments.quick else benchmark.options
    command = [sys.executable, "-m", benchmark.module, *options.split()]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode > 1:  # 1: a goal was missed, which the results show
        sys.exit(done.returncode)
    benchmark.record()
    if name in ("topk", "compare"):
        write_text(f"{name}.txt", done.stdout)


if __name__ == "__main__":
    main()
