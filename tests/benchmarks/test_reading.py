"""The benchmark of reading runs through on a small file; its times are not looked at."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_kind_of_file_is_read_by_both(tmp_path):
    command = [sys.executable, "-m", "benchmarks.reading", "--small", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reading.md").read_text() in done.stdout
    records = json.loads((tmp_path / "reading.json").read_text())["files"]
    assert {record["file"].split(".")[-1] for record in records} == {"parquet", "zarr", "h5"}
    for record in records:
        assert min(record[f"{who}_seconds"] for who in ("evencover", "whole", "pieces")) > 0
        assert record["ratio"] > 0
        assert (record["met"] is None) == record["file"].endswith("h5")
