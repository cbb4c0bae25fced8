"""Draw the coverage of a dozen file types with one threshold and with POOLED.

python scripts/draw_filetypes.py     prints a table, and writes docs/images/filetypes_light.svg and
                                     filetypes_dark.svg

One threshold is standard conformal prediction, as in the paper (keep_top=False); POOLED has its
defaults. The types are those that one threshold covers least on the first half of the bundled rows,
among types with at least 100 files. Their coverage is then measured on all rows: ten random halves
calibrate, the other rows test.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from evencover import CoverageReport, PooledPredictor, StandardPredictor
from evencover.data import load_filetypes
from evencover.plotting import BLUE, ORANGE

IMAGES = Path(__file__).parents[1] / "docs" / "images"
INKS = {"light": "#333333", "dark": "#cfd0d0"}
N_SPLITS = 10
N_TYPES = 12
FEWEST_FILES = 100


def main() -> None:
    """Choose the types, measure, print and draw."""
    warnings.simplefilter("ignore")  # of types without files
    probabilities, labels, names, _ = load_filetypes()
    half = len(labels) // 2
    first = measure(StandardPredictor(keep_top=False), probabilities[:half], labels[:half])
    counts = np.bincount(labels, minlength=len(names))
    coverage = np.where(counts >= FEWEST_FILES, first.class_coverage, np.inf)
    types = np.argsort(coverage, kind="stable")[:N_TYPES]
    standard = measure(StandardPredictor(keep_top=False), probabilities, labels)
    pooled = measure(PooledPredictor(), probabilities, labels)
    types = types[np.argsort(standard.class_coverage[types], kind="stable")]
    for name, report in (("STANDARD", standard), ("POOLED", pooled)):
        print(
            f"{name}: coverage {report.marginal_coverage:.3f}, labels per set "
            f"{report.avg_size:.2f}, CovGap {report.covgap:.2f}"
        )
    print("\n| type | files | STANDARD | POOLED |\n|---|---:|---:|---:|")
    for one in types:
        before, after = (100 * report.class_coverage[one] for report in (standard, pooled))
        print(f"| {names[one]} | {counts[one]} | {before:.0f} | {after:.0f} |")
    for theme, ink in INKS.items():
        draw(names[types], standard, pooled, types, ink).savefig(
            IMAGES / f"filetypes_{theme}.svg", transparent=True, metadata={"Date": None}
        )


def measure(
    predictor: Any, probabilities: NDArray[np.float32], labels: NDArray[np.int32]
) -> CoverageReport:
    """Add up the reports of random splits into halves."""
    reports = []
    for seed in range(N_SPLITS):
        calibration, test = np.array_split(np.random.default_rng(seed).permutation(len(labels)), 2)
        predictor.fit(probabilities[calibration], labels[calibration])
        reports.append(predictor.evaluate(probabilities[test], labels[test]))
    return CoverageReport(
        0.1,
        sum(report.class_counts for report in reports),
        sum(report.class_covered for report in reports),
        sum(report.size_counts for report in reports),
    )


def draw(
    names: NDArray[np.str_],
    standard: CoverageReport,
    pooled: CoverageReport,
    types: NDArray[np.intp],
    ink: str,
) -> Any:
    """Draw two points per type, connected by a line."""
    plt.rcParams.update({"svg.hashsalt": "evencover", "font.size": 11, "text.color": ink})
    plt.rcParams.update({f"{part}.color": ink for part in ("xtick", "ytick")})
    plt.rcParams.update({"axes.labelcolor": ink, "axes.edgecolor": ink})
    figure, ax = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    y = np.arange(len(types))[::-1]
    before, after = (100 * report.class_coverage[types] for report in (standard, pooled))
    ax.hlines(y, before, after, color=ink, linewidth=1, alpha=0.5)
    for title, x, report, color in (
        ("one threshold", before, standard, ORANGE),
        ("evencover", after, pooled, BLUE),
    ):
        ax.scatter(x, y, color=color, zorder=3, label=f"{title}: {report.avg_size:.1f} labels")
    ax.axvline(90, color=ink, linestyle="--", linewidth=1)
    ax.set(yticks=y, yticklabels=names, xlim=(0, 101), xlabel="coverage, % (target: 90)")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


if __name__ == "__main__":
    main()
