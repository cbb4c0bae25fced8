"""Outputs of deployed models are read as they are; data/real_files/README.md lists the files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli.running import refused, succeeded
from one_door.material import best, fitted, simulated, state_of, write_cells

from evencover import InputError, StandardPredictor, TopK, load
from evencover.data import as_source

FOLDER = Path(__file__).parents[1] / "data" / "real_files"


def stored(name):
    text = (FOLDER / name).read_text("utf-8")
    return json.loads(text) if name.endswith("json") else list(map(json.loads, text.splitlines()))


def dense(source):
    """The numbers of all rows, by class, and 0 for a class that a row does not list."""
    rows = np.concatenate([block.rows.to_dense() for block in source.blocks()])
    return [
        {
            name: p
            for name, p in zip(source.class_names or range(source.n_classes), row, strict=True)
            if p
        }
        for row in rows.tolist()
    ]


def paired(records, classes, scores):
    """What a reader must make of parallel lists."""
    return [dict(zip(record[classes], record[scores], strict=True)) for record in records]


# ---- what is read ------------------------------------------------------------------------------

PREDICTIONS = stored("speciesnet.json")["predictions"]
CLASSIFIED = [each for each in PREDICTIONS if "classifications" in each]
PATHS = [each["filepath"] for each in CLASSIFIED]


@pytest.mark.parametrize("given", [FOLDER / "speciesnet.json", stored("speciesnet.json")])
def test_speciesnet(given):
    source = as_source(given)
    expected = paired([each["classifications"] for each in CLASSIFIED], "classes", "scores")
    assert list(source.class_names) == sorted({name for row in expected for name in row})
    assert dense(source) == expected
    assert source.ids.tolist() == PATHS
    assert source.n_rows == len(PREDICTIONS) - 1  # one image could not be read
    assert not source.has_labels


@pytest.mark.parametrize("name", ["zero_shot.json", "zero_shot.jsonl"])
def test_zero_shot_classification(name):
    """Rank r is not class r: every row ranks the candidates anew."""
    source, records = as_source(FOLDER / name), stored(name)
    assert source.class_names == ("cooking", "dancing", "travel")
    assert dense(source) == paired(records, "labels", "scores")
    assert not source.has_labels
    assert source.ids is None


def test_a_pipeline_in_a_file_and_in_memory():
    rows = stored("pipeline.json")
    expected = [{entry["label"]: entry["score"] for entry in row} for row in rows]
    for given in (FOLDER / "pipeline.json", rows, tuple(map(tuple, rows))):
        source = as_source(given)
        assert source.class_names == ("NEGATIVE", "NEUTRAL", "POSITIVE")
        assert dense(source) == expected


@pytest.mark.parametrize("number", [np.float64, np.float32, np.float16])
def test_entries_and_lists_with_scalars_of_numpy(number):
    rows = [[("cat", 0.75), ("dog", 0.25)], [("dog", 0.625), ("cat", 0.375)]]
    named = [[{"label": np.str_(y), "score": number(p)} for y, p in row] for row in rows]
    lists = [{"labels": [y for y, _ in row], "scores": [number(p) for _, p in row]} for row in rows]
    for given in (named, lists, pd.DataFrame({"top": named}), pd.DataFrame(lists)):
        assert dense(as_source(given)) == list(map(dict, rows))
    counted = [[{"index": np.int64(y == "dog"), "score": number(p)} for y, p in r] for r in rows]
    assert dense(as_source(counted)) == [{0: 0.75, 1: 0.25}, {0: 0.375, 1: 0.625}]
    with pytest.raises(InputError, match=r"labels of one type\. Got True in row 0"):
        as_source([[{"label": np.True_, "score": number(1)}]])


def test_a_flat_list_is_one_row_or_several_and_the_error_says_so():
    with pytest.raises(InputError, match=r"\[\["):
        as_source([{"label": "POSITIVE", "score": 0.9}, {"label": "NEGATIVE", "score": 0.1}])
    best = [{"label": "POSITIVE", "score": 0.9}, {"label": "NEGATIVE", "score": 0.8}]
    assert dense(as_source(best)) == [{"POSITIVE": 0.9}, {"NEGATIVE": 0.8}]


def test_rows_of_numbers_by_class_are_top_k_rows():
    """A service takes them, too."""
    rows = [{"bee": 0.7, "ant": 0.2, "cat": 0.1}, {"cat": 0.6, "ant": 0.3, "bee": 0.1}]
    source = as_source(rows, ["bee", "cat"])
    assert source.class_names == ("ant", "bee", "cat")
    assert source.labels.tolist() == [1, 2]
    (block,) = source.blocks()
    assert block.rows.to_dense().tolist() == [[0.2, 0.7, 0.1], [0.3, 0.1, 0.6]]


@pytest.mark.parametrize("entry", [{"label": "a"}, {"name": "a", "conf": 0.5}, {}])
def test_entries_without_a_class_or_a_score_are_an_error_that_shows_how_to_write_them(
    tmp_path, entry
):
    rows = [[{"label": "a", "score": 0.5}, {"label": "b", "score": 0.4}], [entry]]
    for some in (rows, rows[::-1], rows[1:]):
        path = tmp_path / "p.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in some))
        for given in (some, path):
            with pytest.raises(InputError, match=rf'"score": .* row {some.index([entry])}\b'):
                as_source(given)


def test_lists_of_indices():
    records = stored("classes_scores.jsonl")
    source = as_source(FOLDER / "classes_scores.jsonl")
    assert (source.class_names, source.n_classes) == (None, 5)
    assert dense(source) == paired(records, "classes", "scores")
    assert source.ids.tolist() == [record["id"] for record in records]
    known = TopK([r["classes"] for r in records], [r["scores"] for r in records], n_classes=5)
    expected = fitted(known, [r["label"] for r in records], ids=[r["id"] for r in records])
    found = fitted(FOLDER / "classes_scores.jsonl")
    assert state_of(found) == state_of(expected)
    sets = found.predict_set(FOLDER / "classes_scores.jsonl").to_lists()
    assert sets == expected.predict_set(known, ids=[r["id"] for r in records]).to_lists()


def test_lists_of_names():
    records = stored("names_probabilities.jsonl")
    source = as_source(FOLDER / "names_probabilities.jsonl")
    names = ("anger", "fear", "joy", "sadness", "surprise")
    assert source.class_names == names
    assert dense(source) == paired(records, "names", "probabilities")
    assert source.ids.tolist() == [record["id"] for record in records]
    assert [names[y] for y in source.labels] == [record["label"] for record in records]


def test_timm_with_lists_in_json():
    source = as_source(FOLDER / "timm_best_3.json", FOLDER / "timm_labels.txt")
    table = as_source(FOLDER / "timm_best_3.parquet", FOLDER / "timm_labels.txt")
    for found, expected in zip(dense(source), dense(table), strict=True):
        assert found == pytest.approx({y: expected[y] for y in found}, rel=1e-4, abs=1e-9)
        assert sum(found.values()) == pytest.approx(sum(expected.values()))
    assert source.labels.tolist() == table.labels.tolist()
    records = stored("timm_best_3.json")
    assert dense(source)[0] == pytest.approx(paired(list(records.values()), "index", "prob")[0])


@pytest.mark.parametrize("how", [{"orient": "split", "index": False}, {"orient": "split"}])
def test_timm_with_columns_or_lines_in_json(tmp_path, how):
    table = pd.DataFrame(stored("timm_best_3.json")).T
    expected = as_source(FOLDER / "timm_best_3.json")
    table.to_json(tmp_path / "p.json", **how)
    assert dense(as_source(tmp_path / "p.json")) == dense(expected)
    table.to_json(tmp_path / "p.json", orient="records", lines=True)
    assert dense(as_source(tmp_path / "p.json")) == dense(expected)


@pytest.mark.parametrize("classes", ["classes", "labels", "names"])
@pytest.mark.parametrize("scores", ["scores", "probabilities"])
@pytest.mark.parametrize("extension", ["jsonl", "json"])
def test_any_pair_of_parallel_lists(tmp_path, classes, scores, extension):
    rows, labels = simulated(50, 6)
    listed, values = best(rows, 3)
    records = [
        {classes: c, scores: v, "label": y}
        for c, v, y in zip(listed.tolist(), values.tolist(), labels.tolist(), strict=True)
    ]
    path = tmp_path / f"p.{extension}"
    lines = "\n".join(map(json.dumps, records))
    path.write_text(json.dumps(records) if extension == "json" else lines)
    expected = fitted(TopK(listed, values, n_classes=6), labels)
    assert state_of(fitted(path)) == state_of(expected)


OTHER_JSON = [
    *("", "{}", "[]x", "3", '"a"', "[1, 2]", "[" * 10_000, '[{"a": 1}]', '{"predictions": 3}'),
    '{"predictions": [1]}',
    '{"predictions": [{"filepath": "a", "classifications": {"classes": ["x"]}}]}',
    '{"predictions": [], "predictions": []}',
    '[{"label": "a", "score": 0.9}, {"label": "b", "score": 0.1}]',
    '[{"label": ["a"], "score": 0.9}, {"label": ["a"], "score": 0.1}]',
]


def test_json_of_something_else_is_an_input_error(tmp_path):
    path = tmp_path / "p.json"
    for text in OTHER_JSON:
        path.write_text(text)
        with pytest.raises(InputError, match=r"p\.json"):
            as_source(path)


def test_a_path_that_is_there_twice_is_one_id_in_two_rows(tmp_path):
    twice = {"predictions": [CLASSIFIED[0], CLASSIFIED[0]]}
    (tmp_path / "p.json").write_text(json.dumps(twice))
    assert as_source(tmp_path / "p.json").ids.tolist() == PATHS[:1] * 2
    labels = write_cells(tmp_path / "y.csv", [["id", "label"], [PATHS[0], "x"]])
    with pytest.raises(InputError, match="id"):
        fitted(tmp_path / "p.json", labels)


# ---- what has no distribution ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["birdnet.csv", "sintax.tsv", "qiime2.tsv"])
def test_one_confidence_is_no_row_and_the_error_names_cutoffs(run, folder, name):
    with pytest.raises(InputError, match="cutoffs"):
        as_source(FOLDER / name)
    for command in (("info", FOLDER / name), ("calibrate", FOLDER / name, "-o", "m.safetensors")):
        assert "cutoffs" in refused(run(*command))


def test_a_selection_table_of_birdnet_is_recognized(tmp_path):
    head = ["Selection", "Begin Time (s)", "End Time (s)", "Common Name", "Confidence"]
    write_cells(tmp_path / "b.csv", [head, ["1", "0", "3", "Eurasian Wren", "0.9"]])
    with pytest.raises(InputError, match="BirdNET"):
        as_source(tmp_path / "b.csv")


# ---- back to where it came from ----------------------------------------------------------------


@pytest.fixture
def images(folder):
    """SpeciesNet's output on labeled images of the same classes: a file, and labels by path."""
    names = sorted({name for each in CLASSIFIED for name in each["classifications"]["classes"]})
    rng = np.random.default_rng(8)
    rows = rng.dirichlet(np.full(len(names), 0.1), 1500)
    labels = (rng.random((1500, 1)) > np.cumsum(rows, axis=1)).sum(axis=1).clip(max=len(names) - 1)
    listed, values = best(rows, 5)
    paths = [f"labeled/{n}.jpg" for n in range(len(rows))]
    predictions = [
        {
            "filepath": path,
            "classifications": {"classes": [names[y] for y in c], "scores": v},
            "model_version": "4.0.1a",
        }
        for path, c, v in zip(paths, listed.tolist(), values.tolist(), strict=True)
    ]
    failed = {"filepath": "labeled/failed.jpg", "failures": ["CLASSIFIER"]}
    (folder / "cal.json").write_text(json.dumps({"predictions": [failed, *predictions]}))
    order = np.random.default_rng(9).permutation(len(rows))
    lines = [["id", "label"], *([paths[row], names[labels[row]]] for row in order)]
    write_cells(folder / "labels.csv", lines)
    return names, TopK(listed, values, n_classes=len(names), class_names=names), labels, paths


