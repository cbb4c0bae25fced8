"""Files of arrays: .npy, .npz, .safetensors and files of torch.save."""

from __future__ import annotations

import copy
import json
import math
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, Protocol

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    NAMES_KEY,
    USUAL,
    Keys,
    checked_names,
    found_key,
    holds_logits,
    matrix_key,
)
from evencover.data.location import Address, Location, identity_of, reading, size_of
from evencover.data.source import (
    RawBlocks,
    Source,
    SourceInfo,
    rows_per_block,
    rows_per_part,
    slices,
)
from evencover.errors import InputError, needs
from evencover.validation import parse_json, unique_keys

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
        self.location, self._open, name = location, open_arrays, f"'{location}'"
        with reading(location) as self.identity, open_arrays(location) as arrays:
            self._key = matrix_key(Shapes(arrays), name, keys)
            matrix = arrays[self._key]
            n_rows, n_classes = _matrix_shape(matrix.shape, matrix.dtype, name)
            self._unit = 0 if getattr(matrix, "in_order", False) else _chunk_rows(matrix)
            size = self.identity.size
            refuse_bomb((self._unit, n_classes), matrix.dtype, self._key, size)
            names = whole(arrays, NAMES_KEY, size)
            label_key = found_key(arrays, keys.labels, LABEL_KEYS, name, "labels_key")
            labels = None if label_key is None else whole(arrays, label_key, size)
            id_key = found_key(arrays, keys.ids, ID_KEYS, name, "ids_key")
            ids = None if id_key is None else whole(arrays, id_key, size)
            if ids is not None and (ids.shape != (n_rows,) or ids.dtype.kind not in "iuUO"):
                id_key = ids = None  # of something else
            self._ids = ids
            names_key = NAMES_KEY if NAMES_KEY in arrays else None
            uses = {"numbers": self._key or "the only matrix", "labels": label_key, "ids": id_key}
            uses["class names"] = names_key
            known = (self._key, label_key, id_key, names_key)
            logits = holds_logits(self._key, arrays)
            others = [key for key in arrays if key not in known]
        class_names = None
        if names is not None:
            class_names = checked_names(names.ravel().tolist(), f"{NAMES_KEY!r} in {name}")
            if len(class_names) != n_classes:
                raise InputError(
                    f"'{NAMES_KEY}' in {name} must have one name per class. "
                    f"Got {len(class_names)} names for {n_classes} classes."
                )
        self.info = SourceInfo(
            n_classes,
            n_rows,
            class_names,
            logits,
            name,
            used={use: key for use, key in uses.items() if key},
            left_out=dict.fromkeys(others, "not a name that is known"),
        )
        if labels is not None:
            self.attach_labels(labels)

    def row_blocks(self) -> RawBlocks:
        """Read slices of the matrix that follow its chunks, so that none is read twice.

        Large chunks come in pairs, which zarr unpacks side by side.
        """
        assert self.n_rows is not None
        chunk = max(1, self._unit)
        step = rows_per_block(self.n_classes)
        step = step + -step % chunk if chunk == 1 or step > chunk else 2 * chunk
        first = self.info.first_row
        stop = first + self.n_rows
        with reading(self.location, self.identity), self._open(self.location) as arrays:
            matrix = arrays[self._key]
            for start in range(first, stop, step):
                yield from slices(np.asarray(matrix[start : min(start + step, stop)]))

    def split(self) -> list[Source]:
        """Ranges of rows that end where chunks end."""
        assert self.n_rows is not None
        step = rows_per_part(self.n_classes)
        step = step + -step % self._unit if self._unit else max(1, self.n_rows)
        parts: list[Source] = []
        for start in range(0, self.n_rows, step):
            part = copy.copy(self)
            n_rows, first_row = min(step, self.n_rows - start), self.info.first_row + start
            part.info = replace(self.info, n_rows=n_rows, first_row=first_row)
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
        return to_numpy([v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist()])
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


Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


@contextmanager
def npy_arrays(location: Location) -> Iterator[Mapping[str, StoredArray]]:
    """Open the one array of an .npy file."""
    with location.open("rb") as file:
        shape, fortran, dtype = _header(file, f"'{location}'")
        offset = file.tell()
    yield {ONLY_ARRAY: PlainArray(location, offset, dtype, shape, fortran=fortran)}


