"""Open a path or an object as a source; the extension selects the reader."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    SAVED_INDEX,
    USUAL,
    Contents,
    Keys,
    as_class_names,
    column_from_text,
    index_ids,
    is_index_name,
)
from evencover.data.formats.arrays import (
    ONLY_ARRAY,
    OpenArrays,
    array_columns,
    hdf5_arrays,
    npy_arrays,
    npz_arrays,
    open_array_file,
    safetensors_arrays,
    torch_arrays,
    zarr_arrays,
)
from evencover.data.formats.listed import joined_rows, open_listed
from evencover.data.formats.tables import (
    ArrowFile,
    CsvFile,
    JsonLinesFile,
    ParquetFile,
    TableFile,
    TextFile,
    csv_names,
    open_table,
    table_columns,
)
from evencover.data.frames import (
    frame_columns,
    in_memory,
    index_of,
    is_frame,
    is_trainer_output,
    rows_and_labels,
    unpacked,
)
from evencover.data.join import SeparateLabels, join_labels, labels_of_frame
from evencover.data.location import (
    Location,
    RemoteFile,
    as_location,
    existing_file,
    expand,
    is_zarr,
    reading,
)
from evencover.data.readers import (
    ConcatenatedReader,
    concatenated,
    read_array,
    read_dask_array,
    read_stream,
)
from evencover.data.source import Classes, Reader, Source
from evencover.errors import InputError, listed
from evencover.topk import TopK, is_sparse
from evencover.validation import (
    MISSING,
    class_columns,
    is_integer_text,
)

# Formats by extension. Optional libraries are imported on first use.
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
TABLES: dict[str, type[TableFile]] = {
    ".parquet": ParquetFile,
    ".arrow": ArrowFile,
    ".feather": ArrowFile,
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".jsonl": JsonLinesFile,
    ".ndjson": JsonLinesFile,
}


AnyPath = str | os.PathLike[str] | RemoteFile


def open_file(path: AnyPath, keys: Keys = USUAL) -> Contents:
    """Open a file, or the files of a folder or a glob, for reading in blocks."""
    location = as_location(path)
    files = expand(location)
    return _open_one(location, keys) if files is None else _open_many(location, files, keys)


def open_files(paths: Sequence[str | os.PathLike[str]], keys: Keys = USUAL) -> Contents:
    """Concatenate several files, in the order given."""
    return _concatenated([open_file(path, keys) for path in paths], ", ".join(map(str, paths[:3])))


def _format(location: Location) -> OpenArrays | type[TableFile] | None:
    """Return the format of a file by its extension; a store may have any name."""
    extension = location.suffix.lower()
    file_format = ARRAYS.get(extension) or TABLES.get(extension)
    return zarr_arrays if file_format is None and is_zarr(location) else file_format


def _open_one(location: Location, keys: Keys) -> Contents:
    file_format = _format(location)
    if file_format is None:
        existing_file(location)
        raise InputError(
            f"Cannot read '{location}': its extension must be one of "
            f"{', '.join([*ARRAYS, *TABLES])}. Got {location.suffix.lower() or 'none'!r} instead."
        )
    if isinstance(file_format, type):
        return open_listed(location, keys) or open_table(location, file_format, keys)
    return open_array_file(location, file_format, keys)


def _open_many(location: Location, files: list[Location], keys: Keys) -> Contents:
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
    return _concatenated([_open_one(file, keys) for file in files], str(location))


def _concatenated(files: Sequence[Contents], name: str) -> Contents:
    """Concatenate files; those of top-k rows may list different classes."""
    if not all(file.rows.is_listed for file in files):
        return concatenated(files, name)
    rows, names = joined_rows(files, name)
    alike = [
        replace(file, rows=replace(file.rows, n_classes=rows.n_classes), class_names=names)
        for file in files
    ]
    return replace(concatenated(alike, name), rows=rows)


def column_from_file(path: AnyPath, key: str = "labels") -> Array:
    """Read one value per row from separate files: the column `key`, or the only one.

    Accept files of every data format, and text with one value per line. Concatenate the files of a
    folder or a glob.
    """
    return _joined([_read(file, key)[0] for file in _files(as_location(path))])


def labels_of_file(
    source: Source,
    path: AnyPath,
    key: str | None = None,
    ids_key: str | None = None,
    shared: Collection[str] = (),
) -> SeparateLabels:
    """Read the labels of all rows, with ids and `shared` columns if the files have any.

    Without ids, each of several files must match the partition at its position.
    """
    files, reader = _files(as_location(path)), source.reader
    columns, ids, others = _read_all(files, key or "labels", ids_key, shared, source)
    by_position = ids is None or source.ids is None
    if by_position and len(files) > 1 and isinstance(reader, ConcatenatedReader):
        reader.check_label_files([(f"'{f}'", len(c)) for f, c in zip(files, columns, strict=True)])
    starts = list(accumulate((len(column) for column in columns[:-1]), initial=0))

    def row_name(row: int) -> str:
        which = bisect_right(starts, row) - 1
        return f"row {row - starts[which]} of '{files[which]}'"

    n_columns = len(_column_names(files[0]))
    return SeparateLabels(
        _joined(columns), ids, row_name=row_name, others=others, n_columns=n_columns
    )


def label_columns(
    path: AnyPath, key: str = "labels", ids_key: str | None = None
) -> tuple[Array | None, Array, Array | None]:
    """Read ids, labels and times of a file of labels; None for ids or times that it lacks."""
    labels, ids, others = _read_all(_files(as_location(path)), key, ids_key, ["time"])
    return ids, _joined(labels), others.get("time")


def _read_all(
    files: list[Location],
    key: str,
    ids_key: str | None,
    others: Collection[str],
    source: Source | None = None,
) -> tuple[list[Array], Array | None, dict[str, Array]]:
    """Read a column of each file, and the ids and other columns that every file has."""
    id_keys = (ids_key or ID_KEYS[0], *ID_KEYS, SAVED_INDEX)
    only = source if len(files) == 1 else None
    values, ids, tables = zip(*(_read(f, key, id_keys, others, only) for f in files), strict=True)
    in_all = [name for name in others if all(name in table for table in tables)]
    joined = {name: _joined([table[name] for table in tables]) for name in in_all}
    return list(values), None if any(part is None for part in ids) else _joined(ids), joined


def class_values_from_file(path: AnyPath, key: str) -> list[Any]:
    """Read one value per class: (class, value) pairs, or a single column of values."""
    found: list[Any] = []
    for location in _files(as_location(path)):
        with _columns(location) as columns:
            if len(columns) == 1:
                found += _read(location, key)[0].tolist()
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


def _joined(columns: Sequence[Array]) -> Array:
    """Concatenate arrays; empty ones do not affect the type."""
    filled = [column for column in columns if len(column)] or columns[:1]
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


def _files(location: Location) -> list[Location]:
    return expand(location) or [location]


@contextmanager
def _columns(location: Location) -> Iterator[Mapping[str, Array]]:
    """Open the columns or arrays of a file by name; those of text files are text."""
    file_format = _format(location)
    with reading(location):
        if isinstance(file_format, type):
            yield table_columns(location, file_format)
        elif file_format is not None:
            with array_columns(location, file_format) as arrays:
                yield arrays
        else:
            with location.open("rb") as file:
                lines = [line.strip() for line in file.read().decode("utf-8-sig").split("\n")]
            yield {ONLY_ARRAY: np.array([line for line in lines if line], dtype=str)}


def _read(
    location: Location,
    key: str,
    id_keys: Sequence[str] = (),
    others: Collection[str] = (),
    source: Source | None = None,
) -> tuple[Array, Array | None, dict[str, Array]]:
    """Read one value per row, with ids and other columns if the file has them.

    The column has one of the names of `key`, or is the only one.
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
        is_csv = TABLES.get(location.suffix.lower()) is CsvFile
        if is_csv and list(columns) == [ONLY_ARRAY] and _has_heading(values.tolist(), key, source):
            values = values[1:]
        id_values = None if ids is None else columns[ids]
        if id_values is not None and len(id_values) != len(values):
            raise InputError(f"'{location}' has {len(id_values)} ids for {len(values)} values.")
        if id_values is not None and ids == SAVED_INDEX:
            id_values = index_ids(id_values)
        table = {name: columns[name] for name in others if name in columns}
        return _typed(values, location), id_values, table


