"""Open whatever users have as a source: the one door for rows, labels, ids and class names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evencover.arrow import import_pyarrow
from evencover.classes import as_class_names
from evencover.data.arrays import open_array_file
from evencover.data.columns import USUAL, Keys
from evencover.data.entries import joined_files, of_table
from evencover.data.formats import ARRAYS, TABLES, array_format
from evencover.data.labels import (
    AnyPath,
    class_names_from_file,
    joined_columns,
    joined_labels,
    separate_labels,
)
from evencover.data.location import Location, as_location, existing_file, expand, reading
from evencover.data.memory import (
    in_memory,
    is_frame,
    is_trainer_output,
    read_stream,
    rows_and_labels,
)
from evencover.data.readers import ConcatenatedReader
from evencover.data.source import Contents, Expected, Labels, Source
from evencover.data.tools import are_records, table_of_rows
from evencover.errors import InputError, listed
from evencover.ids import id_values
from evencover.topk import TopK, is_sparse


def open_file(path: AnyPath, keys: Keys = USUAL) -> Contents:
    """Open a file, or the files of a folder or a glob, for reading in blocks."""
    location = as_location(path)
    files = expand(location)
    if files is not None:
        files = _data_files(location, files)
        return concatenated([open_file(file, keys) for file in files], str(location))
    suffix = location.suffix.lower()
    if suffix in TABLES:
        import_pyarrow()
        with reading(location) as identity:
            return of_table(TABLES[suffix](location, identity, keys), keys)
    open_arrays = array_format(location)
    if open_arrays is None:
        existing_file(location)
        raise InputError(
            f"Cannot read '{location}': its extension must be one of "
            f"{', '.join([*ARRAYS, *TABLES])}. Got {suffix or 'none'!r} instead."
        )
    return open_array_file(location, open_arrays, keys)


def _data_files(location: Location, files: list[Location]) -> list[Location]:
    """Return the files of a folder or a glob that have data, all in one format."""
    known = sorted([*ARRAYS, *TABLES])
    if location.is_dir():  # skip notes and manifests; a glob is taken as given
        files = [file for file in files if file.suffix.lower() in known]
        files = [file for file in files if file.suffix.lower() != ".json"] or files
    extensions = sorted({file.suffix.lower() for file in files})
    if not files:
        raise InputError(f"Cannot read '{location}': the folder has no file of {listed(known)}.")
    if len(extensions) > 1:
        raise InputError(
            f"Cannot read '{location}': its files must have one format. "
            f"Got {', '.join(extensions)}; choose one with a glob such as '*{extensions[0]}'."
        )
    return files


def concatenated(files: Sequence[Contents], name: str) -> Contents:
    """Concatenate files with the same classes; those of top-k rows may list different ones."""
    files = [file for file in files if file.reader.n_rows != 0] or list(files[:1])
    if all(file.reader.is_top_k for file in files):
        files = joined_files(files, name)
    first = files[0]
    for other in files[1:]:
        for mine, theirs in zip(_facts(other), _facts(first), strict=False):
            if mine != theirs:
                raise InputError(
                    "All files must have the same classes, and labels and ids in all or none. "
                    f"Got {mine} in {other.reader.name}, and {theirs} in {first.reader.name}."
                )
    readers = tuple(file.reader for file in files)
    reader = ConcatenatedReader(
        readers=readers,
        n_classes=readers[0].n_classes,
        n_rows=sum(reader.n_rows or 0 for reader in readers),
        name=f"'{name}'",
        is_top_k=readers[0].is_top_k,
        may_lack_classes=any(reader.may_lack_classes for reader in readers),
    )
    names = [file.reader.name for file in files]
    labels = [file.labels.values for file in files if file.labels is not None]
    ids = [id_values(file.ids, file.reader.row_name) for file in files if file.ids is not None]
    left_out = {column: why for file in files for column, why in file.columns.left_out.items()}
    guessed = tuple(dict.fromkeys(column for file in files for column in file.columns.guessed))
    return replace(
        first,
        reader=reader,
        labels=Labels(joined_columns(labels, "labels", names)) if labels else None,
        ids=joined_columns(ids, "ids", names) if ids else None,
        integers_may_be_names=any(file.integers_may_be_names for file in files),
        columns=first.columns._replace(left_out=left_out, guessed=guessed),
    )


def _facts(file: Contents) -> Iterator[str]:
    """Describe what all files of an input must have in common, in the words of a message."""
    yield f"{file.reader.n_classes} classes"
    yield "no labels" if file.labels is None else "labels"
    yield "no ids" if file.ids is None else "ids"
    yield "class names" if file.class_names else "no class names"
    yield "logits" if file.logits else "probabilities"
    yield "top classes" if file.reader.is_top_k else "all classes"
    for index, name in enumerate(file.class_names or ()):
        yield f"{name!r} as class {index}"


# ---- sources -------------------------------------------------------------------------------------


def as_source(
    probabilities: Any,
    labels: Any = None,
    *,
    ids: Any = None,
    class_names: Any = None,
    labels_are: str | None = None,
    logits: bool | None = None,
    probabilities_key: str | None = None,
    labels_key: str | None = None,
    ids_key: str | None = None,
    has_header: bool | None = None,
    allow_unknown: bool = False,
    groups: tuple[str, ...] = (),
    allow_sorted: bool = False,
    read_labels: bool = True,
    expected: Expected | None = None,
) -> Source:
    """Open arrays, memory maps, paths or iterables of row blocks as a `Source`.

    Parameters
    ----------
    probabilities
        An (N, K) array-like; `TopK`, a SciPy sparse matrix, or lists of labels with scores, for
        rows of which some classes are known; a pandas or polars frame or an Arrow table, whose
        columns name the classes and may include labels and ids; a dictionary of arrays, or the
        output of a Trainer's `predict`; the path or URL of a file, folder or glob, or a list of
        paths; an iterable of blocks of any of these, or of (block, labels) pairs; or a `Source`.
    labels
        (N,) class indices or class names, or the path of a file with them; replaces labels in the
        input. A frame or file of labels with a column of ids is joined to rows with ids; `ids_key`
        names that column in both. Other labels are in row order, also those of a Series.
    ids
        (N,) ids in row order; replaces ids in the input. False ignores ids.
    class_names
        One per class, {index: name}, or the path of a file with one name per line, a CSV or JSON
        list of names, or a model. Names in the input are matched to them.
    labels_are
        "indices" or "names": what integer labels are, if a class has a number as its name.
    logits
        Whether the numbers are logits; replaces the input's own statement.
    probabilities_key, labels_key, ids_key
        Names of the numbers, labels and ids in a file, frame or dictionary, if not the usual ones.
        With one column per class, a glob such as "p_*", or "!loss" for all columns but one.
        `labels_key` also applies to a separate file or frame of labels.
    has_header
        Whether the first line of a CSV file names the columns; by default its content decides.
    allow_unknown
        Accept labels that are not class names; they become the index `n_classes`.
    groups
        Names of groups of classes, which labels may be, too.
    allow_sorted
        Accept rows whose numbers all decrease, which are usually ranked lists.
    read_labels
        Whether to read labels that are stored with the rows.
    expected
        What a model expects: its classes, to which those of the input are matched.
    """
    if isinstance(class_names, str | os.PathLike):
        class_names = class_names_from_file(class_names)
    names = None if class_names is None else as_class_names(class_names, len(class_names))
    stated: dict[str, Any] = {
        **({} if names is None else {"class_names": names}),
        **({} if labels_are is None else {"labels_are": labels_are}),
        **({"allow_unknown": True} if allow_unknown else {}),
        **({"groups": groups} if groups else {}),
        **({"allow_sorted": True} if allow_sorted else {}),
    }
    is_source = isinstance(probabilities, Source)
    if is_source and labels is None and ids is None and logits is None:
        return probabilities.expecting(expected, **stated)
    known = expected.classes.names if expected is not None and names is None else names
    is_separate = labels is not None and (isinstance(labels, str | os.PathLike) or is_frame(labels))
    keys = Keys(
        probabilities_key,
        None if is_separate else labels_key,
        ids_key,
        read_labels=read_labels and labels is None,
        read_ids=ids is None,
        classes=frozenset(known or ()),
        has_header=has_header,
    )
    if is_source:
        contents = probabilities.contents
        logits = probabilities.logits if logits is None else logits
        if not probabilities.has_ids:
            contents = replace(contents, ids=None)
    elif expected is not None and isinstance(probabilities, list | tuple) and not probabilities:
        contents = in_memory(np.zeros((0, expected.classes.n)))
    elif isinstance(probabilities, str | os.PathLike):
        contents = open_file(probabilities, keys)
    else:
        contents = _in_python(probabilities, keys)
    if ids is not None:
        values = None if ids is False else id_values(ids)
        contents = replace(contents, ids=values, reader=contents.reader.without_ids())
    if labels is not None:
        n_rows, read_ids = contents.reader.n_rows, ids is not False
        separate = separate_labels(labels, labels_key, ids_key, n_rows, read_ids=read_ids)
        is_by_position = separate.ids is None or contents.ids is None
        if is_by_position and hasattr(probabilities, "iloc") and hasattr(labels, "iloc"):
            _reject_other_index(probabilities.index, labels.index)
        contents = replace(contents, labels=joined_labels(contents, separate))
    return Source.of(contents, expected, logits=logits, **stated)


def _reject_other_index(rows: Any, labels: Any) -> None:
    """Raise if labels have the index of the rows in another order, or a different one.

    An index that just counts, or a part of one that did, states no order.
    """
    counts = any(np.array_equal(index, np.arange(len(index))) for index in (rows, labels))
    is_other = not rows.equals(labels) and len(rows) == len(labels)
    if is_other and (not counts or set(rows) == set(labels)):
        raise InputError(
            "Labels must be in the order of the rows, because a pandas index does not match them. "
            "Got another index for the labels; pass labels.loc[rows.index], or the values of the "
            "labels if they are in order."
        )


def _in_python(probabilities: Any, keys: Keys) -> Contents:
    """Open anything but a path."""
    if isinstance(probabilities, np.ndarray | TopK) or is_sparse(probabilities):
        return in_memory(probabilities)
    is_list = isinstance(probabilities, list | tuple) and len(probabilities) > 0
    if is_list and all(isinstance(path, str | os.PathLike) for path in probabilities):
        files = [open_file(path, keys) for path in probabilities]
        return concatenated(files, ", ".join(map(str, probabilities[:3])))
    if type(probabilities).__module__.startswith("dask."):
        raise InputError(
            f"Dask collections must be written to files first. Got {type(probabilities).__name__}; "
            "'to_zarr' or 'to_parquet' writes a folder that evencover reads on the workers."
        )
    if are_records(probabilities):
        return of_table(table_of_rows(probabilities, keys), keys)
    if _are_blocks(probabilities):
        return read_stream(probabilities, keys)
    return in_memory(probabilities, keys)


def _are_blocks(values: Any) -> bool:
    """Return whether an iterable has blocks of rows, not rows."""
    if is_frame(values) or isinstance(values, Mapping) or is_trainer_output(values):
        return False
    if not isinstance(values, list | tuple):
        is_array = hasattr(values, "__array__") or isinstance(values, Sequence)
        is_array = is_array or type(values).__module__.startswith("pyarrow")
        return isinstance(values, Iterable) and not is_array
    if not values:
        return False
    if is_frame(values[0]) or isinstance(values[0], Mapping):
        return True
    rows, labels = rows_and_labels(values[0])
    return getattr(rows, "ndim", 0) == 2 and (labels is None or hasattr(labels, "__len__"))
