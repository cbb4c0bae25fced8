"""Draw the coverage of a dozen file types with one threshold and with POOLED.

python scripts/draw_filetypes.py     writes docs/evidence/filetypes.csv and filetypes.md, and
                                     filetypes_light.svg and filetypes_dark.svg in docs/images

One threshold is standard conformal prediction, as in the paper (keep_top=False); POOLED has its
defaults. The types are those that one threshold covers least on the first half of the bundled rows,
among types with at least 100 files. Their coverage is then measured on all rows: ten random halves
calibrate, the other rows test.
"""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from evidence_output import write_pictures, write_table, write_text
from numpy.typing import NDArray

from evencover import CoverageReport, PooledPredictor, StandardPredictor
from evencover.data import load_filetypes
from evencover.plotting import BLUE, ORANGE

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
    cells = [
        (
            names[one],
            counts[one],
            *(f"{100 * r.class_coverage[one]:.0f}%" for r in (standard, pooled)),
        )
        for one in types
    ]
    write_table("filetypes.csv", [("type", "files", "one threshold", "evencover"), *cells])
    write_text("filetypes.md", caption(cells, standard, pooled, len(labels)))
    write_pictures("filetypes", lambda ink: draw(names[types], standard, pooled, types, ink))


def caption(cells: Any, standard: CoverageReport, pooled: CoverageReport, n_files: int) -> str:
    """Describe the picture: the two types that one threshold covers least, and the price."""
    (first, _, low, high), (second, _, low_too, high_too), *_ = cells
    return (
        f"Magika, a model by Google, names the type of a file from its content; here it sees "
        f"{n_files:,} files. With\none threshold, {standard.marginal_coverage:.0%} of all sets "
        f"contain the true type, but only {low} for `{first}` and {low_too} for `{second}`. With "
        f"evencover it\nis {high} and {high_too}, and {pooled.marginal_coverage:.0%} overall. "
        f"The price: {pooled.avg_size:.1f} labels per set instead of {standard.avg_size:.1f}. The "
        f"picture shows the {len(cells)} types\nthat one threshold covers least, means over "
        f"{N_SPLITS} random halves."
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
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


if __name__ == "__main__":
    main()
