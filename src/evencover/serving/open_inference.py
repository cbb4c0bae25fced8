"""The Open Inference Protocol v2 over REST: tensors of a request, and sets as tensors.

The protocol that KServe, Triton and others share, with the binary tensor data extension: tensors
follow the JSON head, whose length the header `Inference-Header-Content-Length` states.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover.arrays import Array
from evencover.errors import InputError
from evencover.serving.requests import (
    JSON,
    Limits,
    RequestError,
    Rows,
    check_columns,
    read_object,
)
from evencover.sets import PredictionSets
from evencover.validation import are_json_numbers

HEAD_LENGTH = "Inference-Header-Content-Length"
SERVER = {"name": "evencover", "extensions": ["binary_tensor_data"]}
INTEGER = np.dtype("<i8")
NUMBERS: dict[str, Any] = {"FP32": np.dtype("<f4"), "FP64": np.dtype("<f8")}
IDS: dict[str, Any] = {"BYTES": None, "INT64": INTEGER}
OUTPUTS = {"sizes": "INT64", "classes": "INT64", "labels": "BYTES"}


def metadata(about: dict[str, Any]) -> dict[str, Any]:
    """Describe the tensors of a model; `ids` may be left out, and FP64 is read as well."""
    n_classes = about["n_classes"]
    inputs = [_tensor(about["reads"], "FP32", [-1, n_classes]), _tensor("ids", "BYTES", [-1])]
    if about["needs_groups"]:
        inputs.append(_tensor("groups", "BYTES", [-1]))
    outputs = [
        _tensor(name, datatype, [-1] if name == "sizes" else [-1, n_classes])
        for name, datatype in OUTPUTS.items()
    ]
    model = {"name": about["name"], "versions": [about["model"]], "platform": "evencover"}
    return {**model, "inputs": inputs, "outputs": outputs}


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


# Requests -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """The id of a request, and the outputs that it asks for: whether each is binary."""

    id: str | None
    outputs: dict[str, bool]


def read(
    body: bytes, head_length: str | None, about: dict[str, Any], limits: Limits
) -> tuple[Rows, Wanted]:
    """Return the rows, ids and groups of a request, and the outputs that it asks for."""
    length = str(len(body)) if head_length is None else head_length
    n_head = int(length) if length.isdecimal() and len(length) < 20 else len(body) + 1
    if n_head > len(body):
        raise RequestError(400, f"{HEAD_LENGTH} must be within the body.")
    content, tail = read_object(body[:n_head]), body[n_head:]
    identity = content.get("id")
    if identity is not None and not isinstance(identity, str):
        raise InputError("'id' must be a string.")
    found: dict[str, Any] = {}
    start = 0
    for tensor in _objects(content, "inputs"):
        name = tensor.get("name")
        if name not in (about["reads"], "ids", "groups") or name in found:
            raise InputError(
                f"The inputs must be {about['reads']!r} and, if there are any, 'ids' and 'groups', "
                f"once each. Got {str(name)[:100]!r}."
            )
        size = _parameters(tensor).get("binary_data_size")
        if size is not None and (type(size) is not int or not 0 <= size <= len(tail) - start):
            raise InputError(
                f"'binary_data_size' of {name!r} must be the size of data in the body."
            )
        data = tail[start : start + size] if size is not None else tensor.get("data")
        found[name] = _read_tensor(tensor, data, is_rows=name == about["reads"])
        start += size or 0
    if start != len(tail):
        raise InputError(
            f"The inputs must use all of the binary data. Got {len(tail) - start} more."
        )
    if about["reads"] not in found:
        raise InputError(f"The inputs must contain {about['reads']!r}.")
    found["rows"] = found.pop(about["reads"])
    return check_columns(found, limits), Wanted(identity, _wanted(content))


def _wanted(content: Any) -> dict[str, bool]:
    """Return the outputs to give: whether each is binary."""
    is_binary = _flag(_parameters(content), "binary_data_output", False)
    if not content.get("outputs"):
        return dict.fromkeys(OUTPUTS, is_binary)
    wanted = {}
    for output in _objects(content, "outputs"):
        name, parameters = output.get("name"), _parameters(output)
        if name not in [*OUTPUTS] or not parameters.keys() <= {"binary_data"}:
            raise InputError(
                f"The outputs must be among {', '.join(map(repr, OUTPUTS))}, with no other "
                f"parameter than 'binary_data'. Got {str(name)[:100]!r}."
            )
        wanted[name] = _flag(parameters, "binary_data", is_binary)
    return wanted


def _objects(content: Any, name: str) -> list[dict[str, Any]]:
    found = content.get(name)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InputError(f"{name!r} must be a list of objects.")
    return found


def _parameters(content: Any) -> dict[str, Any]:
    found = content.get("parameters", {})
    if not isinstance(found, dict):
        raise InputError("'parameters' must be an object.")
    return found


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InputError(f"{name!r} must be true or false.")
    return value


def _read_tensor(tensor: Any, data: Any, *, is_rows: bool) -> Any:
    """Return rows as an array (n, K), ids or groups as a list."""
    name, shape, datatype = tensor["name"], tensor.get("shape"), tensor.get("datatype")
    known = NUMBERS if is_rows else IDS
    if datatype not in [*known]:
        raise InputError(f"The data type of {name!r} must be {' or '.join(known)}.")
    if (
        not isinstance(shape, list)
        or not all(type(each) is int and 0 <= each < 2**31 for each in shape)
        or len(shape) not in ((2,) if is_rows else (1, 2))
    ):
        raise InputError(f"The shape of {name!r} must be {'[N, K]' if is_rows else '[N]'}.")
    n_values, dtype = math.prod(shape), known[datatype]
    if isinstance(data, list) and all(isinstance(row, list) for row in data):
        data = [value for row in data for value in row]  # nested, not in row-major order
    values: Any
    if datatype == "BYTES":
        values = _read_texts(data) if isinstance(data, bytes) else data
        is_text = isinstance(values, list) and all(isinstance(each, str) for each in values)
        values = values if is_text else None
    elif isinstance(data, bytes):
        values = np.frombuffer(data, dtype) if len(data) == n_values * dtype.itemsize else None
    else:
        values = _read_numbers(data, dtype)
    if values is None or len(values) != n_values:
        raise InputError(f"The data of {name!r} must be {n_values} values of type {datatype}.")
    if is_rows:
        return values.reshape(shape)
    return values.tolist() if isinstance(values, np.ndarray) else values


def _read_numbers(data: Any, dtype: np.dtype[Any]) -> Array | list[int] | None:
    """Return a list of numbers from JSON; None if it is none."""
    if not isinstance(data, list) or not are_json_numbers(data):
        return None
    if dtype == INTEGER:
        return data
    try:
        with np.errstate(over="ignore"):  # infinity, which the rule rejects
            return np.array(data, np.float64).astype(dtype)
    except OverflowError:
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


def write(
    sets: PredictionSets, wanted: Wanted, name: str, version: str
) -> tuple[bytes, str, tuple[tuple[str, str], ...]]:
    """Return the body of a response, its content type and its headers.

    As in the ONNX export, `classes` (N, K) lists the most probable class first, then -1.
    `labels` (N, K) are the names of these classes (indices, if they have none), then empty.
    """
    tensors, tail = [], []
    for output, is_binary in wanted.outputs.items():
        values: Any = sets.sizes.astype(INTEGER) if output == "sizes" else _classes(sets)
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
    text = json.dumps(head | ({} if wanted.id is None else {"id": wanted.id})).encode()
    if not tail:
        return text, JSON, ()
    length = (HEAD_LENGTH, str(len(text)))
    return b"".join([text, *tail]), "application/octet-stream", (length,)


def _classes(sets: PredictionSets) -> Array:
    classes = np.full((len(sets), sets.n_classes), -1, dtype=INTEGER)
    classes[np.arange(sets.n_classes) < sets.sizes[:, None]] = sets.indices
    return classes


def _write_texts(texts: list[str]) -> bytes:
    """Write texts, each after its length in 4 bytes."""
    parts = {text: text.encode() for text in set(texts)}
    parts = {text: struct.pack("<I", len(part)) + part for text, part in parts.items()}
    return b"".join([parts[text] for text in texts])
