"""How soon a fall in coverage is found, after a short or a long good history.

``python -m benchmarks.delays``: evencover's evidence next to MAPIE's `RiskMonitoring`, a CUSUM that
knows the fall, and a test of fixed size, on the same streams of hits and misses. Coverage is 92%
for a number of labels and then falls; the target is 88%. Then false alarms where labels do not
arrive at random. Writes delays and label_arrival to .cache/bench/results, as .json and .md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.harness import RESULTS, python_of, write_results
from evencover.monitoring.evidence import (
    SHORTFALLS,
    block_of,
    shortfall_log_e,
    since_restarts,
    urn_log_e,
    with_restarts,
)

LEVEL, TARGET, EARLIER, SEED = 0.05, 0.88, 0.92, 7
AFTER, FALLS, MOST = (0, 200, 1000, 5000), (0.7, 0.8), 3000
LENGTH = AFTER[-1] + MOST
CLASSES = 500  # of a monitor that tests all of them
EVERY = 10  # labels between looks at the score shift, whose bets take longer

# Run by the peer's own Python: the first label at which each stream is in alarm, from one on.
MAPIE = """
import sys, numpy as np
from mapie.exchangeability_testing import RiskMonitoring
hits, start = np.load(sys.argv[1]), int(sys.argv[4])
first = []
for stream in hits:
    # Half of test_level is for the reference, which is given here: 0.1 leaves 0.05 as elsewhere.
    monitor = RiskMonitoring("accuracy", test_level=0.1, threshold=float(sys.argv[3]), warn=False)
    monitor.update(np.ones(len(stream), dtype=int), stream.astype(int))
    above = monitor.online_risk_lower_bound_sequence_history[start:] > monitor.threshold
    first.append(int(above.argmax()) + 1 if above.any() else stream.size + 1)
