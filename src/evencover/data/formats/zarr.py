"""Read arrays of zarr stores in chunks; reject pickled objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from evencover.data.columns import NAMES_KEY
from evencover.data.formats.arrays import ONLY_ARRAY, LazyArrays
from evencover.data.location import Location
from evencover.errors import InputError, import_extra


@contextmanager
def zarr_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the arrays of a store; class names may also be an attribute."""
    zarr = import_extra("Zarr stores", "zarr", "zarr")
    if isinstance(location, Path):
        store: Any = zarr.storage.LocalStore(location, read_only=True)
    else:
        location.system()  # raises if a library is missing
        store = zarr.storage.FsspecStore.from_url(str(location), read_only=True)
    opened = zarr.open(store, mode="r")
    if isinstance(opened, zarr.Array):
        arrays: Mapping[str, Any] = {ONLY_ARRAY: _Chunked(opened, location)}
    else:
        arrays = LazyArrays(set(opened.array_keys()), lambda key: _Chunked(opened[key], location))
    names = opened.attrs.get(NAMES_KEY)
    if names is not None:
        arrays = {**arrays, NAMES_KEY: np.array(names, dtype=str)}
    yield arrays


class _Chunked:
    """An array of the store, read chunk by chunk."""

    def __init__(self, array: Any, location: Location) -> None:
        if _names_pickle(array.metadata.to_dict()):  # decoding would run arbitrary code
            raise InputError(
                f"'{location}' must contain plain numbers or text. Got an array of pickled Python "
                "objects, which are never loaded; write it again as numbers or text."
            )
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = array.shards or array.chunks

    def __getitem__(self, rows: slice) -> Any:
        return self._array[rows]


def _names_pickle(about: Any) -> bool:
    """Return whether a codec in an array's description unpickles."""
    if isinstance(about, Mapping):
        names = (str(about.get(key, "")).lower() for key in ("id", "name"))
        return any("pickle" in name for name in names) or any(map(_names_pickle, about.values()))
    return isinstance(about, list | tuple) and any(map(_names_pickle, about))
