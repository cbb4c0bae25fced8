"""Read files of named arrays: NumPy, safetensors, torch, HDF5 and zarr."""

from __future__ import annotations

import json
import math
import sys
import zipfile
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, ClassVar

import numpy as np

from evencover.arrays import Array, explained, to_numpy
from evencover.classes import checked_names
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    NAMES_KEY,
    USUAL,
    ColumnUses,
    Keys,
    found_key,
    matrix_key,
    names_logits,
)
from evencover.data.entries import SPARSE_KEYS, read_sparse
from evencover.data.location import (
    Identity,
    Location,
    absolute,
    file_identity,
    identity_of,
    local_copy,
    reading,
)
from evencover.data.readers import RawBlock, Reader, rows_per_block, rows_per_part, slices
from evencover.data.source import Contents, Labels
from evencover.errors import InputError, import_extra
from evencover.rows import BFLOAT16, matrix_shape
from evencover.validation import unique_keys


class PlainArray:
    """An array of numbers in a file from `offset` on; reads slices of rows on demand."""

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
        end = identity_of(location).size if end is None else end
        if offset + math.prod(shape) * dtype.itemsize > end:
            raise InputError(f"Cannot read '{location}': the file is truncated.")
        self._map: Array | None = None
        if isinstance(location, Path) and 0 not in shape:  # an empty map raises
            order = "F" if fortran else "C"
            self._map = np.memmap(location, dtype, "r", offset, shape, order)  # type: ignore[call-overload]

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0] if self.shape else 1)
        if self._map is not None:
            return self._map[start:stop] if self.shape else self._map
        if isinstance(self.location, Path) or 0 in self.shape:
            return np.empty(self.shape, self.dtype)[start:stop]
        width = math.prod(self.shape[1:])
        first, last = (0, math.prod(self.shape)) if self.fortran else (start * width, stop * width)
        n_bytes = self.dtype.itemsize
        data = self.location.read(self.offset + first * n_bytes, self.offset + last * n_bytes)
        values = np.frombuffer(data, self.dtype)
        if self.fortran:  # column-major: rows are scattered
            return values.reshape(self.shape, order="F")[start:stop]
        return values.reshape(-1, *self.shape[1:]) if self.shape else values


ONLY_ARRAY = ""  # name of the array in a file with one array


class LazyArrays(UserDict[str, Any]):
    """Arrays opened on demand; unreadable ones are keys, too."""

    def __init__(self, keys: Iterable[str], get: Callable[[str], Any]) -> None:
        super().__init__(dict.fromkeys(keys))
        self._get = get

    def __getitem__(self, key: str) -> Any:
        if key not in self.data:
            raise KeyError(key)
        return self._get(key)


