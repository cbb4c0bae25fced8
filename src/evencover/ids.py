"""Ids of rows: which values are ids, and the 64-bit keys that random numbers and joins use."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date
from typing import Any
from uuid import UUID

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.errors import InputError

_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")  # an integer as Python and NumPy print it
_OF_TEXT = 1 << 63  # set in the keys of text, so that no integer shares one
_NO_IDS = "correct the ids, leave them out of a request, or ignore them with ids=False (--no-ids)"

RowName = Callable[[int], str]


def id_keys(ids: Any, n_rows: int, row_name: RowName = "row {}".format) -> Array:
    """Convert the ids of rows to 64-bit keys, which differ if the ids do.

    Ids are integers, text, UUIDs or times. Floats must be integers, because files store integers as
    floats. An integer and its decimal text are the same id, because files store ids in either type.
    An integer below 2^63 is its own key; other ids are hashed as text (BLAKE2b).

    >>> id_keys([17], 1) == id_keys(["17"], 1), id_keys(["17"], 1) == id_keys(["017"], 1)
    (array([ True]), array([False]))
    """
    values = id_values(ids, row_name)
    if values.shape != (n_rows,):
        raise InputError(
            f"'ids' must have one entry per row. Got shape {values.shape} for {n_rows} rows."
        )
    return keys_of(values)


def keys_of(values: Array) -> Array:
    """Return the keys of ids that `id_values` returned."""
    if values.dtype.kind in "iu":
        keys = values.astype(np.uint64)
        hashed = np.flatnonzero(keys >= _OF_TEXT)  # among them the negative ones
        if len(hashed):
            keys[hashed] = keys_of(values[hashed].astype(str))
        return keys
    found = []
    for text in values.tolist():
        if len(text) < 20 and _DECIMAL.fullmatch(text) and 0 <= int(text) < _OF_TEXT:
            found.append(int(text))
        else:
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            found.append(_OF_TEXT | int.from_bytes(digest, "little"))
    return np.array(found, dtype=np.uint64)


def id_values(ids: Any, row_name: RowName = "row {}".format) -> Array:
    """Return ids as integers or as text; raise InputError that names the row of anything else."""
    if isinstance(ids, list | tuple) and not isinstance((*ids, "")[0], list | tuple):
        values = np.empty(len(ids), dtype=object)  # NumPy would mix types
        values[:] = ids
    elif getattr(ids, "null_count", 0):
        raise _no_ids("a missing value", row_name(int(to_numpy(ids.is_null()).argmax())))
    else:
        values = to_numpy(ids, "'ids'")
    kind = values.dtype.kind
    if kind in "iu":
        return values
    if kind == "f":
        return _integers(values, 2 ** (np.finfo(values.dtype).nmant + 1), row_name)
    if kind == "M":
        _reject(np.isnat(values), "a missing time", row_name)
        return _texts(list(map(_as_time, np.datetime_as_string(values).tolist())), row_name)
    if kind not in "OUT":
        raise _no_ids(values.dtype.name, row_name(0))
    items = values.ravel().tolist()
    types = set(map(type, items))
    if types == {str}:
        return _texts(items, row_name).reshape(values.shape)
    if not types <= {str, int, UUID}:
        _reject(np.array(list(map(_is_missing, items)), dtype=bool), "a missing value", row_name)
    kinds = set(map(_kind, types))
    if len(kinds) > 1:
        first = _kind(type(items[0]))
        row = next(row for row, item in enumerate(items) if _kind(type(item)) != first)
        raise _no_ids(f"{_kind(type(items[row]))} after {first}", row_name(row))
    texts: list[str] = items
    if kinds == {"integer"}:
        for dtype in (np.int64, np.uint64):
            with suppress(OverflowError):
                return values.astype(dtype)
        texts = list(map(str, items))
    elif kinds == {"float"}:
        return _integers(values.astype(np.float64), 2**53, row_name)
    elif kinds == {"time"}:
        zones = [getattr(item, "tzinfo", None) for item in items]
        some = [i.astimezone(UTC) if z else i for i, z in zip(items, zones, strict=True)]
        texts = [_as_time(item.isoformat()) for item in some]
    elif UUID in types:
        texts = list(map(str, items))
    elif not kinds <= {"text"}:
        raise _no_ids(kinds.pop(), row_name(0))
    return _texts(texts, row_name).reshape(values.shape)


def _is_missing(item: Any) -> bool:
    return item is None or type(item).__name__ == "NAType" or bool(item != item)


def _kind(item_type: type) -> str:
    """Name the kind of ids of a type."""
    for kind, types in _KINDS.items():
        if issubclass(item_type, types):
            return kind
    return item_type.__name__


_KINDS: dict[str, Any] = {
    "bool": (bool, np.bool_),
    "text": (str, UUID),
    "integer": (int, np.integer),
    "float": (float, np.floating),
    "time": date,  # also datetimes, and those of pandas
}


def _as_time(text: str) -> str:
    """Drop zeros at the end of a fraction, so that a time is the same in any unit."""
    time, zone = (text[:-6], text[-6:]) if text.endswith("+00:00") else (text, "")
    return (time.rstrip("0").rstrip(".") if "." in time else time) + zone


def _integers(values: Array, limit: int, row_name: RowName) -> Array:
    """Return floats that are integers, and small enough to be exact, as integers."""
    _reject(np.isnan(values), "a missing value", row_name)
    _reject(values != np.rint(values), "a fraction", row_name)
    _reject(np.abs(values) >= limit, f"a {values.dtype} that may be rounded", row_name)
    return values.astype(np.int64)


def _texts(texts: list[str], row_name: RowName) -> Array:
    """Check that texts are not blank and can be encoded; keep them as objects."""
    for row, text in enumerate(texts):
        if not text.strip():
            raise _no_ids("a blank text", row_name(row))
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a character
            raise _no_ids("text that UTF-8 cannot encode", row_name(row)) from None
    return np.array(texts, dtype=object)


def _reject(is_bad: Array, what: str, row_name: RowName) -> None:
    if is_bad.any():
        raise _no_ids(what, row_name(int(is_bad.argmax())))


def _no_ids(what: str, where: str) -> InputError:
    return InputError(
        f"'ids' must be integers, text, UUIDs or times, one type for all rows. Got {what} in "
        f"{where}; {_NO_IDS}."
    )
