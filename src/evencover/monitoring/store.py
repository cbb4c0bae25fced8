"""A monitor's state as a file: JSON with a checksum, replaced as a whole, the one before kept."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import evencover
from evencover.errors import InputError
from evencover.output.atomic import atomic_path
from evencover.output.writers import write_record

FORMAT = 1


def before(path: Path) -> Path:
    """Where the state is kept that was replaced last."""
    return path.with_name(f"{path.name}.before")


def write_state(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a state, whole or not at all."""
    path = Path(path)
    content = {"format": FORMAT, "version": evencover.__version__, **content}
    if path.is_file():
        with atomic_path(before(path)) as temporary:
            temporary.write_bytes(path.read_bytes())
    write_record(path, {**content, "checksum": _checksum(content)}, indent=None)


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state that is whole; a newer format is refused by name."""
    path = Path(path)
    try:
        content = json.loads(path.read_bytes())
        checksum, form = content.pop("checksum"), content["format"]
    except FileNotFoundError:
        raise InputError(f"Cannot read '{path}': there is no such file.") from None
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged(path) from None
    if type(form) is int and form > FORMAT:
        raise InputError(
            f"Cannot read '{path}': it has format {form}, and evencover {evencover.__version__} "
            f"reads up to {FORMAT}; use evencover {content.get('version', 'of later')} or later."
        )
    if checksum != _checksum(content):
        raise damaged(path)
    return dict(content)


def damaged(path: Path, what: str = "it was cut or changed") -> InputError:
    """The sentence about a state that cannot be believed."""
    remedy = f"the state before it is in '{before(path)}'" if before(path).is_file() else ""
    remedy = remedy or "start a new one under another name"
    return InputError(f"Cannot read '{path}': the state is damaged ({what}); {remedy}.")


def _checksum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