def _has_heading(cells: list[str], key: str, source: Source | None) -> bool:
    """Return whether the first cell of the only column is no value.

    It is the key, or there is one cell more than rows, and it is no number, class or other cell.
    """
    if not cells or cells[0] == key:
        return bool(cells)
    is_longer = source is not None and len(cells) - 1 == source.n_rows
    names = () if source is None else source.class_names or ()
    return is_longer and cells[0] not in {*cells[1:], *names} and not is_integer_text(cells[0])


def _column_names(location: Location) -> list[str]:
    """Return the names of the columns or arrays of a file."""
    if _format(location) is CsvFile:
        return csv_names(location, None)[0]
    with _columns(location) as columns:
        return list(columns)


def _typed(values: Array, location: Location) -> Array:
    """Convert text to integers if all values are, for files without types."""
    file_format = _format(location)
    is_text = isinstance(file_format, type) and issubclass(file_format, TextFile)
    return column_from_text(values.tolist()) if is_text or file_format is None else values


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
    read_labels: bool = True,
    classes: Classes | None = None,
) -> Source:
    """Open arrays, memory maps, paths or iterables of row blocks as a `Source`.

    Parameters
    ----------
    probabilities
        An (N, K) array-like; `TopK` or a SciPy sparse matrix, for rows of which some classes are
        known; a pandas or polars frame or an Arrow table, whose columns name
        the classes and may include labels and ids; a dictionary of arrays, or the output of a
        Trainer's `predict`; the path or URL of a file, folder or glob, or a list of paths; an
        iterable of blocks of any of these, or of (block, labels) pairs; a Dask array or bag of
        paths; or a `Source`.
    labels
        (N,) class indices or class names, or the path of a file with them; replaces labels in the
        input. Labels with ids (a Series with an index, a frame or file with a column of ids) are
        joined to rows with ids. So is a table that shares a column of unique values with that of
        the rows, such as "path", which then has the ids. Other labels are in row order.
    ids
        (N,) ids in row order; replaces ids in the input.
    class_names
        One per class, or {index: name}; replaces names in the input.
    logits
        Whether the numbers are logits; replaces the input's own statement.
    probabilities_key, labels_key, ids_key
        Names of the numbers, labels and ids in a file, frame or dictionary, if not the usual ones.
        With one column per class, a glob such as "p_*", or "!loss" for all columns but one.
        `labels_key` also applies to a separate file or frame of labels.
    allow_unknown
        Accept labels that are not class names; they become the index `n_classes`.
    read_labels
        Whether to read labels that are stored with the rows.
    classes
        The classes of a model. Columns with names are put into their order, and they name the
        classes of labels.
    """
    labels = in_memory(labels) if is_frame(labels) else labels
    is_table = isinstance(labels, str | os.PathLike) or is_frame(labels)
    read_labels = read_labels and labels is None
    keys = Keys(probabilities_key, None if is_table else labels_key, ids_key, read_labels)
    if is_table and ids is None and ids_key is None:
        keys = replace(keys, shared=_names_to_share(labels, labels_key))
    if classes is not None and isinstance(probabilities, list | tuple) and not probabilities:
        probabilities = np.zeros((0, classes.n_classes))
    stored_labels, shared = None, dict[str, Array]()
    if isinstance(probabilities, Source):
        source = probabilities
    else:
        contents = _open(probabilities, keys)
        source, stored_labels = _source_of(contents), contents.labels
        shared = dict(contents.shared)
        if contents.labels_are_cells and stored_labels is not None:
            stored_labels = column_from_text(stored_labels.tolist())
    source = replace(source, allow_unknown=source.allow_unknown or allow_unknown)
    if class_names is not None and source.reader.is_listed:
        names = as_class_names(class_names, len(class_names))
        assert names is not None
        if source.class_names is None:
            source = source.with_more_classes(len(names))
        source = source.aligned(Classes(len(names), names))
    elif class_names is not None:
        names = as_class_names(class_names, source.n_classes)
        source = replace(source, class_names=names, integers_are_names=False)
    if logits is not None:
        source = replace(source, logits=logits)
    if ids is not None:
        source = source.with_ids(ids)
    if classes is not None:
        source = source.aligned(classes)
    is_open = classes is None and class_names is None and getattr(source.reader, "is_open", False)
    if labels is None:
        if is_open and stored_labels is not None:
            source = _with_classes_of(source, to_numpy(stored_labels))
        return source if stored_labels is None else source.with_labels(stored_labels)
    if isinstance(labels, str | os.PathLike):
        values = labels_of_file(source, labels, labels_key, ids_key, shared)
    elif is_frame(labels):
        values = labels_of_frame(labels, labels_key, ids_key, shared)
    else:
        values = SeparateLabels(labels, index_of(labels), is_index=True)
    if is_open:
        source = _with_classes_of(source, to_numpy(values.values))
    return join_labels(source, values, shared)


