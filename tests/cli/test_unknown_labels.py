"""Labels that are not among the classes: counted, not rejected."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import NAMES, refused, succeeded

from evencover import load

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
pq = pytest.importorskip("pyarrow.parquet")
EVERY = 10


@pytest.fixture(
    params=[
        "npz",
        "labels apart",
        *(pytest.param(f, marks=pytest.mark.deep) for f in ("csv", "parquet")),
    ]
)
def files(folder, data, request):
    """Write calibration and test rows with labels by name, a tenth of them unknown."""
    parts = {"cal": slice(300), "new": slice(300, None)}
    arguments = {}
    for name, part in parts.items():
        rows, labels = data.rows[part], np.array(NAMES, dtype=object)[data.labels[part]]
        labels[::EVERY] = "oak"
        arguments[name] = [f"{name}.{request.param}"]
        table = {each: rows[:, place] for place, each in enumerate(NAMES)}
        if request.param == "npz":
            named = labels.astype(str)
            np.savez(f"{name}.npz", probs=rows, labels=named, class_names=NAMES)
        elif request.param == "csv":
            csv.write_csv(pa.table({**table, "label": labels.astype(str)}), f"{name}.csv")
        elif request.param == "parquet":
            pq.write_table(pa.table({**table, "label": labels.astype(str)}), f"{name}.parquet")
        else:
            np.savez(f"{name}.npz", probs=rows, class_names=NAMES)
            (folder / f"{name}.txt").write_text("\n".join(labels), encoding="utf-8")
            arguments[name] = [f"{name}.npz", "--labels", f"{name}.txt"]
    return arguments


def test_unknown_labels_are_counted(files, run, data):
    known = np.arange(300) % EVERY > 0
    n_known = int(known.sum())
    done = succeeded(
        run("calibrate", *files["cal"], "--method", "classwise", "-o", "m.safetensors")
    )
    assert f"{300 - n_known} of 300" in done.err
    model = load("m.safetensors")
    assert model.n_calibration_ == n_known
    alone = type(model)().fit(data.rows[:300][known], data.labels[:300][known])
    assert model.thresholds_.tolist() == alone.thresholds_.tolist()

    done = succeeded(run("evaluate", "m.safetensors", *files["new"], "--json"))
    about = json.loads(done.out)
    covered = alone.predict_set(data.rows[300:]).contains(data.labels[300:])[known].sum()
    assert about["n_unknown_labels"] == 300 - n_known
    assert about["marginal_coverage"] == covered / 300

    succeeded(run("report", "m.safetensors", *files["new"], "-o", "page.html"))
    assert f"{covered / 300:.1%}" in Path("page.html").read_text("utf-8")

    options = ("--methods", "standard", "--scores", "softmax", "--n-splits", 2, "--json")
    done = succeeded(run("compare", *files["new"], *options))
    assert f"{300 - n_known} of 300" in done.err
    found = json.loads(done.out)
    assert found["n_calibration"] + found["n_test"] == 300
    assert found["candidates"][0]["marginal_coverage"] < 0.9

    assert json.loads(succeeded(run("recommend", *files["new"], "--json")).out)["n_rows"] == n_known
    about = json.loads(succeeded(run("info", *files["new"], "--json")).out)
    assert about["n_unknown_labels"] == 300 - n_known
    succeeded(run("predict", "m.safetensors", files["new"][0], "-o", "sets.csv"))
    line = refused(run("update", "m.safetensors", *files["new"], "-o", "n.safetensors"))
    assert "oak" in line


def test_labels_that_are_all_unknown_are_rejected(folder, run, data):
    np.savez("bad.npz", probs=data.rows, labels=np.full(600, "oak"), class_names=NAMES)
    assert "oak" in refused(run("calibrate", "bad.npz", "-o", "m.safetensors"))


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_a_file_of_a_folder_may_have_unknown_labels_only(kind, folder, run, data):
    Path("new").mkdir()
    for number, part in enumerate(np.split(np.arange(600), 3)):
        rows, labels = data.rows[part], np.array(NAMES)[data.labels[part]]
        labels = np.full(200, "oak") if number == 1 else labels
        table = {each: rows[:, place] for place, each in enumerate(NAMES)} | {"label": labels}
        if kind == "npz":
            np.savez(f"new/{number}.npz", probs=rows, labels=labels, class_names=NAMES)
        elif kind == "csv":
            csv.write_csv(pa.table(table), f"new/{number}.csv")
        else:
            pq.write_table(pa.table(table), f"new/{number}.parquet")
    done = succeeded(run("calibrate", "new", "-o", "m.safetensors"))
    assert "200 of 600" in done.err
    assert load("m.safetensors").n_calibration_ == 400
    about = json.loads(succeeded(run("evaluate", "m.safetensors", "new", "--json")).out)
    assert about["n_unknown_labels"] == 200
    np.savez("cal.npz", probs=data.rows[:50], labels=data.labels[:50], class_names=NAMES)
    succeeded(run("calibrate", "cal.npz", "-o", "n.safetensors"))
    done = run("monitor", "n.safetensors", "new", "--state", "s.db", "--json")
    assert done.code == 3  # unknown labels are misses
    found = json.loads(done.out)
    assert (found["rows"], found["unknown_labels"]) == (600, 200)
