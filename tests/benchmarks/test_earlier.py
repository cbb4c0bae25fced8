"""The benchmark beside 0.1.0 runs through on small files; its times are not looked at."""

import json
import sys

import pytest


@pytest.mark.deep
def test_files_are_read_and_written_by_both(tmp_path, monkeypatch, capsys):
    from benchmarks import earlier

    monkeypatch.setattr(earlier, "python_of", lambda _: sys.executable)  # this version, twice
    monkeypatch.setattr("sys.argv", ["earlier", "--small", "--out", str(tmp_path)])
    earlier.main()
    assert (tmp_path / "earlier.md").read_text() in capsys.readouterr().out
    records = json.loads((tmp_path / "earlier.json").read_text())["tasks"]
    assert len(records) == len(earlier.READ) + len(earlier.WRITTEN) + 1
    assert min(min(each["seconds"], each["earlier_seconds"]) for each in records) > 0
    assert [each["task"] for each in records if each["met"] is None] == ["write model"]
