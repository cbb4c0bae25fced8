"""Records as a table in a file."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from typing import Any

from evencover.output.atomic import atomic_path


def write_csv(path: str | os.PathLike[str], records: Sequence[Mapping[str, Any]]) -> None:
    """Write records with the same keys as CSV, whole or not at all; there must be one or more."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
