"""Who is writing: locks that the system lets go of when their holder dies, whatever killed it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evencover.errors import InputError

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
