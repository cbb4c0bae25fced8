"""Bodies of requests and answers: JSON, and tensors of the Open Inference Protocol v2 over REST.

msgspec checks requests by their types, and everything that a request declares (sizes, shapes,
numbers of rows) is compared with its bytes before it is multiplied or allocated. The protocol is
the one that KServe, Triton and others share, with the binary tensor data extension: tensors follow
the JSON head, whose length the header `Inference-Header-Content-Length` states.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType

from evencover.arrays import Array
from evencover.classes import Classes
from evencover.errors import InputError, listed
from evencover.monitoring.state import ModelEntry
from evencover.sets import PredictionSets
from evencover.topk import TopK

JSON = "application/json"
MAX_TEXT = 1000  # characters of an id, label or time
MOST_PARTS = 2**19  # parts of a body, each of which takes time and memory
LABELS_HINT = "send 'ids', 'labels' and, if known, 'time'"
HINT = "send probabilities or logits, as the model was calibrated with, as 'rows'"


class RequestError(InputError):
    """A request that is rejected with another status than 422."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Limits of a service."""

    body: int = 16 * 2**20  # bytes of a body; an answer may have four times as many
    rows: int = 10_000  # of a request
    seconds: float = 10.0  # to receive a body

    def check_answer(self, n_bytes: int) -> None:
        """Raise RequestError, before it is made, if an answer is too large."""
        if n_bytes > 4 * self.body:
            raise RequestError(
                413,
                f"The answer must have at most {4 * self.body} bytes, four times as many as a "
                f"body. Got about {n_bytes}; send fewer rows, or ask for fewer outputs.",
            )

    def check_rows(self, n_rows: int, **lists: Any) -> None:
        """Raise if there are too many rows, or if a list has not one entry for each of them."""
        if n_rows > self.rows:
            raise RequestError(413, f"There must be at most {self.rows} rows. Got {n_rows}.")
        for name, values in lists.items():
            if isinstance(values, list) and len(values) != n_rows:
                raise InputError(
                    f"{name!r} must have one entry per row. Got {len(values)} for {n_rows}."
                )


# JSON ---------------------------------------------------------------------------------------------

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Names = list[Text | Integer]


class SetsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for sets; rows are lists of numbers, or name some of the classes."""

    rows: Raw
    ids: Raw | UnsetType = UNSET


class LabelsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request with labels, by id."""

    ids: Raw
    labels: Raw
    time: Raw | UnsetType = UNSET
    labels_are: Literal["names", "indices"] | UnsetType | None = UNSET


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A class of a row with its probability, as pipelines of Hugging Face return them."""

    label: Text
    score: float


# Decoders, because msgspec would look at a type again for each of 10,000 rows.
SETS, LABELS = msgspec.json.Decoder(SetsBody), msgspec.json.Decoder(LabelsBody)
FLOATS, ROWS = msgspec.json.Decoder(list[float]), msgspec.json.Decoder(list[Raw])
ENTRIES = msgspec.json.Decoder(dict[Text, float] | list[Entry])
NAMES, TEXTS = msgspec.json.Decoder(Names), msgspec.json.Decoder(list[Text])


def decode(body: bytes, decoder: Any, remedy: str = HINT, owner: str = "The body") -> Any:
    """Parse JSON of a type; raise InputError if it is of another."""
    if len(body) > MOST_PARTS < body.count(b"[") + body.count(b"{"):
        raise RequestError(413, f"The body must have at most {MOST_PARTS} lists and objects.")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InputError(f"{owner} is not as it must be: {error}; {remedy}.") from None
    except RecursionError:
        raise InputError(f"The body is nested too deeply; {remedy}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RequestError(400, "The body is not JSON.") from None


def encode(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # the name of a class may have half a surrogate pair
        return json.dumps(value).encode()


def read_rows(body: bytes, model: ModelEntry, limits: Limits) -> tuple[Any, Names | None]:
    """Read rows and their ids; raise InputError if they are invalid."""
    sent: SetsBody = decode(body, SETS)
    text, parsed = bytes(sent.rows), list[Any]()
    is_matrix = b"{" not in text
    contents = _split(text) if is_matrix else _listed(text, "'rows'", ROWS, most=2 * MOST_PARTS)
    ids = _listed(sent.ids, "'ids'", NAMES)
    limits.check_rows(len(contents), ids=ids)
    if not is_matrix:
        parsed = [_decode_entries(bytes(content), model.classes) for content in contents]
    _check_keys(body, msgspec.structs.replace(sent, rows=parsed))
    rows = _matrix(contents, model.n_classes) if is_matrix else _by_class(parsed, model)
    return rows, ids or None


def read_labels(body: bytes, limits: Limits) -> tuple[Any, ...]:
    """Read ids, labels, times and what integers are; raise InputError if they are invalid."""
    sent: LabelsBody = decode(body, LABELS, LABELS_HINT)
    ids, labels = (
        _listed(getattr(sent, name), f"'{name}'", NAMES, LABELS_HINT) for name in ("ids", "labels")
    )
    time = _listed(sent.time, "'time'", TEXTS, LABELS_HINT)
    if ids is None or labels is None:
        raise InputError(f"'ids' and 'labels' must be lists; {LABELS_HINT}.")
    limits.check_rows(len(labels), ids=ids, time=time)
    _check_keys(body, sent)
    return ids, labels, time or None, sent.labels_are or None


def _listed(
    text: Any, owner: str, decoder: Any, remedy: str = HINT, *, most: int = MOST_PARTS
) -> Any:
    """Parse a list that was left as text, unless it has too many commas; None if there is none."""
    content = bytes(text or b"null")
    if content.count(b",") > most:
        raise RequestError(413, f"{owner} must have at most {most} commas.")
    return None if content == b"null" else decode(content, decoder, remedy, owner)


def _split(text: bytes) -> list[bytes]:
    """Divide a list of lists of numbers; raise if it has anything else, before that is parsed."""
    *parts, rest = text[1:-1].split(b"]")
    rows = [part.lstrip(b", \t\r\n") + b"]" for part in parts]
    if text[:1] != b"[" or rest.strip() or not all(row.startswith(b"[") for row in rows):
        raise InputError(f"'rows' must be a list of rows; {HINT}.")
    return rows


def _matrix(contents: list[bytes], n_classes: int) -> Array:
    """Return rows of numbers; the rule checks the numbers themselves."""
    numbers, row = bytearray(), 0
    doubles = struct.Struct(f"={n_classes}d")  # three times as fast as assigning to an array
    try:
        for row, content in enumerate(contents):
            # More bytes than numbers of classes need: count the numbers before they are made.
            is_long = len(content) > 40 * n_classes and content.count(b",") >= n_classes
            values = [] if is_long else FLOATS.decode(content)
            if len(values) != n_classes:
                raise InputError(
                    f"'rows' must have one number for each of the {n_classes} classes. Got "
                    f"{content.count(b',') + 1} in row {row}."
                )
            numbers += doubles.pack(*values)
    except msgspec.MsgspecError as error:
        raise InputError(f"'rows' must be lists of numbers: {error} in row {row}.") from None
    return np.frombuffer(numbers).reshape(len(contents), n_classes)


def _decode_entries(content: bytes, classes: Classes) -> dict[str, float] | list[Entry]:
    """Parse a row that names some of the classes, unless it has more colons than these need."""
    if content.count(b":") > classes.n * (2 + classes.most_colons):
        raise InputError(f"'rows' must list at most the {classes.n} classes of the model, once.")
    parsed: dict[str, float] | list[Entry] = decode(content, ENTRIES)
    return parsed


def _by_class(rows: list[dict[str, float] | list[Entry]], model: ModelEntry) -> TopK:
    """Return rows that name some of the classes."""
    pairs = [
        list(row.items()) if isinstance(row, dict) else [(each.label, each.score) for each in row]
        for row in rows
    ]
    names, index = [name for row in pairs for name, _ in row], model.classes.index
    unknown = list(dict.fromkeys(name for name in names if name not in index))
    if unknown:
        raise InputError(
            f"'rows' must have the {model.n_classes} classes of the model. Got the unknown "
            f"{listed(map(repr, unknown), 3)}."
        )
    starts = np.cumsum([0, *map(len, pairs)])
    classes = np.array([index[name] for name in names], dtype=np.int32)
    values = np.array([value for row in pairs for _, value in row], dtype=np.float64)
    return TopK.from_csr(starts, classes, values, model.n_classes)


def _check_keys(body: bytes, parsed: Any) -> None:
    """Raise if an object has a key twice, of which parsers keep the last: one colon is lost."""
    if _n_colons(body) != _n_colons(encode(parsed)):
        raise InputError("The keys of each object in the body must differ. Got one of them twice.")


def _n_colons(content: bytes) -> int:
    escaped = (b"\\u003a", b"\\u003A") if b"\\" in content else ()
    return sum(map(content.count, (b":", *escaped)))


# Tensors ------------------------------------------------------------------------------------------

HEAD_LENGTH = "Inference-Header-Content-Length"
NUMBERS: dict[str, Any] = {"FP32": np.dtype("<f4"), "FP64": np.dtype("<f8")}


def _padded(sets: PredictionSets) -> Array:
    """Return the classes of each set, then -1 (N, K), as in the ONNX export."""
    classes = np.full((len(sets), sets.n_classes), -1, dtype="<i8")
    classes[np.arange(sets.n_classes) < sets.sizes[:, None]] = sets.indices
    return classes


TYPES = {"INT64": "<i8", "BOOL": "?"}
OUTPUTS: dict[str, tuple[str, Callable[[PredictionSets], Array]]] = {
    "sizes": ("INT64", attrgetter("sizes")),  # (N,)
    "members": ("INT64", attrgetter("indices")),  # (M,) of all sets
    "starts": ("INT64", attrgetter("indptr")),  # (N + 1,)
    "classes": ("INT64", _padded),  # (N, K)
    "accepted": ("BOOL", attrgetter("accepted")),  # (N,)
    "answers": ("INT64", attrgetter("answer_nodes")),  # (N,) a class, K + a group, or -1
}
Size = Annotated[int, Meta(ge=0, lt=2**31)]


class Parameters(msgspec.Struct):
    """Where the values of an input are, and how to return outputs; others are ignored."""

    binary_data_size: Size | None = None  # of an input
    binary_data: bool | None = None  # of an output
    binary_data_output: bool = False  # of all outputs that do not state it


class Shape(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The shape of rows [N, K] or of ids, [N] or [N, 1]; a third number is not even parsed."""

    n_rows: Size
    n_columns: Size = 1


