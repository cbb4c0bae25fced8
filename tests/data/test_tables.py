"""Arrow and Parquet tables of any layout give the same rows; a broken one gives one sentence."""

from itertools import product

import numpy as np
import pytest
from depth import IS_DEEP
from inputs import (
    LABELS,
    NAMES,
    ROWS,
    N,
    assert_holds,
    assert_refused,
    list_array,
    pa,
    write_table,
)

import evencover.data.tables as arrow
from evencover.data import as_source


@pytest.fixture(params=["whole", "in batches"], autouse=True)
def way_of_reading(request, monkeypatch):
    """Row groups may be read whole, some ahead of others, or bit by bit."""
    if request.param == "in batches":
        monkeypatch.setattr(arrow, "WHOLE_ELEMENTS", 0)
        monkeypatch.setattr(arrow, "LIST_ELEMENTS", 3 * ROWS.shape[1])
        monkeypatch.setattr(arrow, "COLUMN_ELEMENTS", 5 * ROWS.shape[1])


@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (kind, dtype)
        for kind, dtype in product(["fixed", "list", "large"], ["f2", "f4", "f8"])
        if IS_DEEP or kind == "fixed" or dtype == "f4"
    ],
)
def test_a_list_column(tmp_path, block_elements, ending, kind, dtype):
    rows = ROWS.astype(dtype)
    table = pa.table({"id": np.arange(N), "softmax": list_array(kind, rows), "label": LABELS})
    write_table(tmp_path / f"p.{ending}", table)
    source = as_source(tmp_path / f"p.{ending}")
    assert source.logits is False
    assert_holds(source, rows)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("by_name", [False, True])
def test_one_column_per_class(tmp_path, block_elements, ending, by_name):
    labels = np.array(NAMES)[LABELS] if by_name else LABELS
    columns = {name: ROWS[:, place] for place, name in enumerate(NAMES)}
    path = tmp_path / f"p.{ending}"
    write_table(path, pa.table({"id": np.arange(N), **columns, "labels": labels}))
    source = as_source(path)
    assert list(source.class_names) == NAMES
    assert_holds(source)


@pytest.mark.parametrize(
    ("name", "logits"), [("logits", True), ("probs", False), ("embedding", None)]
)
def test_the_list_column_says_what_it_holds(tmp_path, name, logits):
    write_table(tmp_path / "p.parquet", pa.table({name: list_array("fixed")}))
    source = as_source(tmp_path / "p.parquet")
    assert source.logits is logits
    assert_holds(source, labels=None)


def with_null_in(values, row):
    return pa.array([None if i == row else v for i, v in enumerate(values.tolist())])


RAGGED = [row[: 3 if i == 9 else 4] for i, row in enumerate(ROWS.tolist())]
NULL_ROW = [None if i == 9 else row for i, row in enumerate(ROWS.tolist())]
NULL_CELL = [[None, *row[1:]] if i == 9 else row for i, row in enumerate(ROWS.tolist())]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"probs": RAGGED}, "row 9"),
        ({"probs": NULL_ROW}, "Got null in row 9"),
        ({"probs": NULL_CELL}, "Got null in row 9"),
        ({"probs": list_array("list"), "labels": with_null_in(LABELS, 11)}, "Got null in row 11"),
        ({"a": ROWS[:, 0], "b": with_null_in(ROWS[:, 1], 8)}, "Got null in row 8"),
        ({"a": list_array("list"), "b": list_array("list")}, "one list column.*'a', 'b'"),
        ({"probs": list_array("list"), "logits": list_array("list")}, "'probs', 'logits'"),
        ({"probs": [["a", "b"]] * N}, "list column of probabilities"),
        ({"id": np.arange(N), "text": ["x"] * N}, "Got the columns id, text"),
        ({"only": ROWS[:, 0]}, "at least 2 classes"),
        ({"probs": list_array("list", ROWS[:, :1])}, "at least 2 classes"),
        ({"probs": pa.array([[]] * N, pa.list_(pa.float32()))}, "at least 2 classes"),
    ],
)
@pytest.mark.parametrize("rows_per_group", [4, 100])
def test_tables_that_break_a_rule(tmp_path, ending, columns, words, rows_per_group):
    path = tmp_path / f"bad.{ending}"
    write_table(path, pa.table(columns), rows_per_group)
    assert_refused(path, words)
