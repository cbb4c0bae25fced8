"""Write files, tables and records atomically (write, flush, rename), and lock files."""

from __future__ import annotations

import csv
import glob
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from evencover.data.location import Location, as_location
from evencover.errors import InputError

try:
    import fcntl
except ImportError:  # Windows cannot remove or rename an open file
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
LOCK = ".lock"
_SIGNED_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.part")


def check_output(
    path: str | os.PathLike[str],
    inputs: Iterable[str | os.PathLike[str] | None] = (),
    *,
    force: bool,
    extensions: Sequence[str] = (),
) -> Path:
    """Check, before any work, that a file may be written: it is no input, and new or forced."""
    path = reject_inputs(path, inputs)
    if path.is_dir():
        raise InputError(f"Cannot write '{path}': it is a folder.")
    if extensions and path.suffix.lower() not in extensions:
        raise InputError(f"Cannot write '{path}': its extension must be {' or '.join(extensions)}.")
    if path.exists() and not path.is_file():
        raise InputError(f"Cannot write '{path}': it is a device or a pipe, not a file.")
    if path.exists() and not force:
        raise InputError(f"'{path}' exists already; overwrite it with force=True (--force).")
    if not path.parent.is_dir():
        raise InputError(f"Cannot write '{path}': the folder '{path.parent}' does not exist.")
    return path


def reject_inputs(
    path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str] | None]
) -> Path:
    """Raise InputError for an output, a file or a folder, that is, contains or lies in an input."""
    path = Path(path)
    for text in inputs:
        relation = _relation(path, as_location(text)) if text else None
        if relation is not None:
            raise InputError(
                f"Cannot write '{path}': it {relation} the input '{text}'. Choose another path."
            )
    return path


def _relation(output: Path, source: Location) -> str | None:
    """Describe how an output overlaps with an input; return None if it does not."""
    if not isinstance(source, Path):
        return None
    written, read = Path(os.path.realpath(output)), Path(os.path.realpath(source))
    if written == read or (output.exists() and read.exists() and output.samefile(read)):
        return "is"
    if read.is_file() and read.parent == written:
        return "contains"
    if read.is_dir() and read in written.parents:
        return "lies in"
    if glob.has_magic(str(source)) and not source.exists():
        files = map(Path, glob.iglob(str(source), recursive=True))
        is_match = written.match(str(read)) or any(_relation(output, file) for file in files)
        return "matches" if is_match else None
    return None


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` on success and is removed on failure.

    Also remove leftovers of killed writers of the same path.
    """
    path = Path(path)
    try:
        remove_leftovers(path.parent, path.name)
        with _temporary(path) as (temporary, descriptor):
            try:
                yield temporary
                os.fsync(descriptor)
                if HAS_LOCKS:  # locked until it is renamed
                    os.replace(temporary, path)
            finally:
                os.close(descriptor)
            if not HAS_LOCKS:
                os.replace(temporary, path)
            _flush_folder(path.parent)
    except OSError as error:
        raise InputError(
            f"Cannot write '{path}': {error.strerror or error}. Nothing was written."
        ) from error


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, int]]:
    """Create a locked empty file; remove it afterwards."""
    descriptor = None
    while descriptor is None:  # another process may open the file before it is locked
        # A signal may arrive during creation, so the name is chosen first.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            descriptor = claim(temporary, os.O_CREAT | os.O_EXCL)
            if descriptor is not None:
                yield temporary, descriptor
        finally:
            temporary.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Flush a folder, so that new names survive a power failure where supported."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_trace(name: str) -> bool:
    """Return whether a file is a temporary file or a lock."""
    return name == LOCK or _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove temporary files, of one name or all, whose writers have died."""
    with suppress(OSError):  # the folder cannot be listed
        for found in list(os.scandir(folder)):
            match = _TEMPORARY.fullmatch(found.name)
            if match and (name is None or match["name"] == name):
                _remove_if_abandoned(Path(found.path))


def _remove_if_abandoned(path: Path) -> None:
    with suppress(OSError):  # removed, owned by another user, or (Windows) still open
        if not HAS_LOCKS:
            path.unlink()
        elif (descriptor := claim(path, 0)) is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)


def claim(path: Path, flags: int) -> int | None:
    """Open and lock a file until it is closed; return None if another process holds the lock.

    On file systems without locks, a new file counts as locked and an existing one as held.
    """
    descriptor = os.open(path, os.O_RDWR | flags, 0o666)
    is_mine, is_locked = False, bool(flags & os.O_CREAT)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
            except OSError as error:
                is_locked = is_locked and not isinstance(error, BlockingIOError)
        with suppress(FileNotFoundError):  # the path may have been replaced or removed
            is_mine = is_locked and os.path.samestat(os.stat(path), os.fstat(descriptor))
    finally:
        if not is_mine:
            os.close(descriptor)
    return descriptor if is_mine else None


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock a folder for writing; raise InputError if another process holds the lock."""
    lock = folder / LOCK
    try:
        descriptor = claim(lock, os.O_CREAT)
    except OSError as error:
        raise InputError(f"Cannot write to '{folder}': {error.strerror or error}.") from error
    if descriptor is None:
        raise InputError(f"Another process is writing to '{folder}'; wait, or use another path.")
    try:
        yield
    finally:
        if HAS_LOCKS:
            lock.unlink(missing_ok=True)
        os.close(descriptor)
        if not HAS_LOCKS:
            lock.unlink(missing_ok=True)


def write_csv(
    path: str | os.PathLike[str],
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    *,
    escape_formulas: bool = False,
) -> None:
    """Write records with the same keys as CSV, atomically; without columns, at least one.

    With `escape_formulas`, text is safe to open in a spreadsheet; see `safe_cell`.
    """
    as_cell = safe_cell if escape_formulas else lambda value: value
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns or list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: as_cell(cell) for name, cell in row.items()} for row in records)


def safe_cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would read as a formula with an apostrophe.

    >>> safe_cell("=1+1"), safe_cell("-0.5"), safe_cell(-0.5)
    ("'=1+1", '-0.5', -0.5)
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    return value if _SIGNED_NUMBER.fullmatch(value) else f"'{value}"


def read_record(
    path: Path, is_valid: Callable[[dict[str, Any]], bool], problem: str
) -> dict[str, Any] | None:
    """Read a record, None if missing; raise InputError with `problem` if it is invalid."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        is_sound = isinstance(content, dict) and is_valid(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_sound = False
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from error
    if not is_sound:
        raise InputError(f"Cannot read '{path}': {problem}.")
    return dict(content)


def write_record(path: Path, content: Any, *, indent: int | None = 1) -> None:
    """Write JSON atomically."""
    with atomic_path(path) as temporary:
        text = json.dumps(content, indent=indent, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
