"""Rows of requests, from JSON or Arrow; limits are checked before any conversion."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover.arrays import Array, import_pyarrow, is_list, matrix_from_arrow
from evencover.errors import InputError
from evencover.validation import are_json_numbers, parse_json

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
FIELDS = ("rows", "ids", "groups", "labels", "time")
MAX_TEXT = 1000  # characters of an id, label, group or time
MAX_HEADER = 2**16  # bytes of the header of an Arrow message


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
        Maximum size of a body in bytes, also unpacked.
    rows, values
        Maximum rows, and rows x classes, per request.
    seconds
        Time limit for receiving a body.
    requests
        Maximum concurrent requests with a body.
    """

    body: int = 16 * 2**20
    rows: int = 10_000
    values: int = 4 * 2**20
    seconds: float = 10.0
    requests: int = 100

    def check_rows(self, n_rows: int, n_classes: int = 0) -> None:
        """Raise InputError if there are no rows, or too many."""
        if not 1 <= n_rows <= self.rows:
            message = f"There must be 1 to {self.rows} rows. Got {n_rows}."
            raise RequestError(413 if n_rows else 422, message)
        if n_rows * n_classes > self.values:
            message = f"Rows x classes must be at most {self.values}. Got {n_rows} x {n_classes}."
            raise RequestError(413, message)

    def check_bytes(self, n_bytes: int) -> None:
        """Raise InputError if a body is too large."""
        if n_bytes > self.body:
            raise RequestError(413, f"The body must have at most {self.body} bytes.")


@dataclass(frozen=True)
class Rows:
    """The rows of a request, with the fields that came with them; labels may come without rows."""

    rows: Array | None
    ids: list[Any] | None = None
    groups: list[Any] | None = None
    labels: list[Any] | None = None
    time: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels or () if self.rows is None else self.rows)


def read_rows(body: bytes, content_type: str, limits: Limits, *, with_labels: bool) -> Rows:
    """Read the rows in a body; raise InputError if they are invalid."""
    content_type = content_type.partition(";")[0].strip().lower()
    if content_type not in (JSON, ARROW):
        message = f"The content type must be {JSON} or {ARROW}. Got {content_type!r}."
        raise RequestError(415, message)
    allowed = FIELDS if with_labels else FIELDS[:3]
    found = (_read_arrow if content_type == ARROW else _read_lists)(body, allowed, limits)
    needed = ["rows"]
    if with_labels:
        needed = ["labels"] if "rows" in found else ["labels", "ids"]
    for name in needed:
        if name not in found:
            raise InputError(f"The body must contain {name!r}, one entry per row.")
    return check_columns(found, limits)


def check_columns(found: dict[str, Any], limits: Limits) -> Rows:
    """Check a matrix of rows, if there is one, and the lists that came with it."""
    rows = found.pop("rows", None)
    n_rows, n_classes = (len(found["labels"]), 0) if rows is None else rows.shape
    limits.check_rows(n_rows, n_classes)
    for name, values in found.items():
        if len(values) != n_rows:
            raise InputError(
                f"{name!r} must have one entry per row. Got {len(values)} for {n_rows}."
            )
        if not _are_ids(values):
            raise InputError(
                f"{name!r} must be strings of at most {MAX_TEXT} characters, or 64-bit integers."
            )
    return Rows(rows, **found)


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        content = parse_json(body, "the body")
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise RequestError(400, "The body is not JSON.") from None
    if not isinstance(content, dict):
        raise InputError("The body must be a JSON object.")
    return content


def _read_lists(body: bytes, allowed: Sequence[str], limits: Limits) -> dict[str, Any]:
    content = read_object(body)
    _check_names(list(content), allowed)
    if not all(isinstance(values, list) for values in content.values()):
        raise InputError("The body must be an object of lists, such as 'rows'.")
    if "rows" in content:
        content["rows"] = _matrix(content["rows"], limits)
    return content


def _check_names(names: list[str], allowed: Sequence[str]) -> None:
    for name in names:
        if name not in allowed:
            raise InputError(
                f"The body may contain {', '.join(map(repr, allowed))}. Got {name[:100]!r}; send "
                "probabilities or logits, as the model was calibrated with, as 'rows'."
            )


def _are_ids(values: list[Any]) -> bool:
    """Check for short strings or 64-bit integers; NumPy would pad all strings to the longest."""
    if all(type(value) is int for value in values):
        return all(-(2**63) <= value < 2**63 for value in values)
    try:  # half a surrogate pair is no text
        "".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return max(map(len, values)) <= MAX_TEXT


def _matrix(values: list[Any], limits: Limits) -> Array:
    """Return rows of numbers; the rule checks the numbers themselves."""
    limits.check_rows(len(values))
    rows = np.empty(0)
    if all(isinstance(row, list) and are_json_numbers(row) for row in values):
        with suppress(ValueError, OverflowError):  # lists of several lengths, huge integers
            rows = np.array(values)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise InputError("'rows' must have one list of numbers per row, all of one length.")
    return rows


