"""From a path to what is in the file: the reader is known by the ending."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from evencover._types import Array
from evencover.data.folder import PartsSource
from evencover.data.formats.arrays import ArraysSource, OpenArrays, array_column
from evencover.data.formats.arrow import ArrowSource, ParquetSource, TableSource
from evencover.data.formats.hdf5 import hdf5_arrays
from evencover.data.formats.json_lines import JsonLinesSource
from evencover.data.formats.numpy_files import npy_arrays, npz_arrays
from evencover.data.formats.safetensors_files import safetensors_arrays
from evencover.data.formats.text import TextSource, text_column
from evencover.data.formats.text_cells import column_from_text
from evencover.data.formats.torch_files import torch_arrays
from evencover.data.formats.zarr_stores import is_zarr, zarr_arrays
from evencover.data.location import (
    Address,
    Location,
    as_location,
    existing_file,
    expand,
    refuse_irregular,
)
from evencover.data.names import USUAL, Keys
from evencover.data.reading import reading
from evencover.data.source import Source
from evencover.errors import InputError

# Files of named arrays, and other kinds. What a reader needs beyond NumPy it imports when it reads.
ARRAYS: dict[str, OpenArrays] = {
    ".npy": npy_arrays,
    ".npz": npz_arrays,
    ".safetensors": safetensors_arrays,
    ".h5": hdf5_arrays,
    ".hdf5": hdf5_arrays,
    ".zarr": zarr_arrays,
    ".pt": torch_arrays,
    ".pth": torch_arrays,
}
TABLES: dict[str, type[TableSource] | type[TextSource] | type[JsonLinesSource]] = {
    ".parquet": ParquetSource,
    ".arrow": ArrowSource,
    ".feather": ArrowSource,
    ".csv": TextSource,
    ".tsv": TextSource,
    ".jsonl": JsonLinesSource,
    ".ndjson": JsonLinesSource,
}


def open_file(path: str | os.PathLike[str] | Address, keys: Keys = USUAL) -> Source:
    """A source that reads a file, or the files of a folder or a pattern, block by block."""
    location = as_location(path)
    if _is_zarr(location):
        return ArraysSource(location, zarr_arrays, keys)
    many = expand(location)
    if many is None:
        return _open_one(existing_file(location), keys)
    return _open_many(location, many, keys)


def open_files(paths: Sequence[str | os.PathLike[str]], keys: Keys = USUAL) -> Source:
    """Several files as one source, in the order given."""
    return PartsSource([open_file(path, keys) for path in paths], ", ".join(map(str, paths[:3])))


def _open_one(location: Location, keys: Keys) -> Source:
    _refuse_pipes(location)
    ending = location.suffix.lower()
    if ending in ARRAYS:
        return ArraysSource(location, ARRAYS[ending], keys)
    if ending in TABLES:
        return TABLES[ending](location, keys)
    raise InputError(
        f"Cannot read '{location}': its ending must be one of {', '.join([*ARRAYS, *TABLES])}. "
        f"Got {ending or 'none'!r} instead."
    )


def _open_many(location: Location, files: list[Location], keys: Keys) -> Source:
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
    return PartsSource([_open_one(file, keys) for file in files], str(location))


def column_from_file(path: str | os.PathLike[str] | Address, key: str = "labels") -> Array:
    """One value per row from files of their own, which hold nothing else or name it `key`.

    Any kind of file that holds data will do, or text with one value per line; a folder or a
    pattern is read end to end.
    """
    return _joined([_column(file, key) for file in _files(as_location(path))])


@dataclass(frozen=True)
class LabelPlaces:
    """What a message calls a label: its file, and its row there."""

    files: list[str]
    starts: list[int]

    def __call__(self, row: int) -> str:
        """The name of a row, counted over all files."""
        which = bisect_right(self.starts, row) - 1
        return f"row {row - self.starts[which]} of '{self.files[which]}'"


def labels_for(
    source: Source, path: str | os.PathLike[str] | Address, key: str = "labels"
) -> tuple[Array, LabelPlaces]:
    """The labels of all rows and their places; of many files, each must fit the part beside it."""
    files = _files(as_location(path))
    columns = [_column(file, key) for file in files]
    if len(files) == 1 and len(columns[0]) - 1 == source.n_rows and _is_text_table(files[0]):
        columns = [column_from_text(columns[0][1:].tolist())]  # the heading of an only column
    if len(files) > 1 and isinstance(source, PartsSource):
        source.refuse_misfits([(f"'{f}'", len(c)) for f, c in zip(files, columns, strict=True)])
    starts = accumulate((len(column) for column in columns[:-1]), initial=0)
    return _joined(columns), LabelPlaces([str(file) for file in files], list(starts))


def _joined(columns: list[Array]) -> Array:
    """End to end; an empty one has no say in the type."""
    filled = [column for column in columns if len(column)] or columns[:1]
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


def _files(location: Location) -> list[Location]:
    if _is_zarr(location):
        return [location]
    return expand(location) or [existing_file(location)]


def _is_zarr(location: Location) -> bool:
    return location.is_dir() and is_zarr(location)


def _refuse_pipes(location: Location) -> None:
    """A folder or a pattern may hold anything; what is elsewhere is looked at when it is opened."""
    if isinstance(location, Path) and not _is_zarr(location):
        refuse_irregular(location)


def _is_text_table(location: Location) -> bool:
    return TABLES.get(location.suffix.lower()) is TextSource


def _column(location: Location, key: str) -> Array:
    ending = location.suffix.lower()
    _refuse_pipes(location)
    with reading(location):
        if ending in ARRAYS or _is_zarr(location):
            return array_column(location, ARRAYS.get(ending, zarr_arrays), key)
        source = TABLES.get(ending)
        if source is not None and issubclass(source, TableSource | JsonLinesSource):
            return source.column_of(location, key)
        return text_column(location, key)
