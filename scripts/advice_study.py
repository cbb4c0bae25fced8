"""Evaluate the advice of compare(): recommend on one half of the rows, test on the other.

    python scripts/advice_study.py FILE.npz ... -o FILE.md

Data sets are the bundled languages, and files with `probs` and `labels`. Half of the rows are held
out, several times. `compare` gets the other half and recommends a candidate. Then every candidate
is calibrated on that half and tested on the held-out rows, by its cost in labels and its TrueGap.
Regret is the cost of a choice above that of the best candidate in hindsight.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pooled_study import from_file, languages

from evencover import EvencoverWarning, compare
from evencover.comparison.trials import ScoredRows, Split, calibration_split, try_all
from evencover.data.open import as_source
from evencover.predictors import make_predictor
from evencover.scores import make_score

METHODS = ("standard", "classwise", "clustered", "pooled")
SCORES = ("softmax", "aps", "raps")
OTHERS = ("worst regret", "pooled", "clustered", "standard")
Choice = tuple[str, str]


class Judged(NamedTuple):
    """A candidate on the held-out rows."""

    cost: float
    gap: float
    size: float
    coverage: float


def judge(rows: Any, labels: Any, half: Any, seed: int) -> dict[Choice, Judged]:
    """Calibrate every candidate on one half and test it on the other."""
    scored = ScoredRows(
        as_source(rows, labels), [make_score(name) for name in SCORES], random_state=seed
    )
    names = list(product(METHODS, SCORES))
    predictors = [make_predictor(method, score=make_score(score)) for method, score in names]
    outcomes = try_all(scored, predictors, [Split.of(0.5, 0, half, len(labels))], seed)
    judged = {}
    for name, (outcome,) in zip(names, outcomes, strict=True):
        report = outcome.report
        coverage = report.marginal_coverage
        judged[name] = Judged(outcome.cost, report.true_gap, report.avg_size, coverage)
    return judged


def study(rows: Any, labels: Any, n_draws: int) -> dict[str, Any]:
    """Average over the draws: the recommendation, its cost, and that of others."""
    table: dict[str, list[float]] = {}
    names = []
    for seed in range(n_draws):
        half = calibration_split(labels, seed + 100)
        advice = compare(
            rows[half], labels[half], methods=METHODS, scores=SCORES, n_splits=5, random_state=seed
        )
        judged = judge(rows, labels, half, seed)
        best = min(each.cost for each in judged.values())
        recommended = judged[advice.best.method, advice.best.score]
        names.append(advice.best.name)
        for name, value in {
            "regret": recommended.cost - best,
            "relative": (recommended.cost - best) / best,
            "pooled": judged["pooled", "softmax"].cost - best,
            "standard": judged["standard", "softmax"].cost - best,
            "clustered": judged["clustered", "softmax"].cost - best,
            "size": recommended.size,
            "gap": recommended.gap,
            "share": recommended.size / rows.shape[1],
            "best": best,
        }.items():
            table.setdefault(name, []).append(value)
    means = {name: float(np.mean(values)) for name, values in table.items()}
    often = max(set(names), key=names.count)
    return means | {
        "recommended": f"{often} ({names.count(often)} of {n_draws})",
        "worst share": max(table["share"]),
        "worst regret": max(table["regret"]),
    }


def main() -> None:
    """Run the study and write its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    lines = [
        "| data | classes | advice (most often) | its AvgSize | its TrueGap | cost of the best | "
        "regret | largest | of pooled with softmax | of clustered | of standard |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    loaders = {"languages": languages} | {
        path.stem: lambda path=path: from_file(path) for path in options.files
    }
    for name, load in loaders.items():
        rows, labels = load()
        found = study(rows, labels, options.draws)
        numbers = [f"{found[key]:.1f}" for key in ("size", "gap", "best")]
        regret = f"{found['regret']:.2f} ({100 * found['relative']:.1f}%)"
        others = [f"{found[key]:.2f}" for key in OTHERS]
        cells = [name, str(rows.shape[1]), found["recommended"], *numbers, regret, *others]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], f"at most {found['worst share']:.2f} of the classes in a set", flush=True)
    options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
