"""Bodies of requests and answers: JSON, and tensors of the Open Inference Protocol v2 over REST.

msgspec checks requests by their types. The protocol is the one that KServe, Triton and others
share, with the binary tensor data extension: tensors follow the JSON head, whose length the header
`Inference-Header-Content-Length` states.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from evencover.arrays import Array, IntArray
from evencover.errors import InputError
from evencover.serving.service import Request
from evencover.sets import PredictionSets
from evencover.topk import TopK
from evencover.validation import are_json_numbers, parse_json

JSON = "application/json"
MAX_TEXT = 1000  # characters of an id, label or time
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

    def check_body(self, n_bytes: int) -> None:
        """Raise RequestError if a body is too large."""
        if n_bytes > self.body:
            raise RequestError(413, f"The body must have at most {self.body} bytes.")

    def check_answer(self, n_bytes: int) -> None:
        """Raise RequestError, before it is made, if an answer is too large."""
        if n_bytes > 4 * self.body:
            raise RequestError(
                413,
                f"The answer must have at most {4 * self.body} bytes, four times as many as a "
                f"body. Got about {n_bytes}; send fewer rows, or ask for fewer outputs.",
            )

    def check_request(self, request: Request) -> Request:
        """Return a request if it has few enough rows, and one entry per row in every list."""
        n_rows = len(request)
        if n_rows > self.rows:
            raise RequestError(413, f"There must be at most {self.rows} rows. Got {n_rows}.")
        for name in ("ids", "labels", "time"):
            values = getattr(request, name)
            if values is not None and len(values) != n_rows:
                raise InputError(
                    f"{name!r} must have one entry per row. Got {len(values)} for {n_rows}."
                )
        return request


# JSON ---------------------------------------------------------------------------------------------

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Names = list[Text | Integer]
RowList = list[list[float] | dict[Text, float]]  # numbers of all classes, or some by class


class SetsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for sets."""

    rows: RowList
    ids: Names | None = None


class LabelsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request with labels, by id or with their rows."""

    labels: Names
    ids: Names | None = None
    time: Names | None = None
    rows: RowList | None = None


@cache
def _decoder(kind: Any) -> Any:
    return msgspec.json.Decoder(kind)


def decode(body: bytes, kind: Any) -> Any:
    """Parse JSON of a type; raise InputError if it is of another."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise InputError(f"The body is not as it must be: {error}; {HINT}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError(400, "The body is not JSON.") from None


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # the name of a class may have half a surrogate pair
        return json.dumps(value).encode()


def read_json(body: bytes, kind: type[SetsBody | LabelsBody], limits: Limits) -> Request:
    """Read the rows, ids and labels in a body; raise InputError if they are invalid."""
    fields = msgspec.structs.asdict(decode(body, kind))
    rows = fields["rows"]
    by_class = any(isinstance(row, dict) for row in rows or ())
    if by_class or any(body.count(f'"{name}"'.encode()) > 1 for name in fields):
        parse_json(body, "the body")  # rejects a name that comes twice; msgspec takes the last
    if rows is None and fields["ids"] is None:
        raise InputError("The body must contain 'ids' or 'rows', one entry per label.")
    if rows is not None:
        fields["rows"] = _by_class(rows) if by_class else _matrix(rows)
    return limits.check_request(Request(**fields))


def _by_class(rows: list[Any]) -> TopK:
    """Return rows of probabilities by class; the service knows the classes."""
    if not all(isinstance(row, dict) for row in rows):
        raise InputError("'rows' must all be lists of numbers, or all objects by class.")
    names = sorted({name for row in rows for name in row}) or [""]
    return TopK(
        [list(row) for row in rows], [list(row.values()) for row in rows], class_names=names
    )


def _matrix(rows: list[list[float]]) -> Array:
    """Return rows of numbers; the rule checks the numbers themselves."""
    if len({len(row) for row in rows}) > 1:
        raise InputError("'rows' must have one list of numbers per row, all of one length.")
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 0)


# Tensors: requests --------------------------------------------------------------------------------

HEAD_LENGTH = "Inference-Header-Content-Length"
INTEGER = np.dtype("<i8")
NUMBERS: dict[str, Any] = {"FP32": np.dtype("<f4"), "FP64": np.dtype("<f8")}
IDS: dict[str, Any] = {"BYTES": None, "INT64": INTEGER}
OUTPUTS = {"sizes": "INT64", "classes": "INT64", "labels": "BYTES", "accepted": "BOOL"}
PER_CLASS = ("classes", "labels")  # outputs of shape (N, K); others have one value per row
Size = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class InputParameters(msgspec.Struct):
    """Where the values of a tensor are; other parameters are ignored."""

    binary_data_size: Size | None = None