np.save(sys.argv[2], np.array(first))
"""


def below_target(
    hits: np.ndarray, start: int, fallen: float, restarts: bool = True, n_classes: int = 1
) -> np.ndarray:
    """Alarms (streams, labels) of one class, looked at after every label from `start` on.

    It is the first of `n_classes` to be in alarm, which takes an e-value of n_classes / level.
    """
    n_streams, n_labels = hits.shape
    blocks = block_of(np.arange(n_labels)) if restarts else np.zeros(n_labels, dtype=np.int64)
    won = np.stack([1 + SHORTFALLS * TARGET / (1 - TARGET), 1 - SHORTFALLS])
    bets, alarms = np.zeros((n_streams, len(SHORTFALLS))), np.zeros(hits.shape, dtype=bool)
    evidence = np.ones(n_streams)
    for n in range(n_labels):
        j = blocks[n] + 1
        if n == 0 or blocks[n] != blocks[n - 1]:
            bets += 1 / (j * (j + 1)) if restarts else 1
        bets *= won[hits[:, n].astype(int)]
        evidence = bets.mean(axis=1) + (1 / (j + 1) if restarts else 0)
        alarms[:, n] = evidence >= n_classes / LEVEL
    if restarts:  # by the monitor's own functions
        np.testing.assert_allclose(np.log(evidence[0]), of_blocks(hits[0], blocks), atol=1e-8)
    return alarms[:, start:]


def of_blocks(hits: np.ndarray, blocks: np.ndarray, urn: tuple[int, int] | None = None) -> float:
    """Log evidence of one stream, as the monitor computes it from its counts."""
    counts = np.zeros((blocks[-1] + 1, 2), dtype=np.int64)
    np.add.at(counts, blocks, np.stack([hits, ~hits], axis=-1))
    later, before = since_restarts(counts, np.array([0]))
    if urn is None:
        log_e = shortfall_log_e(later[:, 0], later[:, 1], TARGET)
    else:
        ranks, known = (np.full(len(counts), value) for value in urn)
        log_e = urn_log_e(later[:, 0], later[:, 1], ranks, known, (before[:, 0], before[:, 1]))
    return float(with_restarts(log_e, np.array([0]))[0][0])


def score_shift(hits: np.ndarray, start: int, fallen: float) -> np.ndarray:
    """The same for the shift since 200 calibration examples, at every tenth label."""
    blocks, n = block_of(np.arange(hits.shape[1])), 200
    urn = -(-9 * (n + 1) // 10), n
    alarms = np.zeros((len(hits), hits.shape[1] - start), dtype=bool)
    for stream, own in enumerate(hits):
        for look in range(start + EVERY, hits.shape[1] + 1, EVERY):
            if of_blocks(own[:look], blocks[:look], urn) >= np.log(1 / LEVEL):
                alarms[stream, look - start - 1] = True
                break
    return alarms


def cusum(hits: np.ndarray, start: int, fallen: float) -> np.ndarray:
    """A CUSUM for this very fall, with 5% false alarms over the longest stream at the target."""
    return _cusum(hits, fallen)[:, start:] > _cusum_limit(fallen)


@cache
def _cusum_limit(fallen: float) -> float:
    at_target = np.random.default_rng(SEED + 1).random((2000, LENGTH)) < TARGET
    return float(np.quantile(_cusum(at_target, fallen).max(axis=1), 1 - LEVEL))


def _cusum(hits: np.ndarray, fallen: float) -> np.ndarray:
    steps = np.where(hits, np.log(fallen / TARGET), np.log((1 - fallen) / (1 - TARGET)))
    total = steps.cumsum(axis=1)
    return total - np.minimum(np.minimum.accumulate(total, axis=1), 0)


def fixed_size(hits: np.ndarray, start: int, fallen: float) -> np.ndarray:
    """A binomial test of every window of n labels, n planned for this fall with power 90%."""
    from scipy.special import bdtr

    n, critical = planned(fallen)
    alarms = np.zeros(hits.shape, dtype=bool)
    ends = np.arange(n, hits.shape[1] + 1, n)
    total = np.concatenate([np.zeros((len(hits), 1), int), hits.cumsum(axis=1)], axis=1)
    alarms[:, ends - 1] = total[:, ends] - total[:, ends - n] <= critical
    assert bdtr(float(critical), n, TARGET) <= LEVEL
    return alarms[:, start:]


def planned(fallen: float) -> tuple[int, int]:
    """The smallest n with power 90%, and the most hits at which the test rejects."""
    from scipy.special import bdtr

    for n in range(10, LENGTH):
        critical = int((bdtr(np.arange(n + 1.0), n, TARGET) <= LEVEL).sum()) - 1
        if critical >= 0 and bdtr(float(critical), n, fallen) >= 0.9:
            return n, critical
    raise ValueError("no such n")


def mapie(python: Path, hits: np.ndarray, start: int) -> np.ndarray:
    """First alarms of `RiskMonitoring`."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("hits.npy", "first.npy")]
        np.save(files[0], hits)
        command = [str(python), "-c", MAPIE, *files, str(1 - TARGET), str(start)]
        subprocess.run(command, check=True)
        return np.asarray(np.load(files[1]))


def first_alarm(alarms: np.ndarray) -> np.ndarray:
    """The label at which each stream (rows) is first in alarm; one more than all if never."""
    return np.where(alarms.any(axis=1), alarms.argmax(axis=1) + 1, alarms.shape[1] + 1)


WAYS = {
    "coverage below target, one class": below_target,
    f"coverage below target, first of {CLASSES} classes": partial(below_target, n_classes=CLASSES),
    "coverage below target, one class, without restarts": partial(below_target, restarts=False),
    "score shift since 200 calibration examples": score_shift,
    "CUSUM that knows the fall": cusum,
    "binomial test of each window of planned size": fixed_size,
}


