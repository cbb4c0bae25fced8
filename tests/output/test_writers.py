"""Sets written to files read back the same; what fails leaves nothing behind."""

import csv
import json
import re

import numpy as np
import pytest

from evencover import InputError, PredictionSets
from evencover.output.atomic import atomic_path, refuse_existing
from evencover.output.writers import check_sets_format, write_csv, write_sets

pq = pytest.importorskip("pyarrow.parquet")

ENDINGS = ["parquet", "npz", "jsonl", "csv"]
NAMES = ["a", 'quote "b", comma', "海", "line\nbreak", "€|\\"]
LISTS = [[0, 3], [], [1, 2, 3, 4], [4], [], [0]]


def sets_of(lists, n_classes=5):
    sizes = [len(members) for members in lists]
    flat = np.array([member for members in lists for member in members], dtype=np.int32)
    return PredictionSets.from_sizes(np.array(sizes, dtype=np.int64), flat, n_classes)


def read_back(path):
    """(sets as lists, names as lists or None) of a written file."""
    if path.suffix == ".parquet":
        table = pq.read_table(path).to_pydict()
        return table["set"], table.get("names")
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            sets = PredictionSets(file["indptr"], file["indices"], int(file["n_classes"]))
            assert sets.n_classes == 5
            names = file["class_names"].tolist() if "class_names" in file else None
        lists = sets.to_lists()
        return lists, names and [[names[member] for member in members] for members in lists]
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
        assert [record["row"] for record in records] == list(range(len(records)))
        names = [record["names"] for record in records if "names" in record]
        return [record["set"] for record in records], names or None
    with path.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    assert [int(record["row"]) for record in records] == list(range(len(records)))
    lists = [[int(member) for member in record["set"].split()] for record in records]
    assert [int(record["size"]) for record in records] == [len(members) for members in lists]
    names = [record["names"] for record in records if "names" in record]
    return lists, [split_names(text) for text in names] or None


def split_names(cell):
    """Names that bars separate; a bar or a backslash within one has a backslash before it."""
    parts = re.findall(r"(?:[^|\\]|\\.)+", cell, re.DOTALL)
    return [re.sub(r"\\(.)", r"\1", part) for part in parts]


def named(lists):
    return [[NAMES[member] for member in members] for members in lists]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("n_blocks", [1, 2, 6])
def test_sets_read_back_as_they_were(tmp_path, ending, names, n_blocks):
    path = tmp_path / f"sets.{ending}"
    step = len(LISTS) // n_blocks
    blocks = (sets_of(LISTS[start : start + step]) for start in range(0, len(LISTS), step))
    assert write_sets(path, blocks, names) == len(LISTS)
    assert read_back(path) == (LISTS, None if names is None else named(LISTS))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_sets_may_all_be_empty(tmp_path, ending):
    path = tmp_path / f"sets.{ending}"
    assert write_sets(path, [sets_of([[], []])]) == 2
    assert read_back(path) == ([[], []], None)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_block_may_have_no_rows(tmp_path, ending):
    path, none = tmp_path / f"sets.{ending}", sets_of([])
    assert write_sets(path, [none, sets_of(LISTS), none, sets_of(LISTS)]) == 2 * len(LISTS)
    assert read_back(path) == (2 * LISTS, None)


@pytest.mark.parametrize("ending", ENDINGS)
def test_indices_of_any_integer_type(tmp_path, ending):
    sets = PredictionSets(np.array([0, 1, 3]), np.array([4, 0, 2], dtype=np.int64), 5)
    write_sets(tmp_path / f"sets.{ending}", [sets])
    assert read_back(tmp_path / f"sets.{ending}")[0] == [[4], [0, 2]]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("n_written", [0, 1, 3])
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (InputError("row 7 is bad"), InputError),
        (RuntimeError("a bug"), RuntimeError),
        (OSError(28, "No space left on device"), InputError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failure_in_the_stream_leaves_nothing_behind(tmp_path, ending, n_written, error, seen):
    def stream():
        for _ in range(n_written):
            yield sets_of(LISTS)
        raise error

    path = tmp_path / f"sets.{ending}"
    with pytest.raises(seen):
        write_sets(path, stream())
    assert list(tmp_path.iterdir()) == []
    path.write_text("precious")
    with pytest.raises(seen):
        write_sets(path, stream())
    assert [file.read_text() for file in tmp_path.iterdir()] == ["precious"]


def test_a_full_disk_is_one_sentence(tmp_path):
    path = tmp_path / "out"

    def write():
        with atomic_path(path) as temporary:
            temporary.write_text("half of it")
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError) as caught:
        write()
    assert str(caught.value) == (
        f"Cannot write '{path}': No space left on device. Nothing was written."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["sets.txt", "sets", "sets.parquet.gz", "sets.npy"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"must be one of \.parquet, \.npz, \.jsonl, \.csv"):
        write_sets(tmp_path / name, [sets_of(LISTS)])
    assert list(tmp_path.iterdir()) == []


def test_endings_in_capitals_are_known():
    check_sets_format("SETS.PARQUET")


def test_outputs_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="it is a folder"):
        refuse_existing(tmp_path, force=True)
    with pytest.raises(InputError, match=r"the folder '.*none' does not exist"):
        refuse_existing(tmp_path / "none" / "sets.csv", force=True)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        refuse_existing(tmp_path / "file", force=False)
    assert refuse_existing(tmp_path / "file", force=True) == tmp_path / "file"
    assert refuse_existing(str(tmp_path / "new"), force=False) == tmp_path / "new"


@pytest.mark.parametrize("formula", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_table_is_a_formula(tmp_path, formula):
    names = [formula, "plain", "b", "c", "d"]
    sets = sets_of([[0, 1], [1, 0]])
    write_sets(tmp_path / "sets.csv", [sets], names, ids=[formula, "-5"])
    with (tmp_path / "sets.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert first["id"] == f"'{formula}"
    assert first["names"].startswith(f"'{formula[:1]}")
    assert (second["id"], second["names"][:6]) == ("-5", "plain|")
    write_csv(tmp_path / "t.csv", [{"a": formula, "b": -1.5, "c": "-1.5e-3"}])
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row == {"a": f"'{formula}", "b": "-1.5", "c": "-1.5e-3"}
