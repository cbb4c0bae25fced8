"""Labels and outputs are matched by name; what does not fit is refused with the names."""

import pytest
from inference.samples import NAMES, matrix, own_logits, read, write_model, write_pictures
from PIL import Image

from evencover import EvencoverWarning, InputError
from evencover.inference import infer


@pytest.fixture
def made(tmp_path):
    """Pictures, and the file of a model."""
    write_pictures(tmp_path / "data", 2)
    return tmp_path / "data", write_model(tmp_path)


def labels(folder):
    return read(folder).column("label").to_pylist()


def test_the_models_order_counts(tmp_path, made):
    data, model = made
    infer(f"{model}:nameless", data, tmp_path / "s", class_names=NAMES[::-1])
    assert labels(tmp_path / "s") == [3, 3, 2, 2, 1, 1, 0, 0]


def test_the_model_may_know_more_classes(tmp_path, made):
    data, model = made
    for each in (data / "grey").iterdir():
        each.unlink()
    (data / "grey").rmdir()
    infer(f"{model}:pictures", data, tmp_path / "s")
    assert labels(tmp_path / "s") == [0, 0, 1, 1, 3, 3]


def test_unknown_labels_are_refused_with_their_names(tmp_path, made):
    data, model = made
    (data / "red").rename(data / "reds")
    (data / "blue").rename(data / "violet")
    with pytest.raises(InputError, match=r"reds, violet; did you mean 'red'"):
        infer(f"{model}:pictures", data, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_without_names_as_many_folders_are_taken_in_order(tmp_path, made):
    data, model = made
    with pytest.warns(EvencoverWarning, match=r"names no classes\. .* 4 classes"):
        infer(f"{model}:nameless", data, tmp_path / "s")
    assert labels(tmp_path / "s") == [0, 0, 1, 1, 2, 2, 3, 3]


def test_without_names_another_number_of_folders_is_refused(tmp_path, made):
    data, model = made
    (data / "violet").mkdir()
    with pytest.raises(InputError, match=r"returns 4 numbers.* has 5 classes.*--class-names"):
        infer(f"{model}:nameless", data, tmp_path / "s")


def test_another_number_of_names_is_refused(tmp_path, made):
    data, model = made
    with pytest.raises(InputError, match="class_names"):
        infer(f"{model}:nameless", data, tmp_path / "s", class_names=NAMES[:3])
    with pytest.raises(InputError, match="class_names"):
        infer(f"{model}:nameless", data, tmp_path / "s", class_names=["red", *NAMES[1:]])


@pytest.mark.parametrize("numbers", [["0", "3"], ["3", "0"]])
def test_numbers_count_the_outputs(tmp_path, made, numbers):
    data, model = made
    lines = [f"blue/000.png,{numbers[0]}", f"red/001.png,{numbers[1]}"]
    (data / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    infer(f"{model}:pictures", data / "list.csv", tmp_path / "s")
    assert labels(tmp_path / "s") == list(map(int, numbers))
    expected = own_logits(model, "pictures", [Image.open(data / "blue/000.png").convert("RGB")])
    assert matrix(read(tmp_path / "s"))[0] == pytest.approx(expected[0], rel=1e-4)


def test_numbers_beyond_the_outputs_are_refused(tmp_path, made):
    data, model = made
    (data / "list.csv").write_text("path,label\nblue/000.png,4\nred/000.png,1\n")
    with pytest.raises(InputError, match=r"between 0 and 3.* Got 4"):
        infer(f"{model}:pictures", data / "list.csv", tmp_path / "s")


def test_numbers_that_are_names_are_names(tmp_path, made):
    data, model = made
    names = ["1", "10", "2", "20"]
    (data / "list.csv").write_text("path,label\nblue/000.png,10\nred/000.png,2\n")
    infer(f"{model}:nameless", data / "list.csv", tmp_path / "s", class_names=names)
    assert labels(tmp_path / "s") == [1, 2]
