"""Files that appear whole or not at all, and stay: written, flushed to the disk, then renamed."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from evencover.errors import InputError

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.part")


def refuse_existing(
    path: str | os.PathLike[str], *, force: bool, endings: Sequence[str] = ()
) -> Path:
    """Check, before any work is done, that the output may be written and has a known ending."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"Cannot write '{path}': it is a folder.")
    if endings and path.suffix.lower() not in endings:
        raise InputError(
            f"Cannot write '{path}': its ending must be {' or '.join(endings)}. "
            f"Got {path.suffix or 'none'!r} instead."
        )
    if path.exists() and not path.is_file():
        raise InputError(f"Cannot write '{path}': it is a device or a pipe, not a file.")
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
    """A temporary path beside `path`: takes its place if all goes well, vanishes if not.

    What killed writers of the same path left behind is removed.
    """
    path = Path(path)
    try:
        remove_leftovers(path.parent, path.name)
        with _temporary(path) as (temporary, descriptor):
            with _closed_after(descriptor):
                yield temporary
                os.fsync(descriptor)
                if HAS_LOCKS:  # held until it has its name: nobody takes it for a leftover
                    os.replace(temporary, path)
            if not HAS_LOCKS:  # Windows renames nothing that is open
                os.replace(temporary, path)
            flush_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"Cannot write '{path}': {reason}. Nothing was written.") from error


@contextmanager
def _closed_after(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, int]]:
    """An empty file that is held: nobody takes it for a leftover. Afterwards it is gone.

    A signal may arrive while the file is made, so it is taken away under a name known before that.
    """
    descriptor = None
    while descriptor is None:  # else somebody looked at it before it was held
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            descriptor = claim(temporary, os.O_CREAT | os.O_EXCL)
            if descriptor is not None:
                yield temporary, descriptor
        finally:
            temporary.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Make sure that new names in a folder outlive a power cut, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_trace(name: str) -> bool:
    """Whether a file in a folder is only the trace of a writer: a temporary, or its lock."""
    return name == LOCK or _TEMPORARY.fullmatch(name) is not None


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove the temporaries, of one name or all, of writers that are no more."""
    with suppress(OSError):  # a folder that is not there, or cannot be listed, has none to remove
        for found in list(os.scandir(folder)):
            match = _TEMPORARY.fullmatch(found.name)
            if match and (name is None or match["name"] == name):
                _remove_if_abandoned(Path(found.path))


def _remove_if_abandoned(path: Path) -> None:
    with suppress(OSError):  # gone already, somebody else's, or (Windows) still open
        descriptor = claim(path, 0) if HAS_LOCKS else None
        if descriptor is not None or not HAS_LOCKS:
            path.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


try:
    import fcntl
except ImportError:  # Windows, which does not remove a file that somebody has open
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
LOCK = ".lock"


def claim(path: Path, flags: int) -> int | None:
    """Open a file and hold it until it is closed; None if another process holds it.

    Where the file system knows no locks nobody can tell: a new file is one's own all the same,
    and one that was there is left alone.
    """
    descriptor = os.open(path, os.O_RDWR | flags, 0o666)
    try:
        if _lock(descriptor, unknown=bool(flags & os.O_CREAT)) and _is_at(path, descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _lock(descriptor: int, *, unknown: bool) -> bool:
    """Whether the lock is ours; `unknown` where there are no locks."""
    if fcntl is None:
        return unknown
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return unknown
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the name still means the file that was opened: its holder may have removed it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder that is there; whoever comes second is refused."""
    with _held(folder / LOCK, f"the folder '{folder}'", f"'{folder}'", "choose another folder"):
        yield


@contextmanager
def only_writer_of(path: Path) -> Iterator[None]:
    """Hold a file that is read and then replaced; whoever comes second is refused."""
    lock = path.with_name(f".{path.name}{LOCK}")
    with _held(lock, f"'{path}'", f"'{path}'", "choose another file"):
        yield


@contextmanager
def _held(path: Path, where: str, what: str, remedy: str) -> Iterator[None]:
    try:
        descriptor = claim(path, os.O_CREAT)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"Cannot write to {where}: {reason}.") from error
    if descriptor is None:
        raise InputError(
            f"{what} must have one writer at a time. Got another process that is writing to it; "
            f"wait until that one has ended, or {remedy}."
        )
    try:
        yield
    finally:
        if HAS_LOCKS:
            path.unlink(missing_ok=True)
        os.close(descriptor)
        if not HAS_LOCKS:
            path.unlink(missing_ok=True)
