"""HDF5 keeps text of any length in heaps; a damaged one makes the library read it for ever.

Its reader steps from object to object by the sizes that the file gives, and a size of 0 (or one
that overflows) is no step. So the steps are taken here first, where a file is small enough to look
for its heaps: larger ones are as safe as the library. The layout is that of the "global heap" in
the HDF5 file format specification (The HDF Group, version 3.0, section III.E).
"""

from __future__ import annotations

import struct
from pathlib import Path

from evencover.data.location import Location, size_of

MOST_BYTES = 1 << 26
_MARK = b"GCOL\x01"
_HEADER = 16  # of a heap, and of an object in it


def refuse_endless_heaps(location: Location) -> None:
    """Refuse a file with a heap whose objects do not follow each other."""
    if not isinstance(location, Path) or size_of(location) > MOST_BYTES:
        return
    content = location.read_bytes()
    at = content.find(_MARK)
    while at >= 0:
        if not _has_an_end(content, at):
            raise ValueError("its heap of texts is damaged")
        at = content.find(_MARK, at + 1)


def _has_an_end(content: bytes, begin: int) -> bool:
    """Whether stepping from object to object reaches the end of the heap."""
    if begin + _HEADER > len(content):
        return False
    (size,) = struct.unpack_from("<Q", content, begin + 8)
    at, end = begin + _HEADER, begin + size
    if end > len(content):
        return False
    while at + _HEADER <= end:
        number, _, _, length = struct.unpack_from("<HHIQ", content, at)
        step = _HEADER + length + -length % 8 if number else length  # 0 is what is free, all of it
        if step < _HEADER or at + step > end:
            return False
        at += step
    return True
