"""Zarr stores (formats 2 and 3): one array, or a group with the arrays and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evencover.data.formats.arrays import ONLY_ARRAY, LazyArrays
from evencover.data.formats.zarr_bounds import Bounds, bounded
from evencover.data.location import Location
from evencover.data.names import NAMES_KEY
from evencover.errors import InputError, needs

_MARKS = ("zarr.json", ".zgroup", ".zarray")


def is_zarr(location: Location) -> bool:
    """Whether a folder is a store, whatever its name."""
    return any((location / mark).is_file() for mark in _MARKS)


@contextmanager
def zarr_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """The arrays of a store; class names may also be an attribute."""
    try:
        import zarr
    except ImportError:
        raise needs("Zarr stores", "zarr", "zarr") from None
    if isinstance(location, Path):
        store: Any = zarr.storage.LocalStore(location, read_only=True)
    else:
        location.system()  # says what is missing
        store = zarr.storage.FsspecStore.from_url(str(location), read_only=True)
    bounds = Bounds()
    opened = zarr.open(bounded(store, bounds), mode="r")
    if isinstance(opened, zarr.Array):
        arrays: Mapping[str, Any] = {ONLY_ARRAY: _Chunked(opened, location, bounds)}
    else:
        keys = set(opened.array_keys())
        arrays = LazyArrays(keys, lambda key: _Chunked(opened[key], location, bounds))
    names = opened.attrs.get(NAMES_KEY)
    if names is not None:
        arrays = {**arrays, NAMES_KEY: np.array(names, dtype=str)}
    yield arrays


def _names_pickle(about: Any) -> bool:
    """Whether a codec anywhere in an array's description unpickles."""
    if isinstance(about, Mapping):
        names = (str(about.get(key, "")).lower() for key in ("id", "name"))
        return any("pickle" in name for name in names) or any(map(_names_pickle, about.values()))
    return isinstance(about, list | tuple) and any(map(_names_pickle, about))


class _Chunked:
    """An array of the store; what is stored together is read together."""

    def __init__(self, array: Any, location: Location, bounds: Bounds) -> None:
        if _names_pickle(array.metadata.to_dict()):  # decoding would run whatever code is in it
            raise InputError(
                f"'{location}' must hold plain numbers or text. Got an array of pickled Python "
                "objects, which are never loaded; write it again as numbers or text."
            )
        bounds.learn(array)
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = array.shards or array.chunks

    def __getitem__(self, rows: slice) -> Any:
        return self._array[rows]
