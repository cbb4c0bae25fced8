"""A resumable folder is begun, completed and finished; other folders are left alone."""

import pytest

from evencover import InputError
from evencover.output.atomic import atomic_path
from evencover.output.folders import PLAN, ResumableFolder

ROWS = {"part-00000.csv": 2, "part-00001.csv": 1}
PARTS = list(ROWS)


def planned(folder, **made_from):
    return ResumableFolder(folder, {"model": "a", "input": "b", **made_from}, ROWS)


def begin(plan, *, force=False):
    """What is missing when somebody comes, who is killed at once."""
    with plan.writing(force=force) as missing:
        return missing


def write_part(plan, file, text):
    with atomic_path(plan.folder / file) as temporary:
        temporary.write_text(text)


def test_a_folder_is_completed_step_by_step(tmp_path):
    plan = planned(tmp_path / "sets")
    assert begin(plan) == PARTS
    assert [path.name for path in plan.folder.iterdir()] == [PLAN]
    write_part(plan, "part-00001.csv", "1,2\n")
    (plan.folder / ".part-00000.csv.0123abcd.part").write_text("ha")  # of somebody who was killed
    assert begin(plan) == PARTS[:1]
    with plan.writing():
        write_part(plan, "part-00000.csv", "half\n")
    assert begin(plan) == []
    names = sorted(path.name for path in plan.folder.iterdir())
    assert names == [PLAN, "part-00000.csv", "part-00001.csv"]


def test_the_second_writer_of_a_folder_is_refused(tmp_path):
    plan = planned(tmp_path / "sets")
    with plan.writing(), pytest.raises(InputError, match="Another process"):
        begin(plan)
    assert begin(plan) == PARTS
    assert [path.name for path in plan.folder.iterdir()] == [PLAN]


def test_a_kill_before_the_plan_leaves_a_folder_that_can_be_begun(tmp_path):
    plan = planned(tmp_path / "sets")
    plan.folder.mkdir()
    (plan.folder / f".{PLAN}.0123abcd.part").write_text("{")
    (plan.folder / ".lock").write_text("")
    assert begin(plan) == PARTS
    assert [path.name for path in plan.folder.iterdir()] == [PLAN]


def test_another_plan_is_refused_or_replaced(tmp_path):
    begin(planned(tmp_path / "sets"))
    (tmp_path / "sets" / "part-00000.csv").write_text("old")
    other = planned(tmp_path / "sets", model="c", input="d")
    with pytest.raises(InputError, match="model and another input"):
        begin(other)
    assert (tmp_path / "sets" / "part-00000.csv").exists()
    assert begin(other, force=True) == PARTS
    with pytest.raises(InputError, match="partition"):
        begin(ResumableFolder(other.folder, other.made_from, {PARTS[0]: 2}))


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
        begin(planned(tmp_path / "sets"), force=True)
    assert (tmp_path / "x").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "sets").write_text("")
    with pytest.raises(InputError, match="a file"):
        begin(planned(tmp_path / "sets"))
    with pytest.raises(InputError, match="No such file"):
        begin(planned(tmp_path / "nowhere" / "sets"))
