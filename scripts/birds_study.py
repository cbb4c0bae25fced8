"""Ask the paper's question of photographs of birds, for docs/research/birds.md.

python scripts/birds_study.py FILE.npz     writes docs/evidence/birds_*.csv and birds_*.md, and
                                           birds_light.svg and birds_dark.svg in docs/images

The file has `quantized_logits` (uint8) with `zero` and `scale`, `labels`, and `class_names` such as
"Cyanocitta cristata (Blue Jay)". Outputs are used twice: all of them, and only those of species
with photographs, whose probabilities then sum to 1. Sets are those of the paper (keep_top=False).

The species of the picture are chosen on one half of the photographs and measured on the other, so
that chance does not choose them: from the first half, 20 per species calibrate, ten times.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from evidence_output import write_pictures, write_table, write_text

from evencover import CoverageReport, EvencoverWarning, PooledPredictor, StandardPredictor, compare
from evencover.plotting import BLUE, ORANGE
from evencover.predictors import make_predictor

METHODS = ("standard", "classwise", "clustered", "pooled")
SCORES = ("softmax", "aps", "raps")
SIZES = (10, 20, 30)
N_SPECIES = 12


def read(path: Path) -> tuple[Any, Any, Any]:
    """Return probabilities, labels and the English names of the species."""
    with np.load(path, allow_pickle=False) as file:
        logits = (file["quantized_logits"] - float(file["zero"])) * float(file["scale"])
        labels, names = file["labels"].astype(np.int64), file["class_names"]
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    english = [str(name).partition("(")[2].rstrip(")") or str(name) for name in names]
    return rows / rows.sum(axis=1, keepdims=True), labels, np.array(english)


def occurring(rows: Any, labels: Any, names: Any) -> tuple[Any, Any, Any]:
    """Leave out the outputs of species without photographs."""
    found, labels = np.unique(labels, return_inverse=True)
    rows = rows[:, found]
    return rows / rows.sum(axis=1, keepdims=True), labels, names[found]


def paper_methods() -> list[Any]:
    """Return the four methods, with sets as the paper defines them."""
    return [make_predictor(method, keep_top=False) for method in METHODS]


def learning_curve(rows: Any, labels: Any, n_splits: int) -> list[list[str]]:
    """Return CovGap and labels per set with 10, 20 and 30 photographs per species."""
    options: Any = {"scores": ["softmax"], "n_splits": n_splits}
    by_size = [
        compare(rows, labels, methods=paper_methods(), calibration_sizes=size, **options)
        for size in SIZES
    ]
    heads = [f"{size}: {title}" for size in SIZES for title in ("CovGap", "labels")]
    table = [["method", *heads]]
    for method in METHODS:
        found = [
            next(row for row in comparison.rows() if row["method"] == method)
            for comparison in by_size
        ]
        cells = [f"{row[key]:.1f}" for row in found for key in ("covgap", "avg_size")]
        table.append([f"`{method}`", *cells])
    floors = [cell for each in by_size for cell in (f"{each.noise_floor:.1f}", "")]
    return [*table, ["noise floor", *floors]]


def by_score(rows: Any, labels: Any, n_splits: int) -> list[list[str]]:
    """Return shortfall and labels per set of each method and score, with 20 photographs each."""
    found = compare(
        rows,
        labels,
        methods=paper_methods(),
        scores=SCORES,
        calibration_sizes=20,
        n_splits=n_splits,
    ).rows()
    table = [["method", *(f"{score}: shortfall, labels per set" for score in SCORES)]]
    for method in METHODS:
        cells = [
            f"{row['shortfall']:.1f}, {row['avg_size']:.1f}"
            for score in SCORES
            for row in found
            if (row["method"], row["score"]) == (method, score)
        ]
        table.append([f"`{method}`", *cells])
    return table


def balanced(labels: Any, size: int, seed: int) -> Any:
    """Return whether each row is one of `size` random rows of its class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    chosen = np.zeros(len(labels), dtype=bool)
    for one in range(labels.max() + 1):
        chosen[order[labels[order] == one][:size]] = True
    return chosen


