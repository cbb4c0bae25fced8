"""Join labels to rows by id or position."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.data.columns import ID_KEYS, LABEL_KEYS
from evencover.data.frames import column_of, frame_columns, index_of
from evencover.data.source import Matching, Source
from evencover.errors import InputError, listed, warn_caller
from evencover.randomness import row_ids


class SeparateLabels(NamedTuple):
    """Labels that are stored apart from the rows."""

    values: Any  #: (M,) in any order if they have ids
    ids: Array | None = None  #: (M,) their ids, or the index of a pandas object
    is_index: bool = False  #: whether the ids are an index, which may only count the values
    row_name: Callable[[int], str] | None = None  #: describes a value in messages
    others: Mapping[str, Array] = {}  #: (M,) columns of their table that may be ids, by name
    n_columns: int = 1  #: number of columns of their table


def join_labels(source: Source, labels: SeparateLabels, shared: Mapping[str, Array]) -> Source:
    """Return the source with these labels, and warn of labels in doubt.

    `shared` are columns (N,) of the rows' table. If one of them identifies rows and labels, it
    becomes the ids of the rows.
    """
    have_ids = source.ids is not None and labels.ids is not None and not labels.is_index
    key = shared_key(shared, labels.others) if shared and not have_ids else None
    if key is not None:
        source = source.with_ids(shared[key])
        labels = labels._replace(ids=labels.others[key], is_index=False)
    values, row_name = to_numpy(labels.values, "'labels'"), labels.row_name
    ids = None if labels.ids is None else _ids_to_match(source, labels)
    if ids is not None:
        order = positions_by_id(ids, labels.ids)
        n_unused = len(values) - len(order)
        matching = Matching(len(order), True, key, n_unused, is_doubtful=n_unused > 0)
        values = values[order]
        if row_name is not None:
            row_name = partial(_name_of_label, row_name, order)
    else:
        has_ids, without = labels.ids is not None and not _counts(labels), ""
        if has_ids != (source.ids is not None):
            without = source.reader.name if has_ids else "the labels"
        matching = Matching(values.size, without=without, is_doubtful=labels.n_columns > 1)
    if matching.is_doubtful:
        warn_caller(matching.sentence)
    return source.with_labels(values, row_name=row_name, matching=matching)


def _name_of_label(row_name: Callable[[int], str], order: IntArray, row: int) -> str:
    """Describe the label of a row by its place in the file of labels."""
    return row_name(int(order[row]))


def shared_key(rows: Mapping[str, Array], labels: Mapping[str, Array]) -> str | None:
    """Return the name of a column that identifies the rows in both tables; None if there is none.

    Its values are integers or text, differ from each other in each table, and occur in both. A
    column that counts the rows, 0, 1, 2, ... or 1, 2, 3, ..., identifies nothing. Raise InputError
    if several columns match rows and labels differently.

    >>> rows = {"path": np.array(["a.png", "b.png"]), "n": np.array([0, 1])}
    >>> shared_key(rows, {"path": np.array(["b.png", "a.png"]), "n": np.array([0, 1])})
    'path'
    """
    orders: dict[str, IntArray] = {}
    for name in rows.keys() & labels.keys():
        keys = [_distinct_keys(table[name]) for table in (rows, labels)]
        if keys[0] is not None and keys[1] is not None:
            order = _positions(keys[0], keys[1])
            if (order >= 0).any():
                orders[name] = order
    if len({order.tobytes() for order in orders.values()}) > 1:
        raise InputError(
            "Rows and labels must share one column of unique ids. Got "
            f"{listed(map(repr, sorted(orders)))}, which match them differently; choose one with "
            "ids_key (--ids-key)."
        )
    return min(orders, default=None)


def _distinct_keys(values: Array) -> Array | None:
    """Return values as 64-bit keys; None if they repeat, only count, or are not ids."""
    if values.ndim != 1 or values.dtype.kind not in "iuUOT":
        return None
    try:
        keys = row_ids(values, len(values))
    except InputError:
        return None
    counts = np.arange(len(keys), dtype=np.uint64)
    if np.array_equal(keys, counts) or np.array_equal(keys, counts + np.uint64(1)):
        return None
    return keys if len(np.unique(keys)) == len(keys) else None


def labels_of_frame(
    frame: Any, labels_key: str | None, ids_key: str | None, shared: Collection[str]
) -> SeparateLabels:
    """Read the labels of a frame, with ids from a column or a pandas index, and shared columns."""
    columns = frame_columns(frame)
    names = [column.name for column in columns]
    ids = next((name for name in (ids_key or ID_KEYS[0], *ID_KEYS) if name in names), None)
    others = [name for name in names if name != ids]
    label = labels_key or next((name for name in LABEL_KEYS if name in names), None)
    label = others[0] if label is None and len(others) == 1 else label
    if label not in names:
        raise InputError(
            f"'labels' must have a column {labels_key or 'labels'!r}. Got {listed(names)}; name it "
            "with 'labels_key'."
        )
    id_values = index_of(frame) if ids is None else column_of(frame, names.index(ids))
    return SeparateLabels(
        column_of(frame, names.index(label)),
        id_values,
        is_index=ids is None,
        others={name: column_of(frame, names.index(name)) for name in names if name in shared},
        n_columns=len(names),
    )


def _ids_to_match(source: Source, column: SeparateLabels) -> Array | None:
    """Return the ids or the index of the rows, whichever matches the ids of the column.

    An index 0, 1, 2, ... matches only an index of the same numbers in another order.
    """
    index_counts = _counts(SeparateLabels(None, source.index, is_index=True))
    if _counts(column) and index_counts:
        return None
    may_match = (source.index,) if _counts(column) else (source.ids, source.index)
    known = [ids for ids in may_match if ids is not None]
    if not known:
        return None
    assert column.ids is not None
    label_keys = np.sort(row_ids(column.ids, len(column.ids)))
    keys = [row_ids(ids, len(ids)) for ids in known]
    matching = [
        ids for ids, k in zip(known, keys, strict=True) if np.array_equal(np.sort(k), label_keys)
    ]
    if len(matching) == 2 and column.is_index and not np.array_equal(keys[0], keys[1]):
        raise InputError(
            "The index of the labels must match either the ids or the index of the rows. Got one "
            "that matches both, in different orders; pass a frame with a column of ids."
        )
    if matching:
        return matching[0]
    if _counts(column) or (source.ids is None and index_counts):
        return None
    return known[0]


def _counts(column: SeparateLabels) -> bool:
    """Return whether the ids are an index that counts the values."""
    ids = column.ids
    return column.is_index and ids is not None and np.array_equal(ids, np.arange(len(ids)))


def positions_by_id(ids: Any, label_ids: Any) -> IntArray:
    """Return the position of each id (N,) among those of the labels, of which some may be unused.

    Raise InputError if an id occurs twice, or if an id is not among the others.
    """
    ids, label_ids = to_numpy(ids), to_numpy(label_ids)
    mine, theirs = row_ids(ids, len(ids)), row_ids(label_ids, len(label_ids))
    if np.array_equal(mine, theirs):
        return np.arange(len(mine))
    for keys, values, where in ((mine, ids, "rows"), (theirs, label_ids, "labels")):
        _, first = np.unique(keys, return_index=True)
        if len(first) < len(keys):
            repeated = np.delete(values, first)
            raise InputError(
                f"Each id must occur once to match labels by id. Got {len(repeated)} of the "
                f"{where} with an earlier id, such as {listed(repeated[:3])}."
            )
    positions = _positions(mine, theirs)
    lacking, unused = ids[positions < 0], np.delete(label_ids, positions[positions >= 0])
    if len(lacking):
        more = f" and {len(unused):,} labels without a row (such as {listed(unused[:3])})"
        raise InputError(
            f"Every row must have one of the labels, by its id. Got {len(lacking):,} rows without "
            f"labels (such as {listed(lacking[:3])}){more if len(unused) else ''}; correct the "
            "ids, or leave these rows out."
        )
    return positions


def _positions(keys: Array, others: Array) -> IntArray:
    """Return the position of each key (N,) among others that differ; -1 if it is not there."""
    order = np.argsort(others)
    positions = np.append(order, -1)[np.searchsorted(others, keys, sorter=order)]
    positions[(positions >= 0) & (np.append(others, np.uint64(0))[positions] != keys)] = -1
    return positions
