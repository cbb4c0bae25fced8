"""Read pandas, polars and Arrow frames, dictionaries and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from evencover.arrays import (
    Array,
    arrow_kind,
    matrix_from_arrow,
    saved_index,
    saved_range,
    to_numpy,
)
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    NAMES_KEY,
    USUAL,
    Column,
    Contents,
    Keys,
    Kind,
    Layout,
    checked_names,
    choose,
    found_key,
    integers_are_names,
    matrix_key,
    names_logits,
)
from evencover.errors import InputError

_BY_LETTER: dict[str, Kind] = {"f": "float", "i": "integer", "u": "integer", "b": "flag"}
FRAME = "the frame"


def is_frame(values: Any) -> bool:
    """Return whether values have named columns: a pandas or polars frame, or an Arrow table."""
    has_columns = hasattr(values, "columns")
    return has_columns and (_is_pandas(values) or _is_polars(values) or _is_arrow(values))


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "iloc") and hasattr(values, "dtypes")  # pandas and compatible frames


def _is_polars(values: Any) -> bool:
    return type(values).__module__.startswith("polars") and hasattr(values, "columns")


def _is_arrow(values: Any) -> bool:
    return type(values).__module__.startswith("pyarrow") and hasattr(values, "schema")


def in_memory(frame: Any) -> Any:
    """Return a pandas frame as it is, others as Arrow tables, which share the memory of polars."""
    if not _is_polars(frame):
        return frame
    return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()


def frame_columns(frame: Any) -> list[Column]:
    """Return names and kinds of all columns of a pandas frame or Arrow table."""
    if _is_arrow(frame):
        return [Column(field.name, arrow_kind(field.type)) for field in frame.schema]
    for place, name in enumerate(frame.columns):
        if name is None or name != name:  # NaN
            raise InputError(f"{FRAME} must name every column. Got {name} for column {place}.")
    return [Column(str(name), _pandas_kind(frame, i)) for i, name in enumerate(frame.columns)]


def _pandas_kind(frame: Any, place: int) -> Kind:
    kind = frame.dtypes.iloc[place]
    letter = getattr(kind, "kind", "O")
    if letter in _BY_LETTER:
        return _BY_LETTER[letter]
    if letter != "O":
        return "other"
    if str(kind) != "object":  # text and categories, or an Arrow type
        return "list" if "list" in str(kind) else "text"
    values = (value for value in frame.iloc[:, place] if value is not None)
    first = next(values, "")
    if isinstance(first, str):
        return "text"
    if not isinstance(first, list | tuple | np.ndarray):
        return "other"
    inner = np.asarray(first).dtype.kind
    return {"f": "list", "i": "integer list", "u": "integer list"}.get(inner, "text list")  # type: ignore[return-value]


def _matrix_of(frame: Any, layout: Layout) -> Array:
    """Read the numbers (N, K), without a copy if the frame stores them together."""
    places = list(layout.numbers)
    if _is_arrow(frame):
        return matrix_from_arrow(frame.select(places), FRAME)
    if layout.is_list:
        return to_numpy(frame.iloc[:, places[0]].tolist())
    together = places == list(range(places[0], places[0] + len(places)))
    chosen = frame.iloc[:, places[0] : places[-1] + 1] if together else frame.iloc[:, places]
    values = np.asarray(chosen)
    if values.dtype.kind != "O":
        return values
    return np.asarray(chosen.to_numpy(np.float64, na_value=np.nan))  # nullable numbers


def column_of(frame: Any, place: int) -> Array:
    """Read one column (N,) of a pandas frame or Arrow table."""
    if _is_arrow(frame):
        return matrix_from_arrow(frame.column(place), FRAME)
    return np.asarray(frame.iloc[:, place])


def _ids_of(frame: Any, layout: Layout) -> Array | None:
    """Return the column of ids, or the index of pandas."""
    if layout.ids is not None:
        return column_of(frame, layout.ids)
    if _is_arrow(frame):
        return saved_range(frame.schema, frame.num_rows)
    index = getattr(frame, "index", None)
    if index is None or getattr(index, "nlevels", 1) != 1:
        return None
    return np.asarray(index)


def index_of(values: Any) -> Array | None:
    """Return the index (N,) of a pandas Series or frame as integers or text; None for others."""
    index = getattr(values, "index", None)
    if index is None or not hasattr(values, "iloc") or not hasattr(index, "tolist"):
        return None
    array = np.asarray(index)
    return array if array.dtype.kind in "iu" else np.array([str(value) for value in index.tolist()])


def unpacked(values: Any, keys: Keys = USUAL) -> Contents:
    """Unpack a frame, a dictionary, a Trainer's output, a pair of rows and labels, or rows."""
    if is_frame(values):
        return _of_frame(in_memory(values), keys)
    if isinstance(values, Mapping):
        return _of_dictionary(values, keys)
    if is_trainer_output(values):
        rows = values.predictions
        rows = rows[0] if isinstance(rows, tuple | list) else rows  # hidden states follow it
        return Contents(rows, labels=values.label_ids, logits=True)
    rows, labels = rows_and_labels(values)
    if labels is None:
        return Contents(rows, getattr(rows, "class_names", None))
    return replace(unpacked(rows, keys), labels=labels)


def is_trainer_output(values: Any) -> bool:
    """Return whether values are the output of Trainer.predict (Hugging Face)."""
    return hasattr(values, "predictions") and hasattr(values, "label_ids")


def rows_and_labels(block: Any) -> tuple[Any, Any]:
    """Separate a block and its labels; a torch DataLoader yields lists, not tuples."""
    is_pair = isinstance(block, tuple | list) and len(block) == 2
    if is_pair and (isinstance(block, tuple) or getattr(block[0], "ndim", 0) == 2):
        return block[0], block[1]
    return block, None


def _of_frame(frame: Any, keys: Keys) -> Contents:
    index = saved_index(frame.schema) if _is_arrow(frame) else None
    columns = frame_columns(frame)
    layout = choose(columns, keys, FRAME, index=index)
    has_labels = layout.label is not None and keys.read_labels
    return Contents(
        _matrix_of(frame, layout),
        layout.class_names,
        layout.logits,
        column_of(frame, layout.label) if has_labels else None,  # type: ignore[arg-type]
        ids=_ids_of(frame, layout),
        ids_are_index=layout.ids is None or layout.ids_are_index,
        index=index_of(frame),
        integers_are_names=integers_are_names(layout.class_names),
        columns=layout.columns,
        shared=layout.shared_columns(columns, keys, partial(column_of, frame)),
    )


def _of_dictionary(batch: Mapping[str, Any], keys: Keys) -> Contents:
    owner = "the dictionary"
    key = matrix_key(batch, owner, keys)
    label = found_key(batch, keys.labels, LABEL_KEYS, owner, "labels_key")
    ids = found_key(batch, keys.ids, ID_KEYS, owner, "ids_key")
    names = batch.get(NAMES_KEY)
    if names is not None:
        names = to_numpy(names).tolist()
        names = checked_names(names, len(names), f"{NAMES_KEY!r} in {owner}")
    return Contents(
        batch[key],
        names,
        names_logits(key, batch),
        None if label is None or not keys.read_labels else batch[label],
        ids=None if ids is None else to_numpy(batch[ids]),
        shared={name: to_numpy(batch[name]) for name in keys.shared & batch.keys() - {key, label}},
    )
