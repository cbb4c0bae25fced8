"""Measure detection delays of a drop in coverage, and false alarms.

``python -m benchmarks.delays`` compares evencover's e-values with a binomial test and MAPIE's
`RiskMonitoring` on the same streams of hits and misses. Writes results/delays.json and .md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import RESULTS, python_of, write_results
from evencover.monitoring.evidence import raised, shortfall_log_e, urn_log_e

LEVEL, TESTED, LABELS, SEED = 0.05, 0.88, 2000, 7
FALLS = {"80%": 0.8, "70%": 0.7}
CLASSES, BROKEN, RUNS_OF_MANY = 500, 50, 20
NEVER = LABELS + 1

# Run by the peer's Python: the first label after which each stream is in alarm.
MAPIE = """
import sys, numpy as np
from mapie.exchangeability_testing import RiskMonitoring
hits = np.load(sys.argv[1])
first = []
for stream in hits:
    # Half of test_level is for the reference, which is given here: 0.1 leaves 0.05 as elsewhere.
    monitor = RiskMonitoring("accuracy", test_level=0.1, threshold=float(sys.argv[3]), warn=False)
    monitor.update(np.ones(len(stream), dtype=int), stream.astype(int))
    above = monitor.online_risk_lower_bound_sequence_history > monitor.threshold
    first.append(int(above.argmax()) + 1 if above.any() else stream.size + 1)
np.save(sys.argv[2], np.array(first))
"""


def first_alarm(alarms: np.ndarray) -> np.ndarray:
    """Return the label after which each stream (rows) is first in alarm; `NEVER` if none."""
    return np.where(alarms.any(axis=1), alarms.argmax(axis=1) + 1, NEVER)


def alone(hits: np.ndarray) -> np.ndarray:
    """Test one class after every label."""
    rows = np.broadcast_to(np.arange(1, LABELS + 1), hits.shape)
    covered = hits.cumsum(axis=1)
    log_e = shortfall_log_e(covered.ravel(), (rows - covered).ravel(), TESTED)
    return first_alarm(log_e.reshape(hits.shape) >= np.log(1 / LEVEL))


def since_calibration(hits: np.ndarray, n: int) -> np.ndarray:
    """Test one class against its n calibration examples (CLASSWISE)."""
    rows = np.broadcast_to(np.arange(1, LABELS + 1), hits.shape)
    covered = hits.cumsum(axis=1)
    rank = np.full(hits.size, -(-9 * (n + 1) // 10))
    log_e = urn_log_e(covered.ravel(), (rows - covered).ravel(), rank, np.full(hits.size, n))
    return first_alarm(log_e.reshape(hits.shape) >= np.log(1 / LEVEL))


def among_many(rng: np.random.Generator, fallen: float) -> np.ndarray:
    """Detect the broken ones of 500 classes by e-BH over all of them."""
    found = []
    for _ in range(RUNS_OF_MANY):
        coverage = np.full(CLASSES, 0.9)
        coverage[:BROKEN] = fallen
        covered = (rng.random((LABELS, CLASSES)) < coverage).cumsum(axis=0)
        named = np.zeros((BROKEN, LABELS), dtype=bool)
        for t in range(9, LABELS, 5):
            log_e = shortfall_log_e(covered[t], t + 1 - covered[t], TESTED)
            named[:, t] = raised(log_e, LEVEL)[:BROKEN]
        found.append(first_alarm(named))
    return np.concatenate(found)


def binomial_p(hits: np.ndarray) -> np.ndarray:
    """Return the p-value of a binomial test after each label."""
    from scipy.special import bdtr

    rows = np.arange(1, LABELS + 1)
    return np.asarray(bdtr(hits.cumsum(axis=1).astype(float), rows, TESTED))


def planned_n(fallen: float) -> int:
    """Return the smallest number of labels for a binomial test with 90% power."""
    from scipy.special import bdtr

    for n in range(10, LABELS):
        counts = np.arange(n + 1, dtype=float)
        critical = int((bdtr(counts, n, TESTED) <= LEVEL).sum()) - 1
        if critical >= 0 and bdtr(float(critical), n, fallen) >= 0.9:
            return n
    return LABELS


def of_mapie(python: Path, hits: np.ndarray) -> np.ndarray:
    """Return first alarms of `RiskMonitoring`."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("hits.npy", "first.npy")]
        np.save(files[0], hits)
        command = [str(python), "-c", MAPIE, *files, str(1 - TESTED)]
        subprocess.run(command, check=True)
        return np.asarray(np.load(files[1]))


