"""CSV and TSV: a first line of names, labels in a column, and what is wrong with a line."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import LABELS, NAMES, ROWS, N, assert_holds, assert_refused

from evencover import EvencoverWarning, InputError, StandardPredictor
from evencover.data import as_source
from evencover.data.labels import separate_labels
from evencover.ids import id_keys

DOUBLES = ROWS.astype(np.float64)


def write(path, lines, **options):
    with path.open("w", encoding=options.pop("encoding", "utf-8"), newline="") as file:
        csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",", **options).writerows(
            lines
        )
    return path


def lines(rows=DOUBLES, labels=None, header=None):
    table = [list(map(repr, row)) for row in rows.tolist()]
    if labels is not None:
        table = [[label, *row] for label, row in zip(labels, table, strict=True)]
    return table if header is None else [header, *table]


@pytest.mark.parametrize("ending", ["csv", "tsv", "CSV"])
@pytest.mark.parametrize("labels", [LABELS, np.array(NAMES)[LABELS]])
def test_a_header_names_classes_and_labels(tmp_path, block_elements, ending, labels):
    path = write(tmp_path / f"p.{ending}", lines(labels=labels, header=["label", *NAMES]))
    source = as_source(path)
    assert list(source.class_names) == NAMES
    assert_holds(source, DOUBLES)


def test_no_header_and_labels_apart(tmp_path, block_elements):
    source = as_source(write(tmp_path / "p.csv", lines()), LABELS)
    assert source.class_names is None
    assert_holds(source, DOUBLES)


def test_numbered_columns_and_ids_as_pandas_writes_them(tmp_path):
    numbered = [str(i) for i in range(4)]
    assert_holds(as_source(write(tmp_path / "p.csv", lines(header=numbered)), LABELS), DOUBLES)
    with_ids = [[f"patient {i}", *line] for i, line in enumerate(lines())]
    path = write(tmp_path / "ids.csv", [["id", *NAMES], *with_ids])
    assert_holds(as_source(path, LABELS), DOUBLES)


def test_quotes_byte_order_marks_and_empty_lines(tmp_path):
    names = ["a, b", 'say "c"', "d\ne", "f"]
    table = lines(header=names)
    path = write(tmp_path / "p.csv", [*table[:5], [], *table[5:]], encoding="utf-8-sig")
    source = as_source(path, LABELS)
    assert list(source.class_names) == names
    assert_holds(source, DOUBLES)


def changed(row, cell, value):
    table = lines(labels=LABELS, header=["labels", *NAMES])
    table[1 + row][cell] = value
    return table


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (changed(9, 2, "many"), "'bee' .* Got 'many' in row 9"),
        (changed(9, 2, ""), "'bee' .* Got '' in row 9"),
        (changed(9, 0, "wasp"), "one of the 4 class names. Got '.*' in row 0"),
        (changed(9, 0, "4"), r"Got 4 in row 9 of '.*bad\.csv'"),
        (
            [line[: 3 if i == 10 else 5] for i, line in enumerate(changed(0, 0, 0))],
            "Got 3 in row 9",
        ),
        (lines(DOUBLES[:, :1]), "at least 2 classes"),
        ([], "at least one line"),
    ],
)
def test_lines_that_break_a_rule(tmp_path, table, words):
    assert_refused(write(tmp_path / "bad.csv", table), words)


def test_rows_are_counted_over_blocks(tmp_path, monkeypatch):
    """Find bad cells, short rows and labels by name beyond the first block."""
    monkeypatch.setattr("evencover.data.csv.CSV_BYTES", 400)
    table = lines(labels=LABELS, header=["labels", *NAMES])
    assert_holds(as_source(write(tmp_path / "p.csv", table)), DOUBLES)
    table[21][2] = "many"
    assert_refused(write(tmp_path / "bad.csv", table), "'bee' .* Got 'many' in row 20")
    table[21] = table[21][:2]
    assert_refused(write(tmp_path / "bad.csv", table), "Got 2 in row 20")
    table[21] = ["wasp", *table[20][1:]]
    assert_refused(write(tmp_path / "bad.csv", table), "one of the 4 class names")


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_every_double_survives(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "p.csv"
    source = as_source(write(path, lines(np.array(rows), header=["a", "b", "c"])))
    found = np.concatenate([block.rows for block in source.blocks()])
    np.testing.assert_array_equal(found, np.array(rows))
    assert source.n_rows == len(rows) <= N


@pytest.mark.parametrize("content", ["labels\nMam, Northern\n", "ids,labels\na,Mam, Northern\n"])
def test_a_label_is_not_cut_off_at_a_comma(tmp_path, content):
    path = tmp_path / "labels.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=r"Got \d in row 0; text with a comma in it needs quotes"):
        separate_labels(path)
    path.write_text(content.replace("Mam, Northern", '"Mam, Northern"'))
    assert separate_labels(path).values.tolist() == ["Mam, Northern"]


def test_ids_in_text_are_text(tmp_path):
    """One id that is no number changes no other key, and zeros in front count."""
    numbers, mixed = ["7", "017", "12"], ["7", "017", "patient 12"]
    keys = []
    for ids in (numbers, mixed):
        table = [["id", "a", "b"], *([each, 0.25, 0.75] for each in ids)]
        csv = write(tmp_path / "p.csv", table)
        records = [{"id": each, "p": [0.25, 0.75]} for each in ids]
        lines = [json.dumps(record) for record in records]
        (tmp_path / "p.jsonl").write_text("\n".join(lines))
        for found in (as_source(csv).ids, as_source(tmp_path / "p.jsonl").ids):
            assert found.tolist() == ids
            keys.append(id_keys(found, 3)[:2].tolist())
    assert keys == [keys[0]] * 4
    assert keys[0][0] == 7 != keys[0][1]


def test_a_quote_that_is_not_closed_swallows_no_rows(tmp_path):
    lines = ["ant,bee,label,note", *["0.25,0.75,bee,ok"] * 30]
    lines[5] = '0.25,0.75,bee,"oops'
    path = tmp_path / "p.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="quotation mark"):
        as_source(path)
    lines[5] = '0.25,0.75,bee,"two\nlines"'
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(EvencoverWarning, match="note"):
        assert as_source(path).n_rows == 30


def test_the_first_line_of_a_text_file_of_labels_is_never_a_header(tmp_path):
    """With a line too many, no label may be dropped: each would belong to the next row."""
    (tmp_path / "labels.txt").write_text("fox\ncat\ndog\ncat\n")
    rows = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    with pytest.raises(InputError, match="4 labels for 3 rows"):
        StandardPredictor(alpha=0.4).fit(
            rows, tmp_path / "labels.txt", class_names=["cat", "dog", "fox"]
        )
