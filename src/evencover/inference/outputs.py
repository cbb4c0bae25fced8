"""What a model returns, checked: a finite row of numbers for every input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evencover._types import Array
from evencover._validation import SUM_TOLERANCE, plain_array
from evencover.errors import InputError
from evencover.inference.batches import Batch, speaking_of
from evencover.inference.inputs import Example
from evencover.inference.models.base import Model


def outputs_of(model: Model, batch: Batch, dtype: np.dtype[Any], *, probabilities: bool) -> Array:
    """The rows of a batch, of this type."""
    with speaking_of(model, batch.examples):
        raw = plain_array(model.logits(batch.prepared))
    rows = _rows(raw, model, len(batch.examples))
    _refuse_infinite(rows, model, batch.examples)
    total = rows.sum(axis=1, dtype=np.float64)
    are_probabilities = (rows >= 0).all() and (abs(total - 1) <= SUM_TOLERANCE[4]).all()
    if probabilities and not are_probabilities:
        raise InputError(
            f"The model {model.name} must return probabilities, which are at least 0 and sum to 1. "
            f"Got a row that sums to {total[abs(total - 1).argmax()]:.6g}; if they are logits, "
            "leave out probabilities=True (--probabilities)."
        )
    if are_probabilities and not probabilities:
        raise InputError(
            f"The model {model.name} must return logits. Got rows that are at least 0 and sum to "
            "1: if they are probabilities, say so with probabilities=True (--probabilities)."
        )
    with np.errstate(over="ignore"):
        stored = rows.astype(dtype)
    if not np.isfinite(stored).all():
        raise InputError(
            f"The logits of the model {model.name} must fit into {dtype.name}. "
            f"Got {rows.ravel()[abs(rows).argmax()]:.6g}; use dtype='float32' (--dtype float32)."
        )
    return stored


def _rows(raw: Array, model: Model, n_inputs: int) -> Array:
    """The rows of the inputs; a model of a fixed batch size returns more."""
    expected = max(n_inputs, model.batch_size or 0)
    if raw.ndim != 2 or len(raw) != expected or raw.shape[1] < 2:
        raise InputError(
            f"The model {model.name} must return one row per input and one number per class (2 or "
            f"more). Got an array of shape {raw.shape} for {expected} inputs."
        )
    if raw.dtype.kind not in "fiu":
        raise InputError(
            f"The model {model.name} must return real numbers. Got the type {raw.dtype}."
        )
    return raw[:n_inputs]


def _refuse_infinite(rows: Array, model: Model, examples: Sequence[Example]) -> None:
    bad = ~np.isfinite(rows)
    if bad.any():
        row = int(bad.any(axis=1).argmax())
        column = int(bad[row].argmax())
        value = "NaN" if np.isnan(rows[row, column]) else "an infinite number"
        raise InputError(
            f"The model {model.name} must return finite numbers. Got {value} for "
            f"{examples[row].id!r}, class {column}."
        )