def figures(first: np.ndarray) -> dict[str, float]:
    """Summarize delays in labels; streams without an alarm count as longer than the stream."""
    return {
        "median": float(np.median(first)),
        "p90": float(np.quantile(first, 0.9, method="inverted_cdf")),
        "found": float((first <= LABELS).mean()),
    }


def measure(python: Path, streams: int) -> dict[str, dict[str, object]]:
    """Run every test on streams of each coverage."""
    rng = np.random.default_rng(SEED)
    made = {"kept": TESTED} | FALLS
    hits = {name: rng.random((streams, LABELS)) < p for name, p in made.items()}
    ways: dict[str, dict[str, object]] = {}

    def add(name: str, kept: np.ndarray | None, delays: dict[str, dict[str, float]]) -> None:
        alarms = None if kept is None else float((kept <= LABELS).mean())
        ways[name] = {"false alarms": alarms, **delays}

    def of(function: object, name: str) -> None:
        found = {each: function(hits[each]) for each in made}  # type: ignore[operator]
        add(name, found["kept"], {fall: figures(found[fall]) for fall in FALLS})

    of(alone, "evencover, one class")
    many = {fall: figures(among_many(rng, p)) for fall, p in FALLS.items()}
    add(f"evencover, {BROKEN} of {CLASSES} classes fell, each named (e-BH)", None, many)
    of(lambda h: since_calibration(h, 200), "evencover, change since 200 calibration rows")
    of(lambda h: of_mapie(python, h), "MAPIE RiskMonitoring, one class")
    of(lambda h: first_alarm(binomial_p(h) <= LEVEL), "binomial test after every label (invalid)")
    for fall, p in FALLS.items():
        n = planned_n(p)
        once = {each: binomial_p(hits[each])[:, n - 1] <= LEVEL for each in made}
        kept = np.where(once["kept"], n, NEVER)
        add(
            f"binomial test once, at n = {n} (planned for {fall})",
            kept,
            {each: figures(np.where(once[each], n, NEVER)) for each in FALLS},
        )
    return ways


def table(ways: dict[str, dict[str, object]], streams: int) -> str:
    """Format the results as Markdown."""
    lines = [
        "# Detection delays",
        "",
        f"Coverage falls from 90% at the first label; the tested level is {TESTED:.0%} (alpha 0.1, "
        f"tolerance 0.02), the level {LEVEL}, {LABELS} labels, {streams} streams (seed {SEED}). "
        "Delays are labels of the class, median (90th percentile); `>` means not found in time. "
        "False alarms: the share of streams with exactly the tested coverage that were ever in "
        "alarm.",
        "",
        f"| way to watch | false alarms | {' | '.join(f'to {fall}' for fall in FALLS)} |",
        f"|---|---|{'---|' * len(FALLS)}",
    ]
    for name, found in ways.items():
        alarms = found["false alarms"]
        cells = ["–" if alarms is None else f"{alarms:.3f}"]
        cells += [_delay(found[fall]) for fall in FALLS]  # type: ignore[arg-type]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _delay(found: dict[str, float]) -> str:
    texts = [
        f">{LABELS}" if found[name] > LABELS else f"{found[name]:.0f}" for name in ("median", "p90")
    ]
    return f"{texts[0]} ({texts[1]})"


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--mapie", type=Path, help="the Python of MAPIE's environment")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    ways = measure(options.mapie or python_of("mapie"), options.streams)
    write_results(options.out, "delays", ways, table(ways, options.streams))
    return 0


if __name__ == "__main__":
    sys.exit(main())
