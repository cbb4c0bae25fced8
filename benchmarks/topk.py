"""Time top-k rows relative to one plain read: ``python -m benchmarks.topk``.

Calibrate and predict on 1,000,000 rows that list 20 of 100,000 classes, next to a plain NumPy
script for the softmax score. Prints seconds, the ratio to a read of the same bytes, and the memory
on top of the input.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from evencover import EvencoverWarning, PooledPredictor, StandardPredictor, TopK


def simulate(n_rows: int, k: int, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate the classes and probabilities of each row, and labels, of which most are listed."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, n_classes - k, n_rows, dtype=np.int32)
    classes = first[:, None] + rng.permuted(np.arange(k, dtype=np.int32))
    p = rng.dirichlet(np.full(k + 5, 0.3), n_rows).astype(np.float32)
    p = np.ascontiguousarray(np.sort(p, axis=1)[:, ::-1][:, :k])
    rank = rng.geometric(0.35, n_rows) - 1
    unlisted = (first.astype(np.int64) + k) % n_classes
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


def seconds(function: Callable[[], Any], repeats: int) -> float:
    """Return the best time of several."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def memory() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    classes, p, labels = simulate(options.rows, options.k, options.classes)
    read = seconds(lambda: (classes.max(), p.max()), options.repeats)
    before = memory()
    print(f"{'plain read':<28}{read:8.3f} s")

    def show(name: str, function: Callable[[], Any]) -> None:
        time_taken = seconds(function, options.repeats)
        print(
            f"{name:<28}{time_taken:8.3f} s {time_taken / read:8.1f} reads, "
            f"{memory() - before:5.0f} MB over the input"
        )

    show("TopK(...)", lambda: TopK(classes, p, n_classes=options.classes))
    rows = TopK(classes, p, n_classes=options.classes)
    for method in (StandardPredictor, PooledPredictor):
        for score in ("softmax", "aps"):

            def both(method: Any = method, score: str = score) -> Any:
                return method(score=score).fit(rows, labels).predict_set(rows)

            show(f"{method.method}, {score}", both)
    show("NumPy by hand", lambda: by_hand(classes, p, labels))


if __name__ == "__main__":
    main()