def test_labels_are_joined_by_the_path_of_the_image(images, folder):
    names, rows, labels, paths = images
    expected = fitted(rows, labels, ids=paths)
    assert state_of(fitted("cal.json", "labels.csv")) == state_of(expected)
    found = StandardPredictor().fit(rows, labels, ids=paths).evaluate("cal.json", "labels.csv")
    assert found.n_rows == len(paths)
    assert list(expected.class_names_) == names


def test_labels_by_filepath_are_joined_only_on_request(images, folder, run):
    _, rows, labels, paths = images
    lines = Path("labels.csv").read_text("utf-8").split("\n", 1)[1]
    Path("by_path.csv").write_text(f"filepath,label\n{lines}", "utf-8")
    fit = ("calibrate", "cal.json", "--labels", "by_path.csv", "-o", "m.safetensors")
    line = refused(run(*fit))
    assert "--ids-key filepath" in line
    succeeded(run(*fit, "--ids-key", "filepath"))
    expected = fitted(rows, labels, ids=paths)
    found = fitted(as_source("cal.json", "by_path.csv", ids_key="filepath"))
    assert state_of(found) == state_of(expected)


def test_predict_writes_the_same_json_with_sets(images, folder, run):
    fit = ("--labels", "labels.csv", "--score", "aps", "--alpha", "0.3", "-o", "m.safetensors")
    succeeded(run("calibrate", "cal.json", *fit, "--accept-accuracy", "0.85"))
    golden = FOLDER / "speciesnet.json"
    succeeded(run("predict", "m.safetensors", golden, "-o", "out.json"))
    written = json.loads(Path("out.json").read_text("utf-8"))
    assert list(written) == ["predictions"]
    sets = load("m.safetensors").predict_set(golden)
    expected = zip(sets.to_lists(names=True), sets.accepted.tolist(), strict=True)
    assert len(set(sets.accepted.tolist())) == 2
    for found, before in zip(written["predictions"], PREDICTIONS, strict=True):
        if "failures" in before:
            assert found == before
            continue
        members, is_accepted = next(expected)
        assert found == before | {"prediction_set": members, "accepted": is_accepted}
        assert type(found["accepted"]) is bool
        assert list(found)[: len(before)] == list(before)  # in their order
    text = Path("out.json").read_text("utf-8")
    assert "Größe ☃" in text or "Gr\\u00f6\\u00dfe" in text


