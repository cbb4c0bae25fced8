"""What tells a file from what it was: it must be the same from its opening to the last row.

Labels are read when a source is opened and rows later, perhaps by another machine: a file that was
replaced in between would give the rows of one and the labels of the other.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from evencover.data.location import Address, Location
from evencover.errors import FileError

# What stores say of a file that changes when it is written anew, the surest first.
_MARKS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified")


class Identity(NamedTuple):
    """Size in bytes, and the time of the last change (or what else a store knows)."""

    size: int
    mark: int | str


def identity_of(location: Location) -> Identity:
    """What the file is now."""
    if isinstance(location, Address):
        return _of_address(location)
    if location.is_dir():  # a zarr store
        return _of_folder(location)
    found = location.stat()
    return Identity(found.st_size, found.st_mtime_ns)


def refuse_changed(location: Location, identity: Identity) -> None:
    """Refuse a file that is no longer what it was when it was opened."""
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


def _of_address(address: Address) -> Identity:
    system, path = address.system()
    system.invalidate_cache(path)
    about = system.info(path)
    mark = next((str(about[key]) for key in _MARKS if about.get(key)), "")
    return Identity(int(about.get("size") or 0), mark)


class _Look(NamedTuple):
    """What a store was, which folder that was, and until when that need not be looked at again."""

    until: float
    folder: tuple[int, int]
    identity: Identity


_looks: dict[Path, _Look] = {}


def _of_folder(folder: Path) -> Identity:
    """The sizes and times of all files of a store; looking at many takes 5% of the time at most.

    Another folder under the same name is seen at once, a file that changed in it a little later.
    """
    about, known = folder.stat(), _looks.get(folder)
    which = (about.st_ino, about.st_mtime_ns)
    if known is not None and known.folder == which and time.monotonic() < known.until:
        return known.identity
    begun = time.monotonic()
    identity = _of_files(folder)
    ended = time.monotonic()
    _looks[folder] = _Look(ended + 20 * (ended - begun), which, identity)
    return identity


def _of_files(folder: Path) -> Identity:
    size, content = 0, hashlib.blake2b(digest_size=16)
    for where, folders, files in os.walk(folder):
        folders.sort()
        inside = os.path.relpath(where, folder)  # a worker may call the folder by another path
        for name in sorted(files):
            found = os.stat(os.path.join(where, name))
            size += found.st_size
            content.update(f"{inside}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return Identity(size, content.hexdigest())