def _with_classes_of(source: Source, labels: Array) -> Source:
    """Add the classes of labels that no row lists."""
    if source.class_names is not None and labels.dtype.kind in "iu":
        raise InputError(
            f"The labels of {source.name} must be class names, as its rows list classes by name. "
            "Got numbers; pass class_names (--class-names) in the order that the numbers count."
        )
    if source.class_names is None:
        largest = int(labels.max(initial=-1)) if labels.dtype.kind in "iu" else -1
        return source.with_more_classes(largest + 1)
    texts = {str(text) for text in labels.ravel().tolist()}
    names = [*source.class_names, *sorted(texts - {*source.class_names, *MISSING})]
    return source.with_more_classes(len(names), names)


def _names_to_share(labels: Any, labels_key: str | None) -> frozenset[str]:
    """Return the columns of a table of labels by which rows may be joined."""
    if is_frame(labels):
        names = [column.name for column in frame_columns(labels)]
    else:
        names = _column_names(_files(as_location(labels))[0])
    label = next((name for name in (labels_key, *LABEL_KEYS) if name in names), None)
    return frozenset(name for name in names if name and name != label and not is_index_name(name))


def _source_of(contents: Contents) -> Source:
    """Build a source without labels."""
    is_reader = isinstance(contents.rows, Reader)
    reader: Reader = contents.rows if is_reader else read_array(contents.rows)
    names, n_classes = contents.class_names, reader.n_classes
    if names is not None and n_classes not in (0, len(names)):
        raise InputError(
            f"{reader.name} must have one name per class. Got {len(names)} for {n_classes}."
        )
    source = Source(
        reader=reader,
        n_classes=n_classes,
        class_names=names,
        logits=contents.logits,
        index=contents.index,
        columns=contents.columns,
        integers_are_names=contents.integers_are_names,
    )
    ids = None if contents.ids is None else contents.known_ids
    return source if ids is None else source.with_ids(ids)


