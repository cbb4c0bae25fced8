"""The examples run, and their sets cover; those whose library is not installed are skipped.

With n calibration and n test rows the standard deviation of coverage is about
sqrt(2 alpha (1 - alpha) / n): 0.012 for the first example, 0.008 for the others. Seeds are fixed.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from evencover.data import as_source

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_scikit_learn(capsys):
    assert 0.90 < load("from_sklearn").main() <= 1
    assert "first three sets" in capsys.readouterr().out


def test_torch(tmp_path):
    pytest.importorskip("torch")
    assert 0.85 < load("from_torch").main(tmp_path / "model.safetensors") < 0.95
    from evencover import load as load_model

    assert load_model(tmp_path / "model.safetensors").from_logits is True


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosting(library):
    pytest.importorskip(library)
    assert 0.85 < load("from_boosting").main(library) < 0.95


@pytest.mark.filterwarnings("default")  # the library warns of itself
def test_transformers():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    for names in load("from_transformers").main(["--tiny"]):
        assert set(names) <= {"ant", "bee", "wasp", "fly", "moth"}


@pytest.mark.filterwarnings("default")  # the library warns of itself
def test_name_files(tmp_path, capsys):
    pytest.importorskip("magika")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "one.py").write_text("import sys\n\nprint(sys.version)\n" * 5, "utf-8")
    (tmp_path / "notes.txt").write_text("These are words of a plain text. " * 20, "utf-8")
    (tmp_path / "tiny.txt").write_text("word", "utf-8")
    load("name_files").main(tmp_path)
    sets, types, review = capsys.readouterr().out.split("\n\n")
    assert sets.startswith("2 files")
    assert "notes.txt" in sets
    assert [line.split()[0] for line in types.splitlines()] == ["type", "python", "txt"]
    assert len(review.splitlines()) == 3


@pytest.mark.filterwarnings("default")  # the libraries warn of each other
def test_web_service(capsys):
    for library in ("starlette", "uvicorn", "prometheus_client", "httpx"):
        pytest.importorskip(library)
    found = load("web_service").main()
    assert not found["at first"]["alarm"]
    assert found["the camera broke"]["alarm"]
    assert "ALARM" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")  # the library warns of itself
def test_texts(tmp_path, capsys, monkeypatch):
    pytest.importorskip("wordllama")
    monkeypatch.setenv("HEAD_FOLDER", "")  # the example sets it
    words = {
        "en": "the right of every person to life and work and rest is their own",
        "de": "das Recht jedes Menschen auf Leben und Arbeit und Ruhe ist sein eigenes",
        "fr": "le droit de toute personne à la vie et au travail et au repos est le sien",
    }
    rng = np.random.default_rng(0)
    lines = ["text,label"]
    for label, text in words.items():
        own = text.split()
        lines += [" ".join(rng.choice(own, 6)) + f",{label}" for _ in range(200)]
    (tmp_path / "texts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["-o", str(tmp_path / "out"), "--texts", str(tmp_path / "texts.csv")]
    load("text_languages").main(command)
    assert "3 classes" in capsys.readouterr().out
    source = as_source(tmp_path / "out" / "scores")
    right = [(block.rows.argmax(axis=1) == block.labels).mean() for block in source.blocks()]
    assert min(right) > 0.9


def test_every_example_is_in_the_list():
    text = (EXAMPLES / "README.md").read_text("utf-8")
    scripts = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert scripts
    assert all(f"({name})" in text for name in scripts)
