"""The rows of a score file are the model's own, in the order of the inputs."""

import json

import numpy as np
import pytest
from inference.samples import (
    NAMES,
    add_function,
    content,
    expected_logits,
    matrix,
    read,
    write_model,
    write_pictures,
)
from PIL import Image

from evencover import InputError
from evencover.data import as_source
from evencover.inference import infer
from evencover.inference import run as run_module

SOFTMAX = """
def sure(images):
    powers = np.exp(pictures(images))
    return powers / powers.sum(1)[:, None]
sure.class_names = pictures.class_names
"""
# The logits of every second batch are nonnegative and sum to 1, as probabilities do.


@pytest.fixture
def pictures(tmp_path):
    """A folder of classes, the ids in order, and a model of them."""
    ids = write_pictures(tmp_path / "data")
    return tmp_path / "data", ids, write_model(tmp_path)


def opened(data, ids):
    return [Image.open(data / image).convert("RGB") for image in ids]


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("function", ["pictures", "Prepared"])  # the second has work for threads
def test_logits_are_the_models_own(tmp_path, pictures, monkeypatch, function, batch_size, threads):
    monkeypatch.setenv("EVENCOVER_THREADS", threads)
    data, ids, model = pictures
    done = infer(f"{model}:{function}", data, tmp_path / "scores", batch_size=batch_size)
    table = read(tmp_path / "scores")
    expected = expected_logits(model, "pictures", opened(data, ids))
    np.testing.assert_allclose(matrix(table), expected, rtol=1e-5, atol=1e-5)
    accuracy = (expected.argmax(axis=1) == np.repeat(range(4), 5)).mean()
    assert done._replace(n_files=1) == (20, 0, 1, 0, "logits", accuracy)
    assert table.column("id").to_pylist() == ids
    assert table.column("label").to_pylist() == np.repeat(range(4), 5).tolist()
    assert json.loads(table.schema.metadata[b"class_names"]) == NAMES


def test_only_missing_parts_are_made_again_with_the_same_bytes(tmp_path, pictures, monkeypatch):
    data, ids, model = pictures
    monkeypatch.setattr(run_module, "MAX_ROWS", 6)
    to = tmp_path / "scores"
    first = infer(f"{model}:pictures", data, to, batch_size=4)
    assert 0 < first.accuracy < 1
    assert first.n_files == 4
    assert read(to).column("id").to_pylist() == ids
    expected = expected_logits(model, "pictures", opened(data, ids))
    np.testing.assert_allclose(matrix(read(to)), expected, rtol=1e-5, atol=1e-5)
    before = content(to)
    for name in ("part-00001.parquet", "part-00003.parquet"):
        (to / name).unlink()
    again = infer(f"{model}:pictures", data, to, batch_size=4)
    assert (again.n_there, again.accuracy) == (2, first.accuracy)
    assert content(to) == before


def test_unreadable_images_are_left_out_listed_and_counted(tmp_path, pictures, monkeypatch):
    data, ids, model = pictures
    whole = (data / "green/003.png").read_bytes()
    (data / "blue/000.png").write_bytes(b"no picture")
    (data / "green/003.png").write_bytes(whole[: len(whole) // 2])
    (data / "red/notes.txt").write_text("no picture, nor called one")
    monkeypatch.setattr(run_module, "MAX_ROWS", 6)
    to = tmp_path / "scores"
    done = infer(f"{model}:pictures", data, to, batch_size=4)
    assert (done.n_rows, done.n_unreadable) == (18, 2)
    bad = ["blue/000.png", "green/003.png"]
    assert read(to).column("id").to_pylist() == [image for image in ids if image not in bad]
    lines = (to / "_unreadable.csv").read_text("utf-8").splitlines()
    assert lines[0] == "id,reason"
    assert [line.split(",")[0] for line in lines[1:]] == bad
    before = content(to)
    (to / "part-00001.parquet").unlink()
    (to / "_unreadable.csv").unlink()
    infer(f"{model}:pictures", data, to, batch_size=4)
    assert content(to) == before


def test_a_flat_folder_has_no_labels(tmp_path, pictures):
    data, _, model = pictures
    assert infer(f"{model}:pictures", data / "red", tmp_path / "scores").accuracy is None
    assert read(tmp_path / "scores").column_names == ["id", "logits"]
    assert not as_source(tmp_path / "scores").has_labels


def test_probabilities_are_stored_as_such(tmp_path, pictures):
    data, ids, model = pictures
    add_function(model, SOFTMAX)
    assert infer(f"{model}:sure", data, tmp_path / "scores").column == "probs"
    assert as_source(tmp_path / "scores").logits is False
    found = matrix(read(tmp_path / "scores"), "probs")
    np.testing.assert_allclose(found, expected_logits(model, "sure", opened(data, ids)), rtol=1e-5)


@pytest.mark.parametrize(("batch_size", "max_rows"), [(3, 7), (64, 7), (64, 4096)])
def test_no_input_is_inferred_twice(tmp_path, pictures, monkeypatch, batch_size, max_rows):
    data, ids, model = pictures
    counter = tmp_path / "n"
    add_function(
        model,
        f"def counting(images):\n    with open({str(counter)!r}, 'a') as file:\n"
        "        file.write('.' * len(images))\n    return pictures(images)\n"
        "counting.class_names = pictures.class_names",
    )
    monkeypatch.setattr(run_module, "MAX_ROWS", max_rows)
    monkeypatch.setattr(run_module, "MAX_NUMBERS", 4 * 4096)
    infer(f"{model}:counting", data, tmp_path / "scores", batch_size=batch_size)
    assert read(tmp_path / "scores").column("id").to_pylist() == ids
    n_inferred = counter.stat().st_size
    assert n_inferred == 20 + (20 if batch_size > max_rows else 0)  # one batch beyond a part


def test_images_are_turned_upright(tmp_path):
    """A photograph with EXIF orientation 6 is stored on its side."""
    upright = Image.fromarray(np.arange(4 * 8 * 3, dtype=np.uint8).reshape(8, 4, 3))
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "data" / "red").mkdir(parents=True)
    stored = upright.transpose(Image.Transpose.ROTATE_90)
    stored.save(tmp_path / "data" / "red" / "a.png", exif=exif)
    shapes = []

    def remember(images):
        shapes.extend(np.asarray(image) for image in images)
        return np.zeros((len(images), 4))

    infer(remember, tmp_path / "data", tmp_path / "scores", class_names=NAMES)
    np.testing.assert_array_equal(shapes[0], np.asarray(upright))


def test_a_function_may_state_what_its_weights_are(tmp_path, pictures, monkeypatch):
    data, _, model = pictures
    add_function(model, "import os\nPrepared.identity = os.environ['WEIGHTS']")
    monkeypatch.setenv("WEIGHTS", "one")
    infer(f"{model}:Prepared", data, tmp_path / "scores")
    monkeypatch.setenv("WEIGHTS", "two")
    with pytest.raises(InputError, match="another model"):
        infer(f"{model}:Prepared", data, tmp_path / "scores")


def test_a_forced_run_leaves_no_list_of_the_run_before(tmp_path, pictures):
    data, ids, model = pictures
    whole = (data / ids[0]).read_bytes()
    (data / ids[0]).write_bytes(b"no picture")
    assert infer(f"{model}:pictures", data, tmp_path / "scores").n_unreadable == 1
    (data / ids[0]).write_bytes(whole)
    assert infer(f"{model}:pictures", data, tmp_path / "scores", force=True).n_unreadable == 0
    assert not (tmp_path / "scores" / "_unreadable.csv").exists()
