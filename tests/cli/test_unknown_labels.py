"""Labels that are not among the classes: counted, not rejected."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import NAMES, refused, succeeded

from evencover import load

EVERY = 10


@pytest.fixture
def files(folder, data):
    """Write calibration and test rows with labels by name, a tenth of them unknown."""
    names = np.array(NAMES)[data.labels]
    names[::EVERY] = "oak"
    np.savez("cal.npz", probs=data.rows[:300], labels=names[:300], class_names=NAMES)
    np.savez("new.npz", probs=data.rows[300:], class_names=NAMES)
    Path("new.txt").write_text("\n".join(names[300:]), encoding="utf-8")
    return {"cal": ["cal.npz"], "new": ["new.npz", "--labels", "new.txt"]}


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

    assert "No candidate reaches 90%" in succeeded(run("recommend", *files["new"])).out
    about = json.loads(succeeded(run("info", *files["new"], "--json")).out)
    assert about["n_unknown_labels"] == 300 - n_known
    succeeded(run("predict", "m.safetensors", files["new"][0], "-o", "sets.csv"))
    line = refused(run("update", "m.safetensors", *files["new"], "-o", "n.safetensors"))
    assert "oak" in line


def test_labels_that_are_all_unknown_are_rejected(folder, run, data):
    np.savez("bad.npz", probs=data.rows, labels=np.full(600, "oak"), class_names=NAMES)
    assert "oak" in refused(run("calibrate", "bad.npz", "-o", "m.safetensors"))


def test_a_file_of_a_folder_may_have_unknown_labels_only(folder, run, data):
    Path("new").mkdir()
    for number, part in enumerate(np.split(np.arange(600), 3)):
        labels = np.full(200, "oak") if number == 1 else np.array(NAMES)[data.labels[part]]
        np.savez(f"new/{number}.npz", probs=data.rows[part], labels=labels, class_names=NAMES)
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
