"""The Open Inference Protocol v2 over REST: tensors of a request, and sets as tensors.

The protocol that KServe, Triton and others share, with the binary tensor data extension: tensors
follow the JSON head, whose length the header `Inference-Header-Content-Length` states.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray
from evencover.errors import InputError
from evencover.serving.requests import (
    JSON,
    MAX_TEXT,
    Limits,
    RequestError,
    Rows,
    check_lists,
    decode,
    encode,
)
from evencover.sets import PredictionSets
from evencover.validation import are_json_numbers

HEAD_LENGTH = "Inference-Header-Content-Length"
SERVER = {"name": "evencover", "extensions": ["binary_tensor_data"]}
INTEGER = np.dtype("<i8")
NUMBERS: dict[str, Any] = {"FP32": np.dtype("<f4"), "FP64": np.dtype("<f8")}
IDS: dict[str, Any] = {"BYTES": None, "INT64": INTEGER}
OUTPUTS = {"sizes": "INT64", "classes": "INT64", "labels": "BYTES", "accepted": "BOOL"}
PER_CLASS = ("classes", "labels")  # outputs of shape (N, K); others have one value per row


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


# Requests -----------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """The id of a request, and the outputs that it asks for: whether each is binary."""

    id: str | None
    outputs: dict[str, bool]


@cache
def _request_type() -> Any:
    """Return the type of a request's head; parameters that are not known are ignored."""
    from msgspec import Meta, defstruct

    size: Any = Annotated[int, Meta(ge=0, lt=2**31)]
    of_input: Any = defstruct("InputParameters", [("binary_data_size", size | None, None)])
    of_output: Any = defstruct(
        "OutputParameters", [("binary_data", bool | None, None)], forbid_unknown_fields=True
    )
    of_request: Any = defstruct("Parameters", [("binary_data_output", bool, False)])
    described: list[Any] = [("name", str), ("shape", list[size]), ("datatype", str)]
    values: list[Any] = [("data", list | None, None), ("parameters", of_input | None, None)]
    tensor: Any = defstruct("InputTensor", [*described, *values])
    output: Any = defstruct("Output", [("name", str), ("parameters", of_output | None, None)])
    fields: list[Any] = [("inputs", list[tensor]), ("outputs", list[output] | None, None)]
    fields += [("id", str | None, None), ("parameters", of_request | None, None)]
    return defstruct("InferRequest", fields)


def read(body: bytes, head_length: str | None, reads: str, limits: Limits) -> tuple[Rows, Wanted]:
    """Return the rows and ids of a request to a model that reads `reads`, and the outputs."""
    length = str(len(body)) if head_length is None else head_length
    n_head = int(length) if length.isdecimal() and len(length) < 20 else len(body) + 1
    if n_head > len(body):
        raise RequestError(400, f"{HEAD_LENGTH} must be within the body.")
    head, tail = decode(body[:n_head], _request_type()), body[n_head:]
    tensors: dict[str, Any] = {}
    start = 0
    for tensor in head.inputs:
        if tensor.name not in (reads, "ids") or tensor.name in tensors:
            raise InputError(
                f"The inputs must be {reads!r} and, if there are any, 'ids', once each. "
                f"Got {tensor.name[:100]!r}."
            )
        data, size = tensor.data, getattr(tensor.parameters, "binary_data_size", None)
        if size is not None:
            data, start = tail[start : start + size], start + size
        tensors[tensor.name] = _read_tensor(tensor, data, is_rows=tensor.name == reads)
    if start != len(tail):
        raise InputError(
            f"The inputs must use all of the binary data. Got {len(tail)} bytes for {start}."
        )
    if reads not in tensors:
        raise InputError(f"The inputs must contain {reads!r}.")
    rows = check_lists(tensors[reads], {"ids": tensors.get("ids")}, limits)
    return rows, Wanted(head.id, _wanted(head))


def _wanted(head: Any) -> dict[str, bool]:
    """Return the outputs to give: whether each is binary."""
    is_binary = getattr(head.parameters, "binary_data_output", False)
    if not head.outputs:
        return dict.fromkeys(OUTPUTS, is_binary)
    wanted = {}
    for output in head.outputs:
        if output.name not in OUTPUTS:
            raise InputError(
                f"The outputs must be among {', '.join(map(repr, OUTPUTS))}. "
                f"Got {output.name[:100]!r}."
            )
        choice = getattr(output.parameters, "binary_data", None)
        wanted[output.name] = is_binary if choice is None else choice
    return wanted


def _read_tensor(tensor: Any, data: Any, *, is_rows: bool) -> Any:
    """Return rows as an array (n, K), ids as a list."""
    name, shape, datatype = tensor.name, tensor.shape, tensor.datatype
    known = NUMBERS if is_rows else IDS
    if datatype not in known:
        raise InputError(f"The data type of {name!r} must be {' or '.join(known)}.")
    if len(shape) not in ((2,) if is_rows else (1, 2)):
        raise InputError(f"The shape of {name!r} must be {'[N, K]' if is_rows else '[N]'}.")
    n_values, dtype = math.prod(shape), known[datatype]
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


# Responses ----------------------------------------------------------------------------------------


def answer_bytes(sets: PredictionSets, wanted: Wanted, name_bytes: IntArray) -> int:
    """Return about the size of a response, which has K values for every row."""
    n_values = len(sets) * sets.n_classes
    label_bytes = 4 * n_values + int(name_bytes[sets.indices].sum())
    per_row = dict.fromkeys(OUTPUTS, 8 * len(sets))
    sizes = per_row | {"classes": 8 * n_values, "labels": label_bytes}
    return sum(sizes[output] for output in wanted.outputs)


def write(
    sets: PredictionSets, wanted: Wanted, name: str, version: str
) -> tuple[bytes, str, tuple[tuple[str, str], ...]]:
    """Return the body of a response, its content type and its headers.

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
        return text, JSON, ()
    length = (HEAD_LENGTH, str(len(text)))
    return b"".join([text, *tail]), "application/octet-stream", (length,)


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
