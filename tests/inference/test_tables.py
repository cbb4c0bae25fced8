"""Tables of every format give the same inputs."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inference.samples import NAMES, matrix, read, write_model, write_pictures, write_texts

from evencover import InputError
from evencover.inference import infer
from evencover.inference.inputs import Columns, open_inputs

USUAL = Columns()


@pytest.fixture
def tables(tmp_path):
    """The same texts as CSV, TSV, JSON lines and Parquet of small row groups."""
    texts, labels = write_texts(tmp_path / "t.csv", 23)
    lines = zip(texts, labels, strict=True)
    (tmp_path / "t.tsv").write_text(
        "text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in lines), encoding="utf-8"
    )
    records = [{"text": a, "label": b} for a, b in zip(texts, labels, strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "t.parquet", 5)
    return tmp_path, texts, labels


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_rows(tables, kind):
    folder, texts, labels = tables
    inputs = open_inputs(folder / f"t.{kind}", None, USUAL)
    assert (inputs.kind, inputs.n_inputs, inputs.labels) == ("texts", 23, set(labels))
    expected = list(zip(range(23), texts, labels, strict=True))
    assert [tuple(each) for each in inputs.examples()] == expected
    assert len(list(inputs.examples())) == 23  # and again


def test_paths_begin_at_the_tables_folder(tmp_path):
    ids = write_pictures(tmp_path / "data", 2)
    (tmp_path / "data" / "list.csv").write_text(
        "path,label\n" + "".join(f"{each},{each.split('/')[0]}\n" for each in ids)
    )
    model = write_model(tmp_path)
    infer(f"{model}:pictures", tmp_path / "data" / "list.csv", tmp_path / "table")
    for other in ("list.csv",):
        (tmp_path / "data" / other).unlink()
    infer(f"{model}:pictures", tmp_path / "data", tmp_path / "folder")
    one, two = read(tmp_path / "table"), read(tmp_path / "folder")
    assert one.column("id").to_pylist() == two.column("id").to_pylist() == ids
    np.testing.assert_array_equal(matrix(one), matrix(two))


def test_pictures_inside_parquet(tmp_path):
    """As Hugging Face writes them: bytes in the table, and names of the classes in its schema."""
    ids = write_pictures(tmp_path / "data", 2)
    images = [{"bytes": (tmp_path / "data" / each).read_bytes(), "path": each} for each in ids]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": NAMES}}
    table = pa.table({"image": images, "label": np.repeat(range(4), 2)})
    table = table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    pq.write_table(table, tmp_path / "images.parquet")
    model = write_model(tmp_path)
    infer(f"{model}:nameless", tmp_path / "data", tmp_path / "folder", class_names=NAMES)
    infer(f"{model}:pictures", tmp_path / "images.parquet", tmp_path / "table")
    one, two = read(tmp_path / "table"), read(tmp_path / "folder")
    assert one.column("label").to_pylist() == two.column("label").to_pylist()
    np.testing.assert_array_equal(matrix(one), matrix(two))


def test_columns_by_name(tmp_path):
    write_texts(tmp_path / "t.csv", 9, words=[f"word {i}" for i in range(9)], key=list("abcdefghi"))
    inputs = open_inputs(tmp_path / "t.csv", None, Columns("words", "label", "key"))
    first = [*inputs.examples()][3]
    assert (first.id, first.value, inputs.kind) == ("d", "word 3", "texts")
    with pytest.raises(InputError, match=r"--labels-key.*'truth'; there are .*text, label"):
        open_inputs(tmp_path / "t.csv", None, Columns(labels="truth"))


def test_identity_follows_the_content(tmp_path):
    write_texts(tmp_path / "one.csv", 9)
    write_texts(tmp_path / "two.csv", 9)
    write_texts(tmp_path / "three.csv", 9, seed=1)
    one, two, three = (
        open_inputs(tmp_path / f"{name}.csv", None, USUAL).identity
        for name in ("one", "two", "three")
    )
    assert one == two != three


def test_ids_that_are_not_unicode(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"id": "\\ud800", "text": "a", "label": "b"}\n')
    with pytest.raises(InputError, match="row 0"):
        open_inputs(tmp_path / "t.jsonl", None, USUAL)


def test_without_labels(tmp_path):
    (tmp_path / "t.csv").write_text("text\na\nb\n")
    inputs = open_inputs(tmp_path / "t.csv", None, USUAL)
    assert (inputs.labels, inputs.n_inputs) == (None, 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must begin with the names of its columns"),
        ("text,label\n", "at least one input"),
        ("text,label\na,\n", "must have a label. Got none in row 0"),
        ("text,label\na,b\nc\n", "must have 2 columns. Got 1 in row 1"),
        ("words,label\na,b\n", "must have a column of .*texts.* Got the columns words, label"),
    ],
)
def test_bad_tables(tmp_path, text, sentence):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        open_inputs(tmp_path / "t.csv", None, USUAL)
