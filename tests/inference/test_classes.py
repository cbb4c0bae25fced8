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


def infer_list(made, folder, labels, class_names):
    """Infer one blue and one red picture with these labels."""
    data, model = made
    lines = ["path,label", f"blue/000.png,{labels[0]}", f"red/000.png,{labels[1]}"]
    (data / "list.csv").write_text("\n".join(lines) + "\n")
    function = "pictures" if class_names is None else "nameless"
    return infer(f"{model}:{function}", data / "list.csv", folder, class_names=class_names)


@pytest.mark.parametrize(
    ("labels", "class_names", "indices"),
    [
        (["blue", "red"], None, [0, 3]),  # the model may know more classes
        (["blue", "red"], NAMES[::-1], [3, 0]),
        (["0", "3"], None, [0, 3]),
        (["3", "0"], NAMES[::-1], [3, 0]),
        (["10", "2"], ["1", "10", "2", "20"], [1, 2]),  # numbers that are names are names
    ],
)
def test_labels_are_names_or_count_the_outputs(tmp_path, made, labels, class_names, indices):
    done = infer_list(made, tmp_path / "s", labels, class_names)
    table = read(tmp_path / "s")
    assert table.column("label").to_pylist() == indices
    assert done.accuracy == (matrix(table).argmax(axis=1) == indices).mean()


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
    with pytest.raises(InputError, match=words):
        infer_list(made, tmp_path / "s", labels, class_names)
    assert not (tmp_path / "s").exists()
