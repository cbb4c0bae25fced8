"""Read data sets of HDF5 files in slices; reject links to other files."""

from __future__ import annotations

import struct
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
from evencover.errors import InputError, import_extra

LARGEST_CHECKED = 1 << 26  # bytes of files whose heaps are checked
_HEAP = b"GCOL\x01"
_HEADER = 16  # bytes, of a heap and of an object in it


@contextmanager
def hdf5_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the data sets; class names may also be an attribute of the file."""
    h5py = import_extra("HDF5 files", "h5py", "hdf5")
    is_local = isinstance(location, Path)
    with nullcontext(location) if is_local else location.open() as where, h5py.File(where) as file:
        # Read attributes first: older versions of HDF5 find none in a damaged header later.
        names = [NAMES_KEY] if NAMES_KEY in file.attrs else []
        for key in file:
            link = file.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):  # it may name any file of this machine
                raise _elsewhere(location, key, link.filename)
            # A soft link may be broken; what is in the file must be readable.
            item = file[key] if isinstance(link, h5py.HardLink) else file.get(key)
            names += [key] if isinstance(item, h5py.Dataset) else []
        check_heaps = cache(lambda: reject_endless_heaps(location))  # once per opening
        yield LazyArrays(names, lambda key: _array(file, key, location, check_heaps))


def _array(file: Any, key: str, location: Location, check_heaps: Callable[[], None]) -> Any:
    import h5py

    if key not in file:
        check_heaps()
        return np.asarray(file.attrs[key])
    dataset = file[key]
    if h5py.h5o.get_info(dataset.id).fileno != h5py.h5o.get_info(file.id).fileno:
        raise _elsewhere(location, key, dataset.file.filename)  # linked through a group
    if dataset.is_virtual or dataset.external:
        others = dataset.virtual_sources() if dataset.is_virtual else dataset.external
        raise _elsewhere(location, key, str(others[0][1 if dataset.is_virtual else 0]))
    if dataset.dtype.kind == "O":  # variable-length text
        check_heaps()
        return _Texts(dataset)
    offset = dataset.id.get_offset()  # None if it is chunked
    if offset is not None and dataset.dtype.kind in "iuf" and isinstance(location, Path):
        return PlainArray(location, offset, dataset.dtype, dataset.shape)
    return dataset


class _Texts:
    """A text data set."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self.shape, self.dtype = dataset, dataset.shape, dataset.dtype

    def __getitem__(self, rows: slice) -> Array:
        return np.asarray(self._dataset.asstr()[rows])


def _elsewhere(location: Location, key: str, other: str) -> InputError:
    return InputError(
        f"{key!r} of '{location}' must be in the file itself. Got a link to '{other}'; open that "
        "file, or several as a folder."
    )


def reject_endless_heaps(location: Location) -> None:
    """Reject a small file with a heap whose objects do not follow each other.

    HDF5 stores text in heaps and steps from object to object by the stored sizes. A size of 0, or
    one that overflows, makes the library loop forever. The layout is that of the "global heap"
    (HDF5 file format specification 3.0, section III.E).
    """
    if not isinstance(location, Path) or size_of(location) > LARGEST_CHECKED:
        return
    content = location.read_bytes()
    at = content.find(_HEAP)
    while at >= 0:
        if not _has_an_end(content, at):
            raise ValueError("its heap of texts is damaged")
        at = content.find(_HEAP, at + 1)


def _has_an_end(content: bytes, begin: int) -> bool:
    """Return whether stepping from object to object reaches the end of the heap."""
    if begin + _HEADER > len(content):
        return False
    (size,) = struct.unpack_from("<Q", content, begin + 8)
    at, end = begin + _HEADER, begin + size
    if end > len(content):
        return False
    while at + _HEADER <= end:
        number, _, _, length = struct.unpack_from("<HHIQ", content, at)
        step = _HEADER + length + -length % 8 if number else length  # 0: free space
        if step < _HEADER or at + step > end:
            return False
        at += step
    return True
