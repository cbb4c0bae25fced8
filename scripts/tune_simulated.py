"""Tune the simulated data, and compare them with the published results.

    python scripts/tune_simulated.py search NAME PUBLISHED.csv [--minutes 10]
    python scripts/tune_simulated.py check PUBLISHED.csv [NAME ...]

PUBLISHED.csv has the columns dataset, score, method, n_avg, metric (CovGap or AvgSize) and mean.
`search` prints improving parameters, found by CMA-ES (pip install cma) on the first rows. `check`
measures the data sets of data/simulated.py at full size, calibrated as in the paper on n_avg x K
rows, and prints measured and published results.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evencover.comparison.trials import ScoredRows, Trial, calibration_split
from evencover.data import Source, as_source
from evencover.data.simulated import SIMULATED, SimulationParameters, load_simulated, simulate
from evencover.data.source import rows_per_block
from evencover.errors import EvencoverWarning
from evencover.predictors import make_predictor
from evencover.scores import make_score

SCORES = [make_score(name) for name in ("softmax", "aps", "raps")]
METHODS = ("standard", "classwise", "clustered")
SIZE_ROWS = 50_000  # maximum rows for set sizes

# (minimum, maximum, step of the search); haze is searched on a logarithmic scale.
RANGES = {
    "dimensions": (6, 60, 6),
    "separation": (1.5, 12, 1.0),
    "group_size": (2, 60, 5),
    "group_share": (0.02, 0.98, 0.15),
    "class_spread": (0.0, 0.6, 0.05),
    "class_skew": (-0.8, 0.8, 0.2),
    "class_awareness": (-1.0, 4.0, 0.5),
    "confidence_spread": (0.0, 0.5, 0.04),
    "row_spread": (0.0, 1.0, 0.1),
    "row_skew": (-0.8, 0.8, 0.15),
    "row_awareness": (-1.0, 4.0, 0.5),
    "sharpness": (0.2, 4.0, 0.2),
    "haze": (-7.0, -1.0, 0.5),
    "prior": (0.0, 1.5, 0.2),
}


class Cell(NamedTuple):
    """The settings of a result."""

    score: str
    method: str
    n_avg: int
    metric: str


Figures = dict[Cell, float]


def published(path: Path, name: str) -> Figures:
    """Collect the results of one data set."""
    with path.open(newline="") as file:
        return {
            Cell(row["score"].lower(), row["method"], int(row["n_avg"]), row["metric"]): float(
                row["mean"]
            )
            for row in csv.DictReader(file)
            if row["dataset"] == name and row["method"] in METHODS
        }


def measure(
    rows: ScoredRows, few: ScoredRows, test_rows: np.ndarray, sizes: tuple[int, ...], times: int
) -> Figures:
    """Return mean CovGap and AvgSize over splits; count set sizes on the `few` first rows.

    ``test_rows`` (K,) is how many rows of each class there are in the whole data set.
    """
    n_rows, n_classes = len(rows.labels), len(test_rows)
    values, trials, cells = defaultdict(list), [], []
    for n_avg, repetition in product(sizes, range(times)):
        share = n_avg * n_classes / n_rows
        chosen = calibration_split(rows.labels, n_avg, repetition, share)
        is_test = np.ones(n_rows, dtype=bool)
        is_test[chosen] = False
        left = test_rows * (1 - n_avg * n_classes / test_rows.sum())
        for score, method in product(SCORES, METHODS):
            scores = rows.calibration_scores[score]
            predictor = make_predictor(method).set_params(score=score, random_state=repetition)
            predictor.fit_scores(scores[chosen], rows.labels[chosen], n_classes, ids=chosen)
            covered = rows.test_scores[score] <= predictor.thresholds_[rows.labels]
            gap = covgap(covered[is_test], rows.labels[is_test], left)
            values[Cell(score.name, method, n_avg, "CovGap")].append(gap)
            trials.append(Trial(predictor, is_test[: len(few.labels)]))
            cells.append(Cell(score.name, method, n_avg, "AvgSize"))
    for cell, outcome in zip(cells, few.measure(trials), strict=True):
        values[cell].append(outcome.report.avg_size)
    return {cell: float(np.mean(numbers)) for cell, numbers in values.items()}


def covgap(covered: np.ndarray, labels: np.ndarray, left: np.ndarray) -> float:
    """Return CovGap with the variance of test noise changed to that of ``left`` (K,) test rows."""
    n = np.bincount(labels, minlength=len(left))
    tested = n > 1
    coverage = np.bincount(labels, covered, minlength=len(left))[tested] / n[tested]
    gaps, spread = coverage - 0.9, coverage * (1 - coverage)
    too_much = np.mean(spread / (n[tested] - 1)) - np.mean(spread / left[tested])
    return float(100 * np.abs(gaps).mean() * np.sqrt(max(1 - too_much / np.mean(gaps**2), 0)))


def first_rows(source: Source, n_rows: int) -> ScoredRows:
    """Return the first rows, which are a random sample; generated in blocks."""
    step = rows_per_block(source.n_classes)
    blocks = [source.reader.rows(i, min(i + step, n_rows)) for i in range(0, n_rows, step)]
    return scored(as_source(np.concatenate(blocks), source.labels[:n_rows]))


def scored(source: Source) -> ScoredRows:
    """Score the true labels of all rows."""
    return ScoredRows(source, SCORES, from_logits=False, random_state=0)


def loss(reached: Figures, goal: Figures) -> float:
    """Return squared distances, in units of 0.5 points of CovGap and 25% of AvgSize."""
    total = 0.0
    for cell, value in reached.items():
        if cell.metric == "CovGap":
            total += (1 if cell.method == "classwise" else 2) * ((value - goal[cell]) / 0.5) ** 2
        else:
            weight = {"standard": 2.0, "clustered": 1.0, "classwise": 0.7}[cell.method]
            total += weight * (np.log(value / goal[cell]) / np.log(1.25)) ** 2
    return total


def search(
    name: str, goal: Figures, minutes: float, n_rows: int, start: SimulationParameters
) -> None:
    """Print parameters that improve on all before."""
    import cma

    keys = [key for key in RANGES if key != "prior" or name == "inaturalist"]
    n_rows = min(n_rows, start.n_rows)
    sizes = tuple(n for n in (20, 50, 150) if n * start.n_classes <= 0.75 * n_rows)
    origin = [getattr(start, key) if key != "haze" else np.log10(start.haze) for key in keys]
    best, began = np.inf, time.monotonic()

    def parameters(steps: np.ndarray) -> tuple[SimulationParameters, float]:
        wanted = {
            key: zero + step * RANGES[key][2]
            for key, zero, step in zip(keys, origin, steps, strict=True)
        }
        values = {key: float(np.clip(v, *RANGES[key][:2])) for key, v in wanted.items()}
        outside = sum(((wanted[key] - v) / RANGES[key][2]) ** 2 for key, v in values.items())
        values["haze"] = 10 ** values["haze"]
        rounded = {key: float(f"{value:.3g}") for key, value in values.items()}
        return replace(start, **rounded | {"dimensions": round(values["dimensions"])}), outside

    def distance(steps: np.ndarray) -> float:
        nonlocal best
        tried, outside = parameters(steps)
        source = simulate(name, tried)
        rows = first_rows(source, n_rows)
        few = first_rows(source, min(n_rows, 5_000))
        reached = measure(rows, few, np.bincount(source.labels), sizes, 1)
        result = loss(reached, goal) + outside
        if result < best:
            best = result
            print(f"{time.monotonic() - began:.0f} s: {result:.1f} {tried}", flush=True)
            print(table({name: reached}, {name: goal}), flush=True)
        return result

    options = {"popsize": 12, "seed": 1, "verbose": -9, "timeout": minutes * 60}
    cma.CMAEvolutionStrategy(np.zeros(len(keys)), 0.6, options).optimize(distance)


def table(reached: dict[str, Figures], goal: dict[str, Figures]) -> str:
    """Format measured (published) results by data set, score and method; a column per n_avg."""
    lines = []
    for name, figures in reached.items():
        sizes = sorted({cell.n_avg for cell in figures})
        for metric in ("CovGap", "AvgSize"):
            titles = [f"{name}, {metric}", *(f"n_avg = {n}" for n in sizes)]
            lines += ["", "| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
            for score in SCORES:
                for method in METHODS:
                    cells = [Cell(score.name, method, n, metric) for n in sizes]
                    texts = [f"{figures[c]:.2f} ({goal[name][c]:.2f})" for c in cells]
                    lines.append(
                        "| " + " | ".join([f"{score.name}, {method.upper()}", *texts]) + " |"
                    )
    return "\n".join(lines[1:])


def summary(reached: dict[str, Figures], goal: dict[str, Figures]) -> str:
    """Count the results near the published ones."""
    lines = [
        "| data | CovGap within 0.5 | largest difference | AvgSize within 25% | largest ratio |"
    ]
    lines.append("|---" * 5 + "|")
    for name, figures in reached.items():
        gaps = [abs(v - goal[name][c]) for c, v in figures.items() if c.metric == "CovGap"]
        ratios = [
            np.exp(abs(np.log(v / goal[name][c])))
            for c, v in figures.items()
            if c.metric == "AvgSize"
        ]
        near = f"{np.sum(np.array(gaps) <= 0.5)} of {len(gaps)} | {max(gaps):.2f}"
        alike = f"{np.sum(np.array(ratios) <= 1.25)} of {len(ratios)} | {max(ratios):.2f}"
        lines.append(f"| `{name}` | {near} | {alike} |")
    return "\n".join(lines)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("search")
    one.add_argument("name", choices=sorted(SIMULATED))
    one.add_argument("published", type=Path)
    one.add_argument("--minutes", type=float, default=10)
    one.add_argument("--rows", type=int, default=80_000)
    two = commands.add_parser("check")
    two.add_argument("published", type=Path)
    two.add_argument("names", nargs="*", default=list(SIMULATED))
    two.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    if options.command == "search":
        goal = published(options.published, options.name)
        search(options.name, goal, options.minutes, options.rows, SIMULATED[options.name])
        return
    reached, goal = {}, {}
    for name in options.names:
        began = time.monotonic()
        goal[name] = published(options.published, name)
        source = load_simulated(name)
        rows, few = scored(source), first_rows(source, min(source.n_rows, SIZE_ROWS))
        sizes = tuple(sorted({cell.n_avg for cell in goal[name]}))
        counts = np.bincount(rows.labels)
        reached[name] = measure(rows, few, counts, sizes, options.repetitions)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        print(table({name: reached[name]}, goal), end="\n\n", flush=True)
    print(summary(reached, goal))


if __name__ == "__main__":
    main()
