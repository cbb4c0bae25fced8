"""An array that lies in a file byte for byte: mapped into memory, or read in pieces from afar."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.location import Address, Location, size_of

BFLOAT16 = np.dtype("V2")  # what NumPy makes of a type that it does not know


class PlainArray:
    """Numbers of one type from `offset` on; slices of rows are read when they are asked for."""

    def __init__(
        self,
        location: Location,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        *,
        fortran: bool = False,
        end: int | None = None,
    ) -> None:
        self.location, self.offset, self.dtype, self.shape = location, offset, dtype, shape
        self.fortran = fortran
        end = size_of(location) if end is None else end
        if offset + math.prod(shape) * dtype.itemsize > end:
            raise InputError(
                f"Cannot read '{location}': the file is truncated, its array ends early."
            )
        self._map: Array | None = None
        if isinstance(location, Path) and 0 not in shape:  # an empty map is refused
            order = "F" if fortran else "C"
            self._map = np.memmap(location, dtype, "r", offset, shape, order)  # type: ignore[call-overload]

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0] if self.shape else 1)
        if isinstance(self.location, Path) and self._map is None:
            return widened(np.empty((0, *self.shape[1:]), self.dtype))
        if self._map is not None:
            return widened(self._map[start:stop] if self.shape else self._map)
        if self.fortran:  # columns first: rows lie scattered
            values = self._read(0, math.prod(self.shape)).reshape(self.shape, order="F")[start:stop]
            return widened(values)
        width = math.prod(self.shape[1:])
        values = self._read(start * width, (stop - start) * width)
        return widened(values.reshape(-1, *self.shape[1:]) if self.shape else values)

    def _read(self, first: int, count: int) -> Array:
        assert isinstance(self.location, Address)
        start = self.offset + first * self.dtype.itemsize
        data = self.location.read(start, start + count * self.dtype.itemsize) if count else b""
        return np.frombuffer(data, self.dtype)


def widened(values: Array) -> Array:
    """bfloat16 as float32, whose upper half it is; anything else as it comes."""
    if values.dtype != BFLOAT16:
        return values
    bits = np.ascontiguousarray(values).view("<u2").astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)
