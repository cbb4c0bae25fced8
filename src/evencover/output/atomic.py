"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evencover.errors import InputError


def refuse_existing(path: str | os.PathLike[str], *, force: bool) -> Path:
    """Check, before any work is done, that the output may be written."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"Cannot write '{path}': it is a folder.")
    if path.exists() and not force:
        raise InputError(
            f"'{path}' exists already; choose another name, or overwrite it with force=True "
            "(--force)."
        )
    if not path.parent.is_dir():
        raise InputError(f"Cannot write '{path}': the folder '{path.parent}' does not exist.")
    return path


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`: takes its place if all goes well, vanishes if not."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"Cannot write '{path}': {reason}. Nothing was written.") from error
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporaries of `path`, or of a pattern, that a kill left behind."""
    path = Path(path)
    for temporary in path.parent.glob(f".{path.name}.*.part"):
        temporary.unlink(missing_ok=True)
