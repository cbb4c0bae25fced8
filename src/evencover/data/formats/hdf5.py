"""HDF5 files: data sets of the root group, by h5py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evencover._types import Array
from evencover.data.formats.arrays import LazyArrays
from evencover.data.formats.hdf5_chunks import refuse_chunks_beyond
from evencover.data.formats.hdf5_heaps import refuse_endless_heaps
from evencover.data.formats.hdf5_texts import refuse_long_attribute, refuse_long_texts
from evencover.data.formats.plain_array import PlainArray
from evencover.data.location import Location
from evencover.data.names import NAMES_KEY
from evencover.errors import InputError, needs


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
