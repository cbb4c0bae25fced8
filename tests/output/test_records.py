"""A record says what a folder is made from; leftovers go, other people's things stay."""

import os

import pytest

from evencover import InputError
from evencover.output.atomic import (
    atomic_path,
    read_record,
    remove_leftovers,
    write_csv,
    write_record,
)


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


def test_a_number_that_json_lacks_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path / "record.json", {"digest": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_kill_are_removed_and_nothing_else(tmp_path):
    def left_by_a_kill(name):
        with atomic_path(tmp_path / name) as temporary:
            temporary.write_text("half")
            content = temporary.read_text()
            path = temporary
        path.write_text(content)
        return path

    mine, other = left_by_a_kill("a.json"), left_by_a_kill("b.json")
    remove_leftovers(tmp_path, "a.json")
    assert (mine.exists(), other.exists()) == (False, True)
    remove_leftovers(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "b.json"]


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


def test_records_become_a_table(tmp_path):
    write_csv(tmp_path / "t.csv", [{"a": 1, "b": "x, y"}, {"a": None, "b": "海"}])
    assert (tmp_path / "t.csv").read_bytes().decode() == 'a,b\n1,"x, y"\n,海\n'
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        write_csv(tmp_path / "t.csv", [{"a": 1}, {"c": 2}])
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
