"""Labels, values of classes and names that are stored apart from the rows, and their joining."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.classes import integers_if_all, is_integer_text
from evencover.data.arrays import LazyArrays, whole
from evencover.data.columns import ID_KEYS, LABEL_KEYS, NAMES_KEY, SAVED_INDEX
from evencover.data.csv import DELIMITERS, ONLY_COLUMN
from evencover.data.formats import ARRAYS, TABLES, array_format
from evencover.data.location import Location, RemoteFile, as_location, expand, reading
from evencover.data.memory import FrameTable, is_frame
from evencover.data.source import Contents, Labels, Matching
from evencover.data.tables import Table
from evencover.errors import InputError, listed, warn_caller
from evencover.ids import id_keys, id_values

AnyPath = str | os.PathLike[str] | RemoteFile

# Names of the column of classes in a table with one row per class.
CLASS_COLUMNS = (
    *("class", "class_name", "class_names", "classes", "label", "labels", "name"),
    SAVED_INDEX,
)


class SeparateLabels(NamedTuple):
    """Labels that are stored apart from the rows."""

    values: Any  #: (M,) in any order if they have ids
    ids: Array | None = None  #: (M,) their ids
    times: Array | None = None  #: (M,) when they were known, for `monitor`
    row_name: Callable[[int], str] = "row {}".format  #: describes a value in messages
    n_columns: int = 1  #: number of columns of their table
    distinct: tuple[str, ...] = ()  #: other columns of their table whose values all differ


def separate_labels(
    labels: Any,
    key: str | None = None,
    ids_key: str | None = None,
    n_rows: int | None = None,
    *,
    read_ids: bool = True,
    with_times: bool = False,
) -> SeparateLabels:
    """Read labels, with ids and times, from a file, a frame or any sequence.

    Accept files of every data format, and text with one label per line. Concatenate the files of a
    folder or a glob, which must all have ids if one has. `n_rows` are expected in all.
    """
    is_named, key = key is not None, key or "labels"
    id_names = (ids_key or ID_KEYS[0], *ID_KEYS) if read_ids else ()
    if is_frame(labels):
        columns = columns_of(FrameTable.of(labels))
        how: Any = {"owner": "'labels'", "is_named": is_named}
        return _chosen(columns, key, id_names, with_times, **how)
    if not isinstance(labels, str | os.PathLike | RemoteFile):
        return SeparateLabels(to_numpy(labels, "'labels'"))
    files = _files(labels)
    n_expected = n_rows if len(files) == 1 else None
    parts = [_read(file, key, id_names, n_expected, with_times) for file in files]
    starts = list(accumulate((len(part.values) for part in parts[:-1]), initial=0))

    def row_name(row: int) -> str:
        which = bisect_right(starts, row) - 1
        return f"row {row - starts[which]} of '{files[which]}'"

    values, ids, times = zip(*(part[:3] for part in parts), strict=True)
    if len({column is None for column in ids}) > 1:
        without = files[[column is None for column in ids].index(True)]
        raise InputError(
            f"All files of '{labels}' must have ids if one has. Got none in '{without}'."
        )
    return SeparateLabels(
        joined_columns(values, "labels", files),
        None if ids[0] is None else joined_columns(list(map(_ids_of, ids, files)), "ids", files),
        None if any(column is None for column in times) else joined_columns(times, "times", files),
        row_name,
        *parts[0][4:],
    )


def _ids_of(ids: Array, file: Location) -> Array:
    """Check the ids of a file of labels."""
    return id_values(ids, lambda row: f"row {row} of '{file}'")


def joined_columns(columns: Sequence[Array], what: str, files: Sequence[object]) -> Array:
    """Concatenate columns of files; empty ones do not affect the type.

    An integer id equals its decimal text, so ids of both types become text.
    """
    filled = [i for i, column in enumerate(columns) if len(column)] or [0]
    joined = [columns[i] for i in filled]
    are_integers = [column.dtype.kind in "iu" for column in joined]
    if len(set(are_integers)) > 1 and what == "ids":
        joined = [column.astype(str).astype(object) for column in joined]
    elif len(set(are_integers)) > 1:
        two = [files[filled[are_integers.index(is_integer)]] for is_integer in (True, False)]
        raise InputError(
            f"All files must have {what} of one type. Got integers in {two[0]}, and others in "
            f"{two[1]}; put all {what} into one file, or write them as text in Parquet."
        )
    return joined[0] if len(joined) == 1 else np.concatenate(joined)


def class_values_from_file(path: AnyPath, key: str) -> list[Any]:
    """Read one value per class: (class, value) pairs, or a single column of values."""
    found: list[Any] = []
    for location in _files(path):
        with _columns(location) as columns:
            if len(columns) == 1:
                found += _read(location, key).values.tolist()
                continue
            names = list(columns)
            class_name = next((name for name in CLASS_COLUMNS if name in names and name != key), "")
            value_name = key
            if len(names) == 2:
                value_name = key if key in names else [n for n in names if n != class_name][-1]
                class_name = names[names[0] == value_name]
            elif not class_name or key not in names:
                raise InputError(
                    f"'{location}' must have the columns 'class' and {key!r}. Got {listed(names)}."
                )
            classes = map(str, columns[class_name].tolist())
            found += zip(classes, columns[value_name].tolist(), strict=True)
    return found


def class_names_from_file(path: AnyPath) -> list[str]:
    """Read class names: a text file with a name per line, a CSV or JSON list, or a model."""
    location = as_location(path)
    suffix = location.suffix.lower()
    if suffix == ".safetensors" and isinstance(location, Path):
        from safetensors import safe_open

        with reading(location), safe_open(location, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = json.loads(metadata.get(NAMES_KEY, "null"))
            if "evencover" in metadata:
                names = json.loads(metadata["evencover"])["fit"]["rows"]["class_names"]
    elif suffix == ".json":
        with reading(location), location.open("rb") as file:
            names = json.load(file)
    elif suffix in ARRAYS or suffix in TABLES:
        with _columns(location) as columns:
            wanted = [name for name in CLASS_COLUMNS if name in columns]
            if len(columns) > 1 and not wanted:
                raise InputError(f"'{location}' must have a column 'class'. Got {listed(columns)}.")
            name = wanted[0] if wanted else next(iter(columns))
            texts = [str(text) for text in columns[name].tolist()]
            names = texts[name == ONLY_COLUMN and texts[0] in CLASS_COLUMNS :]  # without a heading
    else:
        with reading(location), location.open("rb") as file:
            text = file.read().decode("utf-8-sig").replace("\r\n", "\n")
        names = text.removesuffix("\n").split("\n")  # a name may be white space
    if not isinstance(names, list) or not set(map(type, names)) <= {str}:
        found = "none" if names is None else "something else"
        raise InputError(f"'{location}' must have a list of class names. Got {found}.")
    return names


# ---- columns of files ----------------------------------------------------------------------------


def _files(path: AnyPath) -> list[Location]:
    location = as_location(path)
    return expand(location) or [location]


@contextmanager
def _columns(location: Location) -> Iterator[Mapping[str, Array]]:
    """Open the columns or arrays of a file by name; integers of text files are integers."""
    open_table, open_arrays = TABLES.get(location.suffix.lower()), array_format(location)
    with reading(location) as identity:
        if open_table is not None:
            yield columns_of(open_table(location, identity, None))
        elif open_arrays is not None:
            with open_arrays(location) as arrays:
                yield LazyArrays({k: partial(whole, arrays, identity.size, k) for k in arrays})
        else:
            with location.open("rb") as file:
                text = file.read().decode("utf-8-sig").replace("\r\n", "\n")
            lines = list(filter(None, text.split("\n")))  # a name may be white space
            values = integers_if_all(list(map(str.strip, lines)))
            is_text = values.dtype.kind == "O"
            yield {ONLY_COLUMN: np.array(lines, dtype=object) if is_text else values}


def columns_of(table: Table) -> Mapping[str, Array]:
    """Return the columns of a table, read on demand; the saved index of pandas has one name."""
    return LazyArrays(
        {
            SAVED_INDEX if name == table.index else name: partial(table.column, name)
            for name, _ in table.columns
        }
    )


def _read(
    location: Location,
    key: str,
    id_keys_of: Sequence[str] = (),
    n_rows: int | None = None,
    with_times: bool = False,
) -> SeparateLabels:
    """Read one value per row of a file.

    The first cell of a CSV file with one column is its name if that is `key`, or if there is one
    cell more than rows, and the first is no number and occurs once.
    """
    with _columns(location) as columns:
        is_named = location.suffix.lower() in ARRAYS and ONLY_COLUMN not in columns
        how: Any = {"owner": f"'{location}'", "is_named": is_named}
        read = _chosen(columns, key, id_keys_of, with_times, **how)
        values = read.values
        if location.suffix.lower() in DELIMITERS and list(columns) == [ONLY_COLUMN] and len(values):
            first, is_longer = str(values[0]), len(values) - 1 == n_rows
            is_new = first not in values[1:].astype(str) and not is_integer_text(first)
            if first == key or (is_longer and is_new):
                values = integers_if_all(list(map(str, values[1:].tolist())))
        return read._replace(values=values)


def _chosen(
    columns: Mapping[str, Array],
    key: str,
    id_keys_of: Sequence[str],
    with_times: bool,
    *,
    owner: str,
    is_named: bool,
) -> SeparateLabels:
    """Return the values, ids and times of columns; the values may be the only other column."""
    ids = next((name for name in id_keys_of if name in columns), None)
    keys = (key, *next((usual for usual in (LABEL_KEYS, ID_KEYS) if key in usual), ()))
    name = next((name for name in keys if name in columns), None)
    others = [column for column in columns if column != ids]
    if name is None and (is_named or len(others) != 1):
        raise InputError(
            f"{owner} must have a column {key!r}. Got {listed(columns)}; name it with labels_key "
            "(--labels-key)."
        )
    name = others[0] if name is None else name
    values, id_column = columns[name], None if ids is None else columns[ids]
    if id_column is not None and len(id_column) != len(values):
        raise InputError(f"{owner} has {len(id_column)} ids for {len(values)} values.")
    times = columns["time"] if with_times and "time" in columns else None
    distinct = () if ids else tuple(n for n in columns if n != name and _tells_rows(columns[n]))
    return SeparateLabels(values, id_column, times, n_columns=len(columns), distinct=distinct)


def _tells_rows(values: Array) -> bool:
    """Return whether integers or texts all differ, and do not just count the rows."""
    if values.ndim != 1 or values.dtype.kind not in "iuUOT" or len(values) < 2:
        return False
    texts = [str(value) for value in values.tolist()]
    counts = [[str(i + first) for i in range(len(texts))] for first in (0, 1)]
    return len(set(texts)) == len(texts) and texts not in counts


# ---- joining labels to rows ----------------------------------------------------------------------


def joined_labels(contents: Contents, labels: SeparateLabels) -> Labels:
    """Match labels to rows, by id if both have ids, and warn of labels in doubt."""
    values, row_name = labels.values, labels.row_name
    if labels.ids is not None and contents.ids is not None:
        order = positions_by_id(contents.ids, labels.ids, contents.reader.row_name, row_name)
        n_unused = len(values) - len(order)
        matching = Matching(len(order), True, n_unused, is_doubtful=n_unused > 0)
        values, row_name = values[order], partial(_name_of_label, row_name, order)
    else:
        shared = [name for name in labels.distinct if name in contents.columns.left_out]
        if shared:
            raise InputError(
                f"Rows and labels with ids must be matched by them. Got {shared[0]!r} in both; "
                f"call it 'id' in both or name it with --ids-key {shared[0]} to match by it, or "
                "pass labels without it to match by position."
            )
        without = "the labels" if contents.ids is not None else ""
        without = contents.reader.name if labels.ids is not None else without
        matching = Matching(values.size, without=without, is_doubtful=labels.n_columns > 1)
    if matching.is_doubtful:
        warn_caller(matching.sentence)
    return Labels(values, row_name, matching)


def _name_of_label(row_name: Callable[[int], str], order: IntArray, row: int) -> str:
    """Describe the label of a row by its index in the file of labels."""
    return row_name(int(order[row]))


def positions_by_id(
    ids: Any, label_ids: Any, row_name: Callable[[int], str], label_name: Callable[[int], str]
) -> IntArray:
    """Return the position of each id (N,) among those of the labels, of which some may be unused.

    Raise InputError if an id occurs twice, or if an id is not among the others.
    """
    ids, label_ids = id_values(ids, row_name), id_values(label_ids, label_name)
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
