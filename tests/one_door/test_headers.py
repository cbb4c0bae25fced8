"""The whole file decides whether the first line of a CSV is its header; otherwise it is asked."""

import json

import numpy as np
import pandas as pd
import pytest
from cli.running import refused, sets_in, succeeded
from one_door.material import calibrated, fitted, simulated, state_of, with_header, write_cells

from evencover import InputError, StandardPredictor, load, save
from evencover.data import as_source


def rows_of(n_classes, n_rows=120):
    return simulated(n_rows, n_classes)[0]


def model_of(n_classes):
    return calibrated(n_classes, keep_top=True)


@pytest.fixture(params=["csv", "tsv"])
def path(request, folder):
    return folder / f"p.{request.param}"


def write(path, header, rows):
    """Cells as Python writes them: an integer has no point."""
    rows = rows.tolist() if isinstance(rows, np.ndarray) else rows
    return write_cells(path, [*([header] if header else []), *rows])


# ---- what pandas writes ------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_a_frame_without_names_is_read_as_pandas_writes_it(folder, run, n_classes):
    rows = rows_of(n_classes)
    with open("p.csv", "w", encoding="utf-8") as file:
        pd.DataFrame(rows).to_csv(file, index=False)
    save(model_of(n_classes), "m.safetensors")
    done = succeeded(run("predict", "m.safetensors", "p.csv", "-o", "s.jsonl"))
    assert f"{len(rows)} sets" in done.out
    assert sets_in("s.jsonl") == model_of(n_classes).predict_set(rows).to_lists()


@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_a_frame_with_its_index_and_labels_is_read_too(folder, n_classes):
    rows, labels = simulated(120, n_classes)
    pd.DataFrame(rows).assign(label=labels).to_csv("p.csv")
    assert state_of(fitted("p.csv")) == state_of(fitted(rows, labels))


@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_rows_without_a_header_are_all_rows(path, n_classes):
    rows = rows_of(n_classes)
    assert len(model_of(n_classes).predict_set(write(path, None, rows))) == len(rows)
    if n_classes > 2:  # 0, 1, 0 is no header
        certain = [*np.eye(n_classes, dtype=int)[[1] * 3].tolist(), *rows.tolist()]
        assert len(model_of(n_classes).predict_set(write(path, None, certain))) == len(certain)


# ---- what is unclear ---------------------------------------------------------------------------

UNCLEAR = {
    "0,1 above fractions and a certain row": ([0, 1], [[0.5, 0.5], [1, 0], [0.2, 0.8]]),
    "1,0 above fractions": ([1, 0], [[0.5, 0.5], [0.2, 0.8], [0.3, 0.7]]),
    "1,0 above 0,1": ([1, 0], [[0, 1], [0.2, 0.8]]),
    "0,1 alone": ([0, 1], []),
    "1,0 alone": ([1, 0], []),
    "0,1 above 0,1": ([0, 1], [[0, 1], [0, 1]]),
    "0,1,2 above a certain row": ([0, 1, 2], [[0.5, 0.2, 0.3], [0, 1, 0]]),
}


@pytest.mark.parametrize("what", UNCLEAR)
def test_a_first_line_that_is_unclear_is_an_error_with_both_remedies(folder, run, what):
    header, rows = UNCLEAR[what]
    model = model_of(len(header))
    save(model, "m.safetensors")
    write(folder / "p.csv", header, rows)
    line = refused(run("predict", "m.safetensors", "p.csv", "-o", "s.jsonl"))
    assert "--header" in line
    assert "--no-header" in line
    with pytest.raises(InputError, match="header"):
        model.predict_set("p.csv")
    assert "--no-header" in refused(run("info", "p.csv"))


