"""Read files of named arrays: NumPy, safetensors, torch, HDF5 and zarr."""

from __future__ import annotations

import json
import math
import sys
import zipfile
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
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
)
from evencover.data.entries import Entries, contents_of
from evencover.data.location import (
    Identity,
    Location,
    RemoteFile,
    file_identity,
    identity_of,
    local_copy,
    reading,
)
from evencover.data.readers import RawBlock, Reader, rows_per_block, rows_per_part, slices
from evencover.data.source import Contents, Labels
from evencover.errors import InputError, import_extra, one_line
from evencover.rows import BFLOAT16, matrix_shape
from evencover.validation import unique_keys


def plain_array(
    location: Location,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    *,
    fortran: bool = False,
    end: int | None = None,
) -> Any:
    """Return the array of numbers in a file from `offset` on: mapped, or read in slices of rows."""
    end = identity_of(location).size if end is None else end
    if offset + math.prod(shape) * dtype.itemsize > end:
        raise InputError(f"Cannot read '{location}': the file is truncated.")
    if 0 in shape:  # an empty map raises
        return np.empty(shape, dtype)
    if isinstance(location, RemoteFile):
        return _RemoteArray(location, offset, dtype, shape, fortran)
    return np.memmap(location, dtype, "r", offset, shape, "F" if fortran else "C")


@dataclass(frozen=True)
class _RemoteArray:
    """An array of numbers in a remote file; each slice of its rows is one request."""

    location: RemoteFile
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool

    def __getitem__(self, rows: Any) -> Array:
        shape = self.shape or (1,)
        is_whole = self.fortran or rows is ...  # column-major rows are scattered
        start, stop, _ = slice(None).indices(shape[0]) if is_whole else rows.indices(shape[0])
        n_bytes = math.prod(shape[1:]) * self.dtype.itemsize
        first, last = self.offset + start * n_bytes, self.offset + stop * n_bytes
        data = self.location.ask("cat_file", start=first, end=last)
        values = np.frombuffer(bytes(data), self.dtype)
        if self.fortran:
            return values.reshape(shape, order="F")[rows]
        return values.reshape(-1, *shape[1:])


ONLY_ARRAY = ""  # name of the array in a file with one array


class LazyArrays(UserDict[str, Any]):
    """Arrays by name, each opened by its function when it is looked up."""

    def __getitem__(self, key: str) -> Any:
        return self.data[key]()


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
        whole = replace(self, location=self.location.absolute())
        starts = range(0, self.n_rows, step)
        return [whole.cut(start, min(step, self.n_rows - start)) for start in starts]

    def identity_of_rows(self) -> tuple[Any, ...]:
        """Identify the rows by their file."""
        return (*file_identity(self.location, self.identity), self.first_row)


