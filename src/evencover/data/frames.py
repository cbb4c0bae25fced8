"""Read the columns of pandas, polars, Arrow and Dask frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    LIST_KINDS,
    NAMES_KEY,
    USUAL,
    Column,
    Keys,
    Kind,
    Layout,
    are_numbers,
    are_samples,
    choose,
    found_key,
    matrix_key,
    names_logits,
    note_left_out,
)
from evencover.errors import InputError

_BY_LETTER: dict[str, Kind] = {"f": "float", "i": "integer", "u": "integer", "b": "flag"}
FRAME = "the frame"


def is_frame(values: Any) -> bool:
    """Return whether values have named columns: a pandas or polars frame, or an Arrow table."""
    has_columns = hasattr(values, "columns")
    return has_columns and (_is_pandas(values) or _is_polars(values) or _is_arrow(values))


def is_dask_frame(values: Any) -> bool:
    """Return whether values are a Dask frame."""
    return type(values).__module__.startswith("dask.") and hasattr(values, "to_dask_array")


def _is_pandas(values: Any) -> bool:
    return hasattr(values, "iloc") and hasattr(values, "dtypes")  # pandas and compatible frames


def _is_polars(values: Any) -> bool:
    return type(values).__module__.startswith("polars") and hasattr(values, "columns")


def _is_arrow(values: Any) -> bool:
    return type(values).__module__.startswith("pyarrow") and hasattr(values, "schema")


def collected(frame: Any) -> Any:
    """Compute a lazy frame; return others unchanged."""
    return frame.collect() if _is_polars(frame) and hasattr(frame, "collect") else frame


def frame_columns(frame: Any) -> list[Column]:
    """Return names and kinds of all columns."""
    if _is_arrow(frame):
        return [Column(field.name, arrow_kind(field.type)) for field in frame.schema]
    if _is_polars(frame):
        return [Column(name, _polars_kind(kind)) for name, kind in frame.schema.items()]
    return [Column(str(name), _pandas_kind(frame, i)) for i, name in enumerate(frame.columns)]


def _polars_kind(kind: Any) -> Kind:
    text = str(kind).partition("(")[0]
    if kind.is_float():
        return "float"
    if kind.is_integer():
        return "integer"
    if text in ("List", "Array"):
        return LIST_KINDS.get(_polars_kind(kind.inner), "other")
    if text == "Boolean":
        return "flag"
    return "text" if text in ("String", "Utf8", "Categorical", "Enum") else "other"


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
    found = np.asarray(first).dtype.kind
    return {"f": "list", "i": "integer list", "u": "integer list"}.get(found, "text list")  # type: ignore[return-value]


def matrix_of(frame: Any, layout: Layout) -> Array:
    """Read the numbers (N, K), without a copy if the frame stores them together."""
    places = layout.matrix
    if _is_arrow(frame):
        return matrix_from_arrow(frame.select(places), FRAME)
    is_list = layout.class_names is None and len(places) == 1
    if _is_polars(frame) and is_list:
        return matrix_from_arrow(frame[:, places[0]].to_arrow(), FRAME)
    if is_list:
        return to_numpy(frame.iloc[:, places[0]].tolist())
    if _is_polars(frame):
        return np.asarray(frame[:, places].to_numpy())
    together = places == list(range(places[0], places[0] + len(places)))
    chosen = frame.iloc[:, places[0] : places[-1] + 1] if together else frame.iloc[:, places]
    values = np.asarray(chosen)
    if values.dtype.kind != "O":
        return values
    return np.asarray(chosen.to_numpy(np.float64, na_value=np.nan))  # nullable numbers


def column_of(frame: Any, place: int) -> Array:
    """Read one column (N,)."""
    if _is_arrow(frame):
        return matrix_from_arrow(frame.column(place), FRAME)
    if _is_polars(frame):
        return np.asarray(frame[:, place])
    return np.asarray(frame.iloc[:, place])


def ids_of(frame: Any, layout: Layout) -> Array | None:
    """Return the column of ids, or the index of pandas if it was set and is unique."""
    if layout.ids is not None:
        ids = column_of(frame, layout.ids)
        return index_ids(ids) if layout.ids_are_index else ids
    if _is_arrow(frame):
        counted = saved_range(frame.schema, frame.num_rows)
        return None if counted is None else index_ids(counted)
    index = getattr(frame, "index", None)
    if index is None or not _is_pandas(frame) or getattr(index, "nlevels", 1) != 1:
        return None
    return index_ids(np.asarray(index))


def index_of(values: Any) -> Array | None:
    """Return the index (N,) of a pandas Series or frame as integers or text; None for others."""
    index = getattr(values, "index", None)
    if index is None or not hasattr(values, "iloc") or not hasattr(index, "tolist"):
        return None
    found = np.asarray(index)
    return found if found.dtype.kind in "iu" else np.array([str(each) for each in index.tolist()])


def index_ids(index: Array) -> Array | None:
    """Return the values of an index as ids; None if they count, repeat, or are not ids."""
    is_text = index.dtype.kind in "UO" and all(isinstance(each, str) for each in index.tolist())
    if index.dtype.kind not in "iu" and not is_text:
        return None
    if not is_text and np.array_equal(index, np.arange(len(index))):
        return None
    return index if len(np.unique(index)) == len(index) else None


@dataclass(frozen=True)
class Unpacked:
    """Rows, and the labels, ids and facts found with them; `facts` are fields of `SourceInfo`."""

    rows: Any
    labels: Any = None
    ids: Array | None = None
    index: Array | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def unpacked(values: Any, keys: Keys = USUAL) -> Unpacked:
    """Unpack a frame, a dictionary, a Trainer's output, a pair of rows and labels, or rows."""
    if is_frame(values):
        return _of_frame(collected(values), keys)
    if isinstance(values, Mapping):
        return _of_dictionary(values, keys)
    if is_trainer_output(values):
        rows = values.predictions
        rows = rows[0] if isinstance(rows, tuple | list) else rows  # hidden states follow it
        return Unpacked(rows, values.label_ids, facts={"logits": True})
    rows, labels = rows_and_labels(values)
    if labels is None:
        return Unpacked(rows)
    inner = unpacked(rows, keys)
    return replace(inner, labels=labels, facts={**inner.facts, "numbers_are_names": False})


