"""HDF5 keeps text of any length in heaps; a damaged one makes the library read it for ever.

Its reader steps from object to object by the sizes that the file gives, and a size of 0 (or one
that overflows) is no step. So the steps are taken here first, where a file is small enough to look
for its heaps: larger ones are as safe as the library. The layout is that of the "global heap" in
the HDF5 file format specification (The HDF Group, version 3.0, section III.E).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evencover.arrays import Array
from evencover.data.columns import NAMES_KEY
from evencover.data.formats.arrays import LazyArrays, PlainArray
from evencover.data.location import Location, size_of
from evencover.errors import InputError, needs

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


def refuse_chunks_beyond(dataset: Any, location: Location) -> None:
    """Refuse a data set with chunks that end beyond the file, where a file is small."""
    if dataset.chunks is None or not isinstance(location, Path):
        return
    size = size_of(location)
    if size > MOST_BYTES:  # as safe as the library, and not looked at twice
        return

    def check(chunk: Any) -> None:
        if chunk.byte_offset is not None and chunk.byte_offset + chunk.size > size:
            raise ValueError(f"it says that a chunk has {chunk.size:.3g} bytes, and has {size}")

    if hasattr(dataset.id, "chunk_iter"):
        dataset.id.chunk_iter(check)
    else:
        for number in range(dataset.id.get_num_chunks()):
            check(dataset.id.get_chunk_info(number))


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


@contextmanager
def hdf5_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """The data sets; class names may also be an attribute of the file."""
    try:
        import h5py
    except ImportError:
        raise needs("HDF5 files", "h5py", "hdf5") from None
    is_local = isinstance(location, Path)
    with nullcontext(location) if is_local else location.open() as where, h5py.File(where) as file:
        # First of all: later, older versions of HDF5 find no attributes in a damaged header.
        attributes = [NAMES_KEY] if NAMES_KEY in file.attrs else []
        _refuse_links(file, location)
        names = [key for key in file if _is_dataset(file, key)] + attributes
        look = cache(refuse_endless_heaps)  # once per opening
        yield LazyArrays(names, lambda key: _array(file, key, location, look))


def _refuse_links(file: Any, location: Location) -> None:
    """Only what is in the file itself is read: a link may name any file of this machine."""
    import h5py

    for key in file:
        link = file.get(key, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise _elsewhere(location, key, link.filename)


def _is_dataset(file: Any, key: str) -> bool:
    """A link by name may lead nowhere; what is in the file must be readable."""
    import h5py

    link = file.get(key, getlink=True)
    item = file[key] if isinstance(link, h5py.HardLink) else file.get(key)
    return isinstance(item, h5py.Dataset)


def _elsewhere(location: Location, key: str, other: str) -> InputError:
    return InputError(
        f"{key!r} of '{location}' must be in the file itself. Got a link to '{other}'; open that "
        "file, or several as a folder."
    )


class _Texts:
    """A data set of text, read when it is asked for."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.shape, self.dtype = dataset, dataset.shape, dataset.dtype

    def __getitem__(self, rows: slice) -> Array:
        return np.asarray(self._dataset.asstr()[rows])


def _number(item: Any) -> int:
    """Tells the file that an item is in from other open ones."""
    import h5py

    return int(h5py.h5o.get_info(item.id).fileno)


def _array(file: Any, key: str, location: Location, look: Callable[[Location], None]) -> Any:
    if key not in file:
        look(location)
        refuse_long_attribute(file, key, location)
        return np.asarray(file.attrs[key])
    dataset = file[key]
    if _number(dataset) != _number(file):  # through a group that is a link
        raise _elsewhere(location, key, dataset.file.filename)
    if dataset.is_virtual or dataset.external:
        others = dataset.virtual_sources() if dataset.is_virtual else dataset.external
        raise _elsewhere(location, key, str(others[0][1 if dataset.is_virtual else 0]))
    refuse_chunks_beyond(dataset, location)
    if dataset.dtype.kind == "O":  # text of any length
        look(location)
        refuse_long_texts(dataset, location)
        return _Texts(dataset)
    offset = dataset.id.get_offset()  # None if it is stored in chunks, packed or not
    is_plain = offset is not None and dataset.dtype.kind in "iuf"
    if is_plain and isinstance(location, Path):
        return PlainArray(location, offset, dataset.dtype, dataset.shape)
    return dataset
