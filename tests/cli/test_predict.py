"""`evencover predict`: the sets of the library, in every format, with ids and probabilities."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import NAMES, refused, succeeded

from evencover import Taxonomy, load

pq = pytest.importorskip("pyarrow.parquet")


# What is written --------------------------------------------------------------------------------


@pytest.fixture
def predict(run, model):
    return lambda *arguments: succeeded(run("predict", model, *arguments))


@pytest.fixture
def rows(data):
    return data.rows[300:]


def records(name):
    return [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]


def test_probabilities_stand_beside_the_classes_and_top_keeps_the_size(predict, rows):
    predict("new.npy", "-o", "sets.jsonl", "--with-probabilities", "--top", 2)
    sets = load("model.safetensors").predict_set(rows)
    found = records("sets.jsonl")
    assert [each["size"] for each in found] == sets.sizes.tolist()
    assert [each["set"] for each in found] == [m[:2] for m in sets.to_lists()]
    for row, each in enumerate(found):
        np.testing.assert_allclose(each["probabilities"], rows[row, each["set"]], rtol=1e-5)
    assert sets.sizes.max() > 2


def test_ids_that_come_with_the_data_are_kept(predict, rows):
    import pyarrow as pa

    ids = [f"patient {index}" for index in range(300)]
    columns = {name: rows[:, index] for index, name in enumerate(NAMES)}
    pq.write_table(pa.table({"id": ids, **columns}), "new.parquet")
    predict("new.parquet", "-o", "sets.parquet")
    predict("new.parquet", "-o", "folder")
    assert pq.read_table("sets.parquet")["id"].to_pylist() == ids
    assert pq.read_table("folder/part-00000.parquet")["id"].to_pylist() == ids


def test_sets_are_summarized_by_a_hierarchy(model, run):
    table = [f"{name},{'low' if index < 3 else 'high'}" for index, name in enumerate(NAMES)]
    Path("tree.csv").write_text("\n".join(table), encoding="utf-8")
    tree = Taxonomy.read("tree.csv", NAMES)
    succeeded(run("predict", model, "new.npy", "-o", "sets.jsonl", "--taxonomy", "tree.csv"))
    found = records("sets.jsonl")
    assert [each["summary"] for each in found] == [tree.describe(each["set"]) for each in found]
    assert "none.csv" in refused(
        run("predict", model, "new.npy", "-o", "more.csv", "--taxonomy", "none.csv")
    )
    assert not Path("more.csv").exists()
