"""`evencover predict`: ids are kept, the most probable class comes first, and --top cuts."""

import json
from pathlib import Path

import numpy as np
import pytest

from evencover import load
from evencover.cli import main

pq = pytest.importorskip("pyarrow.parquet")

K = 6
NAMES = [f"naïve {place}" for place in range(K)]


@pytest.fixture
def rows(tmp_path, monkeypatch, simulate):
    """New rows, in a folder with a model and files that hold them."""
    monkeypatch.chdir(tmp_path)
    all_rows, labels = simulate(600, K, seed=8)
    np.savez("cal.npz", probs=all_rows[:300], labels=labels[:300], class_names=NAMES)
    main(["calibrate", "cal.npz", "--method", "classwise", "-o", "m.safetensors"])
    np.save("new.npy", all_rows[300:])
    return all_rows[300:]


def predict(*arguments):
    main(["predict", "m.safetensors", *map(str, arguments)])


def records(name):
    return [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()]


def test_the_most_probable_class_comes_first(rows, capsys):
    predict("new.npy", "-o", "sets.parquet")
    sets = load("m.safetensors").predict_set(rows)
    table = pq.read_table("sets.parquet").to_pydict()
    assert table["set"] == sets.to_lists()
    assert table["names"] == sets.to_lists(names=True)
    for members, p in zip(table["set"], rows, strict=True):
        assert members == sorted(members, key=lambda y, p=p: (-p[y], y))
    assert set(table) == {"size", "set", "names"}
    n_empty = int((sets.sizes == 0).sum())
    empty = f", {n_empty} empty" if n_empty else ""
    said = f"sets.parquet: 300 sets, {sets.sizes.mean():.2f} classes on average{empty}\n"
    assert capsys.readouterr().out.endswith(said)


def test_the_old_order_is_an_option(rows):
    predict("new.npy", "-o", "sets.parquet", "--order", "index")
    sets = load("m.safetensors").predict_set(rows)
    assert pq.read_table("sets.parquet")["set"].to_pylist() == [sorted(m) for m in sets.to_lists()]


def test_probabilities_stand_beside_the_classes_and_top_keeps_the_size(rows):
    predict("new.npy", "-o", "sets.jsonl", "--with-probabilities", "--top", 2)
    sets = load("m.safetensors").predict_set(rows)
    found = records("sets.jsonl")
    assert [each["size"] for each in found] == sets.sizes.tolist()
    assert [each["set"] for each in found] == [m[:2] for m in sets.to_lists()]
    for row, each in enumerate(found):
        np.testing.assert_allclose(each["probabilities"], rows[row, each["set"]], rtol=1e-5)
    assert sets.sizes.max() > 2


def test_ids_from_a_file_are_written(rows):
    ids = [f"patient {place}" for place in range(300)]
    Path("ids.txt").write_text("\n".join(ids))
    predict("new.npy", "--ids", "ids.txt", "-o", "sets.jsonl")
    predict("new.npy", "--ids", "ids.txt", "-o", "folder", "--part-format", "jsonl")
    assert [each["id"] for each in records("sets.jsonl")] == ids
    assert records("folder/part-00000.jsonl") == records("sets.jsonl")


def test_ids_that_come_with_the_data_are_kept(rows):
    import pyarrow as pa

    ids = [f"patient {place}" for place in range(300)]
    columns = {name: rows[:, place] for place, name in enumerate(NAMES)}
    pq.write_table(pa.table({"id": ids, **columns}), "new.parquet")
    predict("new.parquet", "-o", "sets.parquet")
    predict("new.parquet", "-o", "folder")
    assert pq.read_table("sets.parquet")["id"].to_pylist() == ids
    assert pq.read_table("folder/part-00000.parquet")["id"].to_pylist() == ids


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--order", "alphabet"), "--order"),
        (("--top", "0"), "'top'"),
        (("--top", "few"), "--top"),
    ],
)
def test_bad_options_are_one_sentence(rows, capsys, options, words):
    before = sorted(Path().iterdir())
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        predict("new.npy", "-o", "sets.csv", *options)
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert words in line
    assert sorted(Path().iterdir()) == before


def test_a_folder_begun_otherwise_is_refused(rows, capsys):
    predict("new.npy", "-o", "folder")
    with pytest.raises(SystemExit) as stop:
        predict("new.npy", "-o", "folder", "--top", 3)
    assert stop.value.code == 2
    assert "it had another way of listing classes" in capsys.readouterr().err
    predict("new.npy", "-o", "folder", "--top", 3, "--force")
