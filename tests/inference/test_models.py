"""Logits of ONNX and Hugging Face models are the models' own, whatever the batches and workers."""

import json
import subprocess
import sys

import numpy as np
import pytest
from cli.running import Result, environment, refused
from inference.samples import NAMES, matrix, read, write_model, write_pictures, write_texts
from PIL import Image

from evencover import InputError
from evencover.cli import main
from evencover.inference import infer

pytestmark = pytest.mark.filterwarnings("default")  # the libraries warn of themselves
WAYS = [(1, 1), (3, 2), (64, 2)]
WORDS = ["[UNK]", "[PAD]", *"abcdefghij"]
SIZES = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.3, 0.2, 0.25]}


def names_of_classes():
    return {
        "id2label": dict(enumerate(NAMES)),
        "label2id": {name: place for place, name in enumerate(NAMES)},
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
        prepared = [processor(images=[each], return_tensors="pt") for each in values]
    else:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        prepared = [tokenizer(each, truncation=True, return_tensors="pt") for each in values]
    with torch.inference_mode():
        return np.concatenate([model.eval()(**each).logits.numpy() for each in prepared])


@pytest.mark.parametrize(("batch_size", "workers"), WAYS)
def test_hugging_face_images(tmp_path, image_model, batch_size, workers):
    ids = write_pictures(tmp_path / "data", 3)
    to = tmp_path / "s"
    infer(image_model, tmp_path / "data", to, batch_size=batch_size, workers=workers)
    pictures = [Image.open(tmp_path / "data" / each).convert("RGB") for each in ids]
    expected = hugging_face_logits(image_model, pictures, "images")
    table = read(to)
    np.testing.assert_allclose(matrix(table), expected, rtol=1e-4, atol=1e-5)
    assert json.loads(table.schema.metadata[b"class_names"]) == NAMES
    assert table.column("label").to_pylist() == np.repeat(range(4), 3).tolist()


@pytest.mark.parametrize(("batch_size", "workers"), WAYS)
def test_hugging_face_texts(tmp_path, text_model, batch_size, workers):
    texts, _ = write_texts(tmp_path / "t.csv", 30)
    to = tmp_path / "s"
    infer(str(text_model), tmp_path / "t.csv", to, batch_size=batch_size, workers=workers)
    expected = hugging_face_logits(text_model, texts, "texts")
    np.testing.assert_allclose(matrix(read(to)), expected, rtol=1e-4, atol=1e-5)


def test_a_dataset_on_disk(tmp_path, image_model):
    datasets = pytest.importorskip("datasets")
    ids = write_pictures(tmp_path / "data", 3)
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=NAMES))
    columns = {
        "image": [str(tmp_path / "data" / each) for each in ids],
        "label": np.repeat(range(4), 3).tolist(),
    }
    made = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"test": made, "train": made}).save_to_disk(
        tmp_path / "disk", num_shards={"test": 2, "train": 1}
    )
    with pytest.raises(InputError, match=r"several splits.*disk/test"):
        infer(image_model, tmp_path / "disk", tmp_path / "one")
    infer(image_model, tmp_path / "disk" / "test", tmp_path / "one")
    infer(image_model, tmp_path / "data", tmp_path / "two")
    one, two = read(tmp_path / "one"), read(tmp_path / "two")
    np.testing.assert_array_equal(matrix(one), matrix(two))
    assert one.column("label").to_pylist() == two.column("label").to_pylist()
    assert one.column("id").to_pylist() == list(range(12))


