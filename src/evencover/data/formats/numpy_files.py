"""NumPy's .npy and .npz files: mapped into memory where possible, streamed where compressed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from evencover._validation import Array, InputError, unique_keys
from evencover.data.formats.arrays import ONLY_ARRAY, LazyArrays, StoredArray
from evencover.data.formats.plain_array import PlainArray, widened
from evencover.data.location import Location

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


@contextmanager
def npy_arrays(location: Location) -> Iterator[Mapping[str, StoredArray]]:
    """The one array of an .npy file."""
    with location.open("rb") as file:
        shape, fortran, dtype = _header(file, f"'{location}'")
        offset = file.tell()
    yield {ONLY_ARRAY: PlainArray(location, offset, dtype, shape, fortran=fortran)}


@contextmanager
def npz_arrays(location: Location) -> Iterator[Mapping[str, StoredArray]]:
    """The arrays of an .npz archive."""
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
