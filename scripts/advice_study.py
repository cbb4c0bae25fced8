"""Evaluate the advice of compare(): recommend on one half of the rows, test on the other.

python scripts/advice_study.py FILE.npz ...    writes docs/evidence/advice.csv and advice.md

Data sets are the bundled ones, and files as of pooled_study.py. Half of the rows are held
out, several times. `compare` gets the other half and recommends a candidate. Then every candidate
is calibrated on that half and tested on the held-out rows, by its cost in labels.
Regret is the cost of a choice above that of the best candidate in hindsight.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from evidence_output import write_table, write_text
from pooled_study import data_sets

from evencover import EvencoverWarning, compare
from evencover.comparison.splits import Split, calibration_split
from evencover.comparison.trials import ScoredRows, try_all
from evencover.data.open import as_source
from evencover.predictors import make_predictor
from evencover.scores import make_score

METHODS = ("standard", "classwise", "clustered", "pooled")
SCORES = ("softmax", "aps", "raps")
Choice = tuple[str, str]


class Judged(NamedTuple):
    """A candidate on the held-out rows."""

    cost: float
    shortfall: float
    size: float


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
        judged[name] = Judged(outcome.cost, report.shortfall, report.avg_size)
    return judged


class Advised(NamedTuple):
    """The recommendation of one draw on the held-out rows; costs are in labels per example."""

    name: str
    size: float
    shortfall: float
    best: float  # the lowest cost of all candidates
    regret: float
    regret_of_standard: float
    regret_of_pooled: float


def advise(rows: Any, labels: Any, seed: int) -> Advised:
    """Recommend on one half, and judge the recommendation on the other."""
    half = calibration_split(labels, seed + 100)
    advice = compare(
        rows[half], labels[half], methods=METHODS, scores=SCORES, n_splits=5, random_state=seed
    )
    judged = judge(rows, labels, half, seed)
    best = min(each.cost for each in judged.values())
    recommended = judged[advice.best.method, advice.best.score]
    return Advised(
        advice.best.name,
        recommended.size,
        recommended.shortfall,
        best,
        recommended.cost - best,
        judged["standard", "softmax"].cost - best,
        judged["pooled", "softmax"].cost - best,
    )


def summary(found: dict[str, list[Advised]]) -> str:
    """Count the draws without regret, and name the largest regret."""
    draws = [one for each in found.values() for one in each]
    best = sum(one.regret == 0 for one in draws)
    worst = ceil(1000 * max(one.regret / one.best for one in draws)) / 10
    usual = sum(one.name == "pooled + softmax" for one in draws)
    others = "" if best == len(draws) else f", and was at most {worst:.1f}% above it otherwise"
    return (
        f"On {len(found)} data sets with {len(draws) // len(found)} draws each, the recommendation "
        f"had the lowest cost on held-out data in {best} of {len(draws)} draws{others}. It\nwas "
        f"`pooled + softmax` in {usual} of them."
    )


def main() -> None:
    """Run the study and write its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--most-rows", type=int, default=20_000, help="of a data set")
    options = parser.parse_args()
    warnings.simplefilter("ignore", EvencoverWarning)
    heads = ["data", "recommended (draws)", "labels per set", "shortfall", "lowest cost"]
    table = [[*heads, "regret", "regret of `standard`", "regret of `pooled`"]]
    found = {}
    for (_, data), load in data_sets(options.files, options.most_rows).items():
        rows, labels = load()
        draws = found[data] = [advise(rows, labels, seed) for seed in range(options.draws)]
        names = [draw.name for draw in draws]
        often = max(set(names), key=names.count)
        means = [f"{mean:.2f}" for mean in np.mean([draw[1:] for draw in draws], axis=0)]
        table.append([data, f"{often} ({names.count(often)})", *means])
        print(*table[-1], sep=", ", flush=True)
    write_table("advice.csv", table)
    write_text("advice.md", summary(found))


if __name__ == "__main__":
    main()