def _open(probabilities: Any, keys: Keys) -> Contents:
    if isinstance(probabilities, str | os.PathLike):
        return open_file(probabilities, keys)
    if isinstance(probabilities, np.ndarray | TopK) or is_sparse(probabilities):
        return Contents(probabilities, getattr(probabilities, "class_names", None))
    if _is_sequence_of_paths(probabilities):
        return open_files(probabilities, keys)
    if type(probabilities).__module__.startswith("dask."):
        return _open_dask(probabilities, keys)
    is_table = is_frame(probabilities) or isinstance(probabilities, Mapping)
    if is_table or is_trainer_output(probabilities):
        return unpacked(probabilities, keys)
    if isinstance(probabilities, Iterator) or _is_sequence_of_blocks(probabilities):
        return read_stream(probabilities, keys)
    is_array = hasattr(probabilities, "__array__") or isinstance(probabilities, Sequence)
    is_array = is_array or type(probabilities).__module__.startswith("pyarrow")
    if isinstance(probabilities, Iterable) and not is_array:
        return read_stream(probabilities, keys)
    return Contents(probabilities)


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


def _open_dask(collection: Any, keys: Keys) -> Contents:
    """Open a Dask array, or a Dask bag of paths."""
    kind = type(collection).__module__
    if kind.startswith("dask.array"):
        return Contents(read_dask_array(collection))
    if kind.startswith("dask.bag"):
        return open_files(collection.compute(), keys)
    raise InputError(
        f"Dask data must be an array or a bag of paths. Got {kind}; a frame's 'to_parquet' writes "
        "a folder that evencover reads."
    )
