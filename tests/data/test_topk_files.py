"""Files of top-k rows: every format gives the sets of the same rows in memory."""

import csv
import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csc_array, csr_array, save_npz

from evencover import EvencoverWarning, InputError, StandardPredictor, TopK
from evencover.cli.main import main
from evencover.data.open import as_source

NAMES = ["ant", "bee", "cat", "dog", "eel", "fox"]
RNG = np.random.default_rng(0)
ROWS = RNG.dirichlet(np.full(6, 0.4), 60)
LABELS = (RNG.random((60, 1)) > np.cumsum(ROWS, axis=1)).sum(axis=1).clip(max=5)
CLASSES = np.argsort(-ROWS, axis=1)[:, :3]
SCORES = np.take_along_axis(ROWS, CLASSES, axis=1)
TOP = TopK(CLASSES, SCORES, n_classes=6)
TEXTS = [NAMES[label] for label in LABELS]


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        yield


def entries():
    named = [[NAMES[y] for y in row] for row in CLASSES]
    return [
        [{"label": y, "score": s} for y, s in zip(*row, strict=True)]
        for row in zip(named, SCORES.tolist(), strict=True)
    ]


def two_lists(named):
    classes = [[NAMES[y] for y in row] for row in CLASSES] if named else CLASSES.tolist()
    labels = TEXTS if named else LABELS.tolist()
    return pa.table({"labels": classes, "scores": SCORES.tolist(), "label": labels})


def json_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n\n" for record in records), "utf-8")


def timm(path, kind):
    names = [*(f"{kind}_{i}" for i in range(3)), *(f"prob_{i}" for i in range(3)), "target"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["filename", *names])
        for row in range(60):
            classes = CLASSES[row].tolist()
            classes = [NAMES[y] for y in classes] if kind == "label" else classes
            label = TEXTS[row] if kind == "label" else LABELS[row]
            writer.writerow([f"{row}.png", *classes, *SCORES[row].tolist(), label])