@contextmanager
def npz_arrays(location: Location) -> Iterator[Mapping[str, StoredArray]]:
    """Open the arrays of an .npz archive."""
    with location.open("rb") as file, zipfile.ZipFile(file) as archive:
        named = [(info.filename.removesuffix(".npy"), info) for info in archive.infolist()]
        members = unique_keys(f"'{location}'", named)
        yield LazyArrays(members, lambda key: _member(location, file, archive, members[key]))


def _member(
    location: Location, file: IO[bytes], archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> StoredArray:
    key = info.filename.removesuffix(".npy")
    with archive.open(info) as member:
        shape, fortran, dtype = _header(member, f"'{key}' in '{location}'")
        header_length = member.tell()
    # Small ones are read through the archive, which compares their checksums.
    if info.compress_type != zipfile.ZIP_STORED or len(shape) != 2:
        return _CompressedArray(archive, info, shape, fortran, dtype)
    file.seek(info.header_offset + 26)
    name_length, extra_length = np.frombuffer(file.read(4), dtype="<u2")
    begin = info.header_offset + 30 + int(name_length) + int(extra_length)
    end = begin + info.file_size
    return PlainArray(location, begin + header_length, dtype, shape, fortran=fortran, end=end)


class _CompressedArray:
    """A member that is unpacked from its start on, as far as it is asked for."""

    in_order = True

    def __init__(
        self,
        archive: zipfile.ZipFile,
        info: zipfile.ZipInfo,
        shape: tuple[int, ...],
        fortran: bool,
        dtype: np.dtype[Any],
    ) -> None:
        self._archive, self._info, self._fortran = archive, info, fortran
        self.shape, self.dtype = shape, dtype
        self._member: IO[bytes] | None = None
        self._next_row = 0
        self._all: Array | None = None

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0] if self.shape else 1)
        if self._fortran or len(self.shape) < 2:  # columns first: rows cannot be streamed
            if self._all is None:
                with self._archive.open(self._info) as member:
                    self._all = np.lib.format.read_array(member, allow_pickle=False)
            return widened(self._all[start:stop] if self.shape else self._all)
        if self._member is None or start != self._next_row:
            self._member, self._next_row = self._archive.open(self._info), 0
            _header(self._member, self._info.filename)
            self._take(start)
        return widened(
            np.frombuffer(self._take(stop - start), self.dtype).reshape(-1, self.shape[1])
        )

    def _take(self, n_rows: int) -> bytes:
        assert self._member is not None
        wanted = n_rows * self.shape[1] * self.dtype.itemsize
        data = self._member.read(wanted)
        if len(data) != wanted:
            raise EOFError(f"the file ends in row {self._next_row}")
        self._next_row += n_rows
        return data


def _header(file: IO[bytes], name: str) -> Header:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise InputError(
            f"{name} must hold plain numbers or text. Got pickled Python objects, "
            "which are never loaded; save it again as text or numbers, with .astype(str) or "
            ".astype(float)."
        )
    return shape, fortran, dtype


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
    """Open the tensors; class names are a JSON list of texts in the metadata."""
    begin, header = _safetensors_header(location)
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
    """Read the metadata of the header."""
    return dict(_safetensors_header(location)[1].get("__metadata__", {}))


def _safetensors_header(location: Location) -> tuple[int, dict[str, Any]]:
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


@contextmanager
def torch_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Load the tensors; a pair is the numbers and the labels."""
    try:
        import torch
    except ImportError:
        raise needs("Files of torch.save", "torch", "torch") from None
    with nullcontext(location) if isinstance(location, Path) else location.open() as where:
        try:
            held = torch.load(where, map_location="cpu", weights_only=True)
        except UnpicklingError as error:
            raise InputError(
                f"Cannot read '{location}': it holds other things than tensors and plain values, "
                "or is damaged; save the tensors alone, torch.save({'probs': ..., 'labels': ...}, "
                "...), since nothing else in it is loaded."
            ) from error
    if isinstance(held, list | tuple) and len(held) == 2:
        held = {ONLY_ARRAY: held[0], "labels": held[1]}
    elif hasattr(held, "detach"):
        held = {ONLY_ARRAY: held}
    if not isinstance(held, Mapping):
        raise InputError(
            f"'{location}' must hold a tensor, a pair of tensors or a dictionary of tensors. "
            f"Got {type(held).__name__} instead."
        )
    is_array = {key: hasattr(value, "detach") for key, value in held.items()}
    yield {
        str(key): to_numpy(value) if is_array[key] else np.asarray(value)
        for key, value in held.items()
        if is_array[key] or isinstance(value, list | tuple)
    }
