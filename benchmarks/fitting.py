"""Time fits alone, from scores: ``python -m benchmarks.fitting``.

Every method fits 1,000,000 scores of 1,000, 10,000 and 100,000 classes, in turn. Class
sizes fall as 1 / (rank + 10), as on long tails. Prints the best times, the growth with ten times as
many rows, and the largest memory of POOLED's fit over its input, by row and class.
"""

from __future__ import annotations

import argparse
import tracemalloc
import warnings
from functools import partial

import numpy as np

from benchmarks.harness import timed
from evencover import EvencoverWarning, PooledPredictor
from evencover.predictors import make_predictor, methods_for_all


def simulate(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate scores of classes of unequal size and difficulty, and their labels."""
    rng = np.random.default_rng(0)
    weights = 1 / (np.arange(n_classes) + 10)
    labels = rng.choice(n_classes, n_rows, p=weights / weights.sum())
    easiness = rng.lognormal(size=n_classes)
    return 1 - rng.random(n_rows) ** (1 / (1 + easiness[labels])), labels


def bytes_over_input(scores: np.ndarray, labels: np.ndarray, n_classes: int) -> int:
    """Measure the largest memory of a fit of POOLED, which keeps a copy of its input."""
    kept = scores.nbytes + labels.nbytes + 8 * len(labels)  # the rows' keys
    tracemalloc.start()
    PooledPredictor().fit_scores(scores, labels, n_classes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - kept


def main() -> None:
    """Print one line per method and number of classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    for n_classes in (1_000, 10_000, 100_000):
        # RC3P needs ranks, too, and FUZZY's time grows with the square of the number of classes.
        left_out = {"rc3p", "fuzzy"} if n_classes > 10_000 else {"rc3p"}
        methods = [name for name in methods_for_all() if name not in left_out]
        best: dict[tuple[str, int], float] = {}
        for n_rows in (options.rows // 10, options.rows):
            scores, labels = simulate(n_rows, n_classes)
            for _ in range(options.repeats):
                for name in methods:
                    fit = make_predictor(name).fit_scores
                    seconds = timed(partial(fit, scores, labels, n_classes))
                    best[name, n_rows] = min(best.get((name, n_rows), np.inf), seconds)
        for name in methods:
            few, many = best[name, options.rows // 10], best[name, options.rows]
            standard = best["standard", options.rows]
            print(
                f"{n_classes:>7,} classes  {name:<13}{1e3 * many:7.0f} ms"
                f"{many / standard:7.1f} x standard{many / few:7.1f} x a tenth of the rows"
            )
        per_row = bytes_over_input(scores, labels, n_classes) / options.rows
        print(
            f"{n_classes:>7,} classes  pooled's memory over the input: {per_row:.0f} bytes per row"
        )


if __name__ == "__main__":
    main()
