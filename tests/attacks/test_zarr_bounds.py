"""A chunk of a zarr store that says it holds a gigabyte is refused before anybody takes one."""

import struct

import numcodecs
import numpy as np
import pytest
import zarr
from inputs import LABELS, ROWS, read

from evencover import InputError
from evencover.data import as_source

HUGE = 1 << 30
CLAIMS = {
    "blosc": b"\x02\x01\x33\x04" + struct.pack("<III", HUGE, 32, 40) + bytes(24),
    "lz4": struct.pack("<I", HUGE) + bytes(20),
    "zstd": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", HUGE) + bytes(12),  # eight bytes of size
    "zstd 4": b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", HUGE) + bytes(12),  # four
    "zstd window": b"\x28\xb5\x2f\xfd\x80\x50" + struct.pack("<I", HUGE) + bytes(12),
}
CODECS = {"blosc": numcodecs.Blosc(), "lz4": numcodecs.LZ4(), "zstd": numcodecs.Zstd()}


def written(path, zarr_format, **options):
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    for key, values in {"probs": ROWS, "labels": LABELS}.items():
        more = options if key == "probs" else {}
        array = group.create_array(key, shape=values.shape, dtype=values.dtype, **more)
        array[:] = values
    assert np.array_equal(read(as_source(path))[0], ROWS)
    return path.rename(path.with_name("damaged.zarr"))


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_chunk_that_claims_too_much_is_refused(tmp_path, claim):
    codec = CODECS[claim.split()[0]]
    path = written(tmp_path / "p.zarr", 2, chunks=ROWS.shape, compressors=codec)
    (path / "probs" / "0.0").write_bytes(CLAIMS[claim])
    with pytest.raises(InputError, match=r"a chunk of \d+ bytes says that it holds 1\.07e\+09"):
        read(as_source(path))


@pytest.mark.parametrize("shards", [None, ROWS.shape], ids=["chunks", "shards"])
def test_so_it_is_in_format_3(tmp_path, shards):
    path = written(tmp_path / "p.zarr", 3, chunks=(1, ROWS.shape[1]), shards=shards)
    chunk = CLAIMS["zstd"]
    if shards is not None:  # one chunk, the others are missing; then the index
        n_missing = len(ROWS) - 1
        index = struct.pack("<QQ", 0, len(chunk)) + n_missing * struct.pack("<QQ", *2 * [2**64 - 1])
        chunk += index + bytes(4)
    (path / "probs" / "c" / "0" / "0").write_bytes(chunk)
    with pytest.raises(InputError, match=r"a chunk of \d+ bytes says that it holds 1\.07e\+09"):
        read(as_source(path))


def test_zeros_that_are_many_are_read(tmp_path):
    """What the array itself has room for may be packed as well as it goes."""
    path = tmp_path / "p.zarr"
    rows = np.zeros((2000, 1000), np.float32)
    rows[:, 0] = 1
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("probs", shape=rows.shape, dtype="f4", chunks=rows.shape)[:] = rows
    assert read(as_source(path))[0].sum() == 2000
