"""Sets written to files read back the same; what fails leaves nothing behind."""

import csv

import numpy as np
import pytest
from set_files import ENDINGS, read_back

from evencover import InputError, PredictionSets
from evencover.output.atomic import check_output, write_csv
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
def test_indices_of_any_integer_type(tmp_path, ending):
    sets = PredictionSets(np.array([0, 1, 3]), np.array([4, 0, 2], dtype=np.int64), 5)
    write_sets(tmp_path / f"sets.{ending}", [sets])
    records = read_back(tmp_path / f"sets.{ending}")
    assert [record["set"] for record in records] == [[4], [0, 2]]


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
