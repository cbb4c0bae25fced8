"""safetensors, HDF5 and zarr: the rows that were stored; a broken file gives one sentence."""

import json
from itertools import product

import h5py
import numpy as np
import pytest
import zarr
from depth import IS_DEEP
from inputs import (
    FILES,
    LABELS,
    NAMES,
    ROWS,
    K,
    assert_holds,
    assert_refused,
    write_arrays,
    write_file,
)

from evencover import InputError, StandardPredictor
from evencover.data import as_source

KINDS = ["safetensors", "h5", "chunked h5", "zarr 2", "zarr 3", "sharded zarr"]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, "f4") for kind in KINDS),
        *product(KINDS if IS_DEEP else ["safetensors", "h5", "zarr 3"], ["f2", "f8"]),
    ],
)
def test_rows_labels_and_names(tmp_path, block_elements, kind, dtype):
    rows = ROWS.astype(dtype)
    path = write_arrays(tmp_path, kind, names=NAMES, probs=rows, labels=LABELS, other=np.arange(7))
    source = as_source(path)
    assert list(source.class_names) == NAMES
    assert source.logits is False
    assert_holds(source, rows)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["p.zarr", "folder"])
def test_a_zarr_array_alone(tmp_path, block_elements, zarr_format, name):
    array = zarr.create_array(
        tmp_path / name, shape=ROWS.shape, chunks=(5, 3), dtype="f4", zarr_format=zarr_format
    )
    array[:] = ROWS
    source = as_source(tmp_path / name, LABELS)
    assert source.logits is None
    assert_holds(source)


@pytest.mark.parametrize("store", ["attribute", "bytes", "text"])
def test_names_in_hdf5(tmp_path, store):
    labels = np.array(NAMES)[LABELS].tolist()
    with h5py.File(tmp_path / "p.hdf5", "w") as file:
        file["probs"] = ROWS
        if store == "attribute":
            file.attrs["class_names"] = NAMES
        else:
            encoded = np.char.encode(np.array(NAMES), "utf-8")
            file["class_names"] = encoded if store == "bytes" else NAMES
        file["labels"] = labels
    assert_holds(as_source(tmp_path / "p.hdf5"))


def bfloat16(rows):
    """Rounded to nearest: bits, and the float32 numbers that they stand for."""
    bits = (np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32) + 0x8000) >> 16
    return bits.astype(np.uint16), (bits.astype(np.uint32) << 16).view(np.float32)


def write_bfloat16(path, rows):
    bits, _ = bfloat16(rows)
    about = {"dtype": "BF16", "shape": list(rows.shape), "data_offsets": [0, bits.nbytes]}
    header = json.dumps({"probs": about}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes())


def test_bfloat16(tmp_path, block_elements):
    bits, values = bfloat16(ROWS)
    write_bfloat16(tmp_path / "p.safetensors", ROWS)
    assert_holds(as_source(tmp_path / "p.safetensors", LABELS), values)
    np.save(tmp_path / "p.npy", bits.view("V2"))  # as NumPy saves arrays of ml_dtypes
    assert_holds(as_source(tmp_path / "p.npy", LABELS), values)


def test_rows_of_bfloat16_may_be_off_by_its_rounding(tmp_path, quietly):
    rows = np.full((200, K), 0.0018 / 3)
    rows[:, 0] = 1 - 0.0018
    write_bfloat16(tmp_path / "p.safetensors", rows)
    values, labels = bfloat16(rows)[1], np.zeros(200, dtype=int)
    assert abs(values[0].sum() - 1) > 1e-3  # more than float32 is allowed
    from_file = quietly(StandardPredictor(), tmp_path / "p.safetensors", labels)
    assert from_file.thresholds_[0] == 1 - np.float64(values[0, 0])
    values[0, 1] *= 1.001  # no longer bfloat16
    with pytest.raises(InputError, match="Row 0 sums to"):
        quietly(StandardPredictor(), values, labels)


@pytest.mark.parametrize("kind", ["npz", *KINDS])
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"other": ROWS}, "one matrix under .* Got the keys other"),
        ({"probs": ROWS[0]}, r"shape \(4,\)"),
        ({"probs": ROWS[:, :1]}, "at least 2 classes"),
        ({"probs": ROWS, "labels": LABELS + 1}, r"Got 4 in row 3 of '.*p\.\w+'"),
        ({"probs": ROWS, "labels": LABELS[:-1]}, "22 labels for 23 rows"),
        ({"probs": ROWS, "labels": LABELS.astype(float)}, "must be integers"),
        ({"probs": ROWS, "names": NAMES[:3]}, "class_names.* 3"),
    ],
)
def test_files_that_break_a_rule(tmp_path, kind, arrays, words):
    assert_refused(write_arrays(tmp_path, kind, **arrays), words)


@pytest.mark.parametrize("kind", sorted({*FILES, "chunked h5"} - {"csv", "zarr 3"}))
def test_files_cut_anywhere(tmp_path, kind):
    is_chunked = kind == "chunked h5"
    path = (
        write_arrays(tmp_path, kind, probs=ROWS) if is_chunked else write_file(tmp_path / "p", kind)
    )
    whole = path.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:length])
        assert_refused(path, "truncated")


@pytest.mark.parametrize("kind", ["zarr 2", "zarr 3"])
def test_a_damaged_chunk_is_noticed(tmp_path, kind):
    path = write_arrays(tmp_path, kind, probs=ROWS)
    chunk = next(p for p in (path / "probs").rglob("*") if p.is_file() and "z" not in p.name)
    chunk.write_bytes(chunk.read_bytes()[:4])
    assert_refused(path, "truncated")
