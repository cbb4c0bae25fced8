"""Count the labels that one threshold needs to fall as little short as POOLED.

python scripts/equal_shortfall.py FILE.npz ...     writes docs/evidence/equal_shortfall.csv and .md

POOLED with softmax has alpha = 0.1. The alpha of STANDARD is lowered until its shortfall below 90%,
`CoverageReport.shortfall`, is no larger. Three random splits have 20 calibration examples per class
on average, at most half of all rows, and at most 20,000 test rows. The bundled data sets are always
included; the format of the files is that of `pooled_study.py`.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from evidence_output import write_table, write_text
from pooled_study import AS_PUBLISHED, SCORES, Loader, data_sets

from evencover import EvencoverWarning, PooledPredictor, StandardPredictor

N_SPLITS = 3
MOST_ROWS = 20_000


def labels_and_shortfall(predictor: Any, rows: Any, labels: Any) -> tuple[float, float]:
    """Return AvgSize, and the shortfall below 90%, whatever the predictor's own target is."""
    report = replace(predictor.evaluate(rows, labels), alpha=0.1)
    return report.avg_size, report.shortfall


def labels_at(shortfall: float, standard: Any, rows: Any, labels: Any) -> float:
    """Return AvgSize of STANDARD at the largest alpha whose shortfall is at most this."""
    low, high, size = 1 / (standard.n_calibration_ + 1), 0.5, float(rows.shape[1])
    for _ in range(12):
        alpha = float(np.sqrt(low * high))
        found, own_shortfall = labels_and_shortfall(standard.with_alpha(alpha), rows, labels)
        low, high = (alpha, high) if own_shortfall <= shortfall else (low, alpha)
        size = found if own_shortfall <= shortfall else size
    return size


def measure(load: Loader) -> list[float]:
    """Return labels and shortfall of POOLED, then the labels of STANDARD with each score."""
    rows, labels = load()
    found = []
    for seed in range(N_SPLITS):
        order = np.random.default_rng(seed).permutation(len(labels))
        n_calibration = min(20 * len(np.unique(labels)), len(labels) // 2)
        calibration, test = order[:n_calibration], order[n_calibration:][:MOST_ROWS]
        known = rows[calibration], labels[calibration]
        new = rows[test], labels[test]
        size, shortfall = labels_and_shortfall(PooledPredictor(**AS_PUBLISHED).fit(*known), *new)
        standard = [StandardPredictor(score=score, **AS_PUBLISHED).fit(*known) for score in SCORES]
        found.append((size, shortfall, *(labels_at(shortfall, each, *new) for each in standard)))
    return np.mean(found, axis=0).tolist()


def summary(ratios: Any) -> str:
    """Return a sentence with the range of STANDARD's labels relative to POOLED's, by score."""
    softmax, aps, _ = np.transpose(ratios)
    return (
        f"Or keep one threshold and demand more than 90%: matching `pooled` then takes "
        f"{softmax.min():.1f} to {softmax.max():.1f} times\nthe labels with softmax, and "
        f"{aps.min():.1f} to {aps.max():.0f} times with APS ({len(ratios)} data sets)."
    )


def main() -> None:
    """Measure every data set, and write the table and the sentence."""
    warnings.simplefilter("ignore", EvencoverWarning)  # of classes with few examples
    sets = data_sets([Path(name) for name in sys.argv[1:]], MOST_ROWS)
    heads = ["data", "`pooled` + softmax: labels, shortfall"]
    table = [[*heads, *(f"`standard` + {score}" for score in SCORES)]]
    ratios = []
    for (_, data), load in sets.items():
        size, shortfall, *others = measure(load)
        ratios.append([n / size for n in others])
        cells = [f"{n:.3g} ({n / size:.1f} x)" for n in others]
        table.append([data, f"{size:.2f}, {shortfall:.1f}", *cells])
        print(*table[-1], sep=" | ", flush=True)
    write_table("equal_shortfall.csv", table)
    write_text("equal_shortfall.md", summary(ratios))


if __name__ == "__main__":
    main()
