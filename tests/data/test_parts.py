"""A source cut into parts is the same rows, and every part can travel."""

import pickle

import numpy as np
import pytest

import evencover.data.source as source_module
from evencover import InputError
from evencover.data import as_source

pa = pytest.importorskip("pyarrow")
ipc = pytest.importorskip("pyarrow.ipc")
pq = pytest.importorskip("pyarrow.parquet")

N, K = 23, 4
NAMES = ["ant", "bee", "çédille", "海"]
ROWS = np.random.default_rng(5).dirichlet(np.ones(K), N).astype(np.float32)
LABELS = np.arange(N) % K
KINDS = ["npy", "npz", "compressed npz", "parquet", "arrow"]


def write(path, kind, rows=ROWS, labels=LABELS):
    """A file of this kind; all but .npy hold the labels too."""
    path = path.with_name(f"{path.name}.{kind.split()[-1]}")
    if kind == "npy":
        np.save(path, rows)
    elif kind.endswith("npz"):
        save = np.savez_compressed if "compressed" in kind else np.savez
        save(path, probs=rows, labels=labels)
    else:
        flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        table = pa.table({"probs": flat, "labels": labels})
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=3)
        else:
            with ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
    return path


def read(source):
    blocks = list(source.blocks())
    labels = None if blocks[0].labels is None else np.concatenate([b.labels for b in blocks])
    return np.concatenate([block.rows for block in blocks]), labels


def assert_parts_hold(source, rows=ROWS, labels=LABELS):
    parts = pickle.loads(pickle.dumps(source.parts()))
    found = [read(part) for part in parts]
    assert [part.n_rows for part in parts] == [len(each) for each, _ in found]
    np.testing.assert_array_equal(np.concatenate([each for each, _ in found]), rows)
    np.testing.assert_array_equal(np.concatenate([each for _, each in found]), labels)
    return parts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("elements", [1, 5 * K, None])
def test_parts_of_a_file(tmp_path, monkeypatch, kind, elements):
    source = as_source(write(tmp_path / "p", kind), LABELS if kind == "npy" else None)
    if elements is not None:
        monkeypatch.setattr(source_module, "PART_ELEMENTS", elements)
    n_parts = {1: {"npy": 23, "npz": 23}.get(kind, 8), 5 * K: {"npy": 5, "npz": 5}.get(kind, 4)}
    parts = assert_parts_hold(source)
    expected = 1 if kind == "compressed npz" else n_parts.get(elements, 1)
    assert len(parts) == expected
    assert_parts_hold(source)  # the whole is as it was


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_can_be_cut_again(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(source_module, "PART_ELEMENTS", 9 * K)
    source = as_source(write(tmp_path / "p", kind), LABELS if kind == "npy" else None)
    coarse = source.parts()
    monkeypatch.setattr(source_module, "PART_ELEMENTS", 2 * K)
    fine = [piece for part in coarse for piece in part.parts()]
    np.testing.assert_array_equal(np.concatenate([read(piece)[0] for piece in fine]), ROWS)
    np.testing.assert_array_equal(np.concatenate([read(piece)[1] for piece in fine]), LABELS)


def test_parts_know_what_was_said_about_the_whole(tmp_path):
    np.save(tmp_path / "p.npy", ROWS)
    source = as_source(tmp_path / "p.npy", np.array(NAMES)[LABELS], class_names=NAMES, logits=True)
    source.watch = lambda blocks: blocks
    (part,) = assert_parts_hold(source)
    assert part.class_names == NAMES
    assert part.logits is True


def test_arrays_and_streams_have_no_parts():
    assert as_source(ROWS).parts() is None
    assert as_source(iter([ROWS])).parts() is None


def test_rows_of_a_part_are_counted_from_the_start_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "PART_ELEMENTS", 10 * K)
    labels = LABELS.copy()
    labels[21] = 7
    part = as_source(write(tmp_path / "p", "parquet", labels=labels)).parts()[-1]
    assert part.first_row > 0
    with pytest.raises(InputError, match=r"Got 7 in row 21 of '.*p\.parquet'"):
        read(part)
