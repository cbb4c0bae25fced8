"""A resumable folder is begun, completed and finished; other folders are left alone."""

import pytest

from evencover import InputError
from evencover.output.atomic import atomic_path
from evencover.output.folders import PLAN, resumable_folder

ROWS = {"part-00000.csv": 2, "part-00001.csv": 1}
PARTS = list(ROWS)


def writing(folder, parts=ROWS, *, force=False, **made_from):
    return resumable_folder(folder, {"model": "a", "input": "b", **made_from}, parts, force=force)


def begin(*arguments, **more):
    """What is missing when somebody comes, who is killed at once."""
    with writing(*arguments, **more) as missing:
        return missing


def write_part(path, text):
    with atomic_path(path) as temporary:
        temporary.write_text(text)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "sets"


def test_a_folder_is_completed_step_by_step(folder):
    assert begin(folder) == PARTS
    assert [path.name for path in folder.iterdir()] == [PLAN]
    write_part(folder / "part-00001.csv", "1,2\n")
    (folder / ".part-00000.csv.0123abcd.part").write_text("ha")  # of somebody who was killed
    assert begin(folder) == PARTS[:1]
    with writing(folder):
        write_part(folder / "part-00000.csv", "half\n")
    assert begin(folder) == []
    names = sorted(path.name for path in folder.iterdir())
    assert names == [PLAN, "part-00000.csv", "part-00001.csv"]


def test_the_second_writer_of_a_folder_is_refused(folder):
    with writing(folder), pytest.raises(InputError, match="Another process"):
        begin(folder)
    assert begin(folder) == PARTS
    assert [path.name for path in folder.iterdir()] == [PLAN]


def test_a_kill_before_the_plan_leaves_a_folder_that_can_be_begun(folder):
    folder.mkdir()
    (folder / f".{PLAN}.0123abcd.part").write_text("{")
    (folder / ".lock").write_text("")
    assert begin(folder) == PARTS
    assert [path.name for path in folder.iterdir()] == [PLAN]


def test_another_plan_is_refused_or_replaced(folder):
    begin(folder)
    (folder / "part-00000.csv").write_text("old")
    other = {"model": "c", "input": "d"}
    with pytest.raises(InputError, match="model and another input"):
        begin(folder, **other)
    assert (folder / "part-00000.csv").exists()
    assert begin(folder, force=True, **other) == PARTS
    with pytest.raises(InputError, match="partition"):
        begin(folder, {PARTS[0]: 2}, **other)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"parts": {"../x": 1}, "made_from": {}}', "[" * 100_000),
        '{"parts": {"a\\u0000b": 1}, "made_from": {}}',
    ],
)
def test_a_damaged_plan_is_refused_and_deletes_nothing(tmp_path, content):
    (tmp_path / "x").write_text("precious")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / PLAN).write_text(content)
    with pytest.raises(InputError, match=PLAN):
        begin(tmp_path / "sets", force=True)
    assert (tmp_path / "x").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "sets").write_text("")
    with pytest.raises(InputError, match="a file"):
        begin(tmp_path / "sets")
    with pytest.raises(InputError, match="No such file"):
        begin(tmp_path / "nowhere" / "sets")
