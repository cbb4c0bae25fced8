"""Locations of files: a path on this machine, or a URL that fsspec knows."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from evencover.errors import FileError, InputError, needs, one_line

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|[a-z]+::")


@dataclass(frozen=True)
class Address:
    """A file elsewhere; answers what readers ask of a `Path`. Holds no connection."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(self.url.rstrip("/")).name

    @property
    def suffix(self) -> str:
        """The ending, with its dot."""
        return PurePosixPath(self.name).suffix

    def is_file(self) -> bool:
        """Whether there is such a file."""
        system, path = self.system()
        return bool(system.isfile(path))

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        system, path = self.system()
        return bool(system.isdir(path))

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file for random access."""
        system, path = self.system()
        return system.open(path, mode)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes from the middle of the file, in one request."""
        system, path = self.system()
        return bytes(system.cat_file(path, start=start, end=stop))

    def iterdir(self) -> list[Address]:
        """List the folder."""
        system, path = self.system()
        return [Address(system.unstrip_protocol(each)) for each in system.ls(path, detail=False)]

    def matches(self) -> list[Address]:
        """List the files that match the glob."""
        system, path = self.system()
        return [Address(system.unstrip_protocol(each)) for each in system.glob(path)]

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self.url.rstrip('/')}/{name}")

    def system(self) -> tuple[Any, str]:
        """Return the file system of fsspec, and the path in it."""
        try:
            import fsspec
        except ImportError:
            raise needs("Addresses such as s3://...", "fsspec", "remote") from None
        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:  # unknown protocol, or a library is missing
            raise InputError(f"Cannot read '{self.url}': {error}.") from None
        return system, path


Location = Path | Address


def as_location(path: str | os.PathLike[str] | Address) -> Location:
    """Return a path of this machine, or an address; ``file://`` is a path."""
    if isinstance(path, Address):
        return path
    text = os.fspath(path)
    if not isinstance(path, str) or not _SCHEME.match(text):
        return Path(text)
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    return Address(text)


def existing_file(path: str | os.PathLike[str] | Address) -> Location:
    """Return the location of a file; reject pipes, which would be waited for, and devices."""
    location, problem = as_location(path), ""
    try:
        if isinstance(location, Address):
            problem = "" if location.is_file() else "there is no such file"
        elif stat.S_ISDIR(mode := location.stat().st_mode):
            problem = "it is a folder, not a file"
        elif not stat.S_ISREG(mode):
            problem = "it is a device or a pipe, not a file"
    except (FileNotFoundError, NotADirectoryError, ValueError):
        problem = "there is no such file"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    if problem:
        raise FileError(f"Cannot read '{location}': {problem}.")
    return location


def expand(location: Location) -> list[Location] | None:
    """List the files of a folder or a glob, in natural order; None if it is one file."""
    if location.is_file():
        return None
    if location.is_dir():
        named = (each for each in location.iterdir() if not each.name.startswith((".", "_")))
        return _sorted(each for each in named if each.is_file() or each.is_dir())
    if not glob.has_magic(str(location)):
        return None
    if isinstance(location, Path):
        found = [Path(each) for each in glob.glob(str(location), recursive=True)]
    else:
        found = location.matches()  # type: ignore[assignment]
    if not found:
        raise InputError(f"Cannot read '{location}': the pattern matches no file.")
    return _sorted(found)


def _sorted(locations: Any) -> list[Location]:
    """Sort by name, numbers by size: part-2 comes before part-10."""

    def natural(location: Location) -> list[tuple[int, int, str]]:
        parts = re.split(r"(\d+)", str(location))
        return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]

    return sorted(locations, key=natural)


def size_of(location: Location) -> int:
    """Bytes of the file."""
    if isinstance(location, Path):
        return location.stat().st_size
    system, path = location.system()
    return int(system.size(path))


# What stores say of a file that changes when it is written anew, the surest first.
_MARKS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified")


class Identity(NamedTuple):
    """Size in bytes, and the time of the last change (or what else a store knows)."""

    size: int
    mark: int | str


def identity_of(location: Location) -> Identity:
    """Identify the present content of a file."""
    if isinstance(location, Address):
        system, path = location.system()
        system.invalidate_cache(path)
        about = system.info(path)
        mark = next((str(about[key]) for key in _MARKS if about.get(key)), "")
        return Identity(int(about.get("size") or 0), mark)
    found = location.stat()
    if stat.S_ISDIR(found.st_mode):
        return _identity_of_store(location, (found.st_ino, found.st_mtime_ns))
    return Identity(found.st_size, found.st_mtime_ns)


def reject_changed(location: Location, identity: Identity) -> None:
    """Reject a file that is no longer what it was when it was opened."""
    now = identity_of(location)
    if now == identity:
        return
    what = (
        f"{now.size} bytes instead of {identity.size}"
        if now.size != identity.size
        else f"the same {now.size} bytes, but another time"
    )
    raise FileError(
        f"'{location}' must stay as it was when it was opened. Got {what}: it was written anew "
        "meanwhile, or a worker has another copy; run again, and copy files with their times."
    )


# What stores were: which folder, its identity, and until when that need not be computed again.
_known_stores: dict[Path, tuple[tuple[int, int], Identity, float]] = {}


def _identity_of_store(folder: Path, which: tuple[int, int]) -> Identity:
    """Identify a zarr store by the sizes and times of all files, in at most 5% of the time.

    Another folder under the same name is seen at once, a file that changed in it a little later.
    """
    begun = time.monotonic()
    known, identity, until = _known_stores.get(folder, (None, Identity(0, ""), 0.0))
    if known == which and begun < until:
        return identity
    size, content = 0, hashlib.blake2b(digest_size=16)
    for where, folders, files in os.walk(folder):
        folders.sort()
        inside = os.path.relpath(where, folder)  # a worker may call the folder by another path
        for name in sorted(files):
            found = os.stat(os.path.join(where, name))
            size += found.st_size
            content.update(f"{inside}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    identity, ended = Identity(size, content.hexdigest()), time.monotonic()
    _known_stores[folder] = (which, identity, ended + 20 * (ended - begun))
    return identity


# What the machine lacks, which is no fault of the file.
_SHORT_OF = {
    errno.ENOMEM: "there is not enough memory; give it more, or use smaller parts",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.EIO: "the disk or network gives an error",
}
_PROBLEMS: dict[type[Exception], str] = {
    MemoryError: _SHORT_OF[errno.ENOMEM],
    FileNotFoundError: "there is no such file",
    PermissionError: "permission denied",
}


@contextmanager
def reading(location: Location, known: Identity | None = None) -> Iterator[Identity]:
    """Raise one error that names the file, whatever a library raises.

    The file must be the same when the reading ends as when it begins, and the one that is `known`
    from an earlier opening. Yield its identity.
    """
    identity = known
    try:
        if known is None:
            identity = identity_of(location)
        else:
            reject_changed(location, known)
        assert identity is not None
        yield identity
        reject_changed(location, identity)
    except InputError:
        raise
    except Exception as error:
        problem = _SHORT_OF.get(getattr(error, "errno", None) or 0)
        problem = next((p for kind, p in _PROBLEMS.items() if isinstance(error, kind)), problem)
        if problem is not None:
            raise FileError(f"Cannot read '{location}': {problem}.") from error
        if identity is not None:  # half of what is being written reads like a broken file
            with suppress(OSError):
                reject_changed(location, identity)
        raise InputError(
            f"Cannot read '{location}': the file is truncated or not of the kind its ending says "
            f"({one_line(error)})."
        ) from error