FILES = {
    "lists.parquet": lambda path: pq.write_table(two_lists(named=True), path, row_group_size=7),
    "indices.parquet": lambda path: pq.write_table(two_lists(named=False), path),
    "structs.parquet": lambda path: pq.write_table(
        pa.table({"predictions": entries(), "label": TEXTS}), path
    ),
    "lists.arrow": lambda path: feather.write_feather(two_lists(named=True), path),
    "pipeline.jsonl": lambda path: json_lines(
        path,
        [
            {"id": f"row {i}", "label": TEXTS[i], "output": output}
            for i, output in enumerate(entries())
        ],
    ),
    "timm.csv": lambda path: timm(path, "label"),
    "timm_indices.csv": lambda path: timm(path, "index"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_the_rows_in_memory(name, tmp_path):
    FILES[name](tmp_path / name)
    expected = StandardPredictor(alpha=0.3).fit(TOP, LABELS)
    found = StandardPredictor(alpha=0.3).fit(tmp_path / name)
    assert np.array_equal(found.thresholds_, expected.thresholds_)
    assert found.class_names_ == (None if "indices" in name else tuple(NAMES))
    sets = found.predict_set(tmp_path / name).to_lists()
    assert sets == expected.predict_set(TOP).to_lists()
    assert found.evaluate(tmp_path / name).recall_at_k[0][0] == TOP.lists(LABELS).mean()


@pytest.mark.parametrize("kind", [csr_array, csc_array])
def test_sparse_matrices_are_read_from_npz(kind, tmp_path):
    save_npz(tmp_path / "rows.npz", kind(TOP.to_dense()))
    expected = StandardPredictor().fit(TOP, LABELS)
    found = StandardPredictor().fit(tmp_path / "rows.npz", LABELS, class_names=NAMES)
    assert np.array_equal(found.thresholds_, expected.thresholds_)
    assert found.class_names_ == tuple(NAMES)


def test_arrays_next_to_a_sparse_matrix_are_its_names_labels_and_ids(tmp_path):
    matrix = csr_array(TOP.to_dense())
    names, labels = (
        [f"class {i}" for i in range(TOP.n_classes)],
        [f"class {i % 2}" for i in range(len(TOP))],
    )
    parts = {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data}
    named = {"class_names": names, "labels": labels, "ids": np.arange(len(TOP)) + 5}
    np.savez(tmp_path / "rows.npz", shape=matrix.shape, format=b"csr", **parts, **named)
    source = as_source(tmp_path / "rows.npz")
    assert source.class_names == tuple(names)
    assert source.labels.tolist() == [i % 2 for i in range(len(TOP))]
    assert source.ids.tolist() == named["ids"].tolist()


def test_lines_may_be_lists_alone_and_labels_apart(tmp_path):
    json_lines(tmp_path / "rows.jsonl", entries())
    found = StandardPredictor().fit(tmp_path / "rows.jsonl", TEXTS)
    assert np.array_equal(found.thresholds_, StandardPredictor().fit(TOP, LABELS).thresholds_)
    with pytest.raises(InputError, match="class names"):  # numbers have no order to count in
        StandardPredictor().fit(tmp_path / "rows.jsonl", LABELS)
    ordered = StandardPredictor().fit(tmp_path / "rows.jsonl", LABELS, class_names=NAMES)
    assert np.array_equal(ordered.thresholds_, found.thresholds_)


def test_classes_that_no_row_lists_are_classes(tmp_path):
    json_lines(
        tmp_path / "rows.jsonl", [[{"label": "a", "score": 0.5}, {"label": "b", "score": 0.2}]]
    )
    source = as_source(tmp_path / "rows.jsonl", ["never listed"])
    assert source.class_names == ("a", "b", "never listed")
    scores = StandardPredictor().fit(source).fit_.rows.scores
    assert scores.tolist() == [np.inf]
    many = as_source(tmp_path / "rows.jsonl", ["b"], class_names=["z", "b", "a"])
    assert (many.class_names, many.labels.tolist()) == (("z", "b", "a"), [1])
    assert sorted(next(many.blocks()).rows.classes.tolist()) == [1, 2]


def test_a_model_knows_more_classes_than_a_file(tmp_path):
    json_lines(tmp_path / "all.jsonl", entries())
    predictor = StandardPredictor(alpha=0.3).fit(tmp_path / "all.jsonl", TEXTS)
    json_lines(tmp_path / "some.jsonl", entries()[:2])
    sets = predictor.predict_set(tmp_path / "some.jsonl").to_lists()
    assert sets == predictor.predict_set(tmp_path / "all.jsonl").to_lists()[:2]
    json_lines(tmp_path / "other.jsonl", [[{"label": "gnu", "score": 0.5}]])
    with pytest.raises(InputError, match="gnu"):
        predictor.predict_set(tmp_path / "other.jsonl")


def test_files_of_a_folder_may_list_different_classes(tmp_path):
    for part in range(6):
        rows = [
            {"label": TEXTS[i], "output": entries()[i]} for i in range(10 * part, 10 * part + 10)
        ]
        json_lines(tmp_path / f"part{part}.jsonl", rows)
    found = StandardPredictor().fit(tmp_path)
    assert np.array_equal(found.thresholds_, StandardPredictor().fit(TOP, LABELS).thresholds_)


def lists(**columns):
    return lambda path: pq.write_table(pa.table(columns), path)


def npz(path, classes, values, starts=(0, 2, 4)):
    """Write a CSR matrix of two rows that SciPy itself would reject."""
    arrays = {"indices": classes, "data": values, "indptr": starts, "shape": [2, 5]}
    np.savez(path, format="csr", **arrays)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", lists(labels=[["a", "b"], ["b"]], scores=[[0.5, 0.2], [0.5, 0.1]])),
        ("b.parquet", lists(labels=[["a", "b"], ["b", "b"]], scores=[[0.5, 0.2], [0.5, 0.1]])),
        ("c.parquet", lists(labels=[["a", "b"], ["b", None]], scores=[[0.5, 0.2], [0.5, 0.1]])),
        ("d.parquet", lists(labels=[["a", "b"], None], scores=[[0.5, 0.2], [0.5, 0.1]])),
        ("e.parquet", lists(labels=[["a", "b"], ["a", "b"]], scores=[[0.5, 0.2], [0.5, None]])),
        ("f.parquet", lists(labels=[["a", "b"], ["a", "b"]], scores=[[0.5, 0.2], [0.5, -0.1]])),
        ("g.parquet", lists(labels=[["a", "b"], ["a", "c"]], scores=[[0.5, 0.2], [0.7, 0.6]])),
        ("n.parquet", lists(outputs=[[{"label": "a", "score": 0.5}], [None]])),
        ("h.parquet", lists(classes=[[0, 1], [-1, 1]], scores=[[0.5, 0.2], [0.7, 0.1]])),
        (
            "i.jsonl",
            lambda path: json_lines(path, [entries()[0], [{"label": "ant"}]]),
        ),
        ("j.jsonl", lambda path: json_lines(path, [entries()[0], {"error": "timeout"}])),
        (
            "k.csv",
            lambda path: path.write_text("label_0,prob_0\nant,0.5\nbee,\n"),
        ),
        ("l.csv", lambda path: path.write_text("label_0,prob_0\nant,0.5\n,0.5\n")),
        ("m.jsonl", lambda path: json_lines(path, [entries()[0], 2 * entries()[1]])),
        ("o.jsonl", lambda path: json_lines(path, [entries()[0], []])),
        ("p.npz", lambda path: npz(path, [0, 1, 0, 1], [0.5, 0.2, 0.5, -0.1])),
        ("q.npz", lambda path: npz(path, [0, 1, 0, 7], [0.5, 0.2, 0.5, 0.1])),
        ("r.npz", lambda path: npz(path, [0, 1, 1, 1], [0.5, 0.2, 0.5, 0.1])),
        ("s.npz", lambda path: npz(path, [0, 1, 0], [0.5, 0.2, 0.5, 0.1])),
        ("t.npz", lambda path: npz(path, [0, 1, 0, 1], [0.5, 0.2, 0.5])),
        ("u.npz", lambda path: npz(path, [0, 1, 2], [0.5, 0.2, 0.1], starts=[0, 4, 3])),
        ("v.csv", lambda path: path.write_text("label_0,prob_0\nant,0.5\nbee,high\n")),
    ],
)
def test_malformed_rows_are_named(name, write, tmp_path):
    write(tmp_path / name)
    with pytest.raises(InputError, match="row 1") as caught:
        StandardPredictor().fit(tmp_path / name, [0, 1] if name.endswith("npz") else ["a", "b"])
    assert name in str(caught.value)


def test_commands_read_pipelines(tmp_path, capsys):
    FILES["pipeline.jsonl"](tmp_path / "rows.jsonl")
    path, model = str(tmp_path / "rows.jsonl"), str(tmp_path / "model.safetensors")
    main(["calibrate", path, "--output", model, "--alpha", "0.3"])
    main(["predict", model, path, "--output", str(tmp_path / "sets.jsonl")])
    main(["evaluate", model, path])
    assert "recall at k" in capsys.readouterr().out
    first = json.loads((tmp_path / "sets.jsonl").read_text("utf-8").splitlines()[0])
    assert first["id"] == "row 0"