def test_predict_changes_no_file_that_it_reads(images, folder, run):
    fit = ("--labels", "labels.csv", "-o", "m.safetensors", "--method", "standard")
    succeeded(run("calibrate", "cal.json", *fit))
    before = Path("cal.json").read_bytes()
    refused(run("predict", "m.safetensors", "cal.json", "-o", "cal.json"))
    refused(run("predict", "m.safetensors", "cal.json", "-o", "cal.json", "--force"))
    assert Path("cal.json").read_bytes() == before
    succeeded(run("predict", "m.safetensors", "cal.json", "-o", "s.jsonl"))
    lines = list(map(json.loads, Path("s.jsonl").read_text("utf-8").splitlines()))
    assert [line["id"] for line in lines] == images[3]


def test_only_the_json_of_speciesnet_can_be_written_back(images, folder, run):
    fit = ("--labels", "labels.csv", "-o", "m.safetensors", "--method", "standard")
    succeeded(run("calibrate", "cal.json", *fit))
    write_cells(Path("p.csv"), [["a", "b"], ["0.5", "0.5"]])
    assert "SpeciesNet" in refused(run("predict", "m.safetensors", "p.csv", "-o", "out.json"))


def test_an_image_without_classifications_is_unchanged(images, folder, run):
    fit = ("--labels", "labels.csv", "-o", "m.safetensors", "--method", "standard")
    succeeded(run("calibrate", "cal.json", *fit))
    document = json.loads(Path("cal.json").read_text("utf-8"))
    document["predictions"][7]["classifications"] = None
    Path("new.json").write_text(json.dumps(document))
    succeeded(run("predict", "m.safetensors", "new.json", "-o", "out.json"))
    written = json.loads(Path("out.json").read_text("utf-8"))["predictions"]
    assert written[7] == document["predictions"][7]
    assert ["prediction_set" in each for each in written].count(False) == 2


