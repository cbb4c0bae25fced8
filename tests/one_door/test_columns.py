"""Which columns are classes: integers on request alone, and names that look reserved by a key."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from cli.running import refused, succeeded
from one_door.material import fitted, simulated, state_of, with_header, write_cells, write_lines

from evencover import InputError, load
from evencover.data import as_source

NAMES = ["ant", "bee", "cat"]
ROWS, LABELS = simulated(60, 3)
TEXTS = [NAMES[y] for y in LABELS]
VOTES = np.random.default_rng(0).multinomial(1, [0.5, 0.3, 0.2], 60)  # integers that sum to 1


def write(folder, kind, names=NAMES, rows=VOTES, **columns):
    frame, path = pd.DataFrame(rows, columns=names).assign(**columns), folder / f"p.{kind}"
    if kind == "parquet":
        frame.to_parquet(path, index=False)
    elif kind == "feather":
        frame.to_feather(path)
    elif kind in ("csv", "tsv"):
        write_cells(path, with_header(names, np.asarray(rows), **columns))
    elif kind == "jsonl":
        write_lines(path, frame.to_dict("records"))
    in_memory = {"pandas": frame, "polars": pl.DataFrame(frame), "arrow": pa.table(dict(frame))}
    return in_memory.get(kind, path)


TABLES = ["pandas", "polars", "arrow", "parquet", "feather", "csv", "tsv", "jsonl"]


# ---- integers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_integer_columns_are_classes_on_request_alone(tmp_path, kind):
    rows = write(tmp_path, kind)
    with pytest.raises(InputError, match="probabilities_key"):
        as_source(rows, TEXTS)
    for key in ("*", "[abc]*"):
        source = as_source(rows, TEXTS, probabilities_key=key)
        assert source.class_names == tuple(NAMES)
        found = np.concatenate([block.rows for block in source.blocks()])
        assert np.array_equal(found, VOTES)


def test_integer_columns_on_the_command_line(folder, run):
    write(folder, "csv", label=TEXTS)
    calibrate = ("calibrate", "p.csv", "-o", "m.safetensors", "--method", "standard")
    assert "--probabilities-key" in refused(run(*calibrate))
    assert "--probabilities-key" in refused(run("info", "p.csv"))
    succeeded(run(*calibrate, "--probabilities-key", "[abc]*"))
    assert load("m.safetensors").class_names_ == tuple(NAMES)


@pytest.mark.parametrize("kind", TABLES)
def test_a_count_never_becomes_a_class(tmp_path, kind):
    rows = write(tmp_path, kind, rows=ROWS, clicks=list(range(60)))
    with pytest.raises(InputError, match=r"(?=.*clicks)(?=.*probabilities_key)"):
        as_source(rows, LABELS)
    source = as_source(rows, LABELS, probabilities_key="!clicks")
    assert source.class_names == tuple(NAMES)


# ---- names that look reserved ------------------------------------------------------------------

LETTERS = ["X", "Y", "x", "y", "score"]
LETTER_ROWS, LETTER_LABELS = simulated(60, 5)


@pytest.mark.parametrize("kind", TABLES)
def test_classes_that_look_reserved_come_with_a_remedy(tmp_path, kind):
    rows, texts = write(tmp_path, kind, LETTERS, LETTER_ROWS), [LETTERS[y] for y in LETTER_LABELS]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(InputError) as error:
            as_source(rows, texts)
    said = " ".join([*(str(each.message) for each in caught), str(error.value)])
    assert "'Y'" in said
    assert "probabilities_key" in said
    source = as_source(rows, texts, probabilities_key="*")
    assert source.class_names == tuple(LETTERS)
    assert source.labels.tolist() == LETTER_LABELS.tolist()


@pytest.mark.parametrize("kind", TABLES)
def test_so_do_they_if_one_other_class_is_left(tmp_path, kind):
    names, (rows, labels) = ["Y", "y", "z"], simulated(60, 3)
    path = write(tmp_path, kind, names, rows)
    with pytest.raises(InputError, match=r"(?=.*\bY\b)(?=.*probabilities_key)"):
        as_source(path, labels)
    assert as_source(path, labels, probabilities_key="*").class_names == tuple(names)


def test_the_remedy_on_the_command_line(folder, run):
    write(folder, "csv", LETTERS, LETTER_ROWS)
    np.save("y.npy", LETTER_LABELS)
    fit = ("calibrate", "p.csv", "--labels", "y.npy", "-o", "m.safetensors", "--method", "standard")
    done = run(*fit)
    assert "--probabilities-key" in done.err
    assert done.code == 2  # labels that are numbers count all columns
    succeeded(run(*fit, "--probabilities-key", "*"))
    assert load("m.safetensors").class_names_ == tuple(LETTERS)


# ---- globs -------------------------------------------------------------------------------------


def test_a_glob_of_columns_is_no_path(folder, run):
    """Model and data match it as files would."""
    names = [f"p_{name}" for name in NAMES]
    write_cells(Path("p_cal.csv"), with_header(names, ROWS, label=[f"p_{t}" for t in TEXTS]))
    fit = ("calibrate", "p_cal.csv", "-o", "p_model.safetensors", "--probabilities-key", "p_*")
    succeeded(run(*fit, "--method", "standard", "--score", "aps", "--alpha", "0.3"))
    found = load("p_model.safetensors").thresholds_.tolist()
    assert found == fitted(ROWS, LABELS).thresholds_.tolist()
    predict = ("predict", "p_model.safetensors", "p_cal.csv", "--probabilities-key", "p_*")
    succeeded(run(*predict, "-o", "p_sets.jsonl"))
    succeeded(run(*predict, "-o", "p_sets"))
    evaluate = ("evaluate", "p_model.safetensors", "p_cal.csv", "--probabilities-key", "p_*")
    succeeded(run(*evaluate, "--csv", "p_classes.csv"))


def test_a_glob_of_data_still_protects_its_files(folder, run):
    for part in range(2):
        np.savez(f"p{part}.npz", probs=ROWS, labels=LABELS)
    line = refused(run("calibrate", "p*", "-o", "p9.safetensors"))
    assert "p9.safetensors" in line


# ---- duplicates --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "tsv", "pandas", "arrow"])
@pytest.mark.parametrize("twice", ["ant", "id", "label"])
def test_a_column_that_is_there_twice_is_an_error(tmp_path, kind, twice):
    names, more = [*NAMES, "id", "label", twice], {"ant": 0.5, "id": 0, "label": "ant"}
    others = zip(ROWS.tolist(), range(60), TEXTS, strict=True)
    cells = [[*row, n, text, more[twice]] for row, n, text in others]
    if kind == "pandas":
        rows = pd.DataFrame(cells, columns=names)
    elif kind == "arrow":
        rows = pa.Table.from_arrays([pa.array(c) for c in zip(*cells, strict=True)], names=names)
    else:
        rows = write_cells(tmp_path / f"p.{kind}", [names, *cells])
    with pytest.raises(InputError, match=twice):
        fitted(rows)


def test_columns_are_used_by_their_name_wherever_they_stand(tmp_path):
    expected = state_of(fitted(ROWS, TEXTS, ids=np.arange(60), class_names=NAMES))
    frame = pd.DataFrame(ROWS, columns=NAMES).assign(id=np.arange(60), label=TEXTS, note="a")
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(list(frame.columns))
        classes = [name for name in order if name in NAMES]
        write_lines(tmp_path / "p.jsonl", frame[order].to_dict("records"))
        for rows in (frame[order], tmp_path / "p.jsonl"):
            names, counts, thresholds = state_of(fitted(rows))
            assert dict(zip(names, counts, strict=True)) == dict(zip(*expected[:2], strict=True))
            assert names == tuple(classes)
            assert thresholds == expected[2]
    records = frame.to_dict("records")
    turned = [
        dict(reversed(record.items())) if n % 2 else record for n, record in enumerate(records)
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, turned)))
    assert state_of(fitted(tmp_path / "p.jsonl")) == expected
