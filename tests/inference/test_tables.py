"""Tables of every format give the same inputs."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inference.samples import (
    NAMES,
    matrix,
    read,
    write_list,
    write_model,
    write_pictures,
    write_texts,
)

from evencover import InputError
from evencover.inference import infer
from evencover.inference.inputs import open_inputs


@pytest.fixture
def tables(tmp_path):
    """The same texts as CSV, TSV, JSON lines and Parquet of small row groups."""
    texts, labels = write_texts(tmp_path / "t.csv", 23)
    records = [{"text": text, "label": y} for text, y in zip(texts, labels, strict=True)]
    lines = ["text\tlabel", *("\t".join(record.values()) for record in records)]
    (tmp_path / "t.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "t.parquet", 5)
    return tmp_path, texts, labels


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_rows(tables, kind):
    folder, texts, labels = tables
    inputs = open_inputs(folder / f"t.{kind}")
    assert (inputs.kind, inputs.n_inputs, inputs.labels) == ("texts", 23, set(labels))
    expected = list(zip(range(23), texts, labels, strict=True))
    assert [tuple(example) for example in inputs.examples()] == expected
    assert len(list(inputs.examples())) == 23  # and again


@pytest.mark.parametrize(("name", "kind"), [("text", "texts"), ("image", "images")])
def test_a_table_may_have_one_column(tmp_path, name, kind):
    """Its first line is a header, unlike that of a file of labels."""
    (tmp_path / "t.csv").write_text(f"{name}\na\nb\n")
    inputs = open_inputs(tmp_path / "t.csv")
    assert (inputs.kind, inputs.n_inputs) == (kind, 2)


def test_paths_begin_at_the_tables_folder(tmp_path):
    ids = write_pictures(tmp_path / "data", 2)
    write_list(tmp_path / "data" / "list.csv", ids)
    model = write_model(tmp_path)
    infer(f"{model}:pictures", tmp_path / "data" / "list.csv", tmp_path / "table")
    infer(f"{model}:pictures", tmp_path / "data", tmp_path / "folder")
    one, two = read(tmp_path / "table"), read(tmp_path / "folder")
    assert one.column("id").to_pylist() == two.column("id").to_pylist() == ids
    np.testing.assert_array_equal(matrix(one), matrix(two))


def test_pictures_inside_parquet(tmp_path):
    """As Hugging Face writes them: bytes in the table, and names of the classes in its schema."""
    ids = write_pictures(tmp_path / "data", 2)
    images = [{"bytes": (tmp_path / "data" / name).read_bytes(), "path": name} for name in ids]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": NAMES[::-1]}}
    table = pa.table({"image": images, "label": np.repeat(range(4), 2)[::-1]})
    table = table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    pq.write_table(table, tmp_path / "images.parquet")
    model = write_model(tmp_path)
    infer(f"{model}:pictures", tmp_path / "data", tmp_path / "folder")
    infer(f"{model}:pictures", tmp_path / "images.parquet", tmp_path / "table")
    one, two = read(tmp_path / "table"), read(tmp_path / "folder")
    assert one.column("label").to_pylist() == two.column("label").to_pylist()
    np.testing.assert_array_equal(matrix(one), matrix(two))


def test_columns_by_name(tmp_path):
    write_texts(tmp_path / "t.csv", 9, words=[f"word {i}" for i in range(9)], key=list("abcdefghi"))
    keys = {"input_key": "words", "labels_key": "label", "ids_key": "key"}
    inputs = open_inputs(tmp_path / "t.csv", **keys)
    fourth = [*inputs.examples()][3]
    assert (fourth.id, fourth.value, inputs.kind) == ("d", "word 3", "texts")
    with pytest.raises(InputError, match=r"labels_key.*'truth'; there are .*text, label"):
        open_inputs(tmp_path / "t.csv", labels_key="truth")


@pytest.mark.parametrize(
    ("column", "cell", "kind"),
    [
        ("photo", "a.JPG", "images"),
        ("path", "a", "images"),
        ("remark", "see a.jpg for it", "texts"),
        ("text", "a.jpg", "texts"),
    ],
)
def test_name_and_content_of_a_column_tell_images_from_texts(tmp_path, column, cell, kind):
    (tmp_path / "t.csv").write_text(f"{column},label\n{cell},red\n")
    assert open_inputs(tmp_path / "t.csv", input_key=column).kind == kind


def test_numbers_and_names_as_ids_are_all_text(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"id": 1, "text": "a"}\n{"id": "b", "text": "c"}\n')
    infer(f"{write_model(tmp_path)}:texts", tmp_path / "t.jsonl", tmp_path / "s")
    assert read(tmp_path / "s").column("id").to_pylist() == ["1", "b"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "at least one line"),
        ("text,label\n", "at least one"),
        ("text,label\na,\n", "Row 0 .* 'label'"),
        ("text,label,id\na,b,\n", "Row 0 .* 'id'"),
        ("text,label\na,b\nc\n", "must have 2 columns. Got 1 in row 1"),
        ("words,label\na,b\n", "must have a column of .*texts.* Got the columns words, label"),
    ],
)
def test_bad_tables(tmp_path, text, sentence):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        open_inputs(tmp_path / "t.csv")
