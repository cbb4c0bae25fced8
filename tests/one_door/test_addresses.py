"""Addresses that lead nowhere, and indexes that do not compare, get one sentence."""

import json

import numpy as np
import pandas as pd
import pytest
from cli.running import refused
from one_door.material import calibrated, fitted, simulated, state_of

from evencover import CoverageMonitor, InputError, save

ROWS, LABELS = simulated(40, 3)
NAMES = ["ant", "bee", "cat"]

ADDRESSES = [
    "data://x",
    "data:text/csv,0.5,0.5",
    "reference://x",
    "reference::x",
    "generic::x",
    "generic://x",
    "dir::x",
    "zip::x",
    "tar://x",
    "simplecache::x",
    "filecache::data://x",
    "memory://x.npz",
    "local://x.npz",
    "nothing://x",
    "nothing::x.npz",
    "http://[::1/x.npz",
    "https://x:port/x.npz",
    "s3://[x/y.npz",
    "postgresql://u:s@[::1/db",
    "::",
    "://",
    "x::y::z",
    "http://localhost:1/x.npy",
    "",
    "a" * 5000,
    "a/" * 2500 + "x.csv",
    json.dumps([[0.5, 0.5]] * 500),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address[:30])
def test_an_address_that_cannot_be_opened_is_an_input_error(folder, run, address):
    model = calibrated(3)
    for use in (model.predict_set, lambda rows: fitted(rows, LABELS)):
        with pytest.raises(InputError) as caught:
            use(address)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
        assert "argument" not in str(caught.value)  # no signature of a library's function
    with pytest.raises(InputError):
        fitted(ROWS, address)
    save(model, "m.safetensors")
    refused(run("predict", "m.safetensors", address, "-o", "s.jsonl"))
    refused(run("info", address))


def test_a_path_without_text_is_not_the_current_folder(folder):
    """Its files were read."""
    np.savez("p.npz", probs=ROWS, labels=LABELS)
    assert fitted(".").n_calibration_ == len(LABELS)
    for use in (lambda: fitted(""), lambda: fitted([""]), lambda: fitted(ROWS, "")):
        with pytest.raises(InputError, match="Got an empty one"):
            use()


def test_so_is_that_of_a_state(folder, run):
    address = "postgresql://u:s@[::1/db"
    with pytest.raises(InputError):
        CoverageMonitor(calibrated(3), state=address)
    save(calibrated(3), "m.safetensors")
    refused(run("monitor", "m.safetensors", "--state", address))


INDEXES = {
    "counts": np.arange(40),
    "integers": np.arange(40) + 7,
    "texts": [f"row {n}" for n in range(40)],
    "dates": pd.date_range("2026-01-01", periods=40),
    "zoned dates": pd.date_range("2026-01-01", periods=40, tz="UTC"),
    "floats": np.arange(40) + 0.5,
    "mixed": [*range(20), *map(str, range(20))],
    "pairs": pd.MultiIndex.from_product([range(20), ["a", "b"]]),
    "categories": pd.CategoricalIndex([f"row {n}" for n in range(40)]),
    "intervals": pd.interval_range(0, 40),
    "repeated": [0] * 40,
    "missing": [None, *range(39)],
}


@pytest.mark.parametrize("of_rows", INDEXES)
@pytest.mark.parametrize("of_labels", INDEXES)
def test_labels_with_another_index_are_an_input_error(of_rows, of_labels):
    rows = pd.DataFrame(ROWS, columns=NAMES, index=INDEXES[of_rows])
    labels = pd.Series(LABELS, index=INDEXES[of_labels])
    expected = state_of(fitted(ROWS, LABELS, class_names=NAMES))
    for given in (labels, labels.map(dict(enumerate(NAMES))), labels.to_frame("label")):
        if of_rows == of_labels or "counts" in (of_rows, of_labels):  # which states no order
            assert state_of(fitted(rows, given)) == expected
        elif {of_rows, of_labels} != {"texts", "categories"}:  # which are the same
            with pytest.raises(InputError, match="index"):
                fitted(rows, given)
