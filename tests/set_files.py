"""Files of prediction sets, read back."""

import csv
import json
import re

import pytest

pq = pytest.importorskip("pyarrow.parquet")

ENDINGS = ["parquet", "jsonl", "csv"]


def read_back(path):
    """One record per row: id, size, set, names, probabilities, as far as the file has them."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    else:
        with path.open(encoding="utf-8", newline="") as file:
            records = [from_cells(record) for record in csv.DictReader(file)]
    rows = [int(record.pop("row")) for record in records]
    assert rows == list(range(rows[0], rows[0] + len(rows)))
    return records


def from_cells(record):
    """Names are separated by bars; a bar or a backslash within one has a backslash before it."""
    record["size"] = int(record["size"])
    record["accepted"] = {"true": True, "false": False}[record["accepted"]]
    record["set"] = list(map(int, record["set"].split()))
    if "names" in record:
        parts = re.findall(r"(?:[^|\\]|\\.)+", record["names"], re.DOTALL)
        record["names"] = [re.sub(r"\\(.)", r"\1", part) for part in parts]
    if "probabilities" in record:
        record["probabilities"] = list(map(float, record["probabilities"].split()))
    return record
