"""Locate files by a local path or an fsspec URL."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from evencover.errors import FileError, InputError, import_extra, one_line

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|[a-z]+::")


@dataclass(frozen=True)
class RemoteFile:
    """A remote file with the methods of `Path` that readers use. Keeps no connection open."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last component of the URL."""
        return PurePosixPath(self.url.rstrip("/")).name

    @property
    def suffix(self) -> str:
        """The extension, with its dot."""
        return PurePosixPath(self.name).suffix

    def is_file(self) -> bool:
        """Return whether the file exists."""
        return bool(self.ask("isfile"))

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return bool(self.ask("isdir"))

    def absolute(self) -> RemoteFile:
        """Return the URL itself, which is the same on every machine."""
        return self

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file for random access."""
        return self.ask("open", mode=mode)

    def found(self, *, is_glob: bool = False) -> list[RemoteFile]:
        """List the folder, or the files that match the glob."""
        paths = self.ask("glob") if is_glob else self.ask("ls", detail=False)
        return [RemoteFile(self.system()[0].unstrip_protocol(path)) for path in paths]

    def __truediv__(self, name: str) -> RemoteFile:
        return RemoteFile(f"{self.url.rstrip('/')}/{name}")

    def system(self) -> tuple[Any, str]:
        """Return the fsspec file system, and the path in it."""
        fsspec = import_extra("URLs such as s3://...", "fsspec", "remote")
        try:
            return fsspec.core.url_to_fs(self.url)
        except Exception as error:  # each file system has its own
            raise _no_address(self.url, error) from None

    def ask(self, method: str, **how: Any) -> Any:
        """Call a method of the file system for this file."""
        system, path = self.system()
        try:
            return getattr(system, method)(path, **how)
        except (FileNotFoundError, PermissionError, MemoryError):
            raise
        except Exception as error:  # each file system has its own
            raise _no_address(self.url, error) from None


def _no_address(url: str, error: Exception) -> InputError:
    # A protocol that needs more than a URL fails with a TypeError, which only a programmer grasps.
    why = "" if isinstance(error, TypeError) else f" Got {one_line(error, 100)!r}."
    return InputError(
        f"Cannot read '{url}': it must be a path or a URL that fsspec opens without options; "
        f"correct it, or download the file.{why}"
    )


Location = Path | RemoteFile


def as_location(path: str | os.PathLike[str] | RemoteFile) -> Location:
    """Return a local path that can exist, or a `RemoteFile`; ``file://`` is a path."""
    if isinstance(path, RemoteFile):
        return path
    text = os.fspath(path)
    if isinstance(path, str) and text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif isinstance(path, str) and _SCHEME.match(text):
        return RemoteFile(text)
    if not text:
        raise FileError("A path must name a file or a folder. Got an empty one.")
    try:
        os.stat(text)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it may be a glob
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error).lower()
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise FileError(f"Cannot read '{shown}': {why}.") from error
    return Path(text)


def existing_file(path: str | os.PathLike[str] | RemoteFile) -> Location:
    """Check that a file exists; reject folders, pipes, which would block, and devices."""
    location = as_location(path)
    if location.is_dir():
        raise FileError(f"Cannot read '{location}': it is a folder, not a file.")
    with reading(location):
        return location


def is_zarr(location: Location) -> bool:
    """Return whether a folder is a zarr store, regardless of its name."""
    marks = ("zarr.json", ".zgroup", ".zarray")
    return location.is_dir() and any((location / mark).is_file() for mark in marks)


def expand(location: Location) -> list[Location] | None:
    """List the files of a folder or a glob in natural order; None for one file or zarr store."""
    if location.is_file() or is_zarr(location):
        return None
    if location.is_dir():
        inside: Any = location.iterdir() if isinstance(location, Path) else location.found()
        named = (each for each in inside if not each.name.startswith((".", "_")))
        return _in_natural_order(each for each in named if each.is_file() or each.is_dir())
    if not glob.has_magic(str(location)):
        return None
    found: Any = map(Path, glob.glob(str(location), recursive=True))
    found = list(found) if isinstance(location, Path) else location.found(is_glob=True)
    if not found:
        raise InputError(f"Cannot read '{location}': no file matches.")
    return _in_natural_order(found)


