"""The rows of a score file are the model's own, in the order of the inputs."""

import json

import numpy as np
import pytest
from inference.samples import (
    NAMES,
    content,
    matrix,
    own_logits,
    read,
    write_model,
    write_pictures,
    write_texts,
)
from PIL import Image

from evencover import InputError
from evencover.data import as_source
from evencover.inference import infer
from evencover.inference import run as run_module


@pytest.fixture
def pictures(tmp_path):
    """A folder of classes, the ids in order, and a model of them."""
    ids = write_pictures(tmp_path / "data")
    return tmp_path / "data", ids, write_model(tmp_path)


def opened(data, ids):
    return [Image.open(data / each).convert("RGB") for each in ids]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_logits_are_the_models_own(tmp_path, pictures, batch_size, workers):
    data, ids, model = pictures
    to = tmp_path / "scores"
    done = infer(f"{model}:pictures", data, to, batch_size=batch_size, workers=workers)
    table = read(to)
    expected = own_logits(model, "pictures", opened(data, ids))
    np.testing.assert_allclose(matrix(table), expected, rtol=1e-5, atol=1e-5)
    accuracy = (expected.argmax(axis=1) == np.repeat(range(4), 5)).mean()
    assert done == (20, 0, 1, 0, accuracy)
    assert table.column("id").to_pylist() == ids
    assert table.column("label").to_pylist() == np.repeat(range(4), 5).tolist()


def test_a_function_may_prepare_inputs_on_workers(tmp_path, pictures):
    data, _, model = pictures
    infer(f"{model}:pictures", data, tmp_path / "one")
    infer(f"{model}:Prepared", data, tmp_path / "two")
    np.testing.assert_allclose(
        matrix(read(tmp_path / "two")), matrix(read(tmp_path / "one")), rtol=1e-5, atol=1e-5
    )


def test_parts_join_to_the_same_rows(tmp_path, pictures, monkeypatch):
    data, ids, model = pictures
    infer(f"{model}:pictures", data, tmp_path / "whole")
    monkeypatch.setattr(run_module, "MAX_ROWS", 6)
    done = infer(f"{model}:pictures", data, tmp_path / "parts", batch_size=4)
    assert done.n_files == 4
    table = read(tmp_path / "parts")
    assert table.column("id").to_pylist() == ids
    np.testing.assert_allclose(
        matrix(table), matrix(read(tmp_path / "whole")), rtol=1e-5, atol=1e-5
    )


def test_only_missing_parts_are_made_again_with_the_same_bytes(tmp_path, pictures, monkeypatch):
    data, _, model = pictures
    monkeypatch.setattr(run_module, "MAX_ROWS", 6)
    to = tmp_path / "scores"
    first = infer(f"{model}:pictures", data, to, batch_size=4)
    assert 0 < first.accuracy < 1
    before = content(to)
    for name in ("part-00001.parquet", "part-00003.parquet"):
        (to / name).unlink()
    again = infer(f"{model}:pictures", data, to, batch_size=4)
    assert (again.n_there, again.accuracy) == (2, first.accuracy)
    assert content(to) == before


def test_manifest_and_metadata_say_what_it_is_made_from(tmp_path, pictures):
    data, _, model = pictures
    to = tmp_path / "scores"
    infer(f"{model}:pictures", data, to)
    metadata = read(to).schema.metadata
    assert json.loads(metadata[b"class_names"]) == NAMES
    about = json.loads(metadata[b"model"])
    assert about["name"].endswith("mine.py:pictures")
    manifest = json.loads((to / "_manifest.json").read_text("utf-8"))
    assert manifest["made_from"]["model"] == about["identity"]
    assert (manifest["rows"], manifest["unreadable"]) == (20, 0)


@pytest.mark.parametrize("limit", [1, 7, 500])
def test_limit_takes_the_first(tmp_path, pictures, limit):
    data, ids, model = pictures
    infer(f"{model}:pictures", data, tmp_path / "scores", limit=limit)
    assert read(tmp_path / "scores").column("id").to_pylist() == ids[:limit]


def test_half_precision(tmp_path, pictures):
    data, ids, model = pictures
    infer(f"{model}:pictures", data, tmp_path / "scores", dtype="float16")
    expected = own_logits(model, "pictures", opened(data, ids))
    found = matrix(read(tmp_path / "scores"))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    (block,) = as_source(tmp_path / "scores").blocks()
    np.testing.assert_array_equal(block.rows, found)


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
    assert read(to).column("id").to_pylist() == [each for each in ids if each not in bad]
    lines = (to / "_unreadable.csv").read_text("utf-8").splitlines()
    assert lines[0] == "id,reason"
    assert [line.split(",")[0] for line in lines[1:]] == bad
    manifest = json.loads((to / "_manifest.json").read_text("utf-8"))
    assert (manifest["rows"], manifest["unreadable"]) == (18, 2)
    before = content(to)
    (to / "part-00001.parquet").unlink()
    (to / "_unreadable.csv").unlink()
    infer(f"{model}:pictures", data, to, batch_size=4)
    assert content(to) == before


def test_a_part_without_any_readable_image_is_empty(tmp_path, pictures, monkeypatch):
    data, _, model = pictures
    for number in range(5):
        (data / f"blue/00{number}.png").write_bytes(b"")
    monkeypatch.setattr(run_module, "MAX_ROWS", 5)
    infer(f"{model}:pictures", data, tmp_path / "scores")
    source = as_source(tmp_path / "scores")
    assert (source.n_rows, source.n_classes) == (15, 4)