# Arrow --------------------------------------------------------------------------------------------


def _read_arrow(body: bytes, allowed: Sequence[str], limits: Limits) -> dict[str, Any]:
    """Read an Arrow stream, after its columns, row counts and unpacked sizes were checked.

    A few bytes can claim any number of rows (nulls, runs) or unpack to gigabytes.
    """
    pa = import_pyarrow()
    n_rows = n_bytes = 0
    batches = []
    try:
        messages = pa.ipc.MessageReader.open_stream(body)
        schema = _schema(messages.read_next_message(), allowed)
        for message in messages:
            more_rows, more_bytes = _batch_size(_checked(message, "record batch"))
            n_rows += max(more_rows, 1)  # so that empty batches have a limit
            n_bytes += more_bytes
            limits.check_rows(n_rows)
            limits.check_bytes(n_bytes)
            if more_rows:
                batches.append(pa.ipc.read_record_batch(message, schema))
        table = pa.Table.from_batches(batches, schema)
        for column in table.columns:
            if _is_view(column.type):  # views may share their text
                limits.check_bytes(sum(map(_viewed_bytes, column.chunks)))
        table.validate(full=True)
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError, StopIteration, struct.error):
        raise RequestError(400, "The body is not an Arrow stream.") from None
    limits.check_rows(len(table))
    return {
        name: matrix_from_arrow(table[name], "the body")
        if name == "rows"
        else table[name].to_pylist()
        for name in table.column_names
    }


def _schema(message: Any, allowed: Sequence[str]) -> Any:
    """Return the schema of a stream; raise InputError unless it has plain columns of `allowed`."""
    pa = import_pyarrow()
    schema = pa.ipc.read_schema(_checked(message, "schema"))
    _check_names(schema.names, allowed)
    if len(set(schema.names)) < len(schema.names):
        raise InputError("The columns of the body must be distinct.")
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name == "rows":
            inner, expected = kind.value_type if is_list(kind) else pa.null(), "lists of numbers"
            is_known = pa.types.is_floating(inner) or pa.types.is_integer(inner)
        else:
            is_known, expected = _is_text(kind) or pa.types.is_integer(kind), "strings or integers"
        if not is_known:
            raise InputError(f"{name!r} must be {expected}. Got {str(kind)[:100]}.")
    return schema


def _checked(message: Any, kind: str) -> Any:
    """Return a message of this kind; pyarrow does not check it, and crashes for another."""
    if message.type != kind:
        raise RequestError(400, "The body must be an Arrow schema, then record batches.")
    if message.metadata.size > MAX_HEADER:
        raise RequestError(413, f"Arrow headers must have at most {MAX_HEADER} bytes.")
    return message


def _is_text(kind: Any) -> bool:
    types = import_pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or _is_view(kind))


def _is_view(kind: Any) -> bool:
    return bool(import_pyarrow().types.is_string_view(kind))


def _viewed_bytes(chunk: Any) -> int:
    """Sum the lengths of an array of string views, each the first 4 of 16 bytes."""
    views = chunk.buffers()[1]
    return 0 if views is None else int(np.frombuffer(views, "<i4")[::4].sum(dtype=np.int64))


def _batch_size(message: Any) -> tuple[int, int]:
    """Return the rows of a record batch, and the bytes of its buffers once unpacked.

    pyarrow has neither without unpacking. The header is a FlatBuffers table that pyarrow has
    verified: Message {version, header_type, header, body_length, custom_metadata}, with a header
    RecordBatch {length, nodes, buffers, compression}.
    """
    head, body = bytes(message.metadata), memoryview(message.body or b"")

    def number(form: str, place: int) -> int:
        return int(struct.unpack_from(form, head, place)[0])

    def field(table: int, index: int) -> int:
        """Return the place of a field, 0 if it is absent."""
        fields = table - number("<i", table)
        place = 4 + 2 * index
        offset = number("<H", fields + place) if place < number("<H", fields) else 0
        return table + offset if offset else 0

    def follow(place: int) -> int:
        return place + number("<I", place)

    if field(follow(0), 4):  # where an early version of the format states the compression
        raise InputError("Record batches must have no metadata of their own.")
    batch = follow(field(follow(0), 2))
    length, buffers, compression = (field(batch, index) for index in (0, 2, 3))
    n_rows = number("<q", length) if length else 0
    start = follow(buffers) if buffers else 0
    places = np.frombuffer(head, "<i8", 2 * number("<I", start) if start else 0, start + 4)
    n_bytes = 0
    for offset, size in places.reshape(-1, 2).tolist():
        # A compressed buffer begins with its length once unpacked, or with -1 if it is as it was.
        unpacked = int.from_bytes(body[offset : offset + 8], "little", signed=True) if size else 0
        n_bytes += unpacked if compression and unpacked >= 0 else size
    return n_rows, n_bytes
