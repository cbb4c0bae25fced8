"""The MLflow flavor: saved without pickle, loaded as a function of frames with lists."""

import numpy as np
import pytest

from evencover import InputError, PooledPredictor, StandardPredictor

mlflow = pytest.importorskip("mlflow")
pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

NAMES = ["ant", "bee", "wasp", "fly"]
IDS = [f"row {n}" for n in range(300)]


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(300, len(NAMES), seed=30)


def frame(rows, column, ids=None):
    return pandas.DataFrame({column: rows.tolist()} | ({} if ids is None else {"id": ids}))


@pytest.mark.parametrize("reads", ["probabilities", "logits"])
def test_saved_and_loaded_it_gives_the_same_sets(data, tmp_path, reads):
    from evencover.serving import mlflow as flavor

    is_logits = reads == "logits"
    rows = np.log(data.rows) if is_logits else data.rows
    fitted = PooledPredictor(score="aps", from_logits=is_logits)
    fitted.fit(rows, data.labels, class_names=None if is_logits else NAMES)
    flavor.save_model(fitted, tmp_path / "model")
    files = [path.name for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert "model.safetensors" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle"))]
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    signature = loaded.metadata.signature
    assert signature.inputs.input_names() == [reads, "id"]
    assert signature.outputs.input_names() == ["set", "size", "accepted"]
    assert f"Array({'long' if is_logits else 'string'})" in str(signature.outputs)
    for ids in (None, IDS):
        found = loaded.predict(frame(rows, reads, ids))
        sets = fitted.predict_set(rows, ids=ids)
        assert [list(members) for members in found["set"]] == sets.to_lists(names=not is_logits)
        np.testing.assert_array_equal(found["size"], sets.sizes)
        np.testing.assert_array_equal(found["accepted"], sets.accepted)
    with pytest.raises(mlflow.exceptions.MlflowException):
        loaded.predict(frame(rows, "rows"))
    if is_logits:
        with pytest.raises(InputError, match="Got probabilities"):
            loaded.predict(frame(data.rows, reads))
    assert flavor.load_model(tmp_path / "model").predict_set(rows) == fitted.predict_set(rows)


def test_one_missing_id_is_an_error(data):
    from evencover.serving.mlflow import SetsModel

    model = SetsModel(StandardPredictor(score="aps").fit(*data))
    for missing in (None, float("nan"), ""):
        with pytest.raises(InputError, match="row 7"):
            model.predict(frame(data.rows, "probabilities", [*IDS[:7], missing, *IDS[8:]]))


def test_a_run_logs_it(data, tmp_path, monkeypatch):
    from evencover.serving import mlflow as flavor

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        fitted = StandardPredictor().fit(*data)
        with mlflow.start_run():
            logged = flavor.log_model(fitted, name="sets")
        found = mlflow.pyfunc.load_model(logged.model_uri).predict(
            frame(data.rows, "probabilities")
        )
        assert found["set"].tolist() == fitted.predict_set(data.rows).to_lists()
    finally:
        mlflow.set_tracking_uri(None)