class InputTensor(msgspec.Struct):
    """A tensor, with its values as JSON or after the head."""

    name: str
    shape: list[Size]
    datatype: str
    data: list[Any] | None = None
    parameters: InputParameters | None = None


class OutputParameters(msgspec.Struct, forbid_unknown_fields=True):
    """How to return an output."""

    binary_data: bool | None = None


class Output(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: OutputParameters | None = None


class InferParameters(msgspec.Struct):
    """How to return outputs that do not state it."""

    binary_data_output: bool = False


class InferHead(msgspec.Struct):
    """The head of a request."""

    inputs: list[InputTensor]
    outputs: list[Output] | None = None
    id: str | None = None
    parameters: InferParameters | None = None


class Wanted(NamedTuple):
    """The id of a request, and the outputs that it asks for: whether each is binary."""

    id: str | None
    outputs: dict[str, bool]


def metadata(model: dict[str, Any]) -> dict[str, Any]:
    """Describe the tensors of a model; `ids` may be left out, and FP64 is read as well."""
    n_classes = model["n_classes"]
    inputs = [_tensor(model["reads"], "FP32", [-1, n_classes]), _tensor("ids", "BYTES", [-1])]
    outputs = [
        _tensor(name, datatype, [-1, n_classes] if name in PER_CLASS else [-1])
        for name, datatype in OUTPUTS.items()
    ]
    described = {"name": model["name"], "versions": [model["model"]], "platform": "evencover"}
    return {**described, "inputs": inputs, "outputs": outputs}


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def read_tensors(
    body: bytes, head_length: str | None, reads: str, limits: Limits
) -> tuple[Request, Wanted]:
    """Return the rows and ids of a request to a model that reads `reads`, and the outputs."""
    length = str(len(body)) if head_length is None else head_length
    n_head = int(length) if length.isdecimal() and len(length) < 20 else len(body) + 1
    if n_head > len(body):
        raise RequestError(400, f"{HEAD_LENGTH} must be within the body.")
    head, tail = decode(body[:n_head], InferHead), body[n_head:]
    tensors: dict[str, Any] = {}
    start = 0
    for tensor in head.inputs:
        if tensor.name not in (reads, "ids") or tensor.name in tensors:
            raise InputError(
                f"The inputs must be {reads!r} and, if there are any, 'ids', once each. "
                f"Got {tensor.name[:100]!r}."
            )
        data = tensor.data
        if tensor.parameters is not None and tensor.parameters.binary_data_size is not None:
            stop = start + tensor.parameters.binary_data_size
            data, start = tail[start:stop], stop
        tensors[tensor.name] = _read_tensor(tensor, data, is_rows=tensor.name == reads)
    if start != len(tail):
        raise InputError(
            f"The inputs must use all of the binary data. Got {len(tail)} bytes for {start}."
        )
    if reads not in tensors:
        raise InputError(f"The inputs must contain {reads!r}.")
    request = limits.check_request(Request(tensors[reads], tensors.get("ids")))
    return request, Wanted(head.id, _wanted(head))


def _wanted(head: InferHead) -> dict[str, bool]:
    """Return the outputs to give: whether each is binary."""
    is_binary = head.parameters is not None and head.parameters.binary_data_output
    if not head.outputs:
        return dict.fromkeys(OUTPUTS, is_binary)
    wanted = {}
    for output in head.outputs:
        if output.name not in OUTPUTS:
            raise InputError(
                f"The outputs must be among {', '.join(map(repr, OUTPUTS))}. "
                f"Got {output.name[:100]!r}."
            )
        choice = None if output.parameters is None else output.parameters.binary_data
        wanted[output.name] = is_binary if choice is None else choice
    return wanted


def _read_tensor(tensor: InputTensor, data: Any, *, is_rows: bool) -> Any:
    """Return rows as an array (n, K), ids as a list."""
    name, shape, datatype = tensor.name, tensor.shape, tensor.datatype
    types = NUMBERS if is_rows else IDS
    if datatype not in types:
        raise InputError(f"The data type of {name!r} must be {' or '.join(types)}.")
    if len(shape) not in ((2,) if is_rows else (1, 2)):
        raise InputError(f"The shape of {name!r} must be {'[N, K]' if is_rows else '[N]'}.")
    n_values, dtype = math.prod(shape), types[datatype]
    if isinstance(data, list) and all(isinstance(row, list) for row in data):
        data = [value for row in data for value in row]  # nested, not in row-major order
    values: Any
    if datatype == "BYTES":
        values = _read_texts(data) if isinstance(data, bytes) else data
        if not isinstance(values, list) or not all(map(_is_text, values)):
            values = None
    elif isinstance(data, bytes):
        values = np.frombuffer(data, dtype) if len(data) == n_values * dtype.itemsize else None
    else:
        values = _read_numbers(data, dtype)
    if values is None or len(values) != n_values:
        raise InputError(f"The data of {name!r} must be {n_values} values of type {datatype}.")
    if is_rows:
        return values.reshape(shape)
    return values.tolist() if isinstance(values, np.ndarray) else values


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _read_numbers(data: Any, dtype: np.dtype[Any]) -> Array | None:
    """Return a list of numbers from JSON; None if it is none."""
    if not isinstance(data, list) or not are_json_numbers(data):
        return None
    try:
        with np.errstate(over="ignore"):  # infinity, which the rule rejects
            return np.array(data, INTEGER if dtype == INTEGER else np.float64).astype(dtype)
    except (OverflowError, TypeError):
        return None


def _read_texts(data: bytes) -> list[str] | None:
    """Return texts, each after its length in 4 bytes; None if they are none."""
    texts, start = [], 0
    try:
        while start < len(data):
            (size,) = struct.unpack_from("<I", data, start)
            texts.append(data[start + 4 : start + 4 + size].decode())
            start += 4 + size
    except (struct.error, UnicodeDecodeError):
        return None
    return texts if start == len(data) else None


# Tensors: answers ---------------------------------------------------------------------------------


def answer_bytes(sets: PredictionSets, wanted: Wanted, name_bytes: IntArray) -> int:
    """Return about the size of an answer, which has K values for every row."""
    n_values = len(sets) * sets.n_classes
    label_bytes = 4 * n_values + int(name_bytes[sets.indices].sum())
    per_row = dict.fromkeys(OUTPUTS, 8 * len(sets))
    sizes = per_row | {"classes": 8 * n_values, "labels": label_bytes}
    return sum(sizes[output] for output in wanted.outputs)


def write_tensors(
    sets: PredictionSets, wanted: Wanted, name: str, version: str
) -> tuple[bytes, str, dict[str, str]]:
    """Return the body of an answer, its content type and its headers.

    As in the ONNX export, `classes` (N, K) lists the most probable class first, then -1.
    `labels` (N, K) are the names of these classes (indices, if they have none), then empty.
    """
    tensors, tail = [], []
    for output, is_binary in wanted.outputs.items():
        values: Any = _values(sets, output)
        tensor = _tensor(output, OUTPUTS[output], list(values.shape))
        if output == "labels":
            names = [*(sets.class_names or map(str, range(sets.n_classes))), ""]  # -1 is the last
            values = [names[index] for index in values.ravel().tolist()]
        if is_binary:
            tail.append(_write_texts(values) if output == "labels" else values.tobytes())
            tensor["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            tensor["data"] = values if output == "labels" else values.ravel().tolist()
        tensors.append(tensor)
    head = {"model_name": name, "model_version": version, "outputs": tensors}
    text = encode(head if wanted.id is None else head | {"id": wanted.id})
    if not tail:
        return text, JSON, {}
    return b"".join([text, *tail]), "application/octet-stream", {HEAD_LENGTH: str(len(text))}


def _values(sets: PredictionSets, output: str) -> Array:
    """Return an output as an array; of labels, the classes that they name."""
    if output == "accepted":
        return sets.accepted
    if output == "sizes":
        return sets.sizes.astype(INTEGER)
    classes = np.full((len(sets), sets.n_classes), -1, dtype=INTEGER)
    classes[np.arange(sets.n_classes) < sets.sizes[:, None]] = sets.indices
    return classes


def _write_texts(texts: list[str]) -> bytes:
    """Write texts, each after its length in 4 bytes."""
    parts = {text: text.encode() for text in set(texts)}
    parts = {text: struct.pack("<I", len(part)) + part for text, part in parts.items()}
    return b"".join([parts[text] for text in texts])
