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


@pytest.mark.parametrize(
    ("labels", "class_names", "words"),
    [
        (["blue", "reds"], NAMES, "'reds' .*did you mean 'red'"),
        (["blue", "red"], NAMES[:3], "class_names"),
        (["blue", "red"], ["red", *NAMES[1:]], "unique"),
        (["4", "1"], NAMES, r"between 0 and 3.* Got 4"),
    ],
)
def test_labels_and_names_that_do_not_fit_are_rejected(tmp_path, made, labels, class_names, words):
    data, model = made
    (data / "list.csv").write_text(
        f"path,label\nblue/000.png,{labels[0]}\nred/000.png,{labels[1]}\n"
    )
    with pytest.raises(InputError, match=words):
        infer(f"{model}:nameless", data / "list.csv", tmp_path / "s", class_names=class_names)
    assert not (tmp_path / "s").exists()


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


def test_numbers_that_are_names_are_names(tmp_path, made):
    data, model = made
    names = ["1", "10", "2", "20"]
    (data / "list.csv").write_text("path,label\nblue/000.png,10\nred/000.png,2\n")
    infer(f"{model}:nameless", data / "list.csv", tmp_path / "s", class_names=names)
    assert labels(tmp_path / "s") == [1, 2]