class InputTensor(msgspec.Struct, forbid_unknown_fields=True):
    """A tensor, with its values as JSON or after the head."""

    name: str
    shape: Shape
    datatype: str
    data: Raw | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET


class Output(msgspec.Struct, forbid_unknown_fields=True):
    """An output that is asked for."""

    name: str
    parameters: Raw | UnsetType = UNSET


class InferHead(msgspec.Struct, forbid_unknown_fields=True):
    """The head of a request."""

    inputs: Annotated[list[InputTensor], Meta(max_length=2)]
    outputs: Annotated[list[Output], Meta(max_length=len(OUTPUTS))] | UnsetType | None = UNSET
    id: Text | UnsetType | None = UNSET
    parameters: Raw | UnsetType = UNSET


HEAD = msgspec.json.Decoder(InferHead)
VALUES = msgspec.json.Decoder(dict[str, Any])
NESTED = msgspec.json.Decoder(list[float | list[float]])


class Wanted(NamedTuple):
    """The id of a request, and the outputs that it asks for: whether each is binary."""

    id: str | None
    outputs: dict[str, bool]


def metadata(model: dict[str, Any]) -> dict[str, Any]:
    """Describe the tensors of a model; `ids` may be left out, and FP64 is read as well."""
    n_classes = model["n_classes"]
    inputs = [_tensor(model["reads"], "FP32", [-1, n_classes]), _tensor("ids", "BYTES", [-1])]
    outputs = [
        _tensor(name, kind, [-1, n_classes] if name == "classes" else [-1])
        for name, (kind, _) in OUTPUTS.items()
    ]
    described = {"name": model["name"], "versions": [model["model"]], "platform": "evencover"}
    return {**described, "inputs": inputs, "outputs": outputs}


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def read_tensors(
    body: bytes, head_length: str | None, reads: str, n_classes: int, limits: Limits
) -> tuple[Array, list[str] | None, Wanted]:
    """Return the rows and ids of a request to a model that reads `reads`, and the outputs."""
    length = str(len(body)) if head_length is None else head_length
    n_head = int(length) if length.isdecimal() and len(length) < 20 else len(body) + 1
    if n_head > len(body):
        raise RequestError(400, f"{HEAD_LENGTH} must be within the body.")
    head: InferHead = decode(body[:n_head], HEAD)
    _check_keys(body[:n_head], head)
    shapes, tensors = {tensor.name: tensor.shape for tensor in head.inputs}, dict[str, Any]()
    if reads not in shapes or not {*shapes} <= {reads, "ids"} or len(shapes) < len(head.inputs):
        raise InputError(
            f"The inputs must be {reads!r} and, if there are any, 'ids', once each. "
            f"Got {listed((repr(tensor.name[:100]) for tensor in head.inputs), 3)}."
        )
    n_rows = shapes[reads].n_rows
    if shapes != dict.fromkeys(shapes, Shape(n_rows)) | {reads: Shape(n_rows, n_classes)}:
        sizes = [[shape.n_rows, shape.n_columns] for shape in shapes.values()]
        raise InputError(
            f"{reads!r} must have the shape [N, {n_classes}], and 'ids' [N]. Got "
            f"{listed(sizes, 2)}."
        )
    limits.check_rows(n_rows)
    tail = memoryview(body)[n_head:]
    for tensor in head.inputs:
        size, data = _parameters(tensor).binary_data_size, None
        if size is not None:
            data, tail = tail[:size], tail[size:]
            if len(data) != size:
                raise InputError(f"The binary data end before those of {tensor.name!r}.")
        tensors[tensor.name] = (_read_ids if tensor.name == "ids" else _read_numbers)(tensor, data)
    if tail:
        raise InputError(f"The inputs must use all of the binary data. Got {len(tail)} bytes more.")
    return tensors[reads], tensors.get("ids"), Wanted(head.id or None, _wanted(head))


