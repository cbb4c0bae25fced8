"""A folder that is completed step by step says in a JSON file what it is made from.

Whoever comes again compares that record with what they would write: the same work goes on, other
work is refused, and so is a folder without a record that holds other things.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evencover.errors import InputError
from evencover.output.atomic import atomic_path, is_trace


def read_record(
    path: Path, is_valid: Callable[[dict[str, Any]], bool], problem: str
) -> dict[str, Any] | None:
    """What the record says, None if there is none; one that is not valid is a `problem`."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        is_sound = isinstance(content, dict) and is_valid(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_sound = False
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"Cannot read '{path}': {reason}.") from error
    if not is_sound:
        raise InputError(f"Cannot read '{path}': {problem}.")
    return dict(content)


def write_record(path: Path, content: Any, *, indent: int | None = 1) -> None:
    """Write JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        text = json.dumps(content, indent=indent, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def refuse_other_things(folder: Path, welcome: str) -> None:
    """Leave alone what has no record: a file in the folder's place, or a folder that is not empty.

    Traces of a writer that was killed before it wrote its record are nothing. `welcome` says in
    the message which folder would do, beside an empty one.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Cannot write '{folder}': it is a file, not a folder.")
    if folder.is_dir() and not all(is_trace(each.name) for each in folder.iterdir()):
        raise InputError(
            f"'{folder}' must be a new or empty folder, or {welcome}. "
            "Got one that holds other files."
        )


def make_folder(folder: Path, *, parents: bool = False) -> None:
    """Make the folder, unless it is there."""
    try:
        folder.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"Cannot make the folder '{folder}': {reason}.") from error
