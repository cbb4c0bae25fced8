"""The paper's classifiers, end to end on a tiny made-up data set."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from inference.samples import NAMES, matrix, read, write_pictures

from evencover.cli import main as shell
from evencover.data import as_source
from evencover.inference import infer

PAPER = Path(__file__).resolve().parents[2] / "examples" / "paper"
pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("default")]


@pytest.fixture
def examples(monkeypatch):
    """The scripts, importable as they are when they run."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(PAPER)
    yield
    for name in ("images", "fine_tune", "linear_probe"):
        sys.modules.pop(name, None)


@pytest.fixture
def resnet(tmp_path, examples):
    """A small network of the family that the paper used, with random weights and other classes."""
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=7
    )
    folder = tmp_path / "resnet"
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    own = {"size": {"shortest_edge": 16}, "crop_pct": 0.875, "resample": 2}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ConvNextImageProcessor", **own})
    )
    return folder


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def study(folder, scores):
    """The paper's table from a score file."""
    (folder / "grid.toml").write_text(
        f'datasets = ["{scores}"]\nn_avg = [5]\nrepetitions = 2\n'
        'methods = ["standard", "classwise"]\nscores = ["softmax"]\n'
    )
    shell(["experiment", "run", str(folder / "grid.toml"), "-o", str(folder / "results")])
    shell(["experiment", "table", str(folder / "results")])


def test_fine_tune_infer_experiment(tmp_path, resnet, capsys):
    import fine_tune

    write_pictures(tmp_path / "images", 40)
    to = tmp_path / "out"
    command = [str(tmp_path / "images"), "-o", str(to), "--model", str(resnet), "--epochs", "6"]
    command += ["--batch-size", "16", "--rate", "0.1", "--workers", "0", "--keep-every", "5"]
    fine_tune.main(command)
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])
    held_out = rows_of(to / "held_out.csv")
    assert counts == {"training": 160 - len(held_out), "held out": len(held_out), "classes": 4}
    assert 55 < len(held_out) < 105  # half of 160, within four standard deviations
    infer(to / "model", to / "held_out.csv", to / "scores")
    table = read(to / "scores")
    right = matrix(table).argmax(axis=1) == table.column("label").to_numpy()
    assert right.mean() > 0.6  # colors are easy; chance is a quarter
    study(tmp_path, to / "scores")
    assert "scores" in capsys.readouterr().out


def test_linear_probe_scores_and_infer_agree(tmp_path, resnet, monkeypatch, capsys):
    import linear_probe

    write_pictures(tmp_path / "images", 40)
    to = tmp_path / "probe"
    command = [str(tmp_path / "images"), "-o", str(to), "--encoder", str(resnet)]
    command += ["--share", "0.5", "--epochs", "600", "--batch-size", "16"]
    linear_probe.main(command)
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])
    source = as_source(to / "scores")
    assert (source.n_rows, list(source.class_names)) == (counts["scores"], NAMES)
    (block,) = source.blocks()
    assert (block.rows.argmax(axis=1) == block.labels).mean() > 0.6
    monkeypatch.setenv("PROBE", str(to))
    lines = [f"{each},{Path(each).parent.name}" for each in source.ids.tolist()]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    infer(f"{PAPER / 'linear_probe.py'}:Probe", tmp_path / "list.csv", to / "inferred")
    np.testing.assert_allclose(
        matrix(read(to / "inferred")), matrix(read(to / "scores")), rtol=2e-2, atol=2e-2
    )
    study(tmp_path, to / "scores")