def _in_natural_order(locations: Any) -> list[Location]:
    """Sort by name, with numbers by value: part-2 comes before part-10."""

    def natural(location: Location) -> list[tuple[int, int, str]]:
        parts = re.split(r"(\d+)", str(location))
        return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]

    return sorted(locations, key=natural)


@contextmanager
def local_copy(location: Location) -> Iterator[Path]:
    """Yield a path on this machine; download a remote file to a temporary one."""
    if isinstance(location, Path):
        yield location
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, location.name)
        location.ask("get_file", lpath=str(copy))
        yield copy


# Metadata that change when a file is rewritten, most reliable first.
_MARKS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified")


class Identity(NamedTuple):
    """Size in bytes, and time of the last change (or a store's equivalent)."""

    size: int
    mark: int | str


def identity_of(location: Location) -> Identity:
    """Identify the current content of a file."""
    if isinstance(location, RemoteFile):
        location.ask("invalidate_cache")
        about = location.ask("info")
        mark = next((str(about[key]) for key in _MARKS if about.get(key)), "")
        return Identity(int(about.get("size") or 0), mark)
    found = location.stat()
    if stat.S_ISDIR(found.st_mode):
        return _identity_of_store(location)
    if not stat.S_ISREG(found.st_mode):  # reading a pipe would block
        raise FileError(f"Cannot read '{location}': it is a device or a pipe, not a file.")
    return Identity(found.st_size, found.st_mtime_ns)


def file_identity(location: Location, identity: Identity) -> tuple[str, int, int | str]:
    """Identify a file by its name, or a remote one by its URL, and its content."""
    return location.name if isinstance(location, Path) else str(location), *identity


def _changed(location: Location, before: Identity) -> FileError:
    """Build the error for a file that has changed since it was opened."""
    now = identity_of(location)
    what = (
        f"{now.size} bytes instead of {before.size}"
        if now.size != before.size
        else f"the same {now.size} bytes, but another modification time"
    )
    return FileError(
        f"'{location}' must not change after it is opened. Got {what}: it was rewritten "
        "since, or a worker has another copy; run again, and copy files with their times."
    )


def _identity_of_store(folder: Path) -> Identity:
    """Identify a zarr store by the sizes and times of all files."""
    size, content = 0, hashlib.blake2b(digest_size=16)
    for where, folders, files in os.walk(folder):
        folders.sort()
        inside = os.path.relpath(where, folder)  # a worker may use another path
        for name in sorted(files):
            found = os.stat(os.path.join(where, name))
            size += found.st_size
            content.update(f"{inside}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return Identity(size, content.hexdigest())


# Faults of the machine, not of the file.
_SHORT_OF = {
    errno.ENOMEM: "there is not enough memory; add memory, or use smaller partitions",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.EIO: "the disk or network gives an error",
}
_PROBLEMS: dict[type[Exception], str] = {
    MemoryError: _SHORT_OF[errno.ENOMEM],
    FileNotFoundError: "there is no such file",
    NotADirectoryError: "there is no such file",
    PermissionError: "permission denied",
}


@contextmanager
def reading(location: Location, known: Identity | None = None) -> Iterator[Identity]:
    """Convert any exception of a library to one error that names the file.

    Raise if the file changes during the reading, or differs from the `known` identity. Yield its
    identity.
    """
    identity = known
    try:
        found = identity_of(location)
        identity = known or found
        if found != identity:
            raise _changed(location, identity)
        yield identity
        if identity_of(location) != identity:
            raise _changed(location, identity)
    except InputError:
        raise
    except Exception as error:
        problem = _SHORT_OF.get(getattr(error, "errno", None) or 0)
        problem = next((p for kind, p in _PROBLEMS.items() if isinstance(error, kind)), problem)
        if problem is not None:
            raise FileError(f"Cannot read '{location}': {problem}.") from error
        if identity is not None:  # a file that is being written reads like a damaged one
            with suppress(OSError):
                if identity_of(location) != identity:
                    raise _changed(location, identity) from None
        raise InputError(
            f"Cannot read '{location}': the file is truncated or does not match its extension "
            f"({one_line(error)})."
        ) from error
