"""Bodies of requests, checked by their types (msgspec), and the limits of a service."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np

from evencover.arrays import Array
from evencover.errors import InputError
from evencover.topk import TopK
from evencover.validation import parse_json

JSON = "application/json"
MAX_TEXT = 1000  # characters of an id, label or time
LOW, HIGH = -(2**63), 2**63 - 1  # of ids and labels that are numbers
HINT = "send probabilities or logits, as the model was calibrated with, as 'rows'"


class RequestError(InputError):
    """A request that is rejected with another status than 422."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Parameters
    ----------
    body
        Maximum size of a body in bytes; an answer may have four times as many.
    rows
        Maximum rows per request.
    seconds
        Time limit for receiving a body.
    requests
        Maximum concurrent requests with a body.
    """

    body: int = 16 * 2**20
    rows: int = 10_000
    seconds: float = 10.0
    requests: int = 100

    def check_rows(self, n_rows: int) -> None:
        """Raise InputError if there are too many rows."""
        if n_rows > self.rows:
            raise RequestError(413, f"There must be at most {self.rows} rows. Got {n_rows}.")

    def check_body(self, n_bytes: int) -> None:
        """Raise InputError if a body is too large."""
        if n_bytes > self.body:
            raise RequestError(413, f"The body must have at most {self.body} bytes.")

    def check_answer(self, n_bytes: int) -> None:
        """Raise InputError, before it is made, if an answer is too large."""
        if n_bytes > 4 * self.body:
            raise RequestError(
                413,
                f"The answer must have at most {4 * self.body} bytes, four times as many as a "
                f"body. Got about {n_bytes}; send fewer rows, or ask for fewer outputs.",
            )


@dataclass(frozen=True)
class Rows:
    """The rows of a request, with the fields that came with them; labels may come without rows."""

    rows: Any  # an array or, of rows by class, `TopK`; None without rows
    ids: list[Any] | None = None
    labels: list[Any] | None = None
    time: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels or () if self.rows is None else self.rows)


@cache
def request_types() -> dict[str, Any]:
    """Return the types of bodies by path, as msgspec structs; OpenAPI describes them, too."""
    from msgspec import Meta, defstruct

    text, number = Annotated[str, Meta(max_length=MAX_TEXT)], Annotated[int, Meta(ge=LOW, le=HIGH)]
    names: Any = list[text | number]  # type: ignore[valid-type]
    rows: Any = list[list[float] | dict[text, float]]  # type: ignore[valid-type]
    ids: Any = ("ids", names | None, None)
    of_sets: list[Any] = [("rows", rows), ids]
    of_labels: list[Any] = [("labels", names), ids, ("time", names | None, None)]
    of_labels.append(("rows", rows | None, None))
    return {
        "/v1/sets": defstruct("Sets", of_sets, forbid_unknown_fields=True),
        "/v1/labels": defstruct("Labels", of_labels, forbid_unknown_fields=True),
    }


@cache
def _decoder(kind: Any) -> Any:
    import msgspec

    return msgspec.json.Decoder(kind)


def decode(body: bytes, kind: Any) -> Any:
    """Parse JSON of a type; raise InputError if it is of another."""
    from msgspec import DecodeError, ValidationError

    try:
        return _decoder(kind).decode(body)
    except ValidationError as error:
        raise InputError(
            f"The body must be as in '/openapi.json'. Got this: {error}; {HINT}."
        ) from None
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError(400, "The body is not JSON.") from None


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    from msgspec.json import encode

    try:
        return encode(value)
    except UnicodeEncodeError:  # the name of a class may have half a surrogate pair
        return json.dumps(value).encode()


def read_rows(body: bytes, path: str, limits: Limits) -> Rows:
    """Read the rows in the body of a request to a path; raise InputError if they are invalid."""
    content = decode(body, request_types()[path])
    fields = content.__struct_fields__
    if any(body.count(f'"{name}"'.encode()) > 1 for name in fields):
        parse_json(body, "the body")  # rejects a name that comes twice; msgspec takes the last
    lists = {name: getattr(content, name) for name in fields if name != "rows"}
    if content.rows is not None and any(isinstance(row, dict) for row in content.rows):
        parse_json(body, "the body")
        return check_lists(_listed(content.rows), lists, limits)
    if content.rows is not None:
        return check_lists(_matrix(content.rows), lists, limits)
    if content.ids is None:
        raise InputError("The body must contain 'ids' or 'rows', one entry per label.")
    return check_lists(None, lists, limits)


def check_lists(rows: Any, lists: dict[str, list[Any] | None], limits: Limits) -> Rows:
    """Check that there is one entry per row in every list."""
    checked = Rows(rows, **lists)
    limits.check_rows(len(checked))
    for name, values in lists.items():
        if values is not None and len(values) != len(checked):
            raise InputError(
                f"{name!r} must have one entry per row. Got {len(values)} for {len(checked)}."
            )
    return checked


def _listed(values: list[Any]) -> TopK:
    """Return rows of probabilities by class; the service knows the classes."""
    if not all(isinstance(row, dict) for row in values):
        raise InputError("'rows' must all be lists of numbers, or all objects by class.")
    names = sorted({name for row in values for name in row}) or [""]
    return TopK(
        [list(row) for row in values], [list(row.values()) for row in values], class_names=names
    )


def _matrix(values: list[list[float]]) -> Array:
    """Return rows of numbers; the rule checks the numbers themselves."""
    if len({len(row) for row in values}) > 1:
        raise InputError("'rows' must have one list of numbers per row, all of one length.")
    return np.array(values, dtype=np.float64).reshape(len(values), -1 if values else 0)