def is_trainer_output(values: Any) -> bool:
    """Return whether values are the output of Trainer.predict (Hugging Face)."""
    return hasattr(values, "predictions") and hasattr(values, "label_ids")


def rows_and_labels(block: Any) -> tuple[Any, Any]:
    """Separate a block and its labels; a torch DataLoader yields lists, not tuples."""
    is_pair = isinstance(block, tuple | list) and len(block) == 2
    if is_pair and (isinstance(block, tuple) or getattr(block[0], "ndim", 0) == 2):
        return block[0], block[1]
    return block, None


def _of_frame(frame: Any, keys: Keys) -> Unpacked:
    columns = frame_columns(frame)
    if keys == USUAL and are_samples(column.name for column in columns):
        raise InputError(
            f"{FRAME} must have a column of numbers for each class, or one of lists. Got samples "
            "of lm-eval or details of lighteval; pass the path of their file instead."
        )
    index = saved_index(frame.schema) if _is_arrow(frame) else None
    layout = choose(columns, keys, FRAME, index=index)
    note_left_out(layout, FRAME)
    facts = {
        "class_names": layout.class_names,
        "logits": layout.logits,
        "used": layout.used(columns),
        "left_out": layout.left_out,
        "numbers_are_names": are_numbers(layout.class_names or [""]),
    }
    labels = None if layout.label is None else column_of(frame, layout.label)
    return Unpacked(matrix_of(frame, layout), labels, ids_of(frame, layout), index_of(frame), facts)


def _of_dictionary(batch: Mapping[str, Any], keys: Keys) -> Unpacked:
    key = matrix_key(batch, "the dictionary", keys)
    label = found_key(batch, keys.labels, LABEL_KEYS, "the dictionary", "labels_key")
    ids = found_key(batch, keys.ids, ID_KEYS, "the dictionary", "ids_key")
    names = batch.get(NAMES_KEY)
    names = None if names is None else [str(name) for name in to_numpy(names).tolist()]
    return Unpacked(
        batch[key],
        None if label is None else batch[label],
        None if ids is None else to_numpy(batch[ids]),
        facts={"class_names": names, "logits": names_logits(key, batch)},
    )