# Opens the arrays of a file: each has a shape, a dtype and slices of rows. Chunked arrays have
# `chunks` or `shards`; arrays that must be read from the start have `in_order`.
OpenArrays = Callable[[Location], AbstractContextManager[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class ArrayFileReader(Reader):
    """Reads a matrix of a file, which it opens for each reading."""

    location: Location
    identity: Identity
    open_arrays: OpenArrays
    key: str  #: name of the matrix
    chunk: int  #: rows that are read together; 0 if all are

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read slices of the matrix aligned with its chunks, so that none is read twice.

        Large chunks are read in pairs, which zarr decompresses in parallel.
        """
        assert self.n_rows is not None
        chunk, step = max(1, self.chunk), rows_per_block(self.n_classes)
        step = step + -step % chunk if chunk == 1 or step > chunk else 2 * chunk
        stop = self.first_row + self.n_rows
        with reading(self.location, self.identity), self.open_arrays(self.location) as arrays:
            matrix = arrays[self.key]
            for start in range(self.first_row, stop, step):
                yield from slices(np.asarray(matrix[start : min(start + step, stop)]))

    def split(self) -> list[Reader]:
        """Split rows at chunk boundaries."""
        assert self.n_rows is not None
        step = rows_per_part(self.n_classes)
        step = step + -step % self.chunk if self.chunk else max(1, self.n_rows)
        whole = replace(self, location=absolute(self.location))
        starts = range(0, self.n_rows, step)
        return [whole.cut(start, min(step, self.n_rows - start)) for start in starts]

    def identity_of_rows(self) -> tuple[Any, ...]:
        """Identify the rows by their file."""
        return (*file_identity(self.location, self.identity), self.first_row)


def open_array_file(location: Location, open_arrays: OpenArrays, keys: Keys = USUAL) -> Contents:
    """Open a file with a matrix and, perhaps, labels, ids and class names."""
    name = f"'{location}'"
    with reading(location) as identity, open_arrays(location) as arrays:
        size = identity.size
        if arrays.keys() >= SPARSE_KEYS:
            return read_sparse(read_on_demand(arrays, size), keys, name, size)
        key = matrix_key(arrays, name, keys)
        matrix = arrays[key]
        n_rows, n_classes = matrix_shape(matrix.shape, name)
        if matrix.dtype.kind not in "biuf" and matrix.dtype != BFLOAT16:
            raise InputError(f"{name} must contain real numbers. Got the type {matrix.dtype}.")
        chunks = getattr(matrix, "shards", None) or getattr(matrix, "chunks", None)
        chunks = chunks or [0 if hasattr(matrix, "in_order") else 1]
        at_once = (chunks[0] or n_rows) * n_classes * matrix.dtype.itemsize
        explained(at_once // 8, size, f"The array {key!r}")
        label_key = found_key(arrays, keys.labels, LABEL_KEYS, name, "labels_key")
        id_key = found_key(arrays, keys.ids, ID_KEYS, name, "ids_key")
        names_key = NAMES_KEY if NAMES_KEY in arrays else None
        names = whole(arrays, names_key, size)
        ids = whole(arrays, id_key, size) if keys.read_ids else None
        labels = whole(arrays, label_key, size) if keys.read_labels else None
        used = {"numbers": key or "the only matrix"}
        for use, array_key in (("labels", label_key), ("ids", id_key), ("class names", names_key)):
            if array_key is not None:
                used[use] = array_key
        left_out = dict.fromkeys(arrays.keys() - {key, *used.values()}, "not a name that is known")
        logits = names_logits(key, arrays)
    class_names = None
    if names is not None:
        class_names = checked_names(names.ravel().tolist(), n_classes, f"{NAMES_KEY!r} in {name}")
    reader = ArrayFileReader(
        location=location,
        identity=identity,
        open_arrays=open_arrays,
        key=key,
        chunk=int(chunks[0]),
        n_rows=n_rows,
        n_classes=n_classes,
        name=name,
    )
    columns = ColumnUses(used, left_out)
    return Contents(
        reader=reader,
        class_names=class_names,
        logits=logits,
        labels=None if labels is None else Labels(labels),
        ids=ids,
        columns=columns,
    )


@contextmanager
def array_columns(location: Location, open_arrays: OpenArrays) -> Iterator[Mapping[str, Array]]:
    """Open the arrays of a file; each is read whole on demand."""
    with open_arrays(location) as arrays:
        yield read_on_demand(arrays, identity_of(location).size)


def read_on_demand(arrays: Mapping[str, Any], file_size: int) -> Mapping[str, Array]:
    """Return arrays that are read whole when they are looked up."""
    return LazyArrays(arrays, lambda key: np.array(whole(arrays, key, file_size)))


def whole(arrays: Mapping[str, Any], key: str | None, file_size: int) -> Array | None:
    """Read a whole small array, text as text; None if there is none of this name."""
    if key is None or key not in arrays:
        return None
    stored = arrays[key]
    n_bytes = math.prod(stored.shape) * np.dtype(stored.dtype).itemsize
    explained(n_bytes // 8, file_size, f"The array {key!r}")
    values = np.asarray(stored[:])
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    if values.dtype.kind in "OT":
        return to_numpy([v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist()])
    if values.dtype.kind == "U" and values.size:
        # NumPy stores any 32 bits as a character; Python raises SystemError for invalid ones.
        codes = np.frombuffer(values.tobytes(), values.dtype.str[0] + "u4")
        if codes.size and codes.max() > sys.maxunicode:
            raise ValueError(f"{key!r} has an invalid Unicode character")
    return values


@contextmanager
def npy_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the array of an .npy file."""
    with location.open("rb") as file:
        shape, fortran, dtype = _header(file, f"'{location}'")
        offset = file.tell()
    yield {ONLY_ARRAY: PlainArray(location, offset, dtype, shape, fortran=fortran)}


@contextmanager
def npz_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the arrays of an .npz archive."""
    with location.open("rb") as file, zipfile.ZipFile(file) as archive:
        names = map(methodcaller("removesuffix", ".npy"), archive.namelist())
        members = unique_keys(f"'{location}'", list(zip(names, archive.infolist(), strict=True)))

        def member(key: str) -> Any:
            info = members[key]
            with archive.open(info) as content:
                shape, fortran, dtype = _header(content, f"'{key}' in '{location}'")
                header_length = content.tell()
            # Small arrays are read through the archive, which verifies checksums.
            if info.compress_type != zipfile.ZIP_STORED or len(shape) != 2:
                return _CompressedArray(archive, info, shape, dtype)
            file.seek(info.header_offset + 26)
            begin = info.header_offset + 30 + int(np.frombuffer(file.read(4), "<u2").sum())
            offset, end = begin + header_length, begin + info.file_size
            return PlainArray(location, offset, dtype, shape, fortran=fortran, end=end)

        yield LazyArrays(members, member)


@dataclass
class _CompressedArray:
    """A member that is decompressed whole when it is first read."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    in_order: ClassVar[bool] = True
    _content: Array | None = None

    def __getitem__(self, rows: slice) -> Array:
        if self._content is None:
            with self.archive.open(self.info) as member:
                self._content = np.lib.format.read_array(member, allow_pickle=False)
        return self._content[rows] if self.shape else self._content


def _header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise InputError(
            f"{name} must contain plain numbers or text. Got pickled Python objects, which "
            "are never loaded; save it again with .astype(str) or .astype(float)."
        )
    return shape, fortran, dtype


_TYPES = {
    f"{kind}{8 * n}": np.dtype(f"<{kind.lower()}{n}")
    for kind, sizes in {"I": (1, 2, 4, 8), "U": (1, 2, 4, 8), "F": (2, 4, 8)}.items()
    for n in sizes
} | {"BOOL": np.dtype("?"), "BF16": BFLOAT16}


@contextmanager
def safetensors_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the tensors as memory maps; class names are a JSON list of strings in the metadata."""
    from safetensors import safe_open

    arrays: dict[str, Any] = {}
    with local_copy(location) as path, safe_open(path, framework="numpy") as file:
        with path.open("rb") as content:
            offset = 8 + int.from_bytes(content.read(8), "little")  # the header and its length
        for key in file.offset_keys():  # without gaps, as the library checks
            tensor = file.get_slice(key)
            if tensor.get_dtype() not in _TYPES:
                raise InputError(
                    f"'{key}' in '{location}' must contain numbers. Got {tensor.get_dtype()}."
                )
            dtype, shape = _TYPES[tensor.get_dtype()], tuple(tensor.get_shape())
            arrays[key] = PlainArray(path, offset, dtype, shape)
            offset += math.prod(shape) * dtype.itemsize
        names = (file.metadata() or {}).get(NAMES_KEY)
        if names is not None:
            arrays[NAMES_KEY] = np.array(json.loads(names), dtype=str)
        yield arrays


@contextmanager
def torch_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Load the tensors; a pair is the numbers and the labels."""
    torch = import_extra("Files of torch.save", "torch", "torch")
    with nullcontext(location) if isinstance(location, Path) else location.open() as where:
        try:
            held = torch.load(where, map_location="cpu", weights_only=True)
        except UnpicklingError as error:
            raise InputError(
                f"Cannot read '{location}': it contains objects other than tensors, or is damaged; "
                "save the tensors alone, torch.save({'probs': ..., 'labels': ...}, ...)."
            ) from error
    if isinstance(held, list | tuple) and len(held) == 2:
        held = {ONLY_ARRAY: held[0], "labels": held[1]}
    elif hasattr(held, "detach"):
        held = {ONLY_ARRAY: held}
    if not isinstance(held, Mapping):
        raise InputError(f"'{location}' must contain tensors. Got {type(held).__name__}.")
    yield {
        str(key): to_numpy(value)
        for key, value in held.items()
        if hasattr(value, "detach") or isinstance(value, list | tuple)
    }


# ---- HDF5 ----------------------------------------------------------------------------------------


@contextmanager
def hdf5_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the data sets; class names may also be an attribute of the file."""
    h5py = import_extra("HDF5 files", "h5py", "hdf5")
    is_local = isinstance(location, Path)
    with nullcontext(location) if is_local else location.open() as where, h5py.File(where) as file:
        # Read attributes first: older versions of HDF5 find none in a damaged header later.
        names = [NAMES_KEY] if NAMES_KEY in file.attrs else []
        for key in file:
            link = file.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):  # it may name any file of this machine
                raise _elsewhere(location, key, link.filename)
            # A soft link may be broken; what is in the file must be readable.
            item = file[key] if isinstance(link, h5py.HardLink) else file.get(key)
            names += [key] if isinstance(item, h5py.Dataset) else []
        yield LazyArrays(names, lambda key: _array(file, key, location))


def _array(file: Any, key: str, location: Location) -> Any:
    import h5py

    if key not in file:
        return np.asarray(file.attrs[key])
    dataset = file[key]
    if h5py.h5o.get_info(dataset.id).fileno != h5py.h5o.get_info(file.id).fileno:
        raise _elsewhere(location, key, dataset.file.filename)  # linked through a group
    if dataset.is_virtual or dataset.external:
        others = dataset.virtual_sources() if dataset.is_virtual else dataset.external
        raise _elsewhere(location, key, str(others[0][1 if dataset.is_virtual else 0]))
    offset = dataset.id.get_offset()  # None if it is chunked
    if offset is not None and dataset.dtype.kind in "iuf" and isinstance(location, Path):
        return PlainArray(location, offset, dataset.dtype, dataset.shape)
    return dataset


def _elsewhere(location: Location, key: str, other: str) -> InputError:
    return InputError(
        f"{key!r} of '{location}' must be in the file itself. Got a link to '{other}'; open that "
        "file, or several as a folder."
    )


# ---- zarr ----------------------------------------------------------------------------------------


@contextmanager
def zarr_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the arrays of a store; class names may also be an attribute."""
    zarr = import_extra("Zarr stores", "zarr", "zarr")
    if isinstance(location, Path):
        store: Any = zarr.storage.LocalStore(location, read_only=True)
    else:
        location.system()  # raises if a library is missing
        store = zarr.storage.FsspecStore.from_url(str(location), read_only=True)
    opened = zarr.open(store, mode="r")
    if isinstance(opened, zarr.Array):
        arrays: Mapping[str, Any] = {ONLY_ARRAY: _without_pickle(opened, location)}
    else:
        arrays = LazyArrays(
            set(opened.array_keys()), lambda key: _without_pickle(opened[key], location)
        )
    names = opened.attrs.get(NAMES_KEY)
    if names is not None:
        arrays = {**arrays, NAMES_KEY: np.array(names, dtype=str)}
    yield arrays


def _without_pickle(array: Any, location: Location) -> Any:
    """Return an array of the store, unless decoding it would run arbitrary code."""
    if _names_pickle(array.metadata.to_dict()):
        raise InputError(
            f"'{location}' must contain plain numbers or text. Got an array of pickled Python "
            "objects, which are never loaded; write it again as numbers or text."
        )
    return array


def _names_pickle(metadata: Any) -> bool:
    """Return whether a codec in an array's metadata unpickles."""
    if isinstance(metadata, Mapping):
        names = [str(metadata.get(key, "")).lower() for key in ("id", "name")]
        return any("pickle" in name for name in names) or _names_pickle([*metadata.values()])
    return isinstance(metadata, list | tuple) and any(map(_names_pickle, metadata))