def open_array_file(location: Location, open_arrays: OpenArrays, keys: Keys = USUAL) -> Contents:
    """Open a file with a matrix and, perhaps, labels, ids and class names."""
    name = f"'{location}'"
    with reading(location) as identity, open_arrays(location) as arrays:
        read = partial(whole, arrays, identity.size)
        if arrays.keys() >= SPARSE_KEYS:
            return _read_sparse(arrays, keys, name, read, identity.size)

        key, logits = matrix_key(arrays, name, keys)
        matrix = arrays[key]
        n_rows, n_classes = matrix_shape(matrix.shape, name)
        if matrix.dtype.kind not in "biuf" and matrix.dtype != BFLOAT16:
            raise InputError(f"{name} must contain real numbers. Got the type {matrix.dtype}.")
        chunks = getattr(matrix, "shards", None) or getattr(matrix, "chunks", None)
        chunk = int(chunks[0]) if chunks else 0 if hasattr(matrix, "in_order") else 1
        at_once = (chunk or n_rows) * n_classes * matrix.dtype.itemsize
        explained(at_once // 8, identity.size, f"The array {key!r}")
        about = beside(arrays, {key}, keys, name, read, n_classes)
    reader = ArrayFileReader(
        location=location,
        identity=identity,
        open_arrays=open_arrays,
        key=key,
        chunk=chunk,
        n_rows=n_rows,
        n_classes=n_classes,
        name=name,
    )
    return Contents(reader=reader, logits=logits, **about)


def beside(
    arrays: Mapping[str, Any],
    matrix: Set[str],
    keys: Keys,
    name: str,
    read: Callable[[str], Any],
    n_classes: int,
) -> dict[str, Any]:
    """Read the arrays next to those of the matrix, as fields of the contents."""
    label = found_key(arrays.keys() - matrix, keys.labels, LABEL_KEYS, name, "labels_key")
    ids = found_key(arrays.keys() - matrix, keys.ids, ID_KEYS, name, "ids_key")
    numbers = "listed classes" if len(matrix) > 1 else min(matrix) or "the only matrix"
    used = {"numbers": numbers}
    for use, key in (("labels", label), ("ids", ids), ("class names", NAMES_KEY)):
        if key is not None and key in arrays:
            used[use] = key
    class_names = None
    if NAMES_KEY in arrays:
        names = to_numpy(read(NAMES_KEY)).ravel().tolist()
        class_names = checked_names(names, n_classes, f"{NAMES_KEY!r} in {name}")
    unknown = arrays.keys() - {*matrix, *used.values()}
    return {
        "class_names": class_names,
        "labels": Labels(to_numpy(read(label))) if label is not None and keys.read_labels else None,
        "ids": read(ids) if ids is not None and keys.read_ids else None,
        "columns": ColumnUses(used, dict.fromkeys(unknown, "not a name that is known")),
    }


SPARSE_KEYS = {"indptr", "indices", "data", "shape", "format"}  # of scipy.sparse.save_npz


def _read_sparse(
    arrays: Mapping[str, Any], keys: Keys, name: str, read: Callable[[str], Any], n_bytes: int
) -> Contents:
    """Read the arrays of a matrix that `scipy.sparse.save_npz` wrote, and those next to them."""
    kind, (n_rows, n_classes) = str(read("format").item()), read("shape").tolist()
    if kind not in ("csr", "csc"):
        raise InputError(f"{name} must have the format csr or csc. Got {kind!r}.")
    explained(n_classes, n_bytes, f"The number of classes of {name}")
    starts, classes, values = map(read, ("indptr", "indices", "data"))
    if kind == "csc":
        from scipy.sparse import csc_array

        explained(n_rows, n_bytes, f"The number of rows of {name}")
        try:
            matrix = csc_array((values, classes, starts), shape=(n_rows, n_classes)).tocsr()
        except ValueError as error:
            raise InputError(f"{name} must be a sparse matrix. Got {one_line(error)}.") from error
        starts, classes, values = matrix.indptr, matrix.indices, matrix.data
    if len(starts) != n_rows + 1:
        raise InputError(
            f"'indptr' of {name} must have one entry per row and the end. Got {len(starts)} for "
            f"{n_rows} rows."
        )
    about = beside(arrays, SPARSE_KEYS, keys, name, read, n_classes)
    return contents_of(Entries(starts, classes, values), name, n_classes=n_classes, **about)


def whole(arrays: Mapping[str, Any], file_size: int, key: str) -> Array:
    """Read a whole small array, text as text."""
    stored = arrays[key]
    n_bytes = math.prod(stored.shape) * np.dtype(stored.dtype).itemsize
    explained(n_bytes // 8, file_size, f"The array {key!r}")
    values = np.asarray(stored[...])
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
    yield {ONLY_ARRAY: plain_array(location, offset, dtype, shape, fortran=fortran)}


@contextmanager
def npz_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """Open the arrays of an .npz archive."""
    with location.open("rb") as file, zipfile.ZipFile(file) as archive:
        arrays = []
        for info in archive.infolist():
            open_member = partial(_npz_array, location, file, archive, info)
            arrays.append((info.filename.removesuffix(".npy"), open_member))
        yield LazyArrays(unique_keys(f"'{location}'", arrays))


def _npz_array(
    location: Location, file: IO[bytes], archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> Any:
    with archive.open(info) as content:
        shape, fortran, dtype = _header(content, f"'{info.filename}' in '{location}'")
        header_length = content.tell()
    # Small arrays are read through the archive, which verifies checksums.
    if info.compress_type != zipfile.ZIP_STORED or len(shape) != 2:
        return _CompressedArray(archive, info, shape, dtype)
    file.seek(info.header_offset + 26)
    begin = info.header_offset + 30 + int(np.frombuffer(file.read(4), "<u2").sum())
    offset, end = begin + header_length, begin + info.file_size
    return plain_array(location, offset, dtype, shape, fortran=fortran, end=end)


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
        return self._content[rows]


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
            arrays[key] = plain_array(path, offset, dtype, shape)
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
        yield LazyArrays({name: partial(_array, file, name, location) for name in names})


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
        return plain_array(location, offset, dataset.dtype, dataset.shape)
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
    keys = [ONLY_ARRAY] if isinstance(opened, zarr.Array) else opened.array_keys()
    arrays: dict[str, Any] = {key: partial(_zarr_array, location, opened, key) for key in keys}
    names = opened.attrs.get(NAMES_KEY)
    if names is not None:
        arrays[NAMES_KEY] = lambda: np.array(names, dtype=str)
    yield LazyArrays(arrays)


def _zarr_array(location: Location, group: Any, key: str) -> Any:
    """Return an array of the store, unless decoding it would run arbitrary code."""
    array = group[key] if key else group
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
