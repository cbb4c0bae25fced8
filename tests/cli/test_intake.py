"""Commands on files as people have them: stray columns, other names, swapped arguments."""

import json

import numpy as np
import pytest
from cli.running import NAMES, K, refused, succeeded

pd = pytest.importorskip("pandas")


@pytest.fixture
def table(folder, data):
    """A CSV file with an index, an id and a label under a name of its own."""
    frame = pd.DataFrame(np.log(data.rows[:300]), columns=NAMES)
    frame.assign(truth=data.labels[:300]).to_csv("cal.csv")
    return frame


def test_a_stray_column_never_becomes_a_class(table, run):
    line = refused(
        run("calibrate", "cal.csv", "--logits", "--labels", "labels.npy", "-o", "m.safetensors")
    )
    assert "whole numbers in 'truth'" in line
    done = succeeded(
        run("calibrate", "cal.csv", "--logits", "--labels-key", "truth", "-o", "m.safetensors")
    )
    assert f"300 rows of {K} classes" in done.out
    assert "1 column of 'cal.csv' left out, taken for no class: '' (an index)" in done.err


def test_info_lists_what_is_used_and_left_out(table, run):
    arguments = ("info", "cal.csv", "--logits", "--labels-key", "truth")
    about = json.loads(succeeded(run(*arguments, "--json")).out)
    assert about["used"]["labels"] == "truth"
    assert about["used"]["numbers"].startswith(f"{K} columns: {NAMES[0]}")
    assert about["left_out"] == {"": "an index"}
    assert "left out" in succeeded(run(*arguments)).out


def test_keys_name_arrays_of_the_file_and_of_other_files(folder, run, data):
    np.savez("odd.npz", scores=data.rows[:300], truth=data.labels[:300], patient=np.arange(300) + 7)
    np.savez("apart.npz", truth=data.labels[:300], more=data.labels[:300])
    np.save("p.npy", data.rows[:300])
    keys = ("--probabilities-key", "scores", "--labels-key", "truth", "--ids-key", "patient")
    assert "scores (300, 6)" in refused(run("calibrate", "odd.npz", "-o", "a.safetensors"))
    options = ("--method", "clustered", "--score", "aps", "--gamma", 0.4, "--n-clusters", 2)
    succeeded(run("calibrate", "odd.npz", *keys, *options, "-o", "a.safetensors"))
    apart = ("--labels", "apart.npz", "--labels-key", "truth")
    ids = ("--ids", "odd.npz", "--ids-key", "patient")
    succeeded(run("calibrate", "p.npy", *apart, *ids, *options, "-o", "b.safetensors"))
    thresholds = [
        json.loads(succeeded(run("info", f"{name}.safetensors", "--json")).out)["thresholds"]
        for name in "ab"
    ]
    assert thresholds[0] == thresholds[1]


def test_columns_in_another_order(folder, model, run, data):
    rows, labels = data.rows[300:], data.labels[300:]
    frame = pd.DataFrame(rows[:, ::-1], columns=NAMES[::-1])
    frame.assign(label=np.array(NAMES)[labels]).to_parquet("turned.parquet", index=False)
    expected = json.loads(succeeded(run("evaluate", model, "test.npz", "--json")).out)
    done = succeeded(run("evaluate", model, "turned.parquet", "--json"))
    assert "put into the order of the calibration data" in done.err
    assert json.loads(done.out)["class_coverage"] == expected["class_coverage"]
    frame.to_parquet("bare.parquet", index=False)
    done = succeeded(run("evaluate", model, "bare.parquet", "--labels", "labels.npy", "--json"))
    assert "labels that are numbers count in that order" in done.err
    assert json.loads(done.out)["class_coverage"] == expected["class_coverage"]


@pytest.mark.parametrize("command", ["evaluate", "predict", "report"])
def test_the_model_comes_first(folder, model, run, command):
    output = {"predict": ("-o", "s.csv"), "report": ("-o", "r.html")}.get(command, ())
    assert "The model comes first" in refused(run(command, "test.npz", model, *output))
    line = refused(run(command, "test.npz", "test.npz", *output))
    assert "must be a file that calibrate wrote" in line


def test_help_lists_every_ending(run):
    text = "".join(succeeded(run("calibrate", "--help")).out.split())
    for ending in (".npy", ".npz", ".zarr", ".feather", ".tsv", ".jsonl", ".pt"):
        assert ending in text


def test_a_wrong_label_is_named_by_its_own_file(folder, model, run, data):
    labels = data.labels[300:].copy()
    labels[17] = 99
    np.save("wrong.npy", labels)
    line = refused(run("evaluate", model, "new.npy", "--labels", "wrong.npy"))
    assert "Got 99 in row 17 of 'wrong.npy'" in line
