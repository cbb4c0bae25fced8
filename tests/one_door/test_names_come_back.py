"""Names that a command writes are names that a command reads, unchanged."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from cli.running import succeeded
from one_door.material import calibrated, simulated, write_cells

from evencover import load, save

NAMES = [
    "-ant",
    "@bee",
    "=cat",
    "+dog",
    "'eel",
    "=1+1",
    "a|b",
    "\\c",
    "x=0.5",
    " fox",
    "\tgnu",
    "NA",
]
K = len(NAMES)
ROWS, LABELS = simulated(20 * K, K)
ALPHAS = np.linspace(0.05, 0.3, K).round(3).tolist()


@pytest.fixture(autouse=True)
def _files(folder):
    np.savez("cal.npz", probs=ROWS, labels=LABELS, class_names=NAMES, ids=np.arange(len(ROWS)))
    save(calibrated(K, NAMES), "m.safetensors")


def read_cells(name):
    with open(name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_names_of_evaluate_are_those_of_the_model(run):
    succeeded(run("evaluate", "m.safetensors", "cal.npz", "--csv", "classes.csv"))
    assert [line["name"] for line in read_cells("classes.csv")] == NAMES


def test_names_of_evaluate_come_back_as_those_of_alphas(run):
    succeeded(run("evaluate", "m.safetensors", "cal.npz", "--csv", "classes.csv"))
    names = [line["name"] for line in read_cells("classes.csv")]
    write_cells(Path("alphas.csv"), [["class", "alpha"], *zip(names, ALPHAS, strict=True)])
    fit = ("calibrate", "cal.npz", "-o", "new.safetensors", "--method", "standard", "--force")
    succeeded(run(*fit, "--alpha-of", "alphas.csv"))
    assert load("new.safetensors").alpha_.tolist() == ALPHAS
    for place in range(K):
        succeeded(run(*fit, f"--alpha-of={names[place]}=0.2"))
        assert np.flatnonzero(load("new.safetensors").alpha_ == 0.2).tolist() == [place]


def test_names_of_evaluate_come_back_as_class_names(run):
    succeeded(run("evaluate", "m.safetensors", "cal.npz", "--csv", "classes.csv"))
    names = [[line["name"]] for line in read_cells("classes.csv")]
    write_cells(Path("names.csv"), [["class"], *names])
    np.savez("plain.npz", probs=ROWS, labels=LABELS)
    succeeded(run("calibrate", "plain.npz", "--class-names", "names.csv", "-o", "new.safetensors"))
    assert list(load("new.safetensors").class_names_) == NAMES


def test_names_of_predict_are_those_of_the_model(run):
    """A bar separates names in a cell; a backslash escapes it."""
    expected = calibrated(K, NAMES).predict_set(ROWS, ids=np.arange(len(ROWS))).to_lists(names=True)
    for kind in ("csv", "jsonl"):
        succeeded(run("predict", "m.safetensors", "cal.npz", "-o", f"sets.{kind}"))
    lines = Path("sets.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["names"] for line in lines] == expected
    cells = [line["names"] for line in read_cells("sets.csv")]
    escaped = [[name.replace("\\", r"\\").replace("|", r"\|") for name in row] for row in expected]
    assert cells == ["|".join(row) for row in escaped]


def test_ids_of_predict_come_back(run):
    ids = [f"{sign}{n}" for n, sign in zip(range(len(ROWS)), "-@=+'" * len(ROWS), strict=False)]
    np.savez("ids.npz", probs=ROWS, ids=ids)
    succeeded(run("predict", "m.safetensors", "ids.npz", "-o", "sets.csv"))
    assert [line["id"] for line in read_cells("sets.csv")] == ids
