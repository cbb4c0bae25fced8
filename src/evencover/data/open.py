"""Open a path or an object as a source; the extension selects the reader."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.data.columns import ID_KEYS, LABEL_KEYS, SAVED_INDEX, USUAL, Keys, as_class_names
from evencover.data.formats.arrays import (
    ONLY_ARRAY,
    ArraysSource,
    OpenArrays,
    array_columns,
    npy_arrays,
    npz_arrays,
    safetensors_arrays,
    torch_arrays,
)
from evencover.data.formats.hdf5 import hdf5_arrays
from evencover.data.formats.tables import (
    ArrowSource,
    CsvSource,
    JsonLinesSource,
    ParquetSource,
    TableSource,
    TextSource,
    column_from_text,
)
from evencover.data.formats.zarr import is_zarr, zarr_arrays
from evencover.data.frames import (
    collected,
    index_ids,
    index_of,
    is_dask_frame,
    is_frame,
    is_trainer_output,
    rows_and_labels,
    unpacked,
)
from evencover.data.join import RowValues, join_labels, labels_of_frame
from evencover.data.location import (
    Location,
    RemoteFile,
    as_location,
    existing_file,
    expand,
    reading,
)
from evencover.data.source import ArraySource, IterableSource, PartsSource, Source
from evencover.errors import InputError, listed
from evencover.validation import class_columns

# Readers by extension. Optional libraries are imported on first use.
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
TABLES: dict[str, type[TableSource]] = {
    ".parquet": ParquetSource,
    ".arrow": ArrowSource,
    ".feather": ArrowSource,
    ".csv": CsvSource,
    ".tsv": CsvSource,
    ".jsonl": JsonLinesSource,
    ".ndjson": JsonLinesSource,
}


AnyPath = str | os.PathLike[str] | RemoteFile


def open_file(path: AnyPath, keys: Keys = USUAL) -> Source:
    """Open a file, or the files of a folder or a glob, for reading in blocks."""
    location = as_location(path)
    many = None if is_zarr(location) else expand(location)
    return _open_one(location, keys) if many is None else _open_many(location, many, keys)


def open_files(paths: Sequence[str | os.PathLike[str]], keys: Keys = USUAL) -> Source:
    """Concatenate several files to one source, in the order given."""
    return PartsSource([open_file(path, keys) for path in paths], ", ".join(map(str, paths[:3])))


def _reader(location: Location) -> OpenArrays | type[TableSource] | None:
    """Return the reader of a file by its extension; reject pipes and devices."""
    if is_zarr(location):
        return zarr_arrays
    if isinstance(location, Path):
        existing_file(location)
    extension = location.suffix.lower()
    return ARRAYS.get(extension) or TABLES.get(extension)


def _open_one(location: Location, keys: Keys) -> Source:
    reader = _reader(location)
    if reader is None:
        raise InputError(
            f"Cannot read '{location}': its extension must be one of "
            f"{', '.join([*ARRAYS, *TABLES])}. Got {location.suffix.lower() or 'none'!r} instead."
        )
    if isinstance(reader, type):
        return reader(location, keys)
    return ArraysSource(location, reader, keys)


def _open_many(location: Location, files: list[Location], keys: Keys) -> Source:
    known = sorted([*ARRAYS, *TABLES])
    if location.is_dir():  # skip notes and manifests; a glob is taken as given
        files = [file for file in files if file.suffix.lower() in known]
    if not files:
        raise InputError(f"Cannot read '{location}': the folder has no file of {listed(known)}.")
    extensions = sorted({file.suffix.lower() for file in files})
    if len(extensions) > 1:
        raise InputError(
            f"Cannot read '{location}': its files must have one format. "
            f"Got {', '.join(extensions)}; choose one with a glob such as '*{extensions[0]}'."
        )
    return PartsSource([_open_one(file, keys) for file in files], str(location))


def column_from_file(path: AnyPath, key: str = "labels") -> Array:
    """Read one value per row from separate files: the column `key`, or the only one.

    Accept files of every data format, and text with one value per line. Concatenate the files of a
    folder or a glob.
    """
    return _joined([_typed(_read(file, key)[0], file) for file in _files(as_location(path))])


def ids_from_file(path: AnyPath, key: str = "ids") -> Array:
    """Read one id per row as `column_from_file` does; ids from text files are text."""
    return _joined([_read(file, key)[0] for file in _files(as_location(path))])


def values_for(
    source: Source, path: AnyPath, key: str = "labels", ids_key: str | None = None
) -> RowValues:
    """Read the labels (or other values) of all rows, with ids if the files have any.

    Without ids, each of several files must match the partition at its position.
    """
    files = _files(as_location(path))
    columns, ids = _columns_and_ids(files, key, ids_key, source.n_rows if len(files) == 1 else None)
    if (ids is None or source.ids is None) and len(files) > 1 and isinstance(source, PartsSource):
        source.check_label_files([(f"'{f}'", len(c)) for f, c in zip(files, columns, strict=True)])
    starts = list(accumulate((len(column) for column in columns[:-1]), initial=0))

    def place(row: int) -> str:
        which = bisect_right(starts, row) - 1
        return f"row {row - starts[which]} of '{files[which]}'"

    return RowValues(_joined(columns), ids, place=place)


def label_columns(
    path: AnyPath, key: str = "labels", ids_key: str | None = None
) -> tuple[Array | None, Array, Array | None]:
    """Read ids, labels and times of a file of labels; None for ids or times that it lacks."""
    files = _files(as_location(path))
    labels, ids = _columns_and_ids(files, key, ids_key)
    times = []
    for file in files:
        with _columns(file) as columns:
            times += [columns["time"]] if "time" in columns else []
    return ids, _joined(labels), _joined(times) if len(times) == len(files) else None


def _columns_and_ids(
    files: list[Location], key: str, ids_key: str | None, n_rows: int | None = None
) -> tuple[list[Array], Array | None]:
    """Read a column of each file, and the ids of all rows if every file has them."""
    id_keys = (ids_key or ID_KEYS[0], *ID_KEYS, SAVED_INDEX)
    found = [_read(file, key, id_keys, n_rows) for file in files]
    ids = [each for _, each in found if each is not None]
    columns = [_typed(values, file) for (values, _), file in zip(found, files, strict=True)]
    return columns, _joined(ids) if len(ids) == len(files) else None


def class_values_from_file(path: AnyPath, key: str) -> list[Any]:
    """Read one value per class: (class, value) pairs, or a single column of values."""
    found: list[Any] = []
    for location in _files(as_location(path)):
        with _columns(location) as columns:
            if len(columns) == 1:
                found += _typed(_read(location, key)[0], location).tolist()
                continue
            class_name, value_name = class_columns(list(columns), key, f"'{location}'")
            if class_name and _is_number(value_name) and [*columns] != ["0", "1"]:
                raise InputError(
                    f"'{location}' must name its columns in the first line: class,{key}. "
                    f"Got {class_name},{value_name}."
                )
            classes = map(str, columns[class_name].tolist())
            values = _typed(columns[value_name], location).tolist()
            found += zip(classes, values, strict=True)
    return found


def _is_number(text: str) -> bool:
    try:
        return float(Fraction(text)) >= 0
    except (ValueError, ZeroDivisionError, OverflowError):
        return False


def _joined(columns: list[Array]) -> Array:
    """Concatenate arrays; empty ones do not affect the type."""
    filled = [column for column in columns if len(column)] or columns[:1]
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


def _files(location: Location) -> list[Location]:
    if is_zarr(location):
        return [location]
    return expand(location) or [location]


@contextmanager
def _columns(location: Location) -> Iterator[Mapping[str, Array]]:
    """Open the columns or arrays of a file by name; those of text files are text."""
    reader: Any = _reader(location)
    with reading(location):
        if hasattr(reader, "columns_of"):
            yield reader.columns_of(location)
        elif reader is not None:
            with array_columns(location, reader) as arrays:
                yield arrays
        else:
            with location.open("rb") as file:
                lines = [line.strip() for line in file.read().decode("utf-8-sig").split("\n")]
            yield {ONLY_ARRAY: np.array([line for line in lines if line], dtype=str)}


def _read(
    location: Location, key: str, id_keys: Sequence[str] = (), n_rows: int | None = None
) -> tuple[Array, Array | None]:
    """Read one value per row, with ids if the file has a column of them.

    The column has one of the names of `key`, or is the only one. A single text column with one cell
    more than there are rows has a header.
    """
    with _columns(location) as columns:
        ids = next((name for name in id_keys if name in columns), None)
        keys = (key, *next((usual for usual in (LABEL_KEYS, ID_KEYS) if key in usual), ()))
        name = next((name for name in keys if name in columns), None)
        if name is None:
            is_named = location.suffix.lower() in ARRAYS and ONLY_ARRAY not in columns
            only = [each for each in columns if each != ids]
            if is_named or len(only) != 1:
                raise InputError(f"'{location}' must have a column {key!r}. Got {listed(columns)}.")
            name = only[0]
        values = columns[name]
        is_csv = TABLES.get(location.suffix.lower()) is CsvSource
        if is_csv and list(columns) == [ONLY_ARRAY] and len(values):
            has_heading = values[0] == key or len(values) - 1 == n_rows
            values = values[1:] if has_heading else values
        if ids is None:
            return values, None
        found = columns[ids]
        if len(found) != len(values):
            raise InputError(f"'{location}' has {len(found)} ids for {len(values)} values.")
        return values, index_ids(found) if ids == SAVED_INDEX else found


def _typed(values: Array, location: Location) -> Array:
    """Convert text to integers if all values are, for files without types."""
    extension = location.suffix.lower()
    has_types = extension in ARRAYS or is_zarr(location)
    has_types = has_types or not issubclass(TABLES.get(extension, TextSource), TextSource)
    return values if has_types else column_from_text(values.tolist())


def as_source(
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    class_names: Any = None,
    logits: bool | None = None,
    probabilities_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    allow_unknown: bool = False,
) -> Source:
    """Open arrays, memory maps, paths or iterables of row blocks as a `Source`.

    Parameters
    ----------
    probabilities
        An (N, K) array-like; a pandas, polars or Dask frame or an Arrow table, whose columns name
        the classes and may include labels and ids; a dictionary of arrays, or the output of a
        Trainer's `predict`; the path or URL of a file, folder or glob, or a list of paths; an
        iterable of blocks of any of these, or of (block, labels) pairs; a Dask array or bag of
        paths; or a `Source`.
    labels
        (N,) class indices or class names, or the path of a file with them; replaces labels in the
        input. Labels with ids (a Series with an index, a frame or file with a column of ids) are
        joined to rows with ids; other labels are in row order.
    ids
        (N,) ids in row order; replaces ids in the input.
    class_names
        One per class, or {index: name}; replaces names in the input.
    logits
        Whether the numbers are logits; replaces the input's own statement.
    probabilities_key, labels_key, ids_key
        Names of the numbers, labels and ids in a file, frame or dictionary, if not the usual ones.
        With one column per class, a glob such as "p_*". `labels_key` also applies to a separate
        file or frame of labels.
    allow_unknown
        Accept labels that are not class names; they become the index `n_classes`.
    """
    apart = isinstance(labels, str | os.PathLike) or is_frame(labels)
    keys = Keys(probabilities_key, None if apart else labels_key, ids_key, allow_unknown)
    source = _open(probabilities, keys)
    if allow_unknown:
        source.set_info(allow_unknown=True)
    if class_names is not None:
        names = as_class_names(class_names, source.n_classes)
        source.set_info(class_names=names, numbers_are_names=False)
    if logits is not None:
        source.set_info(logits=logits)
    if ids is not None:
        source = copy(source) if source is probabilities else source
        source._ids = to_numpy(ids)
    if labels is None:
        return source
    if isinstance(labels, str | os.PathLike):
        found = values_for(source, labels, labels_key or "labels", ids_key)
    elif is_frame(labels):
        found = labels_of_frame(collected(labels), labels_key, ids_key)
    else:
        found = RowValues(labels, index_of(labels), is_index=True)
    return join_labels(source, found)


def _open(probabilities: Any, keys: Keys) -> Source:
    if isinstance(probabilities, Source):
        return probabilities
    if isinstance(probabilities, str | os.PathLike):
        return open_file(probabilities, keys)
    if _is_sequence_of_paths(probabilities):
        return open_files(probabilities, keys)
    if type(probabilities).__module__.startswith("dask."):
        return _open_dask(probabilities, keys)
    is_table = is_frame(probabilities) or isinstance(probabilities, Mapping)
    if is_table or is_trainer_output(probabilities):
        found = unpacked(probabilities, keys)
        source = ArraySource(found.rows, **found.facts, allow_unknown=keys.allow_unknown)
        source._ids, source.index = found.ids, found.index
        if found.labels is not None:
            source.attach_labels(found.labels)
        return source
    if isinstance(probabilities, Iterator) or _is_sequence_of_blocks(probabilities):
        return IterableSource(probabilities)
    is_array = hasattr(probabilities, "__array__") or isinstance(probabilities, Sequence)
    is_array = is_array or type(probabilities).__module__.startswith("pyarrow")
    if isinstance(probabilities, Iterable) and not is_array:
        return IterableSource(probabilities)
    return ArraySource(probabilities)


def _is_sequence_of_paths(values: Any) -> bool:
    is_list = isinstance(values, list | tuple) and len(values) > 0
    return is_list and all(isinstance(value, str | os.PathLike) for value in values)


def _is_sequence_of_blocks(values: Any) -> bool:
    if not isinstance(values, list | tuple) or not values:
        return False
    if is_frame(values[0]) or isinstance(values[0], Mapping):
        return True
    rows, labels = rows_and_labels(values[0])
    return getattr(rows, "ndim", 0) == 2 and (labels is None or hasattr(labels, "__len__"))


def _open_dask(collection: Any, keys: Keys) -> Source:
    """Open a Dask array or frame, or a Dask bag of paths."""
    kind = type(collection).__module__
    if is_dask_frame(collection):
        from evencover.data.formats.dask import dask_frame

        return dask_frame(collection, keys)
    if kind.startswith("dask.array"):
        from evencover.data.formats.dask import DaskArraySource

        return DaskArraySource(collection)
    if kind.startswith("dask.bag"):
        return open_files(collection.compute(), keys)
    raise InputError(f"Dask data must be an array, a frame or a bag of paths. Got {kind}.")
