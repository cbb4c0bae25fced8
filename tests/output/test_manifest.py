"""A planned folder is begun, completed and finished; others' folders are left alone."""

import json

import pytest

from evencover import InputError
from evencover.output.manifest import MANIFEST, PLAN, PlannedFolder

PARTS = [
    {"file": "part-00000.csv", "first_row": 0, "rows": 2},
    {"file": "part-00001.csv", "first_row": 2, "rows": 1},
]


def planned(folder, **made_from):
    return PlannedFolder(folder, {"model": "a", "input": "b", **made_from}, PARTS)


def test_a_folder_is_completed_step_by_step(tmp_path):
    plan = planned(tmp_path / "sets")
    assert plan.begin() == PARTS
    assert [path.name for path in plan.folder.iterdir()] == [PLAN]
    (plan.folder / "part-00001.csv").write_text("1,2\n")
    (plan.folder / ".part-00000.csv.0123abcd.part").write_text("ha")  # of somebody who was killed
    assert plan.begin() == PARTS[:1]
    (plan.folder / "part-00000.csv").write_text("half\n")
    assert plan.begin() == []
    plan.finish()
    manifest = json.loads((plan.folder / MANIFEST).read_text())
    assert manifest["rows"] == 3
    assert manifest["made_from"] == {"model": "a", "input": "b"}
    assert [part["bytes"] for part in manifest["parts"]] == [5, 4]
    assert not list(plan.folder.glob(".*"))


def test_another_plan_is_refused_or_replaced(tmp_path):
    planned(tmp_path / "sets").begin()
    (tmp_path / "sets" / "part-00000.csv").write_text("old")
    other = planned(tmp_path / "sets", model="c", input="d")
    with pytest.raises(InputError, match="it had another model and another input"):
        other.begin()
    assert (tmp_path / "sets" / "part-00000.csv").exists()
    assert other.begin(force=True) == PARTS


def test_another_partition_is_told_apart(tmp_path):
    planned(tmp_path / "sets").begin()
    with pytest.raises(InputError, match="it had another partition"):
        PlannedFolder(tmp_path / "sets", {"model": "a", "input": "b"}, PARTS[:1]).begin()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"parts": [{"file": "../x"}], "made_from": {}}']
)
def test_a_damaged_plan_is_refused_and_deletes_nothing(tmp_path, content):
    (tmp_path / "x").write_text("precious")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / PLAN).write_text(content)
    with pytest.raises(InputError, match="it is damaged"):
        planned(tmp_path / "sets").begin(force=True)
    assert (tmp_path / "x").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "sets").write_text("")
    with pytest.raises(InputError, match="it is a file, not a folder"):
        planned(tmp_path / "sets").begin()
    with pytest.raises(InputError, match="No such file"):
        planned(tmp_path / "nowhere" / "sets").begin()
