"""The benchmark of reading runs through on a small file; its times are not looked at."""

import json

from depth import IS_DEEP


def test_every_kind_of_file_is_read_by_both(tmp_path, monkeypatch, capsys):
    from benchmarks import reading

    if not IS_DEEP:
        monkeypatch.setattr(reading, "FILES", ("fixed.parquet",))
    monkeypatch.setattr("sys.argv", ["reading", "--small", "--out", str(tmp_path)])
    reading.main()
    assert (tmp_path / "reading.md").read_text() in capsys.readouterr().out
    records = json.loads((tmp_path / "reading.json").read_text())["files"]
    kinds = {"parquet", "zarr", "h5"} if IS_DEEP else {"parquet"}
    assert {record["file"].split(".")[-1] for record in records} == kinds
    for record in records:
        assert min(record[f"{who}_seconds"] for who in ("evencover", "whole", "pieces")) > 0
        assert record["ratio"] > 0
        assert (record["met"] is None) == record["file"].endswith("h5")
