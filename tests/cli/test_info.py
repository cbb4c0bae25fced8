"""`evencover info`: about a model, about data, about this installation."""

import json
import re

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
    succeeded(run("info", "m.safetensors"))


def test_info_of_a_clustered_model_shows_its_guarantee(folder, run):
    arguments = ("--method", "clustered", "--set", "gamma=0.4", "--set", "n_clusters=2")
    succeeded(run("calibrate", "cal.npz", *arguments, "-o", "m.safetensors"))
    assert "Proposition 3" in succeeded(run("info", "m.safetensors")).out
    about = json.loads(
        succeeded(run("info", "m.safetensors", "--json")).out, parse_constant=pytest.fail
    )
    assert "guaranteed to each cluster" in about["guarantee"]
    assert [row["cluster"] for row in about["clusters"]] == [0, 1]
    assert sum(row["n_classes"] for row in about["clusters"]) == K


def test_info_of_data(folder, run, data):
    about = json.loads(succeeded(run("info", "cal.npz", "--json")).out)
    labels = data.labels[:300]
    assert (about["n_rows"], about["n_classes"], about["has_labels"]) == (300, K, True)
    assert about["accuracy"] == pytest.approx((data.rows[:300].argmax(1) == labels).mean())
    assert about["examples_per_class"]["min"] == np.bincount(labels).min()
    assert 0 < about["class_balance"] <= 1
    unlabelled = json.loads(succeeded(run("info", "new.npy", "--json")).out)
    assert "accuracy" not in unlabelled
    labelled = succeeded(run("info", "new.npy", "--labels", "labels.npy")).out
    assert_found("accuracy +0", labelled)


def test_info_speaks_in_words(folder, run):
    succeeded(run("calibrate", "cal.npz", "--score", "raps", "-o", "words.safetensors"))
    model = succeeded(run("info", "words.safetensors")).out
    assert re.search(r"^score +raps, .*penalty", model, re.MULTILINE)
    assert re.search(r"^classes in every set +0$", model, re.MULTILINE)
    assert re.search(r"^exact +no$", model, re.MULTILINE)
    data = succeeded(run("info", "cal.npz")).out
    assert re.search(r"^classes below 9 rows +0$", data, re.MULTILINE)
    assert re.search(
        r"^used +numbers: probs; labels: labels; class names: class_names$", data, re.MULTILINE
    )
    succeeded(
        run(
            "calibrate",
            "cal.npz",
            "--alpha",
            0.001,
            "--method",
            "classwise",
            "-o",
            "all.safetensors",
        )
    )
    all_infinite = succeeded(run("info", "all.safetensors")).out
    assert f"{K}, which have no finite threshold" in all_infinite
    assert not re.search(r"^n |allow empty|random state", model + data, re.MULTILINE)
    np.save(folder / "odd.npy", np.log(np.load(folder / "new.npy") + 1e-6))
    assert "say --logits" in succeeded(run("info", "odd.npy")).out
    assert re.search(
        r"^numbers are +logits$", succeeded(run("info", "odd.npy", "--logits")).out, re.M
    )


def test_info_of_this_installation(run):
    assert evencover.__version__ in succeeded(run("info")).out
    assert succeeded(run("--version")).out == f"evencover {evencover.__version__}\n"
