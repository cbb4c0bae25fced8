"""From a path to a source: the kind of file is known by its ending."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.arrays import LABEL_KEYS, ONLY_ARRAY, ArraysSource, OpenArrays, whole
from evencover.data.arrow import ArrowSource, ParquetSource
from evencover.data.hdf5 import hdf5_arrays
from evencover.data.location import Address, Location, as_location, existing_file, expand
from evencover.data.numpy_files import npy_arrays, npz_arrays
from evencover.data.reading import reading
from evencover.data.safetensors_files import safetensors_arrays
from evencover.data.source import Source
from evencover.data.text import TextSource
from evencover.data.zarr_stores import is_zarr, zarr_arrays

# Files of named arrays, and other kinds. What a reader needs beyond NumPy it imports when it reads.
ARRAYS: dict[str, OpenArrays] = {
    ".npy": npy_arrays,
    ".npz": npz_arrays,
    ".safetensors": safetensors_arrays,
    ".h5": hdf5_arrays,
    ".hdf5": hdf5_arrays,
    ".zarr": zarr_arrays,
}
TABLES: dict[str, Callable[[Location], Source]] = {
    ".parquet": ParquetSource,
    ".arrow": ArrowSource,
    ".feather": ArrowSource,
    ".csv": TextSource,
    ".tsv": TextSource,
}


def open_file(path: str | os.PathLike[str] | Address) -> Source:
    """A source that reads a file, or the files of a folder or a pattern, block by block."""
    location = as_location(path)
    if location.is_dir() and is_zarr(location):
        return ArraysSource(location, zarr_arrays)
    many = expand(location)
    if many is None:
        return _open_one(existing_file(location))
    return _open_many(location, many)


def open_files(paths: Sequence[str | os.PathLike[str]]) -> Source:
    """Several files as one source, in the order given."""
    from evencover.data.folder import PartsSource

    return PartsSource([open_file(path) for path in paths], ", ".join(map(str, paths[:3])))


def _open_one(location: Location) -> Source:
    ending = location.suffix.lower()
    if ending in ARRAYS:
        return ArraysSource(location, ARRAYS[ending])
    if ending in TABLES:
        return TABLES[ending](location)
    raise InputError(
        f"Cannot read '{location}': its ending must be one of {', '.join([*ARRAYS, *TABLES])}. "
        f"Got {ending or 'none'!r} instead."
    )


def _open_many(location: Location, files: list[Location]) -> Source:
    from evencover.data.folder import PartsSource

    known = {*ARRAYS, *TABLES}
    if location.is_dir():  # notes and manifests may lie beside the data; a pattern is meant as said
        files = [file for file in files if file.suffix.lower() in known]
    if not files:
        raise InputError(
            f"Cannot read '{location}': the folder holds no file that ends in "
            f"{', '.join(sorted(known))}."
        )
    endings = sorted({file.suffix.lower() for file in files})
    if len(endings) > 1:
        raise InputError(
            f"Cannot read '{location}': its parts must be of one kind. Got {', '.join(endings)}; "
            f"choose one with a pattern such as '*{endings[0]}'."
        )
    return PartsSource([_open_one(file) for file in files], str(location))


def column_from_file(path: str | os.PathLike[str] | Address, key: str = "labels") -> Array:
    """One value per row from a file of its own: arrays (under `key`), or text, one per line."""
    location = as_location(path)
    if not location.is_dir() or not is_zarr(location):
        location = existing_file(path)
    ending = location.suffix.lower()
    with reading(location):
        if ending in ARRAYS:
            with ARRAYS[ending](location) as arrays:
                return _column_of_arrays(arrays, key, location)
        with location.open("rb") as file:
            text = file.read().decode("utf-8-sig")
    return column_from_text([line.strip() for line in text.split("\n") if line.strip()])


def column_from_text(values: list[str]) -> Array:
    """Whole numbers if all are, else the texts."""
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(values)


def _column_of_arrays(arrays: Any, key: str, location: Location) -> Array:
    for name in (ONLY_ARRAY, key, *(LABEL_KEYS if key in LABEL_KEYS else ())):
        values = whole(arrays, name)
        if values is not None:
            return np.array(values)
    raise InputError(f"'{location}' must hold {key!r}. Got {list(arrays)}.")
