"""Record what commands print, and two small tables of README: a step of `make evidence`.

python scripts/record_outputs.py     writes docs/evidence/demo.txt (`make demo`), quickstart_*.txt,
                                     scores.csv and guard.csv

The quickstart's page has the code that writes its data files, which runs here.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
from evidence_output import DOCS, write_table, write_text

from evencover import EvencoverWarning, PooledPredictor, compare
from evencover.cli import main as evencover
from evencover.data import load_filetypes

SCORES = ("softmax", "aps", "raps")
EXAMPLES = (1, 2, 3, 5, 10, 20, 50, 100, 200, 1000)


def printed(command: str) -> str:
    """Return what a command prints to stdout."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        evencover(command.split())
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def quickstart() -> dict[str, str]:
    """Write the quickstart's files to a new folder; return what its commands print."""
    page = (DOCS / "quickstart.md").read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            exec(compile(code, "quickstart", "exec"), {})
            compared = printed("compare CAL.npz")
            printed("calibrate CAL.npz -o model.safetensors")
            evaluated = printed("evaluate model.safetensors TEST.npz")
        finally:
            os.chdir(before)
    return {"quickstart_compare.txt": compared, "quickstart_evaluate.txt": evaluated}


def by_score() -> list[list[str]]:
    """Return shortfall and labels per set of STANDARD and POOLED with each score."""
    rows, labels, *_ = load_filetypes()
    found = compare(rows, labels, methods=["standard", "pooled"], scores=SCORES).rows()
    heads = [f"{score}: shortfall, labels per set" for score in SCORES]
    table = [["", *heads]]
    for method in ("standard", "pooled"):
        cells = [
            f"{row['shortfall']:.1f}, {row['avg_size']:.1f}"
            for score in SCORES
            for row in found
            if (row["method"], row["score"]) == (method, score)
        ]
        table.append([f"`{method}`", *cells])
    return table


def guard() -> list[list[str]]:
    """Return the coverage that POOLED guarantees a class, by its number of examples."""
    labels = np.repeat(np.arange(len(EXAMPLES)), EXAMPLES)
    scores = np.random.default_rng(0).random(len(labels))
    predictor = PooledPredictor().fit_scores(scores, labels, len(EXAMPLES))
    guaranteed = [f"{share:.0%}" for share in predictor.guarantees_]
    heads = ["examples of the class", *(f"{n:,}" for n in EXAMPLES)]
    return [heads, ["guaranteed at alpha = 0.1", *guaranteed]]


def main() -> None:
    """Run the commands, compute the tables, write the files."""
    warnings.simplefilter("ignore", EvencoverWarning)
    for name, text in {"demo.txt": printed("compare"), **quickstart()}.items():
        write_text(name, text)
    write_table("scores.csv", by_score())
    write_table("guard.csv", guard())


if __name__ == "__main__":
    main()
