"""A source cut into parts is the same rows, and every part can travel."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from inputs import FILES, LABELS, NAMES, ROWS, K, read, write_file

import evencover.data.readers as source_module
from evencover import InputError
from evencover.data import as_source

# How many parts there are if every row may be one, or if five rows make one: chunks stay whole.
N_PARTS = {
    "npy": (23, 5), "npz": (23, 5), "safetensors": (23, 5), "h5": (23, 5), "zarr 3": (12, 4),
    "parquet": (8, 4), "arrow": (8, 4), "compressed npz": (1, 1), "csv": (1, 1),
}  # fmt: skip


def assert_parts_hold(source, rows=ROWS, labels=LABELS):
    parts = pickle.loads(pickle.dumps(source.parts()))
    found = [read(part) for part in parts]
    assert [part.n_rows for part in parts] == [len(each) for each, _ in found]
    np.testing.assert_array_equal(np.concatenate([each for each, _ in found]).astype("f4"), rows)
    np.testing.assert_array_equal(np.concatenate([each for _, each in found]), labels)
    return parts


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("elements", [1, 5 * K, None])
def test_parts_of_a_file(tmp_path, monkeypatch, kind, elements):
    source = as_source(write_file(tmp_path / "p", kind), LABELS if kind == "npy" else None)
    if elements is not None:
        monkeypatch.setattr(source_module, "PART_ELEMENTS", elements)
    parts = assert_parts_hold(source)
    assert len(parts) == (1 if elements is None else N_PARTS[kind][elements != 1])
    assert_parts_hold(source)  # the whole is as it was


def test_parts_know_what_was_said_about_the_whole(tmp_path):
    np.save(tmp_path / "p.npy", ROWS)
    source = as_source(tmp_path / "p.npy", np.array(NAMES)[LABELS], class_names=NAMES, logits=True)
    source = replace(source, watch=lambda blocks: blocks)
    (part,) = assert_parts_hold(source)
    assert list(part.class_names) == NAMES
    assert part.logits is True


def test_arrays_and_streams_have_no_parts():
    assert as_source(ROWS).parts() is None
    assert as_source(iter([ROWS])).parts() is None


def test_rows_of_a_part_are_counted_from_the_start_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "PART_ELEMENTS", 10 * K)
    labels = LABELS.copy()
    labels[21] = 7
    path = write_file(tmp_path / "p", "parquet", labels=labels)
    with pytest.raises(InputError, match=r"Got 7 in row 21 of '.*p\.parquet'"):
        as_source(path)
    part = as_source(path, LABELS).parts()[-1]
    block = next(part.blocks())
    assert block.start == part.reader.first_row > 0
    assert block.row_name(1).startswith(f"row {block.start + 1} of ")


def test_a_folder_has_at_least_one_part_per_file(tmp_path, monkeypatch):
    for number, rows in ((1, slice(0, 9)), (2, slice(9, 23))):
        write_file(tmp_path / f"p{number}", "npz", ROWS[rows], LABELS[rows])
    assert len(assert_parts_hold(as_source(tmp_path))) == 2
    monkeypatch.setattr(source_module, "PART_ELEMENTS", 5 * K)
    assert len(assert_parts_hold(as_source(tmp_path))) == 2 + 3
    assert len(assert_parts_hold(as_source(tmp_path, LABELS[::-1]), labels=LABELS[::-1])) == 5
