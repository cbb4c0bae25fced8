"""A library that is not installed gives one error message that names the extra."""

import sys

import pytest

from evencover import InputError, StandardPredictor


@pytest.fixture
def missing(monkeypatch):
    def take_away(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return take_away


def test_what_is_missing_is_named_with_its_extra(missing, tmp_path, capsys):
    from evencover import to_onnx
    from evencover.cli import main
    from evencover.serving import mlflow

    missing("onnx", "mlflow.pyfunc", "mlflow", "uvicorn", "evencover.serving.http")
    fitted = StandardPredictor().fit([[0.75, 0.25], [0.5, 0.5]] * 10, [0, 1] * 10)
    with pytest.raises(InputError, match=r"pip install 'evencover\[export\]'"):
        to_onnx(fitted, tmp_path / "sets.onnx")
    with pytest.raises(InputError, match=r"pip install 'evencover\[mlflow\]'"):
        mlflow.save_model(fitted, tmp_path / "model")
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit, match="2"):
        main(["serve", str(tmp_path / "model.safetensors")])
    assert "evencover[serve]" in capsys.readouterr().err