def test_file_names_that_are_no_text_come_back(images, folder, run):
    """Python writes the byte E9 of such a name as half of a surrogate pair."""
    fit = ("--labels", "labels.csv", "-o", "m.safetensors", "--method", "standard")
    succeeded(run("calibrate", "cal.json", *fit))
    document = json.loads(Path("cal.json").read_text("utf-8"))
    assert "failures" in document["predictions"][0]
    document["predictions"][0]["filepath"] = "caf\udce9.jpg"
    Path("new.json").write_text(json.dumps(document))
    succeeded(run("predict", "m.safetensors", "new.json", "-o", "out.json"))
    written = json.loads(Path("out.json").read_text("utf-8"))["predictions"]
    assert written[0] == document["predictions"][0]
    document["predictions"][1]["filepath"] = "caf\udce9.jpg"
    Path("new.json").write_text(json.dumps(document))
    predict = ("predict", "m.safetensors", "new.json", "-o", "again.json")
    assert "row 0" in refused(run(*predict))
    succeeded(run(*predict, "--no-ids"))
    written = json.loads(Path("again.json").read_text("utf-8"))["predictions"]
    assert written[1]["filepath"] == "caf\udce9.jpg"


def test_an_image_of_a_class_that_calibration_never_saw_is_an_error(images, folder, run):
    fit = ("--labels", "labels.csv", "-o", "m.safetensors", "--method", "standard")
    succeeded(run("calibrate", "cal.json", *fit))
    other = json.loads((FOLDER / "speciesnet.json").read_text("utf-8"))
    other["predictions"][1]["classifications"]["classes"][4] = "id;aves;;;;;unicorn"
    Path("new.json").write_text(json.dumps(other))
    line = refused(run("predict", "m.safetensors", "new.json", "-o", "out.json"))
    assert "unicorn" in line
    assert "--class-names" in line
    assert not Path("out.json").exists()
