"""Draw accuracy against the share of accepted predictions, for docs/howto/accept_or_review.md.

python scripts/draw_acceptance.py    writes docs/evidence/acceptance.csv, and accept_light.svg and
                                     accept_dark.svg in docs/images
"""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from evidence_output import write_pictures, write_table

from evencover import PooledPredictor
from evencover.data import load_filetypes
from evencover.plotting import BLUE, ORANGE

N_SPLITS, TARGETS = 10, (0.85, 0.9, 0.95, 0.97, 0.99)
SHARES = np.linspace(0.1, 1, 46)


def measure() -> tuple[Any, Any, Any]:
    """Average (share, accuracy) over splits: one cutoff, one-label sets, and each target."""
    rows, labels, *_ = load_filetypes()
    one_cutoff, by_set, by_target = [], [], []
    for seed in range(N_SPLITS):
        order = np.random.default_rng(seed).permutation(len(labels))
        calibration, test = np.array_split(order, 2)
        is_right = rows[test].argmax(axis=1) == labels[test]
        ordered = is_right[np.argsort(-rows[test].max(axis=1))]
        one_cutoff.append([ordered[: int(share * len(test))].mean() for share in SHARES])
        predictor = PooledPredictor().fit(rows[calibration], labels[calibration])
        report = predictor.evaluate(rows[test], labels[test])
        by_set.append((report.accepted_share, report.accepted_accuracy))
        for target in TARGETS:
            predictor.fit_acceptance(rows[calibration], labels[calibration], accuracy=target)
            report = predictor.evaluate(rows[test], labels[test])
            by_target.append((report.accepted_share, report.accepted_accuracy))
    targets = np.reshape(by_target, (N_SPLITS, len(TARGETS), 2))
    return np.mean(one_cutoff, axis=0), np.mean(by_set, axis=0), np.nanmean(targets, axis=0)


def draw(one_cutoff: Any, by_set: Any, by_target: Any, ink: str) -> Any:
    """Draw one panel with direct labels."""
    figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    ax.plot(100 * SHARES, 100 * one_cutoff, color=ORANGE)
    start = 100 * SHARES[0], 100 * one_cutoff[0]
    ax.annotate(
        "one cutoff for all classes", start, (0, -22), color=ORANGE, textcoords="offset points"
    )
    ax.plot(*(100 * by_target.T), "o", color=BLUE)
    for (share, accuracy), target in zip(100 * by_target, TARGETS, strict=True):
        ax.annotate(f"{target:.0%}", (share, accuracy), (6, 4), textcoords="offset points")
    ax.annotate(
        "evencover, by target accuracy",
        100 * by_target[2],
        (-14, -6),
        color=BLUE,
        ha="right",
        textcoords="offset points",
    )
    ax.plot(*(100 * by_set), "s", color=ink)
    ax.annotate("one-label sets", 100 * by_set, (-8, -16), textcoords="offset points", ha="right")
    ax.set(xlabel="accepted predictions, %", ylabel="accuracy among them, %", xlim=(0, 102))
    return figure


def main() -> None:
    """Measure once, write the table, draw both themes."""
    warnings.simplefilter("ignore")
    one_cutoff, by_set, by_target = measure()
    rules = ("a set of one label", *(f"`accuracy={target}`" for target in TARGETS))
    cells = [
        (rule, f"{share:.1%}", f"{accuracy:.1%}")
        for rule, (share, accuracy) in zip(rules, [by_set, *by_target], strict=True)
    ]
    write_table("acceptance.csv", [("accepted by", "share accepted", "accuracy"), *cells])
    write_pictures("accept", lambda ink: draw(one_cutoff, by_set, by_target, ink))


if __name__ == "__main__":
    main()
