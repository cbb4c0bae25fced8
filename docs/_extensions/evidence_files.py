"""Measured tables and printed outputs in docs/evidence, and their record.

`make evidence` (scripts/evidence.py) writes the files and the record. The site inserts a file with

```{evidence} filetypes.csv
```

and README has the same content between two markers, because GitHub includes no files.
"""

import csv
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "evidence"
RECORD = FOLDER / "record.csv"
EXECUTED = FOLDER / "executed.csv"
BLOCK = re.compile(r"(?<=<!-- evidence: )([\w.]+) -->\n(.*?)(?=<!-- end -->)", re.DOTALL)


class Measured(NamedTuple):
    """One output of a step: its path below docs/, and when it was measured."""

    output: str
    step: str
    version: str
    date: str
    seconds: str  # that the step took
    content: str  # digest of the output


class Executed(NamedTuple):
    """The modules that a step executed, separated by spaces, and the digest of their code."""

    step: str
    code: str
    modules: str


def read_record() -> dict[str, Measured]:
    """Return the record of each output; empty before the first measurement."""
    return {row.output: row for row in _read(RECORD, Measured)}


def read_executed() -> dict[str, Executed]:
    """Return what each step executed."""
    return {row.step: row for row in _read(EXECUTED, Executed)}


def write_record(rows: Iterable[Measured]) -> None:
    """Write the record, sorted by step and output."""
    _write(RECORD, Measured, sorted(rows, key=lambda row: (row.step, row.output)))


def write_executed(rows: Iterable[Executed]) -> None:
    """Write what each step executed, sorted by step."""
    _write(EXECUTED, Executed, sorted(rows))


def _read(path: Path, kind: Any) -> list[Any]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [kind(**row) for row in csv.DictReader(file)]


def _write(path: Path, kind: Any, rows: list[Any]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(kind._fields)
        writer.writerows(rows)


def digest(paths: Iterable[Path]) -> str:
    """Return a short digest of files, in the order given."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def markdown(path: Path) -> list[str]:
    """Return a file as lines of Markdown: a table, printed output, or a paragraph."""
    text = path.read_text("utf-8")
    if path.suffix == ".csv":
        heads, *rows = csv.reader(text.splitlines())
        columns = list(zip(*rows, strict=True))
        rule = ["---:" if all(map(is_number, column)) else "---" for column in columns]
        return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]
    if path.suffix == ".txt":
        return ["```text", *text.splitlines(), "```"]
    return text.splitlines()


def is_number(cell: str) -> bool:
    """Return whether a table cell is a number, perhaps with a unit."""
    return not re.search(r"[^\W\d]", re.sub(r"(MB|[mµ]?s|x|%)$", "", cell.strip()))


def with_blocks(text: str) -> str:
    """Return a page with the present content of the files that it shows between markers."""

    def block(match: re.Match[str]) -> str:
        if not (FOLDER / match[1]).exists():
            return match[0]
        lines = "\n".join(markdown(FOLDER / match[1]))
        return f"{match[1]} -->\n{lines}\n"

    return BLOCK.sub(block, text)
