"""Files of prediction sets, read back."""

import csv
import json
import re

import numpy as np
import pytest

pq = pytest.importorskip("pyarrow.parquet")

ENDINGS = ["parquet", "npz", "jsonl", "csv"]


def read_back(path):
    """One record per row: id, size, set, names, probabilities, as far as the file has them."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".npz":
        return read_npz(path)
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


def read_npz(path):
    with np.load(path, allow_pickle=False) as file:
        cut = file["indptr"][1:-1]
        columns = {"size": file["size"], "accepted": file["accepted"]}
        columns = columns | {"set": np.split(file["indices"], cut)}
        if "class_names" in file:
            columns["names"] = [file["class_names"][members] for members in columns["set"]]
        if "probabilities" in file:
            columns["probabilities"] = np.split(file["probabilities"], cut)
        if "id" in file:
            columns["id"] = file["id"]
    lists = {key: [np.asarray(v).tolist() for v in values] for key, values in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
