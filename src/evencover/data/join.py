"""Join labels, or other values, to rows by id or position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.data.columns import ID_KEYS, LABEL_KEYS
from evencover.data.frames import column_of, frame_columns, index_of
from evencover.data.source import Source
from evencover.errors import InputError, listed
from evencover.randomness import row_ids
from evencover.validation import list_of_labels


class RowValues(NamedTuple):
    """One value per row, stored apart from the rows."""

    values: Any  #: (M,) in any order if they have ids
    ids: Array | None = None  #: (M,) their ids, or the index of a pandas object
    is_index: bool = False  #: whether the ids are an index, which may only count the values
    place: Callable[[int], str] | None = None  #: describes a value in messages, by its position


def join_labels(source: Source, labels: RowValues) -> Source:
    """Attach labels to the rows of a source; `source.matching` states how they were matched."""
    values, order, source.matching = match(source, labels, "labels")
    place = labels.place
    if order is not None:
        at: IntArray = order
        place = None if place is None else lambda row, name=place: name(int(at[row]))
    source.attach_labels(values, place)
    source.labels_given = True
    return source


def labels_of_frame(frame: Any, labels_key: str | None, ids_key: str | None) -> RowValues:
    """Read the labels of a frame, with ids from a column or a pandas index."""
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
    values = column_of(frame, names.index(label))
    if ids is None:
        return RowValues(values, index_of(frame), is_index=True)
    return RowValues(values, column_of(frame, names.index(ids)))


def match(source: Source, column: RowValues, what: str) -> tuple[Any, IntArray | None, str | None]:
    """Put the values of a column into the order of the rows.

    Return the values, their positions in the column (None if matched by position), and a message on
    how rows were matched (None if neither side has ids).
    """
    ids = _ids_to_match(source, column)
    if ids is not None:
        order = positions_by_id(ids, column.ids, what)
        values = list_of_labels(column.values)[order]
        return values, order, f"{what} matched by id ({len(order):,} rows)."
    has_ids = column.ids is not None and not _counts(column)
    if has_ids == (source.ids is not None):
        return column.values, None, None
    without = source.name if has_ids else f"the {what}"
    return column.values, None, f"{what} matched by position: no ids in {without}."


def _ids_to_match(source: Source, column: RowValues) -> Array | None:
    """Return the ids or the index of the rows, whichever matches the ids of the column.

    An index 0, 1, 2, ... matches only an index of the same numbers in another order.
    """
    if column.ids is None:
        return None
    may_match = (source.index,) if _counts(column) else (source.ids, source.index)
    known = [ids for ids in may_match if ids is not None]
    if not known:
        return None
    theirs = np.sort(row_ids(column.ids, len(column.ids)))
    keys = [row_ids(ids, len(ids)) for ids in known]
    found = [place for place, mine in enumerate(keys) if np.array_equal(np.sort(mine), theirs)]
    if len(found) == 2 and column.is_index and not np.array_equal(keys[0], keys[1]):
        raise InputError(
            "The index of the labels must match either the ids or the index of the rows. Got one "
            "that matches both, in different orders; pass a frame with a column of ids."
        )
    if found:
        return known[found[0]]
    if _counts(column) or (source.ids is None and _counts(RowValues(None, source.index, True))):
        return None
    return known[0]


def _counts(column: RowValues) -> bool:
    """Return whether the ids are an index that counts the values."""
    ids = column.ids
    return column.is_index and ids is not None and np.array_equal(ids, np.arange(len(ids)))


def positions_by_id(ids: Any, other_ids: Any, what: str) -> IntArray:
    """Return the position of each id (N,) among `other_ids`.

    Raise InputError if an id occurs twice, or if one side lacks ids.
    """
    ids, other_ids = to_numpy(ids), to_numpy(other_ids)
    mine, theirs = row_ids(ids, len(ids)), row_ids(other_ids, len(other_ids))
    if np.array_equal(mine, theirs):
        return np.arange(len(mine))
    for keys, values, where in ((mine, ids, "rows"), (theirs, other_ids, what)):
        _, first = np.unique(keys, return_index=True)
        if len(first) < len(keys):
            repeated = np.delete(values, first)
            raise InputError(
                f"Each id must occur once to match {what} by id. Got {len(repeated)} of the "
                f"{where} with an earlier id, such as {listed(repeated[:3])}."
            )
    order = np.argsort(theirs)
    at = np.searchsorted(theirs, mine, sorter=order)
    found = np.append(order, -1)[at]
    found[(found >= 0) & (np.append(theirs, 0)[found] != mine)] = -1
    if len(mine) != len(theirs) or (found < 0).any():
        unused = np.delete(other_ids, found[found >= 0])
        lacking = [
            f"{len(values):,} {which} (such as {listed(values[:3])})"
            for values, which in (
                (ids[found < 0], f"rows without {what}"),
                (unused, f"{what} without a row"),
            )
            if len(values)
        ]
        raise InputError(
            f"The {what} must have the ids of the rows. Got {' and '.join(lacking)}; correct the "
            "ids, or leave them out on one side to match by position."
        )
    return found
