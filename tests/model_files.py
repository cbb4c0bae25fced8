"""Saved models, and ways to damage them."""

import json
import re

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from evencover import InputError, load
from evencover.predictors import PREDICTORS, make_predictor, method_names
from evencover.predictors.state import checksum

METHODS = method_names()
NAMES = ["Ελληνικά", "日本語", "español", "naïve 🐟", 'quote " and \\', "", "é\u0301", "plain"]


def fitted(data, method="clustered", **parameters):
    if method == "clustered":
        parameters = {"gamma": 0.4, "n_clusters": 2} | parameters
    parameters["exact"] = parameters.get("exact", False) and PREDICTORS[method].supports_exact
    return make_predictor(method, **parameters).fit(*data, class_names=NAMES)


def contents(path):
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return arrays, json.loads(file.metadata()["evencover"])


def tamper(path, change):
    """Change the arrays or the metadata of a model, and write it as a valid safetensors file."""
    arrays, about = contents(path)
    change(arrays, about)
    about.pop("checksum", None)  # whoever means to deceive makes a new one
    about["checksum"] = checksum(about, arrays)
    save_file(arrays, path, {"evencover": json.dumps(about)})


def without_checksum(path):
    """Take the checksum out of a model."""
    arrays, about = contents(path)
    del about["checksum"]
    save_file(arrays, path, {"evencover": json.dumps(about)})


def assert_refused(path, words="damaged"):
    with pytest.raises(InputError, match=f"Cannot read '{re.escape(str(path))}'.*{words}"):
        load(path)


def assert_same(first, second, data):
    np.testing.assert_array_equal(first.thresholds_, second.thresholds_)
    assert first.predict_set(data.rows) == second.predict_set(data.rows)
    np.testing.assert_array_equal(first.predict_p(data.rows), second.predict_p(data.rows))
    held_out = data.rows[:-1], data.labels[:-1]
    assert first.evaluate(*held_out).to_dict() == second.evaluate(*held_out).to_dict()
