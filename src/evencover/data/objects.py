"""What Python objects hold: frames, batches in dictionaries, pairs, and outputs of a Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evencover._types import Array
from evencover._validation import plain_array
from evencover.data.columns import choose, note_left_out
from evencover.data.frames import (
    FRAME,
    collected,
    column_of,
    frame_columns,
    frame_index,
    ids_of,
    index_of,
    is_frame,
    matrix_of,
)
from evencover.data.names import (
    ID_KEYS,
    LABEL_KEYS,
    MATRIX_KEYS,
    NAMES_KEY,
    USUAL,
    Keys,
    are_numbers,
    are_samples,
    holds_logits,
)
from evencover.errors import InputError, listed


@dataclass(frozen=True)
class Unpacked:
    """Rows, and what was found beside them."""

    rows: Any
    labels: Any = None
    ids: Array | None = None
    class_names: list[str] | None = None
    logits: bool | None = None
    used: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    numbers_are_names: bool = False
    index: Array | None = None


def unpacked(values: Any, keys: Keys = USUAL) -> Unpacked:
    """Rows and labels of a frame, a dictionary, a Trainer's output, a pair, or rows alone."""
    if is_frame(values):
        return _of_frame(collected(values), keys)
    if isinstance(values, Mapping):
        return _of_dictionary(values, keys)
    if is_trainer_output(values):
        rows = values.predictions
        rows = rows[0] if isinstance(rows, tuple | list) else rows  # hidden states come after it
        return Unpacked(rows, values.label_ids, logits=True)
    rows, labels = rows_and_labels(values)
    if labels is not None:
        inner = unpacked(rows, keys)
        return Unpacked(inner.rows, labels, inner.ids, inner.class_names, inner.logits)
    return Unpacked(rows)


def is_trainer_output(values: Any) -> bool:
    """Whether it is what `predict` of Hugging Face's Trainer gives."""
    return hasattr(values, "predictions") and hasattr(values, "label_ids")


def rows_and_labels(block: Any) -> tuple[Any, Any]:
    """A block and its labels; a torch DataLoader makes lists of two tensors, not tuples."""
    is_pair = isinstance(block, tuple | list) and len(block) == 2
    if is_pair and (isinstance(block, tuple) or getattr(block[0], "ndim", 0) == 2):
        return block[0], block[1]
    return block, None


def _of_frame(frame: Any, keys: Keys) -> Unpacked:
    columns = frame_columns(frame)
    if keys == USUAL and are_samples(column.name for column in columns):
        raise InputError(
            f"{FRAME} must have a column of numbers for each class, or one of lists of them. Got "
            "the samples of lm-eval or the details of lighteval; pass the path of their file "
            "instead, which is read as it is."
        )
    layout = choose(columns, keys, FRAME, index=frame_index(frame))
    note_left_out(layout, FRAME)
    return Unpacked(
        matrix_of(frame, layout),
        None if layout.label is None else column_of(frame, layout.label),
        ids_of(frame, layout),
        layout.class_names,
        layout.logits,
        layout.used(columns),
        layout.left_out,
        layout.class_names is not None and are_numbers(layout.class_names),
        index_of(frame),
    )


def _of_dictionary(batch: Mapping[str, Any], keys: Keys) -> Unpacked:
    key = matrix_key({name: np.shape(batch[name]) for name in batch}, "the dictionary", keys)
    label = found_key(batch, keys.labels, LABEL_KEYS, "the dictionary", "labels_key")
    ids = found_key(batch, keys.ids, ID_KEYS, "the dictionary", "ids_key")
    names = batch.get(NAMES_KEY)
    return Unpacked(
        batch[key],
        None if label is None else batch[label],
        None if ids is None else plain_array(batch[ids]),
        None if names is None else [str(name) for name in plain_array(names).tolist()],
        holds_logits(key, batch),
    )


def matrix_key(shapes: Mapping[str, tuple[int, ...]], owner: str, keys: Keys = USUAL) -> str:
    """The name of the one matrix, among arrays of these shapes."""
    held = ", ".join(f"{key} {tuple(shape)}" for key, shape in shapes.items()) or "none"
    if keys.probabilities is not None:
        if keys.probabilities in shapes:
            return keys.probabilities
        raise InputError(
            f"'probabilities_key' must be an array of {owner}. Got {keys.probabilities!r}; "
            f"there are {held}."
        )
    if "" in shapes:  # a file of one array, which has no name
        return ""
    found = [key for key in MATRIX_KEYS if key in shapes]
    if len(found) > 1:
        found = [key for key in found if len(shapes[key]) == 2]
    if len(found) != 1:
        raise InputError(
            f"{owner} must hold one matrix under {', '.join(map(repr, MATRIX_KEYS))}. Got the keys "
            f"{held}; say which with probabilities_key (--probabilities-key)."
        )
    return found[0]


def found_key(
    held: Mapping[str, Any], asked: str | None, usual: tuple[str, ...], owner: str, parameter: str
) -> str | None:
    """The name asked for, which must be there, or the first of the usual ones that is."""
    if asked is not None and asked not in held:
        raise InputError(
            f"'{parameter}' must be an array of {owner}. Got {asked!r}; there are {listed(held)}."
        )
    return asked or next((key for key in usual if key in held), None)
