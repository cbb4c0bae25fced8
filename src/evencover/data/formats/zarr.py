"""Chunks of a zarr store that would unpack to far more than an array has room for.

Blosc, Zstandard and LZ4 chunks say how long they are unpacked, and their readers take that much at
once: 58 kB may become 2 GB. So a store's chunks are looked at on their way to the reader. Zstandard
need not say it; then, and with other codecs, a chunk is as safe as its library.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover.data.columns import NAMES_KEY
from evencover.data.formats.arrays import ALWAYS_READ, MOST_PACKED, ONLY_ARRAY, LazyArrays
from evencover.data.location import Location
from evencover.errors import InputError, needs

_NO_CHUNK = 2**64 - 1  # in the index of a shard


class _Bound(NamedTuple):
    """How chunks of an array are packed, and their number of bytes; how many a shard has."""

    codec: str
    n_bytes: int
    per_shard: int


class Bounds:
    """What is known of the arrays of a store."""

    def __init__(self) -> None:
        self._of: dict[str, _Bound] = {}

    def learn(self, array: Any) -> None:
        """Note the codec and chunks of an array."""
        n_bytes = math.prod(array.chunks) * array.dtype.itemsize
        shards = array.shards or array.chunks
        per_shard = math.prod(s // c for s, c in zip(shards, array.chunks, strict=True))
        codec = next(_packers(array.metadata.to_dict()), "")
        self._of[array.path] = _Bound(codec, n_bytes, per_shard if array.shards else 0)

    def check(self, key: str, content: memoryview, *, is_whole: bool) -> None:
        """Refuse a chunk, or a shard that is read as a whole, that unpacks to too much."""
        path = max((path for path in self._of if key.startswith(path)), key=len, default=None)
        if path is None or key.rsplit("/", 1)[-1].startswith((".z", "zarr.json")):
            return
        bound = self._of[path]
        chunks = _inner(content, bound.per_shard) if bound.per_shard and is_whole else [content]
        for chunk in chunks:
            claimed = _unpacked_size(bound.codec, chunk)
            if claimed > max(bound.n_bytes, MOST_PACKED * len(chunk) + ALWAYS_READ):
                raise ValueError(f"a chunk of {len(chunk)} bytes says that it holds {claimed:.3g}")


def bounded(store: Any, bounds: Bounds) -> Any:
    """A store whose chunks are looked at before they are unpacked."""
    from zarr.storage import WrapperStore

    class Bounded(WrapperStore[Any]):
        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            found = await super().get(key, prototype, byte_range)
            if found is not None and len(found) > 0:
                content = found.as_numpy_array().data.cast("B")
                bounds.check(key, content, is_whole=byte_range is None)
            return found

    return Bounded(store)


def _packers(about: Any) -> Iterator[str]:
    """The names of codecs in a description that say how long a chunk is unpacked."""
    if isinstance(about, Mapping):
        for key in ("id", "name"):
            name = str(about.get(key, "")).removeprefix("numcodecs.")
            if name in _HEADERS:
                yield name
        about = list(about.values())
    if isinstance(about, list | tuple):
        for each in about:
            yield from _packers(each)


def _inner(shard: memoryview, n_chunks: int) -> Iterator[memoryview]:
    """The chunks of a shard whose index is at its end, with a checksum, as it usually is."""
    index = shard[-16 * n_chunks - 4 : -4]
    if len(index) == 16 * n_chunks:
        for begin, length in struct.iter_unpack("<QQ", index):
            if begin != _NO_CHUNK:
                yield shard[begin : begin + length]


def _unpacked_size(codec: str, chunk: memoryview) -> int:
    return _HEADERS[codec](chunk) if codec in _HEADERS else 0


def _of_blosc(chunk: memoryview) -> int:
    return int.from_bytes(chunk[4:8], "little")


def _of_lz4(chunk: memoryview) -> int:
    return int.from_bytes(chunk[:4], "little")


def _of_zstandard(chunk: memoryview) -> int:
    """The frame's content size (RFC 8878, section 3.1.1.1), 0 if it is left out."""
    if len(chunk) < 5:
        return 0
    kind, is_single = chunk[4] >> 6, chunk[4] >> 5 & 1
    begin = 5 + (not is_single) + (0, 1, 2, 4)[chunk[4] & 3]
    length = (is_single, 2, 4, 8)[kind]
    return int.from_bytes(chunk[begin : begin + length], "little") + 256 * (kind == 1)


_HEADERS = {"blosc": _of_blosc, "lz4": _of_lz4, "zstd": _of_zstandard}


_MARKS = ("zarr.json", ".zgroup", ".zarray")


def is_zarr(location: Location) -> bool:
    """Whether a folder is a store, whatever its name."""
    return any((location / mark).is_file() for mark in _MARKS)


@contextmanager
def zarr_arrays(location: Location) -> Iterator[Mapping[str, Any]]:
    """The arrays of a store; class names may also be an attribute."""
    try:
        import zarr
    except ImportError:
        raise needs("Zarr stores", "zarr", "zarr") from None
    if isinstance(location, Path):
        store: Any = zarr.storage.LocalStore(location, read_only=True)
    else:
        location.system()  # says what is missing
        store = zarr.storage.FsspecStore.from_url(str(location), read_only=True)
    bounds = Bounds()
    opened = zarr.open(bounded(store, bounds), mode="r")
    if isinstance(opened, zarr.Array):
        arrays: Mapping[str, Any] = {ONLY_ARRAY: _Chunked(opened, location, bounds)}
    else:
        keys = set(opened.array_keys())
        arrays = LazyArrays(keys, lambda key: _Chunked(opened[key], location, bounds))
    names = opened.attrs.get(NAMES_KEY)
    if names is not None:
        arrays = {**arrays, NAMES_KEY: np.array(names, dtype=str)}
    yield arrays


def _names_pickle(about: Any) -> bool:
    """Whether a codec anywhere in an array's description unpickles."""
    if isinstance(about, Mapping):
        names = (str(about.get(key, "")).lower() for key in ("id", "name"))
        return any("pickle" in name for name in names) or any(map(_names_pickle, about.values()))
    return isinstance(about, list | tuple) and any(map(_names_pickle, about))


class _Chunked:
    """An array of the store; what is stored together is read together."""

    def __init__(self, array: Any, location: Location, bounds: Bounds) -> None:
        if _names_pickle(array.metadata.to_dict()):  # decoding would run whatever code is in it
            raise InputError(
                f"'{location}' must hold plain numbers or text. Got an array of pickled Python "
                "objects, which are never loaded; write it again as numbers or text."
            )
        bounds.learn(array)
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = array.shards or array.chunks

    def __getitem__(self, rows: slice) -> Any:
        return self._array[rows]