def measure(predictor: Any, calibration: tuple[Any, Any], test: tuple[Any, Any], n: int) -> Any:
    """Add up the reports of n calibrations with 20 photographs per species."""
    rows, labels = calibration
    reports = []
    for seed in range(n):
        chosen = balanced(labels, 20, seed)
        predictor.fit(rows[chosen], labels[chosen])
        reports.append(predictor.evaluate(*test))
    return CoverageReport(
        0.1,
        sum(report.class_counts for report in reports),
        sum(report.class_covered for report in reports),
        sum(report.size_counts for report in reports),
    )


def by_species(rows: Any, labels: Any, names: Any, n_splits: int) -> None:
    """Choose species on one half of the photographs, measure and draw them on the other."""
    first = balanced(labels, 30, seed=12345)
    one, other = (rows[first], labels[first]), (rows[~first], labels[~first])
    standard, pooled = (method(keep_top=False) for method in (StandardPredictor, PooledPredictor))
    chosen = measure(standard, other, one, n_splits).class_coverage
    before, after = (measure(method, one, other, n_splits) for method in (standard, pooled))
    species = np.argsort(chosen, kind="stable")[:N_SPECIES]
    species = species[np.argsort(before.class_coverage[species], kind="stable")]
    cells = [
        (names[each], *(f"{100 * found.class_coverage[each]:.0f}%" for found in (before, after)))
        for each in species
    ]
    write_table("birds_species.csv", [("species", "one threshold", "evencover"), *cells])
    write_text("birds.md", caption(before, after, cells))
    write_pictures("birds", lambda ink: draw(names, before, after, species, ink))


def caption(before: CoverageReport, after: CoverageReport, cells: Any) -> str:
    """State how evenly species are covered, by both methods."""
    low, lower = (int((found.class_coverage < 0.8).sum()) for found in (before, after))
    (name, least, then), *_ = cells
    return (
        f"With one threshold, {before.marginal_coverage:.1%} of the sets contain the species, but "
        f"for {low} of {len(before.class_counts)} species fewer than 80% do; the {name} has "
        f"{least}. With\n`pooled`, {after.marginal_coverage:.1%} of the sets contain the species, "
        f"{lower} species have less than 80%, and the {name} has {then}. Sets\nhave "
        f"{after.avg_size:.2f} labels instead of {before.avg_size:.2f}."
    )


def draw(names: Any, before: Any, after: Any, species: Any, ink: str) -> Any:
    """Draw two points per species, connected by a line."""
    figure, ax = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    y = np.arange(len(species))[::-1]
    x = [100 * found.class_coverage[species] for found in (before, after)]
    ax.hlines(y, *x, color=ink, linewidth=1, alpha=0.5)
    for title, values, found, color in (
        ("one threshold", x[0], before, ORANGE),
        ("evencover", x[1], after, BLUE),
    ):
        ax.scatter(values, y, color=color, zorder=3, label=f"{title}: {found.avg_size:.1f} labels")
    ax.axvline(90, color=ink, linestyle="--", linewidth=1)
    ax.set(
        yticks=y, yticklabels=names[species], xlim=(-1.5, 101.5), xlabel="coverage, % (target: 90)"
    )
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def main() -> None:
    """Run the study and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--n-splits", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)  # 792 outputs have no photographs
    rows, labels, names = read(options.file)
    few = occurring(rows, labels, names)
    write_table("birds_173.csv", learning_curve(*few[:2], options.n_splits))
    write_table("birds_965.csv", learning_curve(rows, labels, options.n_splits))
    write_table("birds_scores.csv", by_score(*few[:2], options.n_splits))
    by_species(*few, options.n_splits)


if __name__ == "__main__":
    main()
