"""Draw the coverage of a dozen file types with one threshold and with POOLED.

python scripts/draw_filetypes.py     writes docs/evidence/filetypes*.csv and filetypes*.md, and
                                     filetypes_light.svg and filetypes_dark.svg in docs/images

Both methods have `keep_top=False`, the definition of the literature, so both cover 90% overall. The
types are those that one threshold covers least on the development rows, among types with more than
100 files. Their coverage is measured on held-out rows only, which chose nothing: in ten random
splits, half of all rows calibrate, and the held-out rows of the other half test.
"""

from __future__ import annotations

import hashlib
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
LEAST_FILES = 100


def main() -> None:
    """Choose the types, measure, print and draw."""
    warnings.simplefilter("ignore")  # of types without files
    probabilities, labels, names, ids = load_filetypes()
    counts = np.bincount(labels, minlength=len(names))
    development = np.array([hashlib.sha256(one.encode()).digest()[0] < 128 for one in ids])
    all_rows = np.ones(development.sum(), dtype=bool)
    first = measure(StandardPredictor, probabilities[development], labels[development], all_rows)
    coverage = np.where(counts > LEAST_FILES, first.class_coverage, np.inf)
    types = np.argsort(coverage, kind="stable")[:N_TYPES]
    data, methods = (probabilities, labels, ~development), (StandardPredictor, PooledPredictor)
    standard, pooled = reports = [measure(method, *data) for method in methods]
    types = types[np.argsort(standard.class_coverage[types], kind="stable")]
    tested = np.bincount(labels[~development], minlength=len(names))
    cells = [
        (names[one], tested[one], *(percent(report.class_coverage[one]) for report in reports))
        for one in types
    ]
    heading = ("type", "held-out files", "one threshold", "evencover")
    write_table("filetypes.csv", [heading, *cells])
    write_text("filetypes.md", caption(cells, standard, pooled, len(labels)))
    noise = [standard_error(report.class_coverage[types], tested[types]) for report in reports]
    by_default = [measure(method, *data, keep_top=True) for method in methods]
    write_text("filetypes_notes.md", notes(np.max(noise), reports, by_default, types[:2], names))
    write_table("filetypes_data.csv", properties(probabilities, labels, development.sum()))
    write_pictures("filetypes", lambda ink: draw(names[types], standard, pooled, types, ink))


def percent(share: float) -> str:
    """Format a coverage."""
    return f"{100 * share:.0f}%"


def standard_error(coverage: Any, n_files: Any) -> Any:
    """Return the test noise of a type's coverage.

    Splits repeat the same files, so the mean over splits is about as noisy as one test on all
    held-out files of the type.
    """
    return np.sqrt(coverage * (1 - coverage) / n_files)


def caption(cells: Any, standard: CoverageReport, pooled: CoverageReport, n_files: int) -> str:
    """Describe the picture: the two types that one threshold covers least, and the price."""
    (first, _, low, high), (second, _, low_too, high_too), *_ = cells
    return (
        f"*Magika on {n_files:,} files:* `{first}` rises from {low} to {high}, `{second}` from "
        f"{low_too} to {high_too}, for {pooled.avg_size:.2f} labels per set instead of\n"
        f"{standard.avg_size:.2f} (empty sets allowed). Shown: the {len(cells)} types with over "
        f"{LEAST_FILES} files that one threshold covers least,\nchosen on half of the files and "
        "measured on the other."
    )


def notes(noise: float, reports: Any, by_default: Any, types: Any, names: Any) -> str:
    """State noise and overall coverage, and both if every set has the most probable type."""
    overall = [percent(report.marginal_coverage) for report in reports]
    standard, pooled = by_default
    of_types = [
        f"{percent(standard.class_coverage[one])} and {percent(pooled.class_coverage[one])} of "
        f"`{names[one]}`"
        for one in types
    ]
    return (
        f"The standard error of a coverage in the table is at most {100 * noise:.1f} points: "
        "sqrt(p (1 - p) / n) for n files of the type.\n"
        f"Over all types, one threshold covers {overall[0]} of the files and POOLED {overall[1]}. "
        "By default, every set also\ncontains the most probable type (`keep_top`). Then one "
        f"threshold covers {percent(standard.marginal_coverage)} of all files with\n"
        f"{standard.avg_size:.2f} labels per set and POOLED {percent(pooled.marginal_coverage)} "
        f"with {pooled.avg_size:.2f}; they cover {' and '.join(of_types)}."
    )


def properties(
    probabilities: NDArray[np.float32], labels: NDArray[np.int32], n_development: int
) -> list[tuple[str, str]]:
    """Describe the data set."""
    counts = np.bincount(labels)
    n_most = counts.max()
    is_right = probabilities.argmax(axis=1) == labels
    sizes = [(counts >= least).sum() for least in (1, 40, n_most)]
    return [
        ("property", "value"),
        ("rows, outputs", f"{len(labels):,}, {probabilities.shape[1]}"),
        (f"types with files, with 40 or more, with {n_most}", "{}, {}, {}".format(*sizes)),
        ("accuracy, mean confidence", f"{is_right.mean():.3f}, {probabilities.max(1).mean():.3f}"),
        ("development rows, held-out rows", f"{n_development:,}, {len(labels) - n_development:,}"),
    ]


def measure(
    method: Any,
    probabilities: NDArray[np.float32],
    labels: NDArray[np.int32],
    tests: NDArray[np.bool_],
    keep_top: bool = False,
) -> CoverageReport:
    """Add up the reports of random splits: half of the rows calibrate, others that may test."""
    predictor = method(keep_top=keep_top)
    reports = []
    for seed in range(N_SPLITS):
        calibration, test = np.array_split(np.random.default_rng(seed).permutation(len(labels)), 2)
        test = test[tests[test]]
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
        ax.scatter(
            x, y, color=color, zorder=3, label=f"{title}: {report.avg_size:.2f} labels per set"
        )
    ax.axvline(90, color=ink, linestyle="--", linewidth=1)
    ax.set(yticks=y, yticklabels=names, xlim=(0, 101), xlabel="coverage, % (target: 90)")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


if __name__ == "__main__":
    main()
