"""Where a file is: a path on this machine, or an address that fsspec knows."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from evencover.errors import FileError, InputError, needs

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|[a-z]+::")


def import_fsspec() -> Any:
    """The optional dependency, or a sentence that says how to get it."""
    try:
        import fsspec
    except ImportError:
        raise needs("Addresses such as s3://...", "fsspec", "remote") from None
    return fsspec


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
        """The file, to be read from any place in it."""
        system, path = self.system()
        return system.open(path, mode)

    def read(self, start: int, stop: int) -> bytes:
        """Bytes from the middle of the file, in one request."""
        system, path = self.system()
        return bytes(system.cat_file(path, start=start, end=stop))

    def children(self) -> list[Address]:
        """What the folder holds."""
        system, path = self.system()
        return [Address(system.unstrip_protocol(each)) for each in system.ls(path, detail=False)]

    def matches(self) -> list[Address]:
        """The files that the pattern fits."""
        system, path = self.system()
        return [Address(system.unstrip_protocol(each)) for each in system.glob(path)]

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self.url.rstrip('/')}/{name}")

    def system(self) -> tuple[Any, str]:
        """The file system of fsspec, and the path in it."""
        fsspec = import_fsspec()
        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:  # unknown protocol, or a library is missing
            raise InputError(f"Cannot read '{self.url}': {error}.") from None
        return system, path


Location = Path | Address


def as_location(path: str | os.PathLike[str] | Address) -> Location:
    """A path of this machine, or an address; ``file://`` is a path."""
    if isinstance(path, Address):
        return path
    text = os.fspath(path)
    if not isinstance(path, str) or not _SCHEME.match(text):
        return Path(text)
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    return Address(text)


def existing_file(path: str | os.PathLike[str] | Address) -> Location:
    """The location of a file that is there."""
    location = as_location(path)
    refuse_irregular(location)
    return location


def refuse_irregular(location: Location) -> None:
    """Refuse what is no file: a pipe would be waited for, and a device never ends."""
    problem = ""
    if isinstance(location, Address):
        problem = "" if location.is_file() else "there is no such file"
    else:
        try:
            mode = location.stat().st_mode
            if stat.S_ISDIR(mode):
                problem = "it is a folder, not a file"
            elif not stat.S_ISREG(mode):
                problem = "it is a device or a pipe, not a file"
        except (FileNotFoundError, NotADirectoryError, ValueError):
            problem = "there is no such file"
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
    if problem:
        raise FileError(f"Cannot read '{location}': {problem}.")


def expand(location: Location) -> list[Location] | None:
    """The files of a folder or a pattern, in natural order; None if it is one file."""
    if location.is_file():
        return None
    if location.is_dir():
        inside: Sequence[Location] = (
            list(location.iterdir()) if isinstance(location, Path) else location.children()
        )
        named = (each for each in inside if not each.name.startswith((".", "_")))
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
    """By name, numbers by size: part-2 comes before part-10."""
    return sorted(locations, key=lambda each: _natural(str(each)))


def _natural(text: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", text)
    return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]


def size_of(location: Location) -> int:
    """Bytes of the file."""
    if isinstance(location, Path):
        return location.stat().st_size
    system, path = location.system()
    return int(system.size(path))
