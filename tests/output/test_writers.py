"""Sets written to files read back the same; what fails leaves nothing behind."""

import csv
import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from set_files import ENDINGS, read_back

from evencover import InputError, PredictionSets
from evencover.output.atomic import (
    atomic_path,
    check_output,
    read_record,
    remove_leftovers,
    write_csv,
    write_record,
)
from evencover.output.writers import write_sets

NAMES = ["a", 'quote "b", comma', "海", "line\nbreak", "€|\\"]
LISTS = [[0, 3], [], [1, 2, 3, 4], [4], [], [0]]


def sets_of(lists, n_classes=5):
    sizes = [len(members) for members in lists]
    flat = np.array([member for members in lists for member in members], dtype=np.int32)
    return PredictionSets.from_sizes(np.array(sizes, dtype=np.int64), flat, n_classes)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize(
    "blocks",
    [
        [LISTS],
        [LISTS[:3], LISTS[3:]],
        [[members] for members in LISTS],
        [[], LISTS, [], LISTS],
        [[[], []]],
    ],
    ids=["one", "two", "six", "some without rows", "empty sets"],
)
def test_sets_read_back_as_they_were(tmp_path, ending, names, blocks):
    path = tmp_path / f"sets.{ending}"
    expected = [members for block in blocks for members in block]
    assert write_sets(path, map(sets_of, blocks), names) == len(expected)
    records = read_back(path)
    assert [record["set"] for record in records] == expected
    assert [record["size"] for record in records] == list(map(len, expected))
    if names is not None:
        named = [[NAMES[member] for member in members] for members in expected]
        assert [record["names"] for record in records] == named
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


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


@pytest.mark.parametrize("name", ["sets.txt", "sets", "sets.parquet.gz", "sets.npy"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="extension"):
        write_sets(tmp_path / name, [sets_of(LISTS)])
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="it is a folder"):
        check_output(tmp_path, force=True)
    with pytest.raises(InputError, match=r"the folder '.*none' does not exist"):
        check_output(tmp_path / "none" / "sets.csv", force=True)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        check_output(tmp_path / "file", force=False)
    assert check_output(tmp_path / "file", force=True) == tmp_path / "file"
    assert check_output(str(tmp_path / "new"), force=False) == tmp_path / "new"


@pytest.mark.parametrize("formula", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_table_is_a_formula_on_request(tmp_path, formula):
    names = [formula, "plain", "b", "c", "d"]
    sets = sets_of([[0, 1], [1, 0]])
    how = {"ids": [formula, "-5"]}
    write_sets(tmp_path / "sets.csv", [sets], names, **how, escape_formulas=True)
    with (tmp_path / "sets.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert first["id"] == f"'{formula}"
    assert first["names"].startswith(f"'{formula[:1]}")
    assert (second["id"], second["names"][:6]) == ("-5", "plain|")
    record = {"a": formula, "b": -1.5, "c": "-1.5e-3"}
    write_csv(tmp_path / "t.csv", [record], escape_formulas=True)
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row == {"a": f"'{formula}", "b": "-1.5", "c": "-1.5e-3"}


# ---- records and temporary files -----------------------------------------------------------------


def read(path):
    return read_record(path, lambda content: content["digest"] != "", "it is no study")


def test_a_record_is_read_as_it_was_written(tmp_path):
    assert read(tmp_path / "record.json") is None
    record = {"digest": "ab", "n": [1, 2], "name": "çédille"}
    write_record(tmp_path / "record.json", record)
    assert read(tmp_path / "record.json") == record
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize("content", ["", "[]", "{", "{}", '{"digest": ""}'])
def test_what_is_no_record_is_told(tmp_path, content):
    (tmp_path / "record.json").write_text(content)
    with pytest.raises(InputError, match="it is no study"):
        read(tmp_path / "record.json")


def test_what_a_living_writer_writes_is_no_leftover(tmp_path):
    with atomic_path(tmp_path / "a.json") as mine, atomic_path(tmp_path / "a.json") as other:
        remove_leftovers(tmp_path)
        mine.write_text("mine")
        other.write_text("other")
    assert (tmp_path / "a.json").read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_a_signal_while_the_temporary_file_is_made_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(path, flags):
        os.close(os.open(path, os.O_RDWR | flags))  # Python answers signals after the call
        raise KeyboardInterrupt

    monkeypatch.setattr("evencover.output.atomic.claim", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_path(tmp_path / "a.json"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_next_writer_of_a_file_removes_what_a_kill_left(tmp_path):
    (tmp_path / ".a.json.01234567.part").write_text("half")
    (tmp_path / ".b.json.01234567.part").write_text("half of something else")
    (tmp_path / ".a.json.part").write_text("a user's own")
    write_record(tmp_path / "a.json", {})
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [".a.json.part", ".b.json.01234567.part", "a.json"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("ids", [["a", "a\0"], [1.0, 2.0], np.array([3, 4], dtype=np.uint8)])
def test_ids_are_written_as_they_are_read(tmp_path, ending, ids):
    """NumPy drops zero characters at the end of text, and a whole float is an integer."""
    path = tmp_path / f"sets.{ending}"
    write_sets(path, [PredictionSets.from_mask([[True, False], [True, True]])], ids=ids)
    expected = [each if isinstance(each, str) else int(each) for each in ids]
    if ending == "parquet":
        found = pq.read_table(path)["id"].to_pylist()
    elif ending == "jsonl":
        found = [json.loads(line)["id"] for line in path.read_text("utf-8").splitlines()]
    else:
        with path.open(encoding="utf-8", newline="") as file:
            found, expected = [row["id"] for row in csv.DictReader(file)], list(map(str, expected))
    assert found == expected


def test_records_become_a_table(tmp_path):
    write_csv(tmp_path / "t.csv", [{"a": 1, "b": "x, y"}, {"a": None, "b": "海"}])
    assert (tmp_path / "t.csv").read_bytes().decode() == 'a,b\n1,"x, y"\n,海\n'
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        write_csv(tmp_path / "t.csv", [{"a": 1}, {"c": 2}])
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
