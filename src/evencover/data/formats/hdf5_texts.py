"""How long the texts of an HDF5 file say they are: the library takes that much before it looks.

A text of any length is kept as its length (4 bytes), the address of a heap, and its number there. A
length that is damaged makes the library ask for up to 4 GB for each text. Heaps are not packed, so
texts that are together longer than their file are refused first. The layouts are those of the HDF5
file format specification (The HDF Group, version 3.0, sections IV.A.2.m and IV.B).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evencover.data.location import Location, size_of

_DEFLATE, _SHUFFLE = 1, 2  # filters of a chunk
_LENGTH = _NUMBER = 4  # bytes


def refuse_long_texts(dataset: Any, location: Location) -> None:
    """Refuse a data set whose texts are longer than the file; called before they are read."""
    size, width = size_of(location), _width(dataset.file)
    total = sum(_total(raw, width) for raw in _stored(dataset, location, width))
    if total > size:
        raise ValueError(f"it says that its texts have {total:.3g} characters")


def refuse_long_attribute(file: Any, name: str, location: Location) -> None:
    """The same for texts that are an attribute, in a file on this machine."""
    attribute = file.attrs.get_id(name)
    if not isinstance(location, Path) or attribute.dtype.kind != "O":
        return
    content, width = location.read_bytes(), _width(file)
    n_bytes = width * int(np.prod(attribute.shape))
    for begin in _attribute_values(content, name.encode() + b"\0"):
        if (total := _total(content[begin : begin + n_bytes], width)) > len(content):
            raise ValueError(f"it says that its texts have {total:.3g} characters")


def _width(file: Any) -> int:
    """Bytes of a text's entry; files say how long their addresses are."""
    return _LENGTH + int(file.id.get_create_plist().get_sizes()[0]) + _NUMBER


def _total(raw: bytes, width: int) -> int:
    """The sum of the lengths, which are the first bytes of each entry."""
    entries = np.frombuffer(raw, f"V{width}", count=len(raw) // width)
    lengths = entries.view(np.uint8).reshape(-1, width)[:, :_LENGTH].copy().view("<u4")
    return int(lengths.sum(dtype=np.uint64))


def _stored(dataset: Any, location: Location, width: int) -> Iterator[bytes]:
    """Lengths, addresses and numbers as they are in the file."""
    begin = dataset.id.get_offset()
    if begin is not None:
        end = begin + width * dataset.size
        if isinstance(location, Path):
            with location.open("rb") as file:
                file.seek(begin)
                yield file.read(end - begin)
        else:
            yield location.read(begin, end)
    elif dataset.chunks is not None:
        plan = dataset.id.get_create_plist()
        filters = [plan.get_filter(place)[0] for place in range(plan.get_nfilters())]
        if set(filters) <= {_DEFLATE, _SHUFFLE}:  # else as safe as the library
            n_bytes = width * int(np.prod(dataset.chunks))
            for number in range(dataset.id.get_num_chunks()):
                where = dataset.id.get_chunk_info(number).chunk_offset
                mask, raw = dataset.id.read_direct_chunk(where)
                yield _unpacked(raw, filters, mask, n_bytes, width)


def _unpacked(raw: bytes, filters: list[int], mask: int, n_bytes: int, width: int) -> bytes:
    """A chunk before its filters, of which a bit in the mask leaves one out."""
    for place, kind in reversed(list(enumerate(filters))):
        if mask >> place & 1:
            continue
        if kind == _DEFLATE:
            raw = zlib.decompressobj().decompress(raw, n_bytes)
        else:
            n = len(raw) // width
            raw = np.frombuffer(raw[: n * width], np.uint8).reshape(width, n).T.tobytes()
    return raw[:n_bytes]


def _attribute_values(content: bytes, name: bytes) -> Iterator[int]:
    """Where the values of attributes of this name begin: after its name, type and shape."""
    at = content.find(name)
    while at >= 0:
        for version, head in ((1, 8), (2, 8), (3, 9)):
            if at < head or content[at - head] != version:
                continue
            sizes = struct.unpack_from("<HHH", content, at - head + 2)
            if sizes[0] == len(name):
                yield at + sum(size + -size % 8 if version == 1 else size for size in sizes)
        at = content.find(name, at + 1)
