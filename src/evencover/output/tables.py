"""Records as a table in a file."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evencover.output.atomic import atomic_path

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def write_csv(path: str | os.PathLike[str], records: Sequence[Mapping[str, Any]]) -> None:
    """Write records with the same keys as CSV, whole or not at all; there must be one or more."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: safe_cell(cell) for name, cell in row.items()} for row in records)


def safe_cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe.

    >>> safe_cell("=1+1"), safe_cell("-0.5"), safe_cell(-0.5)
    ("'=1+1", '-0.5', -0.5)
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    return value if _NUMBER.fullmatch(value) else f"'{value}"