@pytest.mark.parametrize("batch_size", [2, 5, 7])
def test_a_first_batch_without_any_readable_image(tmp_path, pictures, batch_size):
    data, ids, model = pictures
    for number in range(5):
        (data / f"blue/00{number}.png").write_bytes(b"")
    infer(f"{model}:pictures", data, tmp_path / "scores", batch_size=batch_size)
    assert read(tmp_path / "scores").column("id").to_pylist() == ids[5:]


def test_a_flat_folder_has_no_labels(tmp_path, pictures):
    data, _, model = pictures
    assert infer(f"{model}:pictures", data / "red", tmp_path / "scores").accuracy is None
    table = read(tmp_path / "scores")
    assert table.column_names == ["id", "logits"]
    assert not as_source(tmp_path / "scores").has_labels


def test_texts_of_a_table(tmp_path):
    texts, labels = write_texts(tmp_path / "texts.csv", 50)
    model = write_model(tmp_path)
    infer(f"{model}:texts", tmp_path / "texts.csv", tmp_path / "scores", batch_size=7)
    table = read(tmp_path / "scores")
    np.testing.assert_allclose(matrix(table), own_logits(model, "texts", texts), rtol=1e-5)
    assert table.column("id").to_pylist() == list(range(50))
    assert [NAMES[place] for place in table.column("label").to_pylist()] == labels


def test_probabilities_are_kept_as_such(tmp_path, pictures):
    data, _, model = pictures
    with open(model, "a", encoding="utf-8") as file:
        file.write("\n\ndef sure(images):\n    e = np.exp(pictures(images))\n")
        file.write("    return e / e.sum(1)[:, None]\n")
    infer(f"{model}:sure", data, tmp_path / "scores", probabilities=True, class_names=NAMES)
    source = as_source(tmp_path / "scores")
    assert source.logits is False
    with pytest.raises(InputError, match=r"must return logits.*--probabilities"):
        infer(f"{model}:sure", data, tmp_path / "others", class_names=NAMES)
    with pytest.raises(InputError, match=r"must return probabilities.*--probabilities"):
        infer(f"{model}:pictures", data, tmp_path / "others", probabilities=True)


def test_a_model_of_a_fixed_batch_size_gets_just_that(tmp_path, pictures):
    data, ids, model = pictures
    with open(model, "a", encoding="utf-8") as file:
        file.write(
            "\n\ndef three(images):\n    assert len(images) == 3\n    return pictures(images)\n"
        )
        file.write("three.batch_size = 3\nthree.class_names = pictures.class_names\n")
    infer(f"{model}:three", data, tmp_path / "scores")
    expected = own_logits(model, "pictures", opened(data, ids))
    np.testing.assert_allclose(matrix(read(tmp_path / "scores")), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("batch_size", "max_rows"), [(3, 7), (64, 7), (64, 4096)])
def test_no_input_is_inferred_twice(tmp_path, pictures, monkeypatch, batch_size, max_rows):
    data, ids, model = pictures
    with open(model, "a", encoding="utf-8") as file:
        file.write("\n\ndef counting(images):\n")
        file.write(f"    with open({str(tmp_path / 'n')!r}, 'a') as file:\n")
        file.write("        file.write('.' * len(images))\n    return pictures(images)\n")
        file.write("counting.class_names = pictures.class_names\n")
    monkeypatch.setattr(run_module, "MAX_ROWS", max_rows)
    infer(f"{model}:counting", data, tmp_path / "scores", batch_size=batch_size)
    assert read(tmp_path / "scores").column("id").to_pylist() == ids
    n_inferred = (tmp_path / "n").stat().st_size
    assert n_inferred == 20 + (20 if batch_size > max_rows else 0)  # one batch beyond a part


def test_an_image_named_in_a_table_is_part_of_the_input(tmp_path, pictures):
    data, ids, model = pictures
    lines = [f"data/{each},{each.split('/')[0]}" for each in ids]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    infer(f"{model}:pictures", tmp_path / "list.csv", tmp_path / "scores")
    (data / ids[3]).write_bytes((data / ids[-1]).read_bytes())
    with pytest.raises(InputError, match="another input"):
        infer(f"{model}:pictures", tmp_path / "list.csv", tmp_path / "scores")


def test_the_version_of_pillow_counts_for_images(tmp_path, pictures, monkeypatch):
    data, _, model = pictures
    infer(f"{model}:pictures", data, tmp_path / "scores")
    monkeypatch.setattr("PIL.__version__", "9.0")
    with pytest.raises(InputError, match="version"):
        infer(f"{model}:pictures", data, tmp_path / "scores")


def test_the_device_counts(tmp_path, pictures):
    data, _, model = pictures
    with open(model, "a", encoding="utf-8") as file:
        file.write("\n\ndef placed(images, device=None):\n    return pictures(images)\n")
        file.write("placed.class_names = pictures.class_names\n")
    infer(f"{model}:placed", data, tmp_path / "scores", device="cpu")
    with pytest.raises(InputError, match="another device"):
        infer(f"{model}:placed", data, tmp_path / "scores", device="cuda")
