"""safetensors files: a header in JSON, then the tensors byte for byte, mapped into memory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from evencover._validation import InputError, parse_json
from evencover.data.formats.plain_array import BFLOAT16, PlainArray
from evencover.data.location import Location, size_of
from evencover.data.names import NAMES_KEY

_TYPES = {
    "BOOL": np.dtype("?"),
    **{
        f"{kind}{bits}": np.dtype(f"<{kind.lower()}{bits // 8}")
        for kind in "IU"
        for bits in (16, 32, 64)
    },
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "BF16": BFLOAT16,
}
_LONGEST_HEADER = 100_000_000  # the format's own limit


@contextmanager
def safetensors_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """The tensors; class names are a JSON list of texts in the metadata."""
    begin, header = _header(location)
    metadata = header.pop("__metadata__", {})
    arrays: dict[str, Any] = {}
    end = _refuse_overlaps([tuple(about["data_offsets"]) for about in header.values()])
    if begin + end != size_of(location):
        raise ValueError(f"its tensors end at byte {begin + end} of {size_of(location)}")
    for key, about in header.items():
        if about["dtype"] not in _TYPES:
            raise InputError(
                f"'{key}' in '{location}' must hold plain numbers. Got the type {about['dtype']}."
            )
        start, end = about["data_offsets"]
        dtype, shape = _TYPES[about["dtype"]], tuple(about["shape"])
        if any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"{key!r} has the shape {shape}")
        if math.prod(shape) * dtype.itemsize != end - start:
            raise ValueError(f"{key!r} of the shape {shape} has {end - start} bytes")
        arrays[key] = PlainArray(location, begin + start, dtype, shape, end=begin + end)
    if NAMES_KEY in metadata:
        arrays[NAMES_KEY] = np.array(json.loads(metadata[NAMES_KEY]), dtype=str)
    yield arrays


def _refuse_overlaps(ranges: list[tuple[Any, ...]]) -> int:
    """Return where the last tensor ends; raise if tensors overlap or leave gaps."""
    if any(len(pair) != 2 or any(type(n) is not int for n in pair) for pair in ranges):
        raise ValueError("its offsets are no pairs of whole numbers")
    at = 0
    for start, end in sorted(ranges):
        if start != at or end < start:
            raise ValueError("its tensors overlap, or leave gaps")
        at = end
    return at


def safetensors_metadata(location: Location) -> dict[str, str]:
    """The texts that the writer left in the header."""
    return dict(_header(location)[1].get("__metadata__", {}))


def _header(location: Location) -> tuple[int, dict[str, Any]]:
    """Where the tensors begin, and what is said about them."""
    with location.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _LONGEST_HEADER:
            raise ValueError("it has no header")
        text = file.read(length)
    if len(text) < length:
        raise ValueError("its header ends early")
    header = parse_json(text, f"the header of '{location}'")
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return 8 + length, header