def measure(python: Path, streams: int) -> dict[str, dict[str, float]]:
    """Median delays of every way for every fall, and false alarms at the target."""
    rng = np.random.default_rng(SEED)
    found: dict[str, dict[str, float]] = {}
    kept = rng.random((streams, LENGTH)) < TARGET
    for name, way in WAYS.items():
        planned_for = FALLS if way in (cusum, fixed_size) else FALLS[:1]
        rates = [float(way(kept, 0, fallen).any(axis=1).mean()) for fallen in planned_for]
        found[name] = {"false alarms": max(rates)}
    peer = "MAPIE RiskMonitoring"
    found[peer] = {"false alarms": float((mapie(python, kept, 0) <= LENGTH).mean())}
    for fallen in FALLS:
        for good in AFTER:
            coverage = np.where(np.arange(good + MOST) < good, EARLIER, fallen)
            hits = rng.random((streams, good + MOST)) < coverage
            case = f"{fallen} after {good}"
            for name, way in WAYS.items():
                found[name][case] = float(np.median(first_alarm(way(hits, good, fallen))))
            found[peer][case] = float(np.median(mapie(python, hits, good)))
            print(case, {name: result[case] for name, result in found.items()}, flush=True)
    return found


def arrival(streams: int, n_labels: int = 2000) -> dict[str, float]:
    """False alarms within 2000 labels at exactly the target, by how the labels arrive."""
    rng = np.random.default_rng(SEED)

    def rate(hits: np.ndarray, delays: np.ndarray | None = None) -> float:
        if delays is not None:
            order = np.argsort(np.arange(hits.shape[1]) + delays, axis=1, kind="stable")
            hits = np.take_along_axis(hits, order, axis=1)
        return float(below_target(hits[:, :n_labels], 0, 0.8).any(axis=1).mean())

    hits = rng.random((streams, n_labels + 1000)) < TARGET
    spread = TARGET * (1 - TARGET) / 0.1**2 - 1  # of a Beta with standard deviation 0.1

    def by_days(per_day: int) -> float:
        days = rng.beta(TARGET * spread, (1 - TARGET) * spread, (streams, n_labels // per_day))
        return rate(rng.random((streams, n_labels)) < np.repeat(days, per_day, axis=1))

    easy = rng.random(hits.shape) < 0.5
    mixed = rng.random(hits.shape) < np.where(easy, TARGET + 0.1, TARGET - 0.1)
    return {
        "in the order of the rows": rate(hits),
        "misses 20 rows earlier than hits": rate(hits, 20 * hits),
        "classes with coverage 98% 500 rows later than those with 78%": rate(mixed, 500 * easy),
        "coverage varies between days, sd .1, 5 labels a day": by_days(5),
        "coverage varies between days, sd .1, 50 labels a day": by_days(50),
    }


def arrival_table(found: dict[str, float]) -> list[list[str]]:
    """Return the rows of the table, its titles first."""
    return [["arrival of labels", "false alarms"]] + [
        [name, f"{rate:.3f}"] for name, rate in found.items()
    ]


def delay_table(found: dict[str, dict[str, float]]) -> list[list[str]]:
    """Return the rows of the table, its titles first."""
    cases = [f"{fallen} after {good}" for fallen in FALLS for good in AFTER]
    titles = [f"{fallen:.0%} after {good:,}" for fallen in FALLS for good in AFTER]
    rows = [["monitor", "false alarms", *titles]]
    for name, result in found.items():
        delays = [f"{MOST}+" if result[case] > MOST else f"{result[case]:.0f}" for case in cases]
        rows.append([name, f"{result['false alarms']:.3f}", *delays])
    return rows


def write(folder: Path, name: str, found: object, rows: list[list[str]], title: str) -> None:
    """Write results as JSON and Markdown."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    write_results(folder, name, found, f"# {title}\n\n{text}\n")


DELAYS = "{} streams (seed {}): labels of the class from the fall to the alarm, median"
ARRIVAL = "{} streams (seed {}) at exactly the target: false alarms within 2,000 labels"


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=60)
    parser.add_argument("--mapie", type=Path, help="the Python of MAPIE's environment")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    n_streams, python = options.streams, options.mapie or python_of("mapie")
    labels = arrival(10 * n_streams)
    title = ARRIVAL.format(10 * n_streams, SEED)
    write(options.out, "label_arrival", labels, arrival_table(labels), title)
    found = measure(python, n_streams)
    write(options.out, "delays", found, delay_table(found), DELAYS.format(n_streams, SEED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
