"""Draw per-class coverage of STANDARD and POOLED for the front page.

python scripts/draw_even.py          writes docs/images/even_light.svg and even_dark.svg, and a tall
                                     form of both for phones
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from evencover import CoverageReport, PooledPredictor, StandardPredictor
from evencover.data import load_languages
from evencover.plotting import BLUE, ORANGE

IMAGES = Path(__file__).parents[1] / "docs" / "images"
INKS = {"light": "#333333", "dark": "#cfd0d0"}
N_SPLITS = 20


def main() -> None:
    """Measure once, draw each form."""
    found = {method.method: measure(method) for method in (StandardPredictor, PooledPredictor)}
    for theme, ink in INKS.items():
        for form in ("", "_tall"):
            draw(found, ink, tall=bool(form)).savefig(
                IMAGES / f"even_{theme}{form}.svg", transparent=True, metadata={"Date": None}
            )


def measure(method: Any) -> CoverageReport:
    """Measure per-class coverage over many splits, to average out sampling noise."""
    rows, labels, _ = load_languages()
    reports = []
    for seed in range(N_SPLITS):
        order = np.random.default_rng(seed).permutation(len(labels))
        mine, others = np.array_split(order, 2)
        predictor = method().fit(rows[mine], labels[mine])
        reports.append(predictor.evaluate(rows[others], labels[others]))
    return CoverageReport(
        0.1,
        sum(report.class_counts for report in reports),
        sum(report.class_covered for report in reports),
        sum(report.size_counts for report in reports),
    )


def draw(found: dict[str, CoverageReport], ink: str, *, tall: bool) -> Any:
    """Draw two panels, side by side or stacked, with classes sorted by coverage."""
    titles = {
        "standard": "one threshold (STANDARD)",
        "pooled": "one per class (POOLED)",
    }
    plt.rcParams.update({"svg.hashsalt": "evencover", "font.size": 11, "text.color": ink})
    plt.rcParams.update({f"{part}.color": ink for part in ("xtick", "ytick")})
    plt.rcParams.update({"axes.labelcolor": ink, "axes.edgecolor": ink})
    shape, size = ((2, 1), (4.2, 5.8)) if tall else ((1, 2), (9.6, 3.4))
    figure, axes = plt.subplots(*shape, figsize=size, sharey=True, layout="constrained")
    for ax, (method, report) in zip(axes, found.items(), strict=True):
        coverage = 100 * np.sort(report.class_coverage)
        away = coverage < 80
        x = np.arange(len(coverage))
        for color, shown in ((BLUE, x >= away.sum() - 1), (ORANGE, away)):
            ax.fill_between(x, coverage, where=shown, color=color, linewidth=0)
        ax.axhline(90, color=ink, linestyle="--", linewidth=1)
        ax.set(title=titles[method], xlim=(-1, len(x)), ylim=(0, 100), xticks=[])
        ax.set_xlabel(
            f"{len(x)} classes, {away.sum()} below 80%;\noverall coverage "
            f"{100 * report.marginal_coverage:.0f}%, average set size {report.avg_size:.1f}"
        )
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes if tall else axes[:1]:
        ax.set_ylabel("coverage, %")
    return figure


if __name__ == "__main__":
    main()