def linear(path, n_in, n_out, shape, *, names=None, output="logits", batch="n"):
    """An ONNX file that flattens its input and multiplies it."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    weights = np.random.default_rng(2).normal(size=(n_in, n_out)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["pixels"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], [output]),
        ],
        "linear",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [batch, n_out])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if names is not None:
        helper.set_model_props(model, {"class_names": json.dumps(names)})
    onnx.save(model, path)
    return weights


def pixels_of(path, side, mode="RGB"):
    """A whole picture of this size, from 0 to 1, (side, side, channels)."""
    image = Image.open(path).convert("RGB").convert(mode)
    image = image.resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.float64).reshape(side, side, -1) / 255


@pytest.mark.parametrize(("batch_size", "workers"), WAYS)
@pytest.mark.parametrize("layout", ["channels first", "channels last", "batches of 5"])
def test_onnx_images(tmp_path, layout, batch_size, workers):
    ids = write_pictures(tmp_path / "data", 3)
    last = layout == "channels last"
    shape, batch = ((8, 8, 3) if last else (3, 8, 8)), 5 if layout == "batches of 5" else "n"
    weights = linear(tmp_path / "m.onnx", 192, 4, shape, names=NAMES, batch=batch)
    with pytest.warns(UserWarning, match=r"8 x 8.*preprocessor_config.json"):
        infer(
            tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s",
            batch_size=batch_size, workers=workers,
        )  # fmt: skip
    pixels = np.stack([pixels_of(tmp_path / "data" / each, 8) for each in ids])
    expected = (pixels if last else pixels.transpose(0, 3, 1, 2)).reshape(12, -1) @ weights
    np.testing.assert_allclose(matrix(read(tmp_path / "s")), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels", "options"), [(1, {}), ("c", {"channels": 1})])
def test_a_one_channel_model_gets_plain_gray(tmp_path, channels, options):
    ids = write_pictures(tmp_path / "data", 3)
    weights = linear(tmp_path / "m.onnx", 64, 4, (channels, 8, 8), names=NAMES)
    infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s", note=print, **options)
    pixels = np.stack([pixels_of(tmp_path / "data" / each, 8, "L") for each in ids])
    expected = pixels.reshape(12, -1) @ weights
    np.testing.assert_allclose(matrix(read(tmp_path / "s")), expected, rtol=1e-4, atol=1e-4)


def test_options_state_the_preprocessing(tmp_path, capsys):
    ids = write_pictures(tmp_path / "data", 3)
    weights = linear(tmp_path / "m.onnx", 144, 4, (3, "h", "w"), names=NAMES)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 9, **SIZES}))
    options = ["--mean", "0.4,0.5,0.6", "--std", "0.25", "--scale", "2/255", "--size", "6,8"]
    to = str(tmp_path / "s")
    main(["infer", str(tmp_path / "m.onnx"), str(tmp_path / "data"), "-o", to, *options])
    out, err = capsys.readouterr()
    images = [Image.open(tmp_path / "data" / each).convert("RGB") for each in ids]
    images = [np.asarray(each.resize((8, 6), 2), dtype=np.float64) for each in images]
    pixels = (np.stack(images) * 2 / 255 - [0.4, 0.5, 0.6]) / 0.25
    expected = pixels.transpose(0, 3, 1, 2).reshape(12, -1) @ weights
    np.testing.assert_allclose(matrix(read(tmp_path / "s")), expected, rtol=1e-4, atol=1e-4)
    (line,) = err.splitlines()
    assert all(word in line for word in ("6 x 8", "0.4 0.5 0.6", "0.25", "--mean", "--size"))
    accuracy = (expected.argmax(axis=1) == np.repeat(range(4), 3)).mean()
    assert f"accuracy {accuracy:.1%}" in out


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"mean": [0.1, 0.2]}, "mean"),
        ({"mean": float("nan")}, "mean"),
        ({"std": [1, 0, 1]}, "std"),
        ({"scale": -1}, "scale"),
        ({"size": 0}, "size"),
        ({"size": 8.5}, "size"),
        ({"size": 9}, "size"),
        ({"channels": 2}, "channels"),
        ({"channels": 1}, "channels"),
    ],
)
def test_bad_options(tmp_path, options, name):
    write_pictures(tmp_path / "data", 1)
    linear(tmp_path / "m.onnx", 192, 4, (3, 8, 8), names=NAMES)
    with pytest.raises(InputError, match=f"'{name}'"):
        infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_options_are_for_onnx_models_of_images(tmp_path, image_model):
    write_pictures(tmp_path / "data", 1)
    for model in (image_model, f"{write_model(tmp_path)}:pictures"):
        with pytest.raises(InputError, match="'std'"):
            infer(model, tmp_path / "data", tmp_path / "s", std=0.5)


def test_another_preprocessing_is_another_run(tmp_path):
    write_pictures(tmp_path / "data", 1)
    linear(tmp_path / "m.onnx", 192, 4, (3, 8, 8), names=NAMES)
    config = tmp_path / "preprocessor_config.json"
    config.write_text(json.dumps({"size": 8, **SIZES}))
    infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s")
    assert infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s").n_there == 1
    with pytest.raises(InputError, match="another preprocessing;"):
        infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s", mean=0.3)
    config.write_text(json.dumps({"size": 8, **SIZES, "image_mean": [0.5, 0.4, 0.31]}))
    with pytest.raises(InputError, match="another preprocessing;"):
        infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s")


@pytest.mark.parametrize("name", ["weights", "w" * 150, "more/w.bin"])
def test_external_weights_belong_to_the_model(tmp_path, name):
    write_pictures(tmp_path / "data", 1)
    linear(tmp_path / "m.onnx", 192, 4, (3, 8, 8), names=NAMES)
    import onnx

    model = onnx.load(tmp_path / "m.onnx")
    (tmp_path / "more").mkdir()
    external = {"save_as_external_data": True, "location": name, "size_threshold": 0}
    onnx.save_model(model, tmp_path / "m.onnx", **external)
    infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s", mean=0)
    weights = np.frombuffer((tmp_path / name).read_bytes(), np.float32)
    (tmp_path / name).write_bytes((weights * 2).tobytes())
    with pytest.raises(InputError, match="another model;"):
        infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s", mean=0)


@pytest.mark.parametrize(
    "own",
    [
        {"size": {"shortest_edge": 8}, "crop_pct": 0.875, "resample": 3},
        {"size": {"height": 8, "width": 8}},
        {"size": 8},
        {"size": {"shortest_edge": 10}, "do_center_crop": True, "crop_size": 8, "resample": 3},
    ],
)
def test_onnx_prepares_images_as_hugging_face_does(tmp_path, own):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    ids = write_pictures(tmp_path / "data", 3)
    weights = linear(tmp_path / "m.onnx", 192, 4, (3, 8, 8), names=NAMES)
    kind = "ConvNext" if "crop_pct" in own else "CLIP" if "do_center_crop" in own else "ViT"
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": f"{kind}ImageProcessor", **SIZES, **own})
    )
    infer(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "s")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    pictures = [Image.open(tmp_path / "data" / each).convert("RGB") for each in ids]
    pixels = processor(images=pictures, return_tensors="np")["pixel_values"]
    expected = np.asarray(pixels).reshape(12, -1) @ weights
    np.testing.assert_allclose(matrix(read(tmp_path / "s")), expected, rtol=1e-3, atol=1e-3)


def test_onnx_texts_by_a_tokenizer(tmp_path, text_model):
    """A table of word vectors that are summed: what padding adds is masked out."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    vectors = np.random.default_rng(3).normal(size=(len(WORDS), 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["vectors", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "two"], ["wide"]),
        helper.make_node("Mul", ["words", "wide"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "one"], ["logits"], keepdims=0),
    ]
    ints = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"])
        for name in ("input_ids", "attention_mask")
    ]
    rows = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 4])
    constants = {"vectors": vectors, "two": np.array([2]), "one": np.array([1])}
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "words", ints, [rows], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((text_model / name).read_bytes())
    texts, _ = write_texts(tmp_path / "t.csv", 30)
    infer(tmp_path / "model.onnx", tmp_path / "t.csv", tmp_path / "s", batch_size=7)
    place = {letter: number for number, letter in enumerate(WORDS)}
    expected = [vectors[[place.get(each, 0) for each in text[:16]]].sum(axis=0) for text in texts]
    np.testing.assert_allclose(matrix(read(tmp_path / "s")), expected, rtol=1e-4, atol=1e-4)
    infer(tmp_path, tmp_path / "t.csv", tmp_path / "of folder", batch_size=7)
    np.testing.assert_array_equal(
        matrix(read(tmp_path / "of folder")), matrix(read(tmp_path / "s"))
    )
    known = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    letters = known["model"]["vocab"]
    letters["a"], letters["b"] = letters["b"], letters["a"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(InputError, match="another preprocessing;"):
        infer(tmp_path / "model.onnx", tmp_path / "t.csv", tmp_path / "s", batch_size=7)


def test_bad_onnx_models(tmp_path):
    write_pictures(tmp_path / "data", 2)
    linear(tmp_path / "names.onnx", 192, 4, (3, 8, 8), names=NAMES[:3])
    linear(tmp_path / "sizeless.onnx", 100, 4, (3, "h", "w"), names=NAMES)
    linear(tmp_path / "channels.onnx", 320, 4, (5, 8, 8), names=NAMES)
    linear(tmp_path / "vector.onnx", 9, 4, (9,), names=NAMES)
    (tmp_path / "damaged.onnx").write_bytes(b"no model")
    sentences = {
        "names.onnx": "names.onnx.* Got 3 names",
        "sizeless.onnx": "'size'",
        "channels.onnx": "1 or 3 channels",
        "vector.onnx": r"one input of images .* Got pixels tensor\(float\) \['n', 9\]",
        "damaged.onnx": "Cannot load the model '.*damaged.onnx': ",
    }
    for model, sentence in sentences.items():
        with pytest.raises(InputError, match=sentence):
            infer(tmp_path / model, tmp_path / "data", tmp_path / "s")
    with pytest.raises(InputError, match=r"cannot take the 8 inputs from 'blue/000.png' on"):
        infer(tmp_path / "sizeless.onnx", tmp_path / "data", tmp_path / "s", size=8)
    with pytest.raises(InputError, match=r"--device .*CPU.* Got 'tpu'"):
        infer(tmp_path / "names.onnx", tmp_path / "data", tmp_path / "s", device="tpu")
    for config, found in (
        ({"size": 9, **SIZES}, "'size'.* 8 x 8.* 9 x 9"),
        ({"size": 8}, "image_mean"),
        ({"size": 8, "image_mean": [0.5, 0.5], "image_std": [0.5]}, "'mean'.*3 channels.* Got 2"),
    ):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match=found):
            infer(tmp_path / "names.onnx", tmp_path / "data", tmp_path / "s")