@pytest.mark.parametrize("what", UNCLEAR)
@pytest.mark.parametrize("option", ["--header", "--no-header"])
def test_options_say_what_the_first_line_is(folder, run, what, option):
    header, rows = UNCLEAR[what]
    matrix = np.array(rows if option == "--header" else [header, *rows], dtype=float)
    if not len(matrix) or not (matrix % 1 > 0).any(axis=0).all() or (matrix.sum(axis=1) > 1).any():
        pytest.skip("all numbers of a column are integers, or a row is none")
    model = model_of(len(header))
    save(model, "m.safetensors")
    write(folder / "p.csv", header, rows)
    order = np.argsort(header) if option == "--header" else np.arange(len(header))
    succeeded(run("predict", "m.safetensors", "p.csv", "-o", "s.jsonl", option))
    assert sets_in("s.jsonl") == model.predict_set(matrix[:, order]).to_lists()


def test_the_last_row_of_a_long_file_decides_too(folder):
    rows = np.tile([0.25, 0.75], (60_000, 1))
    write(folder / "p.csv", [0, 1], rows)
    assert as_source("p.csv").n_rows == len(rows)
    with open("p.csv", "a", encoding="utf-8") as file:
        file.write("1,0\n")
    with pytest.raises(InputError, match="header"):
        as_source("p.csv")


@pytest.mark.parametrize("header", ["0, 1", " 0 ,1", "1, 0"])
def test_space_makes_no_row_of_a_header(folder, header):
    """It was read as one row more."""
    (folder / "p.csv").write_text(f"{header}\n0.25,0.75\n0.5,0.5\n")
    with pytest.raises(InputError, match=r"white space|header"):
        model_of(2).predict_set("p.csv")


@pytest.mark.parametrize("header", [[0, 0, 1], [1, 1, 0], [0, 0, 0]])
def test_equal_integers_are_no_header(path, header):
    """Rows that do not sum to 1 are an error of their own."""
    write(path, header, rows_of(3)[:5])
    if sum(header) == 1:
        assert len(model_of(3).predict_set(path)) == 6
    else:
        with pytest.raises(InputError, match="sum"):
            model_of(3).predict_set(path)


@pytest.mark.parametrize("header", ["-1,0", "1e3,2", "0.5,0.5", "+1,2"])
def test_other_numbers_are_data(folder, header):
    (folder / "p.csv").write_text(f"{header}\n0.25,0.75\n0.5,0.5\n")
    rows = [list(map(float, header.split(","))), [0.25, 0.75], [0.5, 0.5]]
    if sum(rows[0]) == 1 and min(rows[0]) >= 0:
        assert len(model_of(2).predict_set("p.csv")) == 3
    else:
        with pytest.raises(InputError, match=r"(?i)row 0|first line|header"):
            model_of(2).predict_set("p.csv")


@pytest.mark.parametrize("names", [["ant", "bee", "cat"], ["10", "20", "30"], ["2", "0", "1"]])
def test_names_next_to_a_column_of_labels_are_a_header(path, names):
    rows, labels = simulated(60, 3)
    texts = [names[y] for y in labels]
    write_cells(path, with_header(names, rows, label=texts))
    expected = fitted(rows, texts, class_names=names)
    assert state_of(fitted(path, labels_are="names")) == state_of(expected)


def test_calibration_asks_as_well(folder, run):
    rows = [*rows_of(2).tolist(), [1, 0]]
    labels = np.random.default_rng(0).integers(0, 2, len(rows))
    np.save("y.npy", labels)
    write(folder / "p.csv", [0, 1], rows)
    calibrate = ("calibrate", "p.csv", "--labels", "y.npy", "-o", "m.safetensors")
    assert "--header" in refused(run(*calibrate))
    succeeded(run(*calibrate, "--header", "--method", "standard"))
    expected = StandardPredictor().fit(rows, labels)
    assert load("m.safetensors").thresholds_.tolist() == expected.thresholds_.tolist()
    assert json.loads(succeeded(run("info", "p.csv", "--header", "--json")).out)["n_rows"] == 121