def _parameters(sent: InputTensor | Output | InferHead) -> Parameters:
    if not sent.parameters:
        return Parameters()
    content = bytes(sent.parameters)
    values = _listed(content, "'parameters'", VALUES)
    _check_keys(content, values)
    try:
        return msgspec.convert(values, Parameters)
    except msgspec.ValidationError as error:
        raise InputError(f"'parameters' are not as they must be: {error}.") from None


def _wanted(head: InferHead) -> dict[str, bool]:
    """Return the outputs to give: whether each is binary."""
    is_binary = _parameters(head).binary_data_output
    outputs = head.outputs or [Output(name) for name in OUTPUTS]
    unknown = [output.name for output in outputs if output.name not in OUTPUTS]
    if unknown:
        raise InputError(
            f"The outputs must be among {', '.join(map(repr, OUTPUTS))}. Got {unknown[0][:100]!r}."
        )
    choices = {output.name: _parameters(output).binary_data for output in outputs}
    return {name: is_binary if choice is None else choice for name, choice in choices.items()}


def _read_numbers(tensor: InputTensor, data: Any) -> Array:
    """Return rows (n, K) from JSON, which may be nested, or from binary data."""
    if tensor.datatype not in NUMBERS:
        raise InputError(f"{tensor.name!r} must be {' or '.join(NUMBERS)}.")
    n_rows, n_classes = tensor.shape.n_rows, tensor.shape.n_columns
    dtype, text = NUMBERS[tensor.datatype], bytes(tensor.data or b"null")
    n_values = n_rows * n_classes
    values: Array = np.zeros(0)
    if data is not None and len(data) == n_values * dtype.itemsize:
        values = np.frombuffer(data, dtype)
    elif data is None and text.count(b",") == max(0, n_values - 1):
        numbers = decode(text, NESTED)
        if [len(row) for row in numbers if isinstance(row, list)] == [n_classes] * n_rows:
            numbers = [number for row in numbers for number in row]
        elif any(isinstance(row, list) for row in numbers):
            numbers = []
        with np.errstate(over="ignore"):  # infinity, which the rule rejects
            values = np.array(numbers, dtype=np.float64).astype(dtype)
    if len(values) != n_values:
        raise InputError(f"{tensor.name!r} must have {n_values} values of type {tensor.datatype}.")
    return values.reshape(n_rows, n_classes)


def _read_ids(tensor: InputTensor, data: Any) -> list[str]:
    """Return texts from JSON, or from binary data: each after its length in 4 bytes."""
    if tensor.datatype != "BYTES":
        raise InputError("'ids' must be of type BYTES.")
    n_rows, texts, start = tensor.shape.n_rows, list[str](), 0
    if data is None:
        texts = _listed(tensor.data, "'ids'", TEXTS) or []
    else:
        try:
            while start < len(data) and len(texts) < n_rows:
                (size,) = struct.unpack_from("<I", data, start)
                texts.append(str(data[start + 4 : start + 4 + size], "utf-8"))
                start += 4 + size
        except (struct.error, UnicodeDecodeError):
            start = -1
        if start != len(data) or max(map(len, texts), default=0) > MAX_TEXT:
            raise InputError("The binary data of 'ids' must be texts after their lengths.")
    if len(texts) != n_rows:
        raise InputError(f"'ids' must have {n_rows} texts. Got {len(texts)}.")
    return texts


def answer_bytes(sets: PredictionSets, wanted: Wanted) -> int:
    """Return about the size of an answer; `classes` has K values for every row."""
    n_values = {"classes": len(sets) * sets.n_classes, "members": len(sets.indices)}
    return 8 * sum(n_values.get(name, len(sets) + 1) for name in wanted.outputs)


def write_tensors(
    sets: PredictionSets, wanted: Wanted, name: str, version: str
) -> tuple[bytes, str, dict[str, str]]:
    """Return the body of an answer, its content type and its headers.

    `members` (M,) lists the classes of all sets, those of row i from `starts[i]` to `starts[i + 1]`
    of `starts` (N + 1,). As in the ONNX export, `classes` (N, K) lists the same, then -1. The most
    probable class comes first.
    """
    tensors, tail = [], []
    for output, is_binary in wanted.outputs.items():
        kind, values_of = OUTPUTS[output]
        values = values_of(sets).astype(TYPES[kind], copy=False)
        tensor = _tensor(output, kind, list(values.shape))
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
