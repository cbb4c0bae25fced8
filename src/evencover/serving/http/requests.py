"""What a request holds: rows, ids and labels, checked, from JSON or Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover._types import Array
from evencover._validation import are_json_numbers, parse_json
from evencover.errors import InputError

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
FIELDS = ("rows", "ids", "groups", "labels")


class RefusedError(Exception):
    """The request is not answered: a status, and a sentence that says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Rows:
    """The rows of a request; what is not there is None."""

    rows: Array
    ids: list[Any] | None = None
    groups: list[Any] | None = None
    labels: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)


def read_rows(body: bytes, kind: str, *, most_rows: int, with_labels: bool) -> Rows:
    """The rows in a body of this content type; `RefusedError` if they cannot be."""
    kind = kind.partition(";")[0].strip().lower()
    if kind not in (JSON, ARROW):
        raise RefusedError(415, f"The content type must be {JSON} or {ARROW}. Got {kind!r}.")
    allowed = FIELDS[: 4 if with_labels else 3]
    found = _from_arrow(body, allowed) if kind == ARROW else _from_json(body, allowed)
    if "rows" not in found or (with_labels and "labels" not in found):
        missing = "rows" if "rows" not in found else "labels"
        raise RefusedError(422, f"The body must hold {missing!r}, one entry per row.")
    n_rows = len(found["rows"])
    if not 1 <= n_rows <= most_rows:
        status = 413 if n_rows else 422
        raise RefusedError(status, f"There must be 1 to {most_rows} rows. Got {n_rows}.")
    for name in FIELDS[1:]:
        if name in found and len(found[name]) != n_rows:
            raise RefusedError(
                422, f"{name!r} must have one entry per row. Got {len(found[name])} for {n_rows}."
            )
    return Rows(_matrix(found.pop("rows")), **found)


def _refuse_other(name: str, allowed: tuple[str, ...]) -> None:
    if name not in allowed:
        raise RefusedError(
            422,
            f"The body may hold {', '.join(map(repr, allowed))}. Got {name!r}; send the numbers of "
            "the classes, probabilities or logits as the model was calibrated with, as 'rows'.",
        )


def _from_json(body: bytes, allowed: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = parse_json(body, "the body")
    except InputError as error:
        raise RefusedError(422, str(error)) from None
    except (ValueError, RecursionError):
        raise RefusedError(400, "The body is not JSON.") from None
    if not isinstance(content, dict):
        raise RefusedError(422, "The body must be an object with 'rows'.")
    for name, values in content.items():
        _refuse_other(name, allowed)
        if not isinstance(values, list):
            raise RefusedError(422, f"{name!r} must be a list, one entry per row.")
        if name != "rows" and not _is_plain(values):
            raise RefusedError(422, f"{name!r} must hold texts, or whole numbers, and not both.")
    return content


def _is_plain(values: list[Any]) -> bool:
    """Texts, or whole numbers of 64 bits."""
    if all(type(value) is int for value in values):
        return all(-(2**63) <= value < 2**63 for value in values)
    if not all(isinstance(value, str) for value in values):
        return False
    try:  # half a surrogate pair is no text
        "".join(values).encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_arrow(body: bytes, allowed: tuple[str, ...]) -> dict[str, Any]:
    from evencover._arrow import import_pyarrow

    pa = import_pyarrow()
    try:
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        raise RefusedError(400, "The body is not an Arrow stream.") from None
    found: dict[str, Any] = {}
    for name in table.column_names:
        _refuse_other(name, allowed)
        if name in found:
            raise RefusedError(422, f"The body must hold {name!r} once.")
        found[name] = table[name]
        if name != "rows":
            found[name] = found[name].to_pylist()
            if not _is_plain(found[name]):
                raise RefusedError(422, f"{name!r} must hold texts, or whole numbers.")
    return found


def _matrix(values: Any) -> Array:
    """Rows of numbers; the predictor says what else is wrong with them."""
    sentence = "Every row must be a list with one number for each class."
    if isinstance(values, list):
        if not all(isinstance(row, list) and are_json_numbers(row) for row in values):
            raise RefusedError(422, sentence)
        try:
            rows = np.array(values)
        except (ValueError, OverflowError, RecursionError):
            raise RefusedError(422, sentence) from None
    else:
        from evencover._arrow import matrix_from_arrow

        try:
            rows = matrix_from_arrow(values, "the body")
        except InputError as error:
            raise RefusedError(422, str(error)) from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise RefusedError(422, sentence)
    return rows
