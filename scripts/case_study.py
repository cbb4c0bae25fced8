"""Take a deployed model from its first file to decisions, for docs/research/case.md.

python scripts/case_study.py     writes docs/evidence/case_*.txt and case_*.md; needs magika,
                                 whose table has the group of each type

The page has the code that writes the data files, and the code of the reviews; both run here.
"""

from __future__ import annotations

import csv
import os
import re
import tempfile
import warnings
from pathlib import Path

from evidence_output import DOCS, write_text
from record_outputs import printed

from evencover import EvencoverWarning, PooledPredictor

N_ROWS = 6  # of predict's output
MOST_LETTERS = 50  # of an id, so that a line fits
CAP = 0.05


def commands() -> dict[str, str]:
    """Run the page's code and commands in the present folder; return what is shown of each."""
    page = (DOCS / "research" / "case.md").read_text("utf-8")
    code = re.findall(r"^```(?:{code-block} )?python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    names = {"__name__": "case"}
    for block in code[:2]:
        exec(compile(block, "case", "exec"), names)
    lines = [line.strip() for line in re.findall(r"^    evencover (.*)$", page, re.MULTILINE)]
    compared, _, evaluated, predicted, monitored = (printed(line.split(" #")[0]) for line in lines)
    exec(compile(code[2], "case", "exec"), names)
    del predicted  # it writes a file
    with Path("sets.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["answer_level"] == "group"]
    rows = [row for row in rows if len(row["id"]) < MOST_LETTERS][:N_ROWS]
    shown = ("id", "names", "answer", "answer_probability")
    answers = [",".join(shown), *(",".join(row[name] for name in shown) for row in rows)]
    kept, labels, guesses = names["kept"], names["labels"][8000:], names["guesses"][8000:]
    right = guesses == labels
    cutoffs = (
        f"{len(names['reviewed']):,} reviews, at most {names['N_REVIEWS']} of each type, keep "
        f"{kept.mean():.1%} of {len(kept):,} later predictions. Of these, {right[kept].mean():.1%} "
        f"are right, and of\nall predictions {right.mean():.1%}."
    )
    return {
        "case_compare.txt": compared,
        "case_cap.md": cap(),
        "case_evaluate.txt": evaluated,
        "case_answers.txt": "\n".join(answers),
        "case_cutoffs.md": cutoffs,
        "case_monitor.txt": "\n".join(monitored.splitlines()[:9]),
    }


def cap() -> str:
    """Compare the type that causes most wrong labels, on the test files, with and without a cap."""
    free, capped = (
        PooledPredictor(max_share=share).fit("CAL.npz").evaluate("TEST.npz")
        for share in (None, CAP)
    )
    worst = int(free.largest_contributors(1)[0])
    shares = [report.appearances[worst] / report.n_rows for report in (free, capped)]
    return (
        f"On the test files, `{free.class_names[worst]}` is in {shares[0]:.1%} of the sets without "
        f"a cap and covered {free.class_coverage[worst]:.0%} of the time.\nWith the cap it is in "
        f"{shares[1]:.1%}, covered {capped.class_coverage[worst]:.0%} of the time, and sets have "
        f"{capped.avg_size:.2f} instead of {free.avg_size:.2f} labels."
    )


def main() -> None:
    """Work in an empty folder, and write what is shown."""
    warnings.simplefilter("ignore", EvencoverWarning)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            shown = commands()
        finally:
            os.chdir(before)
    for name, text in shown.items():
        write_text(name, text)


if __name__ == "__main__":
    main()
