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
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from evencover.arrays import Array
from evencover.errors import InputError
from evencover.sets import PredictionSets
from evencover.topk import TopK

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
    """

    body: int = 16 * 2**20
    rows: int = 10_000
    seconds: float = 10.0

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

    def check_lists(self, n_rows: int, **lists: list[Any] | None) -> None:
        """Raise if there are too many rows, or if a list has not one entry for each of them."""
        if n_rows > self.rows:
            raise RequestError(413, f"There must be at most {self.rows} rows. Got {n_rows}.")
        for name, values in lists.items():
            if values is not None and len(values) != n_rows:
                raise InputError(
                    f"{name!r} must have one entry per row. Got {len(values)} for {n_rows}."
                )


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
    """The body of a request with labels, by id."""

    ids: Names
    labels: Names
    time: list[Text] | None = None


def decode(body: bytes, kind: Any) -> Any:
    """Parse JSON of a type; raise InputError if it is of another."""
    try:
        return msgspec.json.decode(body, type=kind)
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


def read_rows(body: bytes, limits: Limits) -> tuple[Any, Names | None]:
    """Read rows and their ids; raise InputError if they are invalid."""
    sent = decode(body, SetsBody)
    limits.check_lists(len(sent.rows), ids=sent.ids)
    by_class = any(isinstance(row, dict) for row in sent.rows)
    return _by_class(sent.rows) if by_class else _matrix(sent.rows), sent.ids


def read_labels(body: bytes, limits: Limits) -> LabelsBody:
    """Read labels, their ids and times; raise InputError if they are invalid."""
    sent: LabelsBody = decode(body, LabelsBody)
    limits.check_lists(len(sent.labels), ids=sent.ids, time=sent.time)
    return sent


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


# Tensors ------------------------------------------------------------------------------------------

HEAD_LENGTH = "Inference-Header-Content-Length"
NUMBERS: dict[str, Any] = {"FP32": np.dtype("<f4"), "FP64": np.dtype("<f8")}
OUTPUTS = {"sizes": "INT64", "classes": "INT64", "accepted": "BOOL"}  # of classes (N, K), else (N,)
Size = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Parameters(msgspec.Struct):
    """Where the values of an input are, and how to return outputs; others are ignored."""

    binary_data_size: Size | None = None  # of an input
    binary_data: bool | None = None  # of an output
    binary_data_output: bool = False  # of all outputs that do not state it


class InputTensor(msgspec.Struct):
    """A tensor, with its values as JSON or after the head."""

    name: str
    shape: list[Size]
    datatype: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    parameters: Parameters = msgspec.field(default_factory=Parameters)


class Output(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: Parameters = msgspec.field(default_factory=Parameters)


class InferHead(msgspec.Struct):
    """The head of a request."""

    inputs: list[InputTensor]
    outputs: list[Output] | None = None
    id: str | None = None
    parameters: Parameters = msgspec.field(default_factory=Parameters)


class Wanted(NamedTuple):
    """The id of a request, and the outputs that it asks for: whether each is binary."""

    id: str | None
    outputs: dict[str, bool]


def metadata(model: dict[str, Any]) -> dict[str, Any]:
    """Describe the tensors of a model; `ids` may be left out, and FP64 is read as well."""
    n_classes = model["n_classes"]
    inputs = [_tensor(model["reads"], "FP32", [-1, n_classes]), _tensor("ids", "BYTES", [-1])]
    outputs = [
        _tensor(name, datatype, [-1, n_classes] if name == "classes" else [-1])
        for name, datatype in OUTPUTS.items()
    ]
    described = {"name": model["name"], "versions": [model["model"]], "platform": "evencover"}
    return {**described, "inputs": inputs, "outputs": outputs}


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def read_tensors(
    body: bytes, head_length: str | None, reads: str, limits: Limits
) -> tuple[Array, list[str] | None, Wanted]:
    """Return the rows and ids of a request to a model that reads `reads`, and the outputs."""
    length = str(len(body)) if head_length is None else head_length
    n_head = int(length) if length.isdecimal() and len(length) < 20 else len(body) + 1
    if n_head > len(body):
        raise RequestError(400, f"{HEAD_LENGTH} must be within the body.")
    head, tail = decode(body[:n_head], InferHead), body[n_head:]
    tensors: dict[str, Any] = {}
    for tensor in head.inputs:
        if tensor.name not in (reads, "ids") or tensor.name in tensors:
            raise InputError(
                f"The inputs must be {reads!r} and, if there are any, 'ids', once each. "
                f"Got {tensor.name[:100]!r}."
            )
        size, data = tensor.parameters.binary_data_size, None
        if size is not None:
            data, tail = tail[:size], tail[size:]
            if len(data) != size:
                raise InputError(f"The binary data end before those of {tensor.name!r}.")
        tensors[tensor.name] = (_read_ids if tensor.name == "ids" else _read_numbers)(tensor, data)
    if tail:
        raise InputError(f"The inputs must use all of the binary data. Got {len(tail)} bytes more.")
    if reads not in tensors:
        raise InputError(f"The inputs must contain {reads!r}.")
    rows, ids = tensors[reads], tensors.get("ids")
    limits.check_lists(len(rows), ids=ids)
    return rows, ids, Wanted(head.id, _wanted(head))


def _wanted(head: InferHead) -> dict[str, bool]:
    """Return the outputs to give: whether each is binary."""
    is_binary = head.parameters.binary_data_output
    outputs = head.outputs or [Output(name) for name in OUTPUTS]
    unknown = [output.name for output in outputs if output.name not in OUTPUTS]
    if unknown:
        raise InputError(
            f"The outputs must be among {', '.join(map(repr, OUTPUTS))}. Got {unknown[0][:100]!r}."
        )
    choices = {output.name: output.parameters.binary_data for output in outputs}
    return {name: is_binary if choice is None else choice for name, choice in choices.items()}


def _read_numbers(tensor: InputTensor, data: bytes | None) -> Array:
    """Return rows (n, K) from JSON, which may be nested, or from binary data."""
    if tensor.datatype not in NUMBERS or len(tensor.shape) != 2:
        raise InputError(f"{tensor.name!r} must be {' or '.join(NUMBERS)} of shape [N, K].")
    n_values, dtype = math.prod(tensor.shape), NUMBERS[tensor.datatype]
    values: Array = np.zeros(0)
    if data is not None and len(data) == n_values * dtype.itemsize:
        values = np.frombuffer(data, dtype)
    elif data is None:
        numbers = decode(tensor.data, list[float | list[float]])
        if all(isinstance(row, list) for row in numbers):
            numbers = [number for row in numbers for number in row]
        elif any(isinstance(row, list) for row in numbers):
            numbers = []
        with np.errstate(over="ignore"):  # infinity, which the rule rejects
            values = np.array(numbers, dtype=np.float64).astype(dtype)
    if len(values) != n_values:
        raise InputError(f"{tensor.name!r} must have {n_values} values of type {tensor.datatype}.")
    return values.reshape(tensor.shape)


def _read_ids(tensor: InputTensor, data: bytes | None) -> list[str]:
    """Return texts from JSON, or from binary data: each after its length in 4 bytes."""
    if tensor.datatype != "BYTES":
        raise InputError("'ids' must be of type BYTES.")
    if data is None:
        texts = decode(tensor.data, list[Text])
    else:
        texts, start = [], 0
        try:
            while start < len(data):
                (size,) = struct.unpack_from("<I", data, start)
                texts.append(data[start + 4 : start + 4 + size].decode())
                start += 4 + size
        except (struct.error, UnicodeDecodeError):
            start = -1
        if start != len(data) or any(len(text) > MAX_TEXT for text in texts):
            raise InputError("The binary data of 'ids' must be texts after their lengths.")
    if len(texts) != math.prod(tensor.shape):
        raise InputError(f"'ids' must have {math.prod(tensor.shape)} texts. Got {len(texts)}.")
    return texts


def answer_bytes(sets: PredictionSets, wanted: Wanted) -> int:
    """Return about the size of an answer; `classes` has K values for every row."""
    per_row = [sets.n_classes if output == "classes" else 1 for output in wanted.outputs]
    return 8 * len(sets) * sum(per_row)


def write_tensors(
    sets: PredictionSets, wanted: Wanted, name: str, version: str
) -> tuple[bytes, str, dict[str, str]]:
    """Return the body of an answer, its content type and its headers.

    As in the ONNX export, `classes` (N, K) lists the most probable class first, then -1.
    """
    tensors, tail = [], []
    for output, is_binary in wanted.outputs.items():
        values = _values(sets, output)
        tensor = _tensor(output, OUTPUTS[output], list(values.shape))
        if is_binary:
            tail.append(values.tobytes())
            tensor["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            tensor["data"] = values.ravel().tolist()
        tensors.append(tensor)
    head = {"model_name": name, "model_version": version, "outputs": tensors}
    text = encode(head if wanted.id is None else head | {"id": wanted.id})
    if not tail:
        return text, JSON, {}
    return b"".join([text, *tail]), "application/octet-stream", {HEAD_LENGTH: str(len(text))}


def _values(sets: PredictionSets, output: str) -> Array:
    if output == "accepted":
        return sets.accepted
    if output == "sizes":
        return sets.sizes.astype("<i8")
    classes = np.full((len(sets), sets.n_classes), -1, dtype="<i8")
    classes[np.arange(sets.n_classes) < sets.sizes[:, None]] = sets.indices
    return classes
