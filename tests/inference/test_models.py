"""Logits of Hugging Face models are the models' own, whatever the batches; examples run others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.running import Result, environment, refused
from inference.samples import NAMES, matrix, read, write_pictures, write_texts
from PIL import Image

from evencover import InputError
from evencover.inference import infer

pytestmark = pytest.mark.filterwarnings("default")  # the libraries warn of themselves
EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = ["[UNK]", "[PAD]", *"abcdefghij"]
SIZES = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.3, 0.2, 0.25]}


def names_of_classes():
    return {
        "id2label": dict(enumerate(NAMES)),
        "label2id": {name: index for index, name in enumerate(NAMES)},
    }


@pytest.fixture(scope="module")
def image_model(tmp_path_factory):
    """A small ResNet with random weights and its processor, in a folder."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("resnet")
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic",
        **names_of_classes(),
    )  # fmt: skip
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "ConvNextImageProcessor", "do_resize": True, "resample": 3,
                "size": {"shortest_edge": 32}, "crop_pct": 0.875, "do_normalize": True,
                "do_rescale": True, "rescale_factor": 1 / 255, **SIZES,
            }
        )
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    """A small BERT with random weights and a tokenizer of letters, in a folder."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="[UNK]", pad_token="[PAD]", model_max_length=16
    )
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, pad_token_id=1, **names_of_classes(),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def hugging_face_logits(folder, values, kind):
    """One input at a time, with transformers alone."""
    import torch
    import transformers

    if kind == "images":
        model = transformers.AutoModelForImageClassification.from_pretrained(folder)
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        prepared = [processor(images=[value], return_tensors="pt") for value in values]
    else:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        prepared = [tokenizer(value, truncation=True, return_tensors="pt") for value in values]
    with torch.inference_mode():
        return np.concatenate([model.eval()(**inputs).logits.numpy() for inputs in prepared])


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_hugging_face_images(tmp_path, image_model, batch_size):
    ids = write_pictures(tmp_path / "data", 3)
    infer(image_model, tmp_path / "data", tmp_path / "s", batch_size=batch_size)
    pictures = [Image.open(tmp_path / "data" / image).convert("RGB") for image in ids]
    expected = hugging_face_logits(image_model, pictures, "images")
    table = read(tmp_path / "s")
    np.testing.assert_allclose(matrix(table), expected, rtol=1e-4, atol=1e-5)
    assert json.loads(table.schema.metadata[b"class_names"]) == NAMES
    assert table.column("label").to_pylist() == np.repeat(range(4), 3).tolist()


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_hugging_face_texts(tmp_path, text_model, batch_size):
    texts, _ = write_texts(tmp_path / "t.csv", 30)
    infer(str(text_model), tmp_path / "t.csv", tmp_path / "s", batch_size=batch_size)
    expected = hugging_face_logits(text_model, texts, "texts")
    np.testing.assert_allclose(matrix(read(tmp_path / "s")), expected, rtol=1e-4, atol=1e-5)


def test_changed_weights_are_another_model(tmp_path, text_model):
    write_texts(tmp_path / "t.csv", 3)
    infer(text_model, tmp_path / "t.csv", tmp_path / "s")
    assert infer(text_model, tmp_path / "t.csv", tmp_path / "s").n_there == 1
    os.utime(text_model / "model.safetensors")
    with pytest.raises(InputError, match="another model"):
        infer(text_model, tmp_path / "t.csv", tmp_path / "s")


def test_bad_hugging_face_models(tmp_path, text_model):
    write_texts(tmp_path / "t.csv", 3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"Cannot load the model '.*empty'"):
        infer(tmp_path / "empty", tmp_path / "t.csv", tmp_path / "s")
    with pytest.raises(InputError, match="must be a table"):
        infer(text_model, tmp_path, tmp_path / "s")
    bare = tmp_path / "bare"
    bare.mkdir()
    config = json.loads((text_model / "config.json").read_text("utf-8"))
    (bare / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(InputError, match=r"must classify images or texts. Got BertForMaskedLM"):
        infer(bare, tmp_path / "t.csv", tmp_path / "s")


def test_the_code_of_a_model_is_not_run(tmp_path):
    """Even if the user answers yes to transformers' question."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    write_texts(tmp_path / "t.csv", 3)
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.MineConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_mine.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\n"
        "from transformers import PretrainedConfig\n\n"
        "class MineConfig(PretrainedConfig):\n    model_type = 'mine'\n"
    )
    command = ["infer", str(folder), str(tmp_path / "t.csv"), "-o", str(tmp_path / "s")]
    done = subprocess.run(
        [sys.executable, "-m", "evencover", *command],
        input="y\n",
        env=environment(HF_HOME=str(tmp_path / "cache")),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert not (tmp_path / "ran").exists()
    assert "contains code" in refused(Result(done.returncode, done.stdout, done.stderr))


def pixels_of(folder, ids, side):
    """What both examples give the model: ImageNet's normalization, (n, 3, side, side)."""
    images = [Image.open(folder / image).convert("RGB").resize((side, side)) for image in ids]
    scaled = np.stack([np.asarray(image, np.float64) for image in images]) / 255
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    return ((scaled - mean) / std).transpose(0, 3, 1, 2).reshape(len(ids), -1)


def run_example(name, tmp_path, monkeypatch, model):
    monkeypatch.setenv("MODEL", str(model))
    to = tmp_path / "scores"
    infer(f"{EXAMPLES / name}:predict", tmp_path / "data", to, class_names=NAMES, batch_size=5)
    return matrix(read(to))


def test_an_onnx_model_in_a_function(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    ids = write_pictures(tmp_path / "data", 3)
    weights = np.random.default_rng(2).normal(size=(192, 4)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["pixels"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
        ],
        "linear",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    found = run_example("infer_onnx.py", tmp_path, monkeypatch, tmp_path / "model.onnx")
    expected = pixels_of(tmp_path / "data", ids, 8) @ weights
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match=r"examples/infer_onnx.py"):
        infer(tmp_path / "model.onnx", tmp_path / "data", tmp_path / "other")


def test_a_torch_model_in_a_function(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    ids = write_pictures(tmp_path / "data", 3)
    pool = torch.nn.AvgPool2d(56)
    network = torch.nn.Sequential(pool, torch.nn.Flatten(), torch.nn.Linear(48, 4)).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = ({0: batch},)
    exported = torch.export.export(network, (torch.zeros(4, 3, 224, 224),), dynamic_shapes=shapes)
    torch.export.save(exported, tmp_path / "model.pt2")
    found = run_example("infer_torch.py", tmp_path, monkeypatch, tmp_path / "model.pt2")
    pixels = torch.tensor(pixels_of(tmp_path / "data", ids, 224), dtype=torch.float32)
    with torch.inference_mode():
        expected = network(pixels.reshape(-1, 3, 224, 224)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
