"""One small input, and what every reader must make of it."""

import json

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
import zarr
from safetensors.numpy import save_file

import evencover.data.readers as source_module
from evencover import InputError
from evencover.data import as_source

N, K = 23, 4
NAMES = ["ant", "bee", "çédille", "海"]
LOGITS = np.random.default_rng(5).normal(size=(N, K)).astype(np.float32)
ROWS = (np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)).astype(np.float32)
LABELS = np.arange(N) % K


def read(source):
    """All rows and labels; the blocks must be in order and no larger than asked for."""
    rows, labels, start = [], [], source.offset
    for block in source.blocks():
        assert block.start == start
        assert len(block.rows) <= source_module.rows_per_block(source.n_classes)
        start += len(block.rows)
        rows.append(block.rows)
        labels.append(block.labels)
    assert source.n_rows in (None, start - source.offset)
    has_labels = labels[0] is not None
    assert source.has_labels == has_labels
    return np.concatenate(rows), np.concatenate(labels) if has_labels else None


def assert_holds(source, rows=ROWS, labels=LABELS):
    found_rows, found_labels = read(source)
    np.testing.assert_array_equal(found_rows, rows)
    assert found_rows.dtype == rows.dtype
    np.testing.assert_array_equal(found_labels, labels)
    again, _ = read(source)  # a file can be read twice
    np.testing.assert_array_equal(again, rows)


def assert_refused(path, words=None, **arguments):
    """Reading the file to its end fails with one sentence that names it."""
    with pytest.raises(InputError, match=words) as caught:
        read(as_source(path, **arguments))
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def list_array(kind, rows=ROWS):
    flat = pa.array(rows.ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    make, offset_type = {
        "list": (pa.ListArray, pa.int32()),
        "large": (pa.LargeListArray, pa.int64()),
    }[kind]
    offsets = pa.array(np.arange(len(rows) + 1) * rows.shape[1], offset_type)
    return make.from_arrays(offsets, flat)


def write_table(path, table, rows_per_group=7):
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows_per_group)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_group)


def write_arrays(folder, kind, *, names=None, **arrays):
    """A file of this kind with the arrays and class names."""
    if kind == "npz":
        path = folder / "p.npz"
        np.savez(path, **arrays, **({} if names is None else {"class_names": names}))
    elif kind == "safetensors":
        path = folder / "p.safetensors"
        metadata = None if names is None else {"class_names": json.dumps(names)}
        save_file({key: np.ascontiguousarray(a) for key, a in arrays.items()}, path, metadata)
    elif kind.endswith("h5"):
        path = folder / "p.h5"
        with h5py.File(path, "w") as file:
            for key, values in arrays.items():
                is_packed = "chunked" in kind and values.ndim == 2
                packed = {"chunks": (3, *values.shape[1:]), "compression": "gzip"}
                file.create_dataset(key, data=values, **(packed if is_packed else {}))
            if names is not None:
                file["class_names"] = names
    else:
        path = folder / "p.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=2 if kind == "zarr 2" else 3)
        for key, values in arrays.items():
            cut = {"chunks": (2, *values.shape[1:])}
            if kind == "sharded zarr":
                cut["shards"] = (6, *values.shape[1:])
            group.create_array(key, data=values, **cut)
        if names is not None:
            group.attrs["class_names"] = names
    return path


FILES = ["npy", "npz", "compressed npz", "parquet", "arrow", "safetensors", "h5", "zarr 3", "csv"]


def write_file(path, kind, rows=ROWS, labels=LABELS):
    """A file of this kind; all but .npy hold the labels too."""
    if kind in ("safetensors", "h5", "zarr 3"):
        return write_arrays(path.parent, kind, probs=rows, labels=labels)
    path = path.with_name(f"{path.name}.{kind.split()[-1]}")
    if kind == "npy":
        np.save(path, rows)
    elif kind.endswith("npz"):
        save = np.savez_compressed if "compressed" in kind else np.savez
        save(path, probs=rows, labels=labels)
    elif kind == "csv":
        table = np.column_stack([rows, labels])
        header = ",".join([*NAMES[: rows.shape[1]], "label"])
        formats = ["%.17g"] * rows.shape[1] + ["%d"]
        np.savetxt(path, table, formats, ",", header=header, comments="", encoding="utf-8")
    elif kind == "jsonl":
        records = zip(rows.tolist(), labels.tolist(), strict=True)
        path.write_text("\n".join(json.dumps({"probs": p, "labels": y}) for p, y in records))
    else:
        write_table(path, pa.table({"probs": list_array("fixed", rows), "labels": labels}), 3)
    return path
