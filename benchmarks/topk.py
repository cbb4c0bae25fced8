"""Time top-k rows relative to one plain read: ``python -m benchmarks.topk``.

Calibrate and predict on 1,000,000 rows that list 20 of 100,000 classes, next to a plain NumPy
script for STANDARD with the softmax score. Every job takes its turn in each round, starts from the
arrays of classes and probabilities, and runs on all cores, as NumPy's maximum of both arrays, the
plain read, cannot. Prints the best times, their ratio to the read, and the memory over the input.
"""

from __future__ import annotations

import argparse
import resource
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import timed
from evencover import (
    ClasswisePredictor,
    ClusteredPredictor,
    EvencoverWarning,
    PooledPredictor,
    StandardPredictor,
    TopK,
)

METHODS = (StandardPredictor, ClasswisePredictor, ClusteredPredictor, PooledPredictor)
BY_HAND = "NumPy by hand"


def simulate(n_rows: int, k: int, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate the classes and probabilities of each row, and labels, of which most are listed."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, n_classes, n_rows, dtype=np.int32)
    step = n_classes // k - 1  # scattered, so that thresholds are read from all over memory
    classes = (first[:, None] + step * rng.permutation(k).astype(np.int32)) % n_classes
    p = rng.dirichlet(np.full(k + 5, 0.3), n_rows).astype(np.float32)
    p = np.ascontiguousarray(np.sort(p, axis=1)[:, ::-1][:, :k])
    rank = rng.geometric(0.35, n_rows) - 1
    unlisted = (first.astype(np.int64) + 1) % n_classes
    labels = np.where(rank < k, classes[np.arange(n_rows), np.minimum(rank, k - 1)], unlisted)
    return classes, p, labels


def by_hand(classes: np.ndarray, p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Calibrate STANDARD with the softmax score, and return the mask of all sets."""
    is_label = classes == labels[:, None]
    scores = np.where(is_label.any(axis=1), 1 - (p * is_label).sum(axis=1), np.inf)
    rank = int(np.ceil(0.9 * (len(scores) + 1)))
    threshold = np.sort(scores)[rank - 1]
    inside = 1 - p <= threshold
    order = np.argsort(-p, axis=1)
    return np.take_along_axis(inside, order, axis=1)


def memory() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    classes, p, labels = simulate(options.rows, options.k, options.classes)
    before = memory()

    def both(method: Any, score: str) -> Any:
        rows = TopK(classes, p, n_classes=options.classes)
        return method(score=score).fit(rows, labels).predict_set(rows)

    jobs: dict[str, Callable[[], Any]] = {"plain read": lambda: (classes.max(), p.max())}
    for method in METHODS:
        for score in ("softmax", "aps"):
            jobs[f"{method.method}, {score}"] = partial(both, method, score)
    best, most = dict.fromkeys([*jobs, BY_HAND], np.inf), 0.0
    for _ in range(options.repeats):
        for name, job in jobs.items():
            best[name] = min(best[name], timed(job))
        most = most or memory() - before  # of evencover alone
        best[BY_HAND] = min(best[BY_HAND], timed(lambda: by_hand(classes, p, labels)))
    for name, seconds in best.items():
        print(f"{name:<20}{1e3 * seconds:8.0f} ms {seconds / best['plain read']:7.1f} reads")
    print(f"by hand / standard, softmax: {best[BY_HAND] / best['standard, softmax']:.1f}")
    print(f"memory over the input: {most:.0f} MB")


if __name__ == "__main__":
    main()
