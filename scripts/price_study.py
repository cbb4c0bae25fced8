"""Measure what caps on large sets cost, for docs/research/pooled.md.

python scripts/price_study.py birds_inat.npz      writes docs/evidence/price.csv and price.md

POOLED with softmax at alpha = 0.1 is compared with and without `max_share`, on twenty random splits
into halves. The format of the file is that of `pooled_study.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from evidence_output import write_table, write_text
from pooled_study import Loader, bundled, from_file

from evencover import compare
from evencover.comparison import Candidate
from evencover.data import load_filetypes, load_languages
from evencover.evaluation.suppliers import CAP

SHARES = (None, 0.2, CAP, 0.05, 0.02)
N_SPLITS = 20


def measure(load: Loader) -> list[Candidate]:
    """Return STANDARD, and POOLED with each cap."""
    rows, labels = load()
    result = compare(
        rows,
        labels,
        methods=["standard", "pooled"],
        scores=["softmax"],
        max_share=list(SHARES),
        n_splits=N_SPLITS,
    )
    return list(result.candidates)


def cell(candidate: Candidate) -> str:
    """Return labels per set, the shortfall, and how many classes are capped."""
    numbers = f"{candidate.mean('avg_size'):.2f} / {candidate.mean('shortfall'):.1f}"
    if candidate.max_share is None:
        return numbers
    capped = [
        report.is_capped.sum() for report in candidate.reports if report.is_capped is not None
    ]
    return f"{numbers} / {np.mean(capped):.0f}"


def summary(name: str, candidates: Sequence[Candidate]) -> str:
    """Return a sentence about one data set."""
    free, capped = (c for c in candidates[1:] if c.max_share in (None, CAP))
    added = capped.mean("shortfall") - free.mean("shortfall")
    return (
        f"For example, `max_share={CAP}` lowers the mean size of sets on {name} from "
        f"{free.mean('avg_size'):.2f} to {capped.mean('avg_size'):.2f} labels, and raises the "
        f"shortfall by {added:.1f} points."
    )


def main() -> None:
    """Measure every data set, and write the table and the sentence."""
    sets: dict[str, Any] = {
        "birds, 965 outputs": lambda: from_file(Path(sys.argv[1])),
        "file types": lambda: bundled(load_filetypes),
        "languages": lambda: bundled(load_languages),
    }
    names = ["none" if share is None else f"`max_share={share}`" for share in SHARES]
    table = [["data", *names, "`standard`"]]
    for name, load in sets.items():
        standard, *pooled = found = measure(load)
        table.append([name, *map(cell, pooled), cell(standard)])
        print(*table[-1], sep=" | ", flush=True)
        if len(table) == 2:
            write_text("price.md", summary(name.split(",")[0], found))
    write_table("price.csv", table)


if __name__ == "__main__":
    main()
