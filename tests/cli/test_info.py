"""`evencover info`: about a model, about data, about this installation."""

import json

import numpy as np
import pytest
from cli.running import NAMES, K, assert_found, succeeded

import evencover


def test_info_of_a_model_is_valid_json_even_with_infinite_thresholds(folder, run):
    arguments = ("--method", "classwise", "--alpha", "0.001", "-o", "m.safetensors")
    succeeded(run("calibrate", "cal.npz", *arguments))
    text = succeeded(run("info", "m.safetensors", "--json")).out
    about = json.loads(text, parse_constant=pytest.fail)  # Infinity and NaN are not JSON
    assert about["n_infinite_thresholds"] == K
    assert about["thresholds"] == [None] * K
    assert about["class_names"] == NAMES
    assert next(iter(about)) == "guarantee"
    assert_found(r"^guarantee +\S", succeeded(run("info", "m.safetensors")).out)


@pytest.mark.parametrize("method", ["pooled", "fuzzy", "grouped"])
def test_info_of_a_model_shows_every_parameter(folder, run, method):
    (folder / "groups.txt").write_text("a\na\nb\nb\nc\nc\n")
    more = ("--set", "groups=groups.txt") if method == "grouped" else ()
    succeeded(run("calibrate", "cal.npz", "-o", "m.safetensors", "--method", method, *more))
    about = json.loads(succeeded(run("info", "m.safetensors", "--json")).out)
    assert evencover.load("m.safetensors").get_params().keys() <= about.keys()


def test_info_of_data(folder, run, data):
    about = json.loads(succeeded(run("info", "cal.npz", "--json")).out)
    labels = data.labels[:300]
    assert (about["n_rows"], about["n_classes"], about["has_labels"]) == (300, K, True)
    assert about["accuracy"] == pytest.approx((data.rows[:300].argmax(1) == labels).mean())
    assert about["examples_per_class"]["min"] == np.bincount(labels).min()
    unlabelled = json.loads(succeeded(run("info", "new.npy", "--json")).out)
    assert "accuracy" not in unlabelled
    labelled = succeeded(run("info", "new.npy", "--labels", "labels.npy")).out
    assert_found(r"accuracy +\d\d\.\d%", labelled)


def test_info_speaks_in_words(folder, run):
    succeeded(run("calibrate", "cal.npz", "--score", "raps", "-o", "words.safetensors"))
    model = succeeded(run("info", "words.safetensors")).out
    assert_found(r"(?m)^score +raps, .*penalty", model)
    assert_found(r"(?m)^classes always included +0$", model)
    assert_found(r"(?m)^exact +no$", model)
    data = succeeded(run("info", "cal.npz")).out
    assert_found(r"(?m)^used +numbers: probs; labels: labels; class names:\s+class_names$", data)
    np.save(folder / "odd.npy", np.log(np.load(folder / "new.npy") + 1e-6))
    assert "--logits" in succeeded(run("info", "odd.npy")).out
    assert_found(r"numbers are +logits\n", succeeded(run("info", "odd.npy", "--logits")).out)


def test_info_of_this_installation(run):
    shown = succeeded(run("info")).out
    assert evencover.__version__ in shown
    assert succeeded(run("--version")).out == f"evencover {evencover.__version__}\n"
