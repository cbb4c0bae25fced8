"""The paper's classifiers, end to end on a tiny made-up data set."""

import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from inference.made import NAMES, matrix, picture, read, write_pictures

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
        f'datasets = [{{name = "made up", path = "{scores}"}}]\nn_avg = [5]\nrepetitions = 2\n'
        'methods = ["standard", "classwise"]\nscores = ["softmax"]\n'
    )
    shell(["experiment", "run", str(folder / "grid.toml"), "-o", str(folder / "results")])
    shell(["experiment", "table", str(folder / "results"), "--n-avg", "5"])


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
    assert right.mean() > 0.6  # colours are easy; chance is a quarter
    study(tmp_path, to / "scores")
    assert "made up" in capsys.readouterr().out


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, resnet, monkeypatch):
    import fine_tune

    write_pictures(tmp_path / "images", 10)

    def command(name):
        given = [str(tmp_path / "images"), "-o", str(tmp_path / name), "--model", str(resnet)]
        given += ["--epochs", "2", "--batch-size", "8", "--workers", "0", "--keep-every", "2"]
        return given

    fine_tune.main(command("whole"))
    keep, n_kept = fine_tune._keep, []

    def keep_and_stop(*arguments):
        keep(*arguments)
        n_kept.append(0)
        if len(n_kept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(fine_tune, "_keep", keep_and_stop)
    with pytest.raises(KeyboardInterrupt):
        fine_tune.main(command("broken"))
    monkeypatch.setattr(fine_tune, "_keep", keep)
    fine_tune.main(command("broken"))
    one, two = (tmp_path / name / "model" / "model.safetensors" for name in ("whole", "broken"))
    assert one.read_bytes() == two.read_bytes()


def test_the_split_follows_from_the_paths(tmp_path, examples):
    from images import list_pictures, split

    for number, family in enumerate(["Apidae", "Apidae", "Felidae"]):
        sub = tmp_path / f"{number:05d}_Animalia_a_b_c_{family}_g_s"
        sub.mkdir()
        for each in range(50):
            picture(0, each).save(sub / f"{each}.png")
    pictures = list_pictures(tmp_path, part=5)
    assert sorted({each.label for each in pictures}) == ["Apidae", "Felidae"]
    mine, rest = split(pictures, tmp_path, 0.9)
    assert sorted(mine + rest) == sorted(pictures)
    assert len(rest) < 40
    kept, _ = split(pictures[::-1], tmp_path, 0.9)
    assert set(kept) == set(mine)


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


def test_features_are_not_made_twice(tmp_path, resnet):
    import linear_probe
    from images import list_pictures

    write_pictures(tmp_path / "images", 5)
    pictures = list_pictures(tmp_path / "images")
    encoder = linear_probe.Encoder(str(resnet), "cpu")
    seen = []

    def counted(images):
        seen.extend(images)
        if len(seen) > 12:
            raise KeyboardInterrupt
        return encoder(images)

    with pytest.raises(KeyboardInterrupt):
        linear_probe.extract(pictures, counted, tmp_path, 4)
    assert os.path.getsize(tmp_path / "features.npy")
    seen.clear()
    features = linear_probe.extract(pictures, counted, tmp_path, 4)
    assert len(seen) == 8
    for place in (0, 19):
        from PIL import Image

        image = Image.open(pictures[place].path).convert("RGB")
        np.testing.assert_allclose(features[place], encoder([image])[0], rtol=1e-2, atol=1e-3)
