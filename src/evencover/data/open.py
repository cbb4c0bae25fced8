"""Open a path or an object as a source; the extension selects the reader."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    SAVED_INDEX,
    USUAL,
    Contents,
    Keys,
    as_class_names,
    column_from_text,
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
    open_table,
    table_columns,
)
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
    column_of,
    concatenated,
    frame_columns,
    in_memory,
    is_frame,
    is_trainer_output,
    read_array,
    read_stream,
    rows_and_labels,
    unpacked,
)
from evencover.data.source import Classes, Matching, Reader, Source
from evencover.errors import InputError, listed, warn_caller
from evencover.ids import id_keys
from evencover.topk import TopK, is_sparse
from evencover.validation import MISSING, is_integer_text

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

# Names of the column of classes in a table with one row per class.
CLASS_KEYS = (
    *("class", "class_name", "class_names", "classes", "label", "labels", "name"),
    SAVED_INDEX,
)


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


# ---- separate files of labels, ids and values per class -----------------------------------------


class SeparateLabels(NamedTuple):
    """Labels that are stored apart from the rows."""

    values: Any  #: (M,) in any order if they have ids
    ids: Array | None = None  #: (M,) their ids
    times: Array | None = None  #: (M,) when they were known, for `monitor`
    row_name: Callable[[int], str] | None = None  #: describes a value in messages
    n_columns: int = 1  #: number of columns of their table
    distinct: tuple[str, ...] = ()  #: other columns of their table whose values all differ


def labels_of_file(
    path: AnyPath,
    key: str | None = None,
    ids_key: str | None = None,
    n_rows: int | None = None,
    *,
    with_times: bool = False,
) -> SeparateLabels:
    """Read labels, with ids and times if every file has them; `n_rows` are expected in all.

    Accept files of every data format, and text with one label per line. Concatenate the files of a
    folder or a glob.
    """
    files = _files(path)
    id_keys = (ids_key or ID_KEYS[0], *ID_KEYS)
    n_rows = n_rows if len(files) == 1 else None
    about = (key or "labels", id_keys, n_rows, with_times)
    parts = [_read(file, *about) for file in files]
    starts = list(accumulate((len(part.values) for part in parts[:-1]), initial=0))

    def row_name(row: int) -> str:
        which = bisect_right(starts, row) - 1
        return f"row {row - starts[which]} of '{files[which]}'"

    values, ids, times = zip(*(part[:3] for part in parts), strict=True)
    return SeparateLabels(
        _joined(values),
        None if any(column is None for column in ids) else _joined(ids),
        None if any(column is None for column in times) else _joined(times),
        row_name=row_name,
        n_columns=parts[0].n_columns,
        distinct=parts[0].distinct,
    )


def class_values_from_file(path: AnyPath, key: str) -> list[Any]:
    """Read one value per class: (class, value) pairs, or a single column of values."""
    found: list[Any] = []
    for location in _files(path):
        with _columns(location) as columns:
            if len(columns) == 1:
                found += _read(location, key).values.tolist()
                continue
            class_name, value_name = _class_columns(list(columns), key, f"'{location}'")
            classes = map(str, columns[class_name].tolist())
            values = _typed(columns[value_name], location).tolist()
            found += zip(classes, values, strict=True)
    return found


def _class_columns(names: Sequence[str], key: str, owner: str) -> tuple[str, str]:
    """Find the columns of classes and of values in a table with one row per class."""
    class_name = next((name for name in CLASS_KEYS if name in names and name != key), None)
    if len(names) == 2:
        others = [name for name in names if name != class_name]
        value_name = key if key in names else others[-1]
        return next(name for name in names if name != value_name), value_name
    if class_name is None or key not in names:
        raise InputError(f"{owner} must have the columns 'class' and {key!r}. Got {listed(names)}.")
    return class_name, key


def _joined(columns: Sequence[Array]) -> Array:
    """Concatenate arrays; empty ones do not affect the type."""
    filled = [column for column in columns if len(column)] or columns[:1]
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


def _files(path: AnyPath) -> list[Location]:
    location = as_location(path)
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
    n_rows: int | None = None,
    with_times: bool = False,
) -> SeparateLabels:
    """Read one value per row, with ids and times if the file has them.

    The column has one of the names of `key`, or is the only one. The first cell of a CSV file with
    one column is its name if that is `key`, or if there is one cell more than rows, and the first
    is no number and occurs once.
    """
    with _columns(location) as columns:
        is_named = location.suffix.lower() in ARRAYS and ONLY_ARRAY not in columns
        name, ids = _chosen(columns, key, id_keys, f"'{location}'", is_named=is_named)
        values = columns[name]
        if _format(location) is CsvFile and list(columns) == [ONLY_ARRAY] and len(values):
            first, is_longer = str(values[0]), len(values) - 1 == n_rows
            is_new = first not in values[1:] and not is_integer_text(first)
            values = values[1:] if first == key or (is_longer and is_new) else values
        id_values = None if ids is None else columns[ids]
        if id_values is not None and len(id_values) != len(values):
            raise InputError(f"'{location}' has {len(id_values)} ids for {len(values)} values.")
        times = columns.get("time") if with_times else None
        distinct = () if ids else tuple(n for n in columns if n != name and _tells_rows(columns[n]))
        values = _typed(values, location)
        return SeparateLabels(values, id_values, times, None, len(columns), distinct)


def _chosen(
    columns: Collection[str], key: str, id_keys: Sequence[str], owner: str, *, is_named: bool
) -> tuple[str, str | None]:
    """Return the columns of values and of ids; the values may be the only other column."""
    ids = next((name for name in id_keys if name in columns), None)
    keys = (key, *next((usual for usual in (LABEL_KEYS, ID_KEYS) if key in usual), ()))
    name = next((name for name in keys if name in columns), None)
    others = [column for column in columns if column != ids]
    if name is None and (is_named or len(others) != 1):
        raise InputError(
            f"{owner} must have a column {key!r}. Got {listed(columns)}; name it with labels_key "
            "(--labels-key)."
        )
    return others[0] if name is None else name, ids


def _tells_rows(values: Array) -> bool:
    """Return whether integers or texts all differ, and do not just count the rows."""
    if values.ndim != 1 or values.dtype.kind not in "iuUOT" or len(values) < 2:
        return False
    texts = [str(value) for value in values.tolist()]
    counts = [[str(i + first) for i in range(len(texts))] for first in (0, 1)]
    return len(set(texts)) == len(texts) and texts not in counts


def _typed(values: Array, location: Location) -> Array:
    """Convert text to integers if all values are, for files without types."""
    file_format = _format(location)
    is_text = isinstance(file_format, type) and issubclass(file_format, TextFile)
    return column_from_text(values.tolist()) if is_text or file_format is None else values


# ---- joining labels to rows ----------------------------------------------------------------------


def _labels_of_frame(frame: Any, labels_key: str | None, ids_key: str | None) -> SeparateLabels:
    """Read the labels of a frame, with ids if it has a column of them."""
    names = [column.name for column in frame_columns(frame)]
    id_keys = (ids_key or ID_KEYS[0], *ID_KEYS)
    label, ids = _chosen(
        names, labels_key or "labels", id_keys, "'labels'", is_named=labels_key is not None
    )
    columns = {name: column_of(frame, place) for place, name in enumerate(names)}
    distinct = tuple(name for name in names if name != label and _tells_rows(columns[name]))
    return SeparateLabels(
        columns[label],
        None if ids is None else columns[ids],
        n_columns=len(names),
        distinct=() if ids else distinct,
    )


def _join_labels(source: Source, labels: SeparateLabels) -> Source:
    """Return the source with these labels, and warn of labels in doubt."""
    values, row_name = to_numpy(labels.values, "'labels'"), labels.row_name
    has_ids = labels.ids is not None
    if has_ids and source.ids is not None:
        order = positions_by_id(source.ids, labels.ids)
        n_unused = len(values) - len(order)
        matching = Matching(len(order), True, n_unused, is_doubtful=n_unused > 0)
        values = values[order]
        if row_name is not None:
            row_name = partial(_name_of_label, row_name, order)
    else:
        shared = [name for name in labels.distinct if name in source.columns.left_out]
        if shared:
            raise InputError(
                f"Rows and labels with ids must be matched by them. Got {shared[0]!r} in both; "
                f"call it 'id' in both or name it with --ids-key {shared[0]} to match by it, or "
                "pass labels without it to match by position."
            )
        without = source.reader.name if has_ids else "the labels"
        without = without if has_ids or source.ids is not None else ""
        matching = Matching(values.size, without=without, is_doubtful=labels.n_columns > 1)
    if matching.is_doubtful:
        warn_caller(matching.sentence)
    return source.with_labels(values, row_name=row_name, matching=matching)


def _name_of_label(row_name: Callable[[int], str], order: IntArray, row: int) -> str:
    """Describe the label of a row by its place in the file of labels."""
    return row_name(int(order[row]))


def positions_by_id(ids: Any, label_ids: Any) -> IntArray:
    """Return the position of each id (N,) among those of the labels, of which some may be unused.

    Raise InputError if an id occurs twice, or if an id is not among the others.
    """
    ids, label_ids = to_numpy(ids), to_numpy(label_ids)
    keys, label_keys = id_keys(ids, len(ids)), id_keys(label_ids, len(label_ids))
    if np.array_equal(keys, label_keys):
        return np.arange(len(keys))
    for some, values, where in ((keys, ids, "rows"), (label_keys, label_ids, "labels")):
        _, first = np.unique(some, return_index=True)
        if len(first) < len(some):
            repeated = np.delete(values, first)
            raise InputError(
                f"Each id must occur once to match labels by id. Got {len(repeated)} of the "
                f"{where} with an earlier id, such as {listed(repeated[:3])}."
            )
    _, in_rows, in_labels = np.intersect1d(keys, label_keys, True, True)
    positions = np.full(len(keys), -1)
    positions[in_rows] = in_labels
    lacking, unused = ids[positions < 0], np.delete(label_ids, in_labels)
    if len(lacking):
        more = f" and {len(unused):,} labels without a row (such as {listed(unused[:3])})"
        raise InputError(
            f"Every row must have one of the labels, by its id. Got {len(lacking):,} rows without "
            f"labels (such as {listed(lacking[:3])}){more if len(unused) else ''}; correct the "
            "ids, or leave these rows out."
        )
    return positions


# ---- sources -------------------------------------------------------------------------------------


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
        iterable of blocks of any of these, or of (block, labels) pairs; or a `Source`.
    labels
        (N,) class indices or class names, or the path of a file with them; replaces labels in the
        input. A frame or file of labels with a column of ids is joined to rows with ids; `ids_key`
        names that column in both. Other labels are in row order, also those of a Series.
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
    has_indexes = hasattr(probabilities, "iloc") and hasattr(labels, "iloc")
    indexes = (probabilities.index, labels.index) if has_indexes else None
    labels = in_memory(labels) if is_frame(labels) else labels
    is_table = isinstance(labels, str | os.PathLike) or is_frame(labels)
    read_labels = read_labels and labels is None
    keys = Keys(probabilities_key, None if is_table else labels_key, ids_key, read_labels)
    if classes is not None and isinstance(probabilities, list | tuple) and not probabilities:
        probabilities = np.zeros((0, classes.n_classes))
    stored_labels = None
    if isinstance(probabilities, Source):
        source = probabilities
    else:
        contents = _open(probabilities, keys)
        source, stored_labels = _source_of(contents), contents.labels
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
        values = labels_of_file(labels, labels_key, ids_key, source.n_rows)
    elif is_frame(labels):
        values = _labels_of_frame(labels, labels_key, ids_key)
    else:
        values = SeparateLabels(labels)
    if is_open:
        source = _with_classes_of(source, to_numpy(values.values))
    if indexes and (values.ids is None or source.ids is None):
        _reject_other_index(*indexes)
    return _join_labels(source, values)


def _reject_other_index(rows: Any, labels: Any) -> None:
    """Raise if labels have the index of the rows in another order, or a different one.

    An index that just counts, or a part of one that did, states no order.
    """
    counts = any(np.array_equal(index, np.arange(len(index))) for index in (rows, labels))
    is_other = not rows.equals(labels) and len(rows) == len(labels)
    if is_other and (not counts or rows.symmetric_difference(labels).empty):
        raise InputError(
            "Labels must be in the order of the rows, because a pandas index does not match them. "
            "Got another index for the labels; pass labels.loc[rows.index], or the values of the "
            "labels if they are in order."
        )


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
        columns=contents.columns,
        integers_are_names=contents.integers_are_names,
    )
    return source if contents.ids is None else source.with_ids(contents.ids)


def _open(probabilities: Any, keys: Keys) -> Contents:
    if isinstance(probabilities, str | os.PathLike):
        return open_file(probabilities, keys)
    if isinstance(probabilities, np.ndarray | TopK) or is_sparse(probabilities):
        return Contents(probabilities, getattr(probabilities, "class_names", None))
    if _is_sequence_of_paths(probabilities):
        return open_files(probabilities, keys)
    if type(probabilities).__module__.startswith("dask."):
        raise InputError(
            f"Dask collections must be written to files first. Got {type(probabilities).__name__}; "
            "'to_zarr' or 'to_parquet' writes a folder that evencover reads on the workers."
        )
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
