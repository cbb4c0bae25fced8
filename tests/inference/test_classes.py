"""Labels and outputs are matched by name; what does not fit is rejected with the names."""

import pytest
from inference.samples import NAMES, matrix, read, write_model, write_pictures

from evencover import InputError
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
    for image in (data / "grey").iterdir():
        image.unlink()
    (data / "grey").rmdir()
    infer(f"{model}:pictures", data, tmp_path / "s")
    assert labels(tmp_path / "s") == [0, 0, 1, 1, 3, 3]


def test_unknown_labels_are_rejected_by_name(tmp_path, made):
    data, model = made
    (data / "red").rename(data / "reds")
    with pytest.raises(InputError, match=r"'reds' .*did you mean 'red'"):
        infer(f"{model}:pictures", data, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_names_of_folders_are_not_guessed_to_be_the_outputs_in_order(tmp_path, made):
    data, model = made
    with pytest.raises(InputError, match=r"blue, green, grey, red.*--class-names"):
        infer(f"{model}:nameless", data, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_another_number_of_names_is_rejected(tmp_path, made):
    data, model = made
    with pytest.raises(InputError, match="class_names"):
        infer(f"{model}:nameless", data, tmp_path / "s", class_names=NAMES[:3])
    with pytest.raises(InputError, match="unique"):
        infer(f"{model}:nameless", data, tmp_path / "s", class_names=["red", *NAMES[1:]])


@pytest.mark.parametrize("function", ["pictures", "nameless"])
@pytest.mark.parametrize("numbers", [["0", "3"], ["3", "0"]])
def test_numbers_count_the_outputs(tmp_path, made, numbers, function):
    data, model = made
    lines = [f"blue/000.png,{numbers[0]}", f"red/001.png,{numbers[1]}"]
    (data / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    done = infer(f"{model}:{function}", data / "list.csv", tmp_path / "s")
    assert labels(tmp_path / "s") == list(map(int, numbers))
    guesses = matrix(read(tmp_path / "s")).argmax(axis=1)
    assert done.accuracy == (guesses == list(map(int, numbers))).mean()


def test_numbers_beyond_the_outputs_are_rejected(tmp_path, made):
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
