"""Files that other tools wrote themselves are read as they are; real_files/README.md says how."""

import csv
import json
import runpy
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from inputs import assert_refused, read

from evencover import InputError, StandardPredictor
from evencover.data import as_source

FOLDER = Path(__file__).parent / "real_files"
SCRIPT = Path(__file__).parents[2] / "scripts" / "write_real_files.py"
CLASSES = ["ash", "birch", "cedar", "oak"]


def from_arrays(name, numbers, labels):
    held = np.load(FOLDER / name)
    return held[numbers], held[labels]


def from_records(records, label):
    rows = [[float(record[kind]) for kind in CLASSES] for record in records]
    return np.array(rows), [CLASSES.index(record[label]) for record in records]


def from_csv(name, label):
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return from_records(list(csv.DictReader(file)), label)


def from_lines(name):
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]


def from_parquet(name):
    return pq.read_table(FOLDER / name).to_pylist()


# The file, what it holds if read by hand, whether these are logits, and the names of the classes.
READ = {
    "cleanlab.npz": (lambda name: from_arrays(name, "pred_probs", "labels"), False, None),
    "scikit_learn_labelled.csv": (lambda name: from_csv(name, "y_true"), None, CLASSES),
    "scikit_learn.jsonl": (lambda name: from_records(from_lines(name), "y_true"), None, CLASSES),
    "scikit_learn.parquet": (
        lambda name: from_records(from_parquet(name), "y_true"),
        None,
        CLASSES,
    ),
    "transformers.npz": (lambda name: from_arrays(name, "predictions", "label_ids"), True, None),
}


pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


@pytest.mark.parametrize("name", READ)
def test_files_are_read_as_they_are(name):
    by_hand, logits, names = READ[name]
    source = as_source(FOLDER / name)
    rows, labels = read(source)
    expected_rows, expected_labels = by_hand(name)
    np.testing.assert_array_equal(rows, expected_rows)
    assert labels.tolist() == list(expected_labels)
    assert (source.logits, source.class_names) == (logits, names and tuple(names))
    assert StandardPredictor(alpha=0.5).fit(source).n_calibration_ == len(labels)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_frames_of_autogluon(ending):
    """A column per class and the index of the rows; the labels are in a file of their own."""
    path = FOLDER / f"autogluon.{ending}"
    source = as_source(path, FOLDER / "autogluon_labels.csv")
    rows, labels = read(source)
    with (FOLDER / "autogluon_labels.csv").open(encoding="utf-8", newline="") as file:
        trees = [record["tree"] for record in csv.DictReader(file)]
    with (FOLDER / "autogluon.csv").open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    expected, _ = from_records(
        [{**r, "tree": t} for r, t in zip(records, trees, strict=True)], "tree"
    )
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert [source.class_names[label] for label in labels] == trees


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("name", "logits"), [("timm", False), ("timm_logits", True), ("timm_columns", None)]
)
def test_results_of_timm_with_all_classes(name, logits, ending):
    """A list for each picture, or a column for each class."""
    table = pq.read_table(FOLDER / f"{name}.parquet").to_pylist()
    columns = [each for each in table[0] if each != "filename"]
    by_hand = [np.hstack([record[each] for each in columns]) for record in table]
    source = as_source(FOLDER / f"{name}.{ending}", FOLDER / "timm_labels.txt")
    rows, labels = read(source)
    np.testing.assert_allclose(rows, by_hand, rtol=1e-6)
    assert labels.tolist() == [int(y) for y in (FOLDER / "timm_labels.txt").read_text().split()]
    assert source.logits is logits
    assert StandardPredictor(alpha=0.5).fit(source).n_classes_ == len(CLASSES)


@pytest.mark.parametrize("name", ["timm_best.csv", "timm_best.parquet", "timm_best_3.csv"])
def test_results_of_timm_with_numbers_of_the_best_classes_only_are_refused(name):
    assert_refused(FOLDER / name, "at least 2 classes|--topk 0")


@pytest.mark.parametrize(
    "name", ["timm_best_3.parquet", "timm_best_3_columns.csv", "timm_best_3_columns.parquet"]
)
def test_results_of_timm_with_the_best_classes_are_listed(name):
    whole = np.array(pq.read_table(FOLDER / "timm.parquet")["prob"].to_pylist())
    source = as_source(FOLDER / name, FOLDER / "timm_labels.txt")
    rows = np.concatenate([block.rows.to_dense() for block in source.blocks()])
    third = np.sort(whole, axis=1)[:, -3:-2]
    np.testing.assert_allclose(rows, np.where(whole < third, 0, whole), rtol=1e-6)
    assert StandardPredictor(alpha=0.5).fit(source).n_classes_ == len(CLASSES)


@pytest.mark.parametrize("name", ["torch_pair.pt", "torch_dictionary.pt"])
def test_files_of_torch(name):
    torch = pytest.importorskip("torch")
    held = torch.load(FOLDER / name, weights_only=True)
    numbers, kinds = held if isinstance(held, tuple) else (held["logits"], held["labels"])
    source = as_source(FOLDER / name)
    rows, labels = read(source)
    np.testing.assert_array_equal(rows, numbers.numpy())
    assert labels.tolist() == kinds.tolist()
    assert set(source.columns.used) == {"numbers", "labels"}


def test_files_of_torch_with_more_than_tensors_are_refused():
    pytest.importorskip("torch")
    with pytest.raises(InputError, match="objects other than tensors"):
        as_source(FOLDER / "torch_with_a_module.pt")


@pytest.mark.deep
@pytest.mark.parametrize("tool", ["cleanlab", "scikit-learn", "transformers", "torch"])
def test_what_the_tools_write_today_is_read(tmp_path, tool):
    """The versions that are installed, not those of the files that are kept."""
    needed = {"scikit-learn": "sklearn", "transformers": "accelerate"}
    pytest.importorskip(needed.get(tool, tool))
    runpy.run_path(str(SCRIPT))["WRITERS"][tool](tmp_path)
    names = [path.name for path in sorted(tmp_path.iterdir()) if path.name in READ]
    names += [name for name in ("torch_pair.pt",) if (tmp_path / name).exists()]
    assert names
    for name in names:
        rows, labels = read(as_source(tmp_path / name))
        kept_rows, kept_labels = read(as_source(FOLDER / name))
        np.testing.assert_allclose(rows, kept_rows, atol=1e-3)
        assert labels.tolist() == kept_labels.tolist()


@pytest.mark.deep
def test_the_output_of_a_trainer_itself():
    pytest.importorskip("accelerate")
    output = runpy.run_path(str(SCRIPT))["trainer_output"]()
    source = as_source(output)
    rows, labels = read(source)
    np.testing.assert_array_equal(rows, output.predictions)
    assert (labels.tolist(), source.logits) == (output.label_ids.tolist(), True)
