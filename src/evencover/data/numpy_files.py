"""NumPy's .npy and .npz files, memory-mapped where possible and streamed otherwise."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.files import LABEL_KEYS, LOGIT_KEY, NAMES_KEY, PROBABILITY_KEYS, reading
from evencover.data.source import Source, rows_per_block, slices


class NpySource(Source):
    """One matrix in an .npy file, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self.name = f"'{path}'"
        with reading(path):
            self._rows = np.lib.format.open_memmap(path, mode="r")
        self.n_rows, self.n_classes = _matrix_shape(self._rows.shape, self._rows.dtype, self.name)

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Slices of the memory map."""
        return ((rows, None) for rows in slices(self._rows))


class NpzSource(Source):
    """Probabilities or logits with labels and class names in an .npz archive."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, f"'{path}'"
        with reading(path), zipfile.ZipFile(path) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
            self._key = _only_matrix(keys, self.name)
            self.logits = self._key == LOGIT_KEY
            with archive.open(f"{self._key}.npy") as member:
                shape, self._fortran, self._dtype = _header(member, self._key, self.name)
            self.n_rows, self.n_classes = _matrix_shape(shape, self._dtype, self.name)
            names = self._small_array(archive, NAMES_KEY, keys)
            labels = next((key for key in LABEL_KEYS if key in keys), None)
            stored = None if labels is None else self._small_array(archive, labels, keys)
        if names is not None:
            self.class_names = [str(name) for name in names.tolist()]
            if len(self.class_names) != self.n_classes:
                raise InputError(
                    f"'{NAMES_KEY}' in {self.name} must have one name per class. "
                    f"Got {len(self.class_names)} names for {self.n_classes} classes."
                )
        if stored is not None:
            self.attach_labels(stored)

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Slices of a memory map if the archive is not compressed, else a stream of it."""
        with reading(self.path), zipfile.ZipFile(self.path) as archive:
            info = archive.getinfo(f"{self._key}.npy")
            if info.compress_type == zipfile.ZIP_STORED or self._fortran:
                yield from ((rows, None) for rows in slices(self._whole(archive, info)))
                return
            with archive.open(info) as member:
                _header(member, self._key, self.name)
                yield from self._stream(member)

    def _small_array(self, archive: zipfile.ZipFile, key: str, keys: list[str]) -> Array | None:
        if key not in keys:
            return None
        with archive.open(f"{key}.npy") as member:
            _header(member, key, self.name)
        with archive.open(f"{key}.npy") as member:
            return np.lib.format.read_array(member, allow_pickle=False)

    def _whole(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
        assert self.n_rows is not None
        shape = (self.n_rows, self.n_classes)
        if info.compress_type != zipfile.ZIP_STORED:  # columns first: rows cannot be streamed
            with archive.open(info) as member:
                return np.lib.format.read_array(member, allow_pickle=False)
        with open(self.path, "rb") as file:
            file.seek(info.header_offset + 26)
            name_length, extra_length = np.frombuffer(file.read(4), dtype="<u2")
            begin = file.seek(info.header_offset + 30 + int(name_length) + int(extra_length))
            _header(file, self._key, self.name)
            offset = file.tell()
        if offset - begin + shape[0] * shape[1] * self._dtype.itemsize > info.file_size:
            raise InputError(f"Cannot read {self.name}: its matrix ends too early.")
        order = "F" if self._fortran else "C"
        return np.memmap(self.path, self._dtype, "r", offset, shape, order)  # type: ignore[call-overload]

    def _stream(self, member: IO[bytes]) -> Iterator[tuple[Array, Array | None]]:
        row_bytes = self._dtype.itemsize * self.n_classes
        step = rows_per_block(self.n_classes)
        assert self.n_rows is not None
        for start in range(0, self.n_rows, step):
            n = min(step, self.n_rows - start)
            data = member.read(n * row_bytes)
            if len(data) != n * row_bytes:
                raise InputError(f"Cannot read {self.name}: the file ends in row {start}.")
            yield np.frombuffer(data, self._dtype).reshape(n, self.n_classes), None


def _only_matrix(keys: list[str], name: str) -> str:
    found = [key for key in (*PROBABILITY_KEYS, LOGIT_KEY) if key in keys]
    if len(found) != 1:
        raise InputError(
            f"{name} must hold one matrix under {', '.join(map(repr, PROBABILITY_KEYS))} or "
            f"'{LOGIT_KEY}'. Got the keys {', '.join(keys) or 'none'}."
        )
    return found[0]


def _header(member: IO[bytes], key: str, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran, dtype = read(member)
    if dtype.hasobject:
        raise InputError(
            f"'{key}' in {name} must hold plain numbers or text. Got pickled Python objects, "
            "which are never loaded; save it again with a numeric or text type."
        )
    return shape, fortran, dtype


def _matrix_shape(shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> tuple[int, int]:
    if len(shape) != 2:
        raise InputError(
            f"{name} must hold a matrix with one row per example and one column per class. "
            f"Got an array of shape {shape} instead."
        )
    if shape[1] < 2:
        raise InputError(f"{name} must have at least 2 classes (columns). Got {shape[1]} instead.")
    if dtype.kind not in "biuf":
        raise InputError(f"{name} must hold real numbers. Got the type {dtype} instead.")
    return shape[0], shape[1]
