"""Compare `cv=5` with a holdout of 30%, for docs/research/cross_validation.md.

    python scripts/cv_study.py languages FILE.npz ... [--repetitions 5]

Each file contains `probs` and `labels`; "languages" is the bundled data set. The recorded model's
log-probabilities are features of a second model (linear discriminant analysis with shrinkage),
which is fitted, cross-validated and calibrated. A random half of the rows is the test set; both
variants use the other half.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from evencover import ConformalClassifier, CoverageReport, EvencoverWarning
from evencover.data import load_languages

MOST_ROWS = 12_000


def data(name: str) -> tuple[Any, Any]:
    """Return log-probabilities and labels."""
    if name == "languages":
        found = load_languages()
        rows, labels = found.probabilities, found.labels
    else:
        with np.load(name, allow_pickle=False) as file:
            rows, labels = file["probs"], file["labels"].astype(np.int64)
    return np.log(np.maximum(rows, 1e-7)), labels


def compared(
    rows: Any, labels: Any, method: str, seed: int, n_features: int
) -> list[CoverageReport]:
    """Compare holdout and cross-validation on one split."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))[:MOST_ROWS]
    training, test = np.array_split(order, 2)
    # Log-probabilities of hundreds of classes are redundant: use random combinations.
    mix = rng.normal(size=(rows.shape[1], n_features)) / np.sqrt(rows.shape[1])
    features = rows @ mix if rows.shape[1] > n_features else rows
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    reports = []
    for cv in (None, 5):
        wrapped = ConformalClassifier(model, method, cv=cv, random_state=seed)
        wrapped.fit(features[training], labels[training])
        known = np.isin(labels[test], wrapped.classes_)
        reports.append(wrapped.evaluate(features[test][known], labels[test][known]))
    return reports


def main() -> None:
    """Print one line per data set and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--methods", default="classwise,pooled")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--features", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    print("| data | classes | method | rows per class | coverage | TrueGap | CovGap | AvgSize |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.names:
        rows, labels = data(name)
        for method in options.methods.split(","):
            found = [
                compared(rows, labels, method, seed, options.features)
                for seed in range(options.repetitions)
            ]
            cells = []
            for metric, digits in (
                ("marginal_coverage", 3),
                ("true_gap", 1),
                ("covgap", 1),
                ("avg_size", 2),
            ):
                means = np.mean([[getattr(r, metric) for r in pair] for pair in found], axis=0)
                cells.append(f"{means[0]:.{digits}f}, {means[1]:.{digits}f}")
            counts = [np.sum(report.calibration_counts) for report in found[0]]
            per_class = ", ".join(f"{n / rows.shape[1]:.0f}" for n in counts)
            print(
                f"| {Path(name).stem} | {rows.shape[1]} | {method} | {per_class} | "
                f"{' | '.join(cells)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
