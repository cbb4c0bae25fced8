"""Files and objects as other tools write them, without conversion."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from inputs import LABELS, LOGITS, NAMES, ROWS, N, assert_holds, read

from evencover import InputError, StandardPredictor
from evencover.data import as_source
from evencover.data.labels import separate_labels

pd = pytest.importorskip("pandas")


@pytest.mark.parametrize(
    ("numbers", "labels", "logits"),
    [
        ("pred_probs", "labels", False),  # cleanlab
        ("predictions", "label_ids", True),  # Hugging Face
        ("prob", "y", False),
        ("softmax", "label", False),
        ("probabilities", "labels", False),
        ("logit", "target", True),
        ("probs", "targets", False),
        ("predictions", "y_true", None),
    ],
)
def test_names_in_npz(tmp_path, numbers, labels, logits):
    np.savez(tmp_path / "p.npz", **{numbers: ROWS, labels: LABELS, "id": LABELS + 9})
    source = as_source(tmp_path / "p.npz")
    assert source.logits is logits
    assert source.ids.tolist() == (LABELS + 9).tolist()
    assert_holds(source)


def test_any_other_name_by_key_and_the_error_lists_shapes(tmp_path):
    np.savez(tmp_path / "p.npz", scores=ROWS, truth=LABELS, key=LABELS + 1)
    with pytest.raises(InputError, match=r"scores \(23, 4\), truth \(23,\).*probabilities_key"):
        as_source(tmp_path / "p.npz")
    keys = {"probabilities_key": "scores", "labels_key": "truth", "ids_key": "key"}
    source = as_source(tmp_path / "p.npz", **keys)
    assert_holds(source)
    assert source.ids.tolist() == (LABELS + 1).tolist()
    for name in keys:
        with pytest.raises(InputError, match=f"'{name}' .* Got 'none'"):
            as_source(tmp_path / "p.npz", **{**keys, name: "none"})


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("layout", ["list", "fields"])
def test_json_lines(tmp_path, block_elements, layout):
    rows = ROWS.astype("f8")
    records = [
        ({"probs": row} if layout == "list" else dict(zip(NAMES, row, strict=True)))
        | {"label": NAMES[y] if layout == "fields" else int(y), "id": f"row {i}"}
        for i, (row, y) in enumerate(zip(rows.tolist(), LABELS, strict=True))
    ]
    path = write_lines(tmp_path / "p.jsonl", records)
    source = as_source(path)
    assert source.ids[3] == "row 3"
    assert source.class_names == (tuple(NAMES) if layout == "fields" else None)
    assert_holds(source, rows)
    assert len(separate_labels(path).values) == N


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"probs": [0.5, 0.5]}, "Got 4 in row 0 and 2 in row 9"),
        ({"probs": None}, "must have 'probs'. Got none in row 9"),
        ({"probs": ["a", "b", "c", "d"]}, "'probs' .* must contain numbers.*Got 'a' in row 9"),
        ({"probs": "n/a"}, "'probs' .* must contain numbers.*Got 'n/a' in row 9"),
        ({"probs": [True, 0.0, 0.0, 0.0]}, "'probs' .* must contain numbers.*Got 'True' in row 9"),
        ({"label": 4}, r"Got 4 in row 9 of '.*p\.jsonl'"),
    ],
)
def test_json_lines_that_break_a_rule(tmp_path, change, words):
    records = [
        {"probs": row, "label": int(y)} for row, y in zip(ROWS.tolist(), LABELS, strict=True)
    ]
    records[9] |= change
    with pytest.raises(InputError, match=words):
        read(as_source(write_lines(tmp_path / "p.jsonl", records)))


@pytest.mark.parametrize("row", [0, 9, 150])
@pytest.mark.parametrize("cell", ["n/a", "0.5", True, None, [0.5], ...])
def test_a_cell_of_json_lines_that_is_no_number_is_named(tmp_path, row, cell):
    """It removed its class, and moved the labels of all later ones."""
    records = [
        dict(zip(NAMES, values, strict=True)) | {"label": NAMES[y]}
        for values, y in zip(ROWS.tolist() * 8, LABELS.tolist() * 8, strict=True)
    ]
    records[row]["bee"] = cell
    if cell is ...:
        del records[row]["bee"]
    path = write_lines(tmp_path / "p.jsonl", records)
    with pytest.raises(InputError, match=rf"'bee'.* in row {row}\b"):
        StandardPredictor().fit(path)


@pytest.mark.parametrize("twice", ['"bee": 0.5, "bee": 0.1', '"x.a": 0.5, "x": {"a": 0.1}'])
def test_a_key_that_is_there_twice_is_named(tmp_path, twice):
    path = tmp_path / "p.jsonl"
    path.write_text(f'{{"ant": 0.5, {twice}}}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"row 0 of '.*p\.jsonl'.* Got '(bee|x.a)' twice"):
        as_source(path)


def test_json_that_is_broken(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"probs": [0.5, 0.5]}\n{"probs"')
    with pytest.raises(InputError, match=r"Cannot read '.*p\.jsonl'"):
        as_source(tmp_path / "p.jsonl")
    (tmp_path / "q.jsonl").write_text("3\n")
    with pytest.raises(InputError, match="JSON object"):
        as_source(tmp_path / "q.jsonl")


class PredictionOutput(NamedTuple):  # of transformers.trainer_utils
    predictions: Any
    label_ids: Any
    metrics: dict[str, float] | None


def test_outputs_of_a_trainer_and_batches_in_dictionaries():
    source = as_source(PredictionOutput(LOGITS, LABELS, {"test_loss": 0.1}))
    assert source.logits is True
    assert_holds(source, LOGITS)
    assert_holds(as_source(PredictionOutput((LOGITS, [ROWS]), LABELS, None)), LOGITS)
    assert_holds(as_source({"logits": LOGITS, "labels": LABELS}), LOGITS)
    batches = [{"logits": LOGITS[i : i + 5], "labels": LABELS[i : i + 5]} for i in range(0, N, 5)]
    expected = StandardPredictor(from_logits=True).fit(LOGITS, LABELS)
    for given in (batches, iter(batches)):
        found = StandardPredictor().fit(given)
        assert found.thresholds_.tolist() == expected.thresholds_.tolist()


def test_batches_that_are_frames():
    frame = pd.DataFrame(ROWS, columns=NAMES).assign(label=np.array(NAMES)[LABELS])
    batches = [frame.iloc[i : i + 5] for i in range(0, N, 5)]
    source = as_source(batches)
    assert list(source.class_names) == NAMES
    found, labels = read(source)
    np.testing.assert_array_equal(found, ROWS)
    assert labels.tolist() == LABELS.tolist()
    turned = as_source([batches[0], batches[1][[*NAMES[::-1], "label"]]])
    with pytest.raises(InputError, match="same columns"):
        read(turned)
