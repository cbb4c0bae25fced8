"""What is not installed is one sentence that says how to get it; rooms can be entered anyway."""

import sys
from importlib import import_module

import pytest

from evencover import InputError, StandardPredictor

ROOMS = ("onnx", "mlflow", "http", "open_inference", "requests", "server", "service")


@pytest.fixture
def missing(monkeypatch):
    def take_away(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return take_away


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_can_be_entered_without_the_extras(missing, monkeypatch, room):
    missing("onnx", "mlflow", "msgspec", "starlette", "uvicorn", "prometheus_client")
    monkeypatch.delitem(sys.modules, f"evencover.serving.{room}", raising=False)
    assert import_module(f"evencover.serving.{room}")


def test_what_is_missing_is_named_with_its_extra(missing, tmp_path):
    from evencover import to_onnx
    from evencover.serving import mlflow
    from evencover.serving.http import require_extra

    missing("onnx", "mlflow.pyfunc", "mlflow", "starlette")
    fitted = StandardPredictor().fit([[0.75, 0.25], [0.5, 0.5]] * 10, [0, 1] * 10)
    with pytest.raises(InputError, match=r"pip install 'evencover\[export\]'"):
        to_onnx(fitted, tmp_path / "sets.onnx")
    with pytest.raises(InputError, match=r"pip install 'evencover\[mlflow\]'"):
        mlflow.save_model(fitted, tmp_path / "model")
    with pytest.raises(InputError, match=r"evencover\[serve\]"):
        require_extra()
    assert not list(tmp_path.iterdir())