def test_bad_hugging_face_models(tmp_path, text_model):
    write_texts(tmp_path / "t.csv", 3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty': a file is missing"):
        infer(tmp_path / "empty", tmp_path / "t.csv", tmp_path / "s")
    with pytest.raises(InputError, match=r"PyTorch can use here. Got 'warp'"):
        infer(text_model, tmp_path / "t.csv", tmp_path / "s", device="warp")
    with pytest.raises(InputError, match=r"takes texts. Got kind='images'"):
        infer(text_model, tmp_path / "t.csv", tmp_path / "s", kind="images")
    bare = tmp_path / "bare"
    bare.mkdir()
    config = json.loads((text_model / "config.json").read_text("utf-8"))
    (bare / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(InputError, match=r"must classify images or texts .* Got BertForMaskedLM"):
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


def test_no_such_model_on_the_hub(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    write_texts(tmp_path / "t.csv", 3)
    with pytest.raises(InputError, match=r"'nobody/nothing': .* hub"):
        infer("nobody/nothing", tmp_path / "t.csv", tmp_path / "s")


@pytest.mark.parametrize(
    ("model", "missing", "extra"),
    [("m.onnx", "onnxruntime", "onnx"), ("folder", "transformers", "torch")],
)
def test_the_sentence_names_the_extra(tmp_path, monkeypatch, model, missing, extra):
    (tmp_path / "m.onnx").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(InputError, match=rf"{missing}.*pip install 'evencover\[{extra}\]'"):
        infer(tmp_path / model, tmp_path, tmp_path / "s")
