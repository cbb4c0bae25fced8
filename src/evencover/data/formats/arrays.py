"""Files that hold arrays under names: which are the rows, the labels and the class names."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np

from evencover._validation import Array, InputError, plain_array
from evencover.data.identity import identity_of
from evencover.data.location import Location
from evencover.data.names import (
    ID_KEYS,
    LABEL_KEYS,
    NAMES_KEY,
    USUAL,
    Keys,
    checked_names,
    holds_logits,
)
from evencover.data.objects import found_key, matrix_key
from evencover.data.reading import reading
from evencover.data.source import Source, rows_per_block, rows_per_part, slices

# Zeros are packed a thousandfold; what is small may be read however small its file is.
MOST_PACKED, ALWAYS_READ = 1000, 1 << 26
ONLY_ARRAY = ""  # the name of an array in a file that holds no other


class StoredArray(Protocol):
    """What readers give for each array: its shape and type, and rows when they are sliced.

    An array that is stored in chunks also says so, as ``chunks``; one that can only be read from
    its start on says ``in_order``.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, rows: slice) -> Array: ...


class LazyArrays(Mapping[str, Any]):
    """Arrays that are looked at only when they are asked for."""

    def __init__(self, keys: Iterable[str], get: Callable[[str], Any]) -> None:
        self._keys, self._get = list(keys), get

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys  # one that cannot be read is there all the same

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Shapes(LazyArrays):
    """The shapes of arrays, looked up when somebody wants to know."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays, lambda key: tuple(getattr(arrays[key], "shape", ())))


OpenArrays = Callable[[Location], AbstractContextManager[Mapping[str, Any]]]


class ArraysSource(Source):
    """A matrix with labels and class names beside it, in one file.

    Only the location is kept, and which rows are meant: the file is opened to be read.
    """

    def __init__(self, location: Location, open_arrays: OpenArrays, keys: Keys = USUAL) -> None:
        self.location, self.name, self._open = location, f"'{location}'", open_arrays
        with reading(location) as self.identity, open_arrays(location) as arrays:
            self._key = matrix_key(Shapes(arrays), self.name, keys)
            matrix = arrays[self._key]
            self.logits = holds_logits(self._key, arrays)
            self.n_rows, self.n_classes = _matrix_shape(matrix.shape, matrix.dtype, self.name)
            self._unit = 0 if getattr(matrix, "in_order", False) else _chunk_rows(matrix)
            size = self.identity.size
            refuse_bomb((self._unit, self.n_classes), matrix.dtype, self._key, size)
            names = whole(arrays, NAMES_KEY, size)
            label_key = found_key(arrays, keys.labels, LABEL_KEYS, self.name, "labels_key")
            labels = None if label_key is None else whole(arrays, label_key, size)
            id_key = found_key(arrays, keys.ids, ID_KEYS, self.name, "ids_key")
            ids = None if id_key is None else whole(arrays, id_key, size)
            if ids is not None and (ids.shape != (self.n_rows,) or ids.dtype.kind not in "iuUO"):
                id_key = ids = None  # of something else
            self._ids = ids
            self._describe_use(list(arrays), label_key, id_key)
        if names is not None:
            self.class_names = checked_names(
                names.ravel().tolist(), f"{NAMES_KEY!r} in {self.name}"
            )
            if len(self.class_names) != self.n_classes:
                raise InputError(
                    f"'{NAMES_KEY}' in {self.name} must have one name per class. "
                    f"Got {len(self.class_names)} names for {self.n_classes} classes."
                )
        if labels is not None:
            self.attach_labels(labels)

    def _describe_use(self, held: list[str], label_key: str | None, id_key: str | None) -> None:
        uses = {"numbers": self._key or "the only matrix", "labels": label_key, "ids": id_key}
        names = NAMES_KEY if NAMES_KEY in held else None
        self.used = {use: key for use, key in {**uses, "class names": names}.items() if key}
        others = [key for key in held if key not in (self._key, label_key, id_key, names)]
        self.left_out = dict.fromkeys(others, "not a name that is known")

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Slices of the matrix that follow its chunks, so that none is read twice.

        Large chunks come in pairs, which zarr unpacks side by side.
        """
        assert self.n_rows is not None
        chunk = max(1, self._unit)
        step = rows_per_block(self.n_classes)
        step = step + -step % chunk if chunk == 1 or step > chunk else 2 * chunk
        stop = self.first_row + self.n_rows
        with reading(self.location, self.identity), self._open(self.location) as arrays:
            matrix = arrays[self._key]
            for start in range(self.first_row, stop, step):
                rows = np.asarray(matrix[start : min(start + step, stop)])
                yield from ((part, None) for part in slices(rows))

    def split(self) -> list[Source]:
        """Ranges of rows that end where chunks end."""
        assert self.n_rows is not None
        step = rows_per_part(self.n_classes)
        step = step + -step % self._unit if self._unit else max(1, self.n_rows)
        parts: list[Source] = []
        for start in range(0, self.n_rows, step):
            part = copy.copy(self)
            part.first_row = self.first_row + start
            part.n_rows = min(step, self.n_rows - start)
            parts.append(part)
        return parts


@contextmanager
def array_columns(location: Location, open_arrays: OpenArrays) -> Iterator[Mapping[str, Array]]:
    """Open the arrays of a file, each read whole when it is asked for."""
    size = identity_of(location).size
    with open_arrays(location) as arrays:
        yield LazyArrays(arrays, lambda key: np.array(whole(arrays, key, size)))


def refuse_bomb(shape: tuple[int, ...], dtype: np.dtype[Any], key: str, file_size: int) -> None:
    """Refuse what a file says it holds where no packing could have made it so small."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes > MOST_PACKED * file_size + ALWAYS_READ:
        raise ValueError(
            f"it says that {key!r} has {n_bytes:.3g} bytes at once, and has itself {file_size}"
        )


def whole(arrays: Mapping[str, Any], key: str, file_size: int) -> Array | None:
    """All of a small array, text as text; None if there is none of this name."""
    if key not in arrays:
        return None
    stored = arrays[key]
    refuse_bomb(tuple(stored.shape), np.dtype(stored.dtype), key, file_size)
    values = np.asarray(stored[:])
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    if values.dtype.kind in "OT":
        return plain_array(
            [v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist()]
        )
    if values.dtype.kind == "U":
        _refuse_no_text(values, key)
    return values


def _refuse_no_text(values: Array, key: str) -> None:
    """NumPy keeps any 32 bits as a character; Python ends in a SystemError when it meets them."""
    codes = np.frombuffer(values.tobytes(), values.dtype.str[0] + "u4")
    if codes.size and codes.max() > sys.maxunicode:
        raise ValueError(f"{key!r} has a character that Unicode does not know")


def _chunk_rows(matrix: Any) -> int:
    chunks = getattr(matrix, "chunks", None)
    return int(chunks[0]) if chunks else 1


def _matrix_shape(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> tuple[int, int]:
    if len(shape) != 2:
        raise InputError(
            f"{name} must hold a matrix with one row per example and one column per class. "
            f"Got an array of shape {tuple(shape)} instead."
        )
    if shape[1] < 2:
        raise InputError(f"{name} must have at least 2 classes (columns). Got {shape[1]} instead.")
    if dtype.kind not in "biuf" and dtype != "V2":
        raise InputError(f"{name} must hold real numbers. Got the type {dtype} instead.")
    return int(shape[0]), int(shape[1])
