"""`evencover predict`: the sets of the library, in every format."""

import csv

import numpy as np
import pytest
from cli.running import sets_in, succeeded

from evencover import load

pq = pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize("ending", ["parquet", "npz", "jsonl", "csv"])
def test_predict_writes_every_format(model, run, data, ending):
    succeeded(run("predict", model, "new.npy", "-o", f"sets.{ending}"))
    rows = data.rows[300:]
    expected = load(model).predict_set(rows).to_lists()
    if ending == "parquet":
        found = pq.read_table("sets.parquet")["set"].to_pylist()
    elif ending == "npz":
        with np.load("sets.npz") as file:
            found = [part.tolist() for part in np.split(file["indices"], file["indptr"][1:-1])]
    elif ending == "jsonl":
        found = sets_in("sets.jsonl")
    else:
        with open("sets.csv", encoding="utf-8", newline="") as file:
            found = [list(map(int, row["set"].split())) for row in csv.DictReader(file)]
    assert found == expected


def test_the_same_ids_get_the_same_sets(folder, run, data):
    succeeded(
        run("calibrate", "cal.npz", "--method", "standard", "--score", "aps", "-o", "m.safetensors")
    )
    ids = [f"patient {place}" for place in range(300)]
    (folder / "ids.txt").write_text("\n".join(ids))
    (folder / "backwards.txt").write_text("\n".join(ids[::-1]))
    np.save("backwards.npy", data.rows[300:][::-1])
    succeeded(run("predict", "m.safetensors", "new.npy", "--ids", "ids.txt", "-o", "a.jsonl"))
    succeeded(
        run("predict", "m.safetensors", "backwards.npy", "--ids", "backwards.txt", "-o", "b.jsonl")
    )
    succeeded(run("predict", "m.safetensors", "new.npy", "-o", "c.jsonl"))
    a, b, c = (sets_in(f"{name}.jsonl") for name in "abc")
    assert a == b[::-1]
    assert a != c
