"""Every other command reads what infer writes."""

import json

import pytest
from cli.running import run_here, succeeded
from inference.samples import NAMES, write_model, write_pictures

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def test_from_pictures_to_sets(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return succeeded(run_here(capsys, *arguments))

    for name in ("calibration", "test"):
        write_pictures(tmp_path / name, 30)
    write_model(tmp_path)
    for name in ("calibration", "test"):
        run("infer", "mine.py:pictures", name, "-o", f"scores-{name}")
    about = json.loads(run("info", "scores-test", "--json").out)
    assert about["n_rows"] == 120
    run("calibrate", "scores-calibration", "-o", "m.safetensors", "--method", "standard")
    found = json.loads(run("evaluate", "m.safetensors", "scores-test", "--json").out)
    assert found["marginal_coverage"] > 0.85
    run("predict", "m.safetensors", "scores-test", "-o", "sets.jsonl")
    first = json.loads((tmp_path / "sets.jsonl").read_text("utf-8").splitlines()[0])
    assert first["id"] == "blue/000.png"
    assert set(first["names"]) <= set(NAMES)
