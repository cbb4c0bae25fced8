"""The ensemble for Triton: its configuration fits the graphs, and its steps give `predict_set`."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "triton"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The folder, the predictor and new images, the models' sessions and configurations."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    config = pytest.importorskip("tritonclient.grpc.model_config_pb2")  # Triton's own schema
    from google.protobuf import text_format

    spec = importlib.util.spec_from_file_location("make_models", FOLDER / "make_models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("models")
    predictor, images, labels = module.main(folder)
    texts = {path.parent.name: path.read_text("utf-8") for path in folder.glob("*/config.pbtxt")}
    assert set(texts) == set(module.MODELS)
    configs = {n: text_format.Parse(text, config.ModelConfig()) for n, text in texts.items()}
    sessions = {
        name: onnxruntime.InferenceSession(folder / name / "1" / "model.onnx")
        for name in ("classifier", "sets")
    }
    return predictor, images, labels, configs, sessions


def test_the_steps_of_the_ensemble_give_the_sets(repository):
    """Each step with the tensors that its maps name, as Triton runs them."""
    predictor, images, labels, configs, sessions = repository
    ensemble = configs["classifier_with_sets"]
    assert ensemble.platform == "ensemble"
    assert len({config.max_batch_size for config in configs.values()}) == 1
    tensors = {tensor.name: (images, tensor) for tensor in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        config = configs[step.model_name]
        known = {tensor.name: tensor for tensor in (*config.input, *config.output)}
        for name, source in step.input_map.items():
            assert (known[name].data_type, known[name].dims) == (
                tensors[source][1].data_type,
                tensors[source][1].dims,
            )
        inputs = {name: tensors[source][0] for name, source in step.input_map.items()}
        found = sessions[step.model_name].run(list(step.output_map), inputs)
        for (name, target), values in zip(step.output_map.items(), found, strict=True):
            tensors[target] = values.reshape(len(images), *known[name].dims), known[name]
    for tensor in ensemble.output:
        values, source = tensors[tensor.name]
        assert (tensor.data_type, tensor.dims) == (source.data_type, source.dims)
        assert list(values.shape[1:]) == list(tensor.dims)
    sets = predictor.predict_set(tensors["probabilities"][0])
    assert tensors["sizes"][0][:, 0].tolist() == sets.sizes.tolist()
    lists = [[c for c in row if c >= 0] for row in tensors["classes"][0].tolist()]
    assert lists == sets.to_lists()
    assert tensors["accepted"][0][:, 0].tolist() == sets.accepted.tolist()
    assert tensors["valid"][0].all()
    covered = np.mean([y in each for y, each in zip(labels, lists, strict=True)])
    assert covered > 0.85
