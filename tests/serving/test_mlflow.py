"""The MLflow flavour: saved without pickle, loaded as a function of frames with lists."""

import numpy as np
import pytest

from evencover import InputError, PooledPredictor, StandardPredictor

pytest.importorskip("mlflow")
pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

NAMES = ["ant", "bee", "wasp", "fly"]


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(300, len(NAMES), seed=30)


def frame(rows, ids=None, column="probabilities"):
    import pandas as pd

    columns = {column: rows.tolist()} | ({} if ids is None else {"id": ids})
    return pd.DataFrame(columns)


def test_saved_and_loaded_it_gives_the_same_sets(data, tmp_path):
    import mlflow

    from evencover.serving import mlflow as flavour

    fitted = PooledPredictor(score="aps").fit(*data, class_names=NAMES)
    flavour.save_model(fitted, tmp_path / "model")
    files = [path.name for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert "model.safetensors" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle"))]
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    ids = [f"row {n}" for n in range(300)]
    for own in (None, ids):
        found = loaded.predict(frame(data.rows, own))
        sets = fitted.predict_set(data.rows, ids=own)
        assert [list(each) for each in found["set"]] == sets.to_lists(names=True)
        np.testing.assert_array_equal(found["size"], sets.sizes)
        np.testing.assert_array_equal(found["accepted"], sets.accepted)
    assert flavour.load_model(tmp_path / "model").predict_set(data.rows) == fitted.predict_set(
        data.rows
    )


def test_a_run_logs_it(data, tmp_path, monkeypatch):
    import mlflow

    from evencover.serving import mlflow as flavour

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        fitted = StandardPredictor().fit(*data)
        with mlflow.start_run():
            logged = flavour.log_model(fitted, name="sets")
        loaded = mlflow.pyfunc.load_model(logged.model_uri)
        assert (
            loaded.predict(frame(data.rows))["set"].tolist()
            == fitted.predict_set(data.rows).to_lists()
        )
    finally:
        mlflow.set_tracking_uri(None)


def test_a_model_of_logits_asks_for_logits(data, tmp_path):
    import mlflow

    from evencover.serving import mlflow as flavour

    logits = np.log(data.rows)
    fitted = StandardPredictor(from_logits=True).fit(logits, data.labels)
    flavour.save_model(fitted, tmp_path / "model")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert loaded.metadata.signature.inputs.input_names() == ["logits", "id"]
    assert "Array(double)" in str(loaded.metadata.signature.inputs)
    assert "Array(long)" in str(loaded.metadata.signature.outputs)
    assert loaded.metadata.signature.outputs.input_names() == ["set", "size", "accepted"]
    found = loaded.predict(frame(logits, column="logits"))
    assert found["set"].tolist() == fitted.predict_set(logits).to_lists()
    with pytest.raises(mlflow.exceptions.MlflowException):
        loaded.predict(frame(data.rows))
    with pytest.raises(InputError, match="Got probabilities"):
        loaded.predict(frame(data.rows, column="logits"))
