"""One small input, and what every reader must make of it."""

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

import evencover.data.source as source_module
from evencover import InputError
from evencover.data import as_source

N, K = 23, 4
NAMES = ["ant", "bee", "çédille", "海"]
LOGITS = np.random.default_rng(5).normal(size=(N, K)).astype(np.float32)
ROWS = (np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)).astype(np.float32)
LABELS = np.arange(N) % K


def read(source):
    """All rows and labels; the blocks must be in order and no larger than asked for."""
    rows, labels, start = [], [], 0
    for block in source.blocks():
        assert block.start == start
        assert len(block.rows) <= source_module.rows_per_block(source.n_classes)
        start += len(block.rows)
        rows.append(block.rows)
        labels.append(block.labels)
    assert source.n_rows in (None, start)
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


def assert_refused(path, words, **arguments):
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
