"""Choose POOLED's constants without a single test row: cross-validation inside calibration data.

    python scripts/pooled_constants.py [FILE.npz ...] -o FILE

From every data set some rows per class are drawn as calibration data; all others are left alone.
Each variant of the method is fitted on four fifths of them and judged on the fifth, in turn, by
the pinball loss of its thresholds at 1 - alpha, in pooled ranks. Every class counts the same.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from pooled_study import from_file, languages, plans

from evencover import PooledPredictor
from evencover.comparison.splitting import calibration_split
from evencover.predictors import pooled, pooling
from evencover.scores import make_score

ALPHA = 0.1
N_FOLDS = 5
STRENGTHS = pooled.STRENGTHS


def without_class_size(feature: Any, *others: Any) -> Any:
    """The normal prior with one mean for all classes, whatever their size."""
    return LINE(np.zeros_like(feature), *others)


LINE = pooling._line
# What is changed in each variant: attribute of a module, and its value.
VARIANTS: dict[str, dict[tuple[Any, str], Any]] = {
    "in use": {},
    "normal prior without the class size": {(pooling, "_line"): without_class_size},
    "normal prior alone": {(pooled, "PRIORS"): ("normal",)},
    "soft clusters alone": {(pooled, "PRIORS"): (1, 4, 8)},
    "M = 1, 4": {(pooled, "PRIORS"): ("normal", 1, 4)},
    "M = 1, 4, 8, 16": {(pooled, "PRIORS"): ("normal", 1, 4, 8, 16)},
    "c = 30, 100, 300": {(pooled, "STRENGTHS"): STRENGTHS[:-1]},
    "c = 100, 300, inf": {(pooled, "STRENGTHS"): STRENGTHS[1:]},
    "c = 3, 10, 30, 100, 300, 1000, inf": {
        (pooled, "STRENGTHS"): (3.0, 10.0, *STRENGTHS[:-1], 1e3, inf)
    },
    "the common spread counts 10 rows": {(pooling, "SPREAD_ROWS"): 10.0},
    "the common spread counts 160 rows": {(pooling, "SPREAD_ROWS"): 160.0},
}


@contextmanager
def changed(values: dict[tuple[Any, str], Any]) -> Iterator[None]:
    """The method with other constants, for a while."""
    before = {(home, name): getattr(home, name) for home, name in values}
    try:
        for (home, name), value in values.items():
            setattr(home, name, value)
        yield
    finally:
        for (home, name), value in before.items():
            setattr(home, name, value)


def held_out_loss(scores: Any, labels: Any, n_classes: int) -> float:
    """Cross-validated pinball loss of POOLED's thresholds, mean over classes."""
    rank = np.argsort(np.argsort(scores, kind="stable"), kind="stable") / len(scores)
    fold = np.random.default_rng(0).permutation(len(scores)) % N_FOLDS
    ordered = np.sort(scores)
    losses = np.empty(len(scores))
    for number in range(N_FOLDS):
        held, others = fold == number, fold != number
        model = PooledPredictor(alpha=ALPHA).fit_scores(scores[others], labels[others], n_classes)
        threshold = np.searchsorted(ordered, model.thresholds_, side="right") / len(scores)
        error = rank[held] - threshold[labels[held]]
        losses[held] = np.maximum((1 - ALPHA) * error, -ALPHA * error)
    counts = np.bincount(labels, minlength=n_classes)
    by_class = np.bincount(labels, weights=losses, minlength=n_classes) / np.maximum(counts, 1)
    return float(by_class[counts > 0].mean())


def run(sets: dict[str, tuple[Any, Any]]) -> dict[str, list[float]]:
    """The loss of every variant, relative to the one in use, in every setting."""
    relative: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for data, (rows, labels) in sets.items():
        for size, plan in plans(labels):
            chosen = calibration_split(labels, 0, 0, **plan)
            for score in ("softmax", "aps", "raps"):
                true = make_score(score).true_label(rows[chosen], labels[chosen])
                losses = {}
                for name, values in VARIANTS.items():
                    with changed(values):
                        losses[name] = held_out_loss(true, labels[chosen], rows.shape[1])
                for name, loss in losses.items():
                    relative[name].append(loss / losses["in use"])
                print(data, size, score, {k: round(v, 5) for k, v in losses.items()}, flush=True)
    return relative


def main() -> None:
    """Try all variants and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="more data: .npz with probs and labels")
    parser.add_argument("-o", "--output", type=Path, required=True, help="Markdown file to write")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sets = {"languages": languages()} | {path.stem: from_file(path) for path in options.files}
        relative = run(sets)
    lines = ["| variant | held-out loss | standard error | worst setting |", "|---|---|---|---|"]
    for name, ratios in relative.items():
        logs = np.log(ratios)
        error = logs.std(ddof=1) / np.sqrt(len(logs))
        lines.append(f"| {name} | {np.exp(logs.mean()):.4f} | {error:.4f} | {max(ratios):.3f} |")
    options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
