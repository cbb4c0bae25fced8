"""A folder has one study, whose finished units are kept; tests/attacks/test_kills.py kills it."""

import csv

import numpy as np
import pytest

from evencover import ClusteredPredictor, InputError
from evencover.experiments import Results, run


def test_a_complete_study_is_not_computed_again(folder, make_grid, monkeypatch):
    before = (folder / "results.csv").read_bytes()
    monkeypatch.setattr("evencover.experiments.study._compute", None)
    monkeypatch.setattr("evencover.experiments.study.ScoredRows", None)
    assert run(make_grid(), folder).is_complete
    assert (folder / "results.csv").read_bytes() == before


def test_memory_json_and_csv_hold_the_same(folder, results):
    assert Results.load(folder).records == results.records
    assert Results.load(folder).classes == results.classes
    with (folder / "results.csv").open(newline="") as file:
        for text, record in zip(csv.DictReader(file), results.records, strict=True):
            assert float(text["covgap"]) == record["covgap"]
            assert text["exact"] == str(record["exact"])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_avg": [10]}, "n_avg"),
        ({"seed": 8}, "seed"),
        ({"alpha": 0.2}, "method"),
        ({"exact": False}, "method"),
        ({"methods": ["standard", "classwise", ClusteredPredictor(gamma=0.3)]}, "method"),
        ({"repetitions": 4}, "number of repetitions"),
        ({"scores": ["softmax", "aps", {"name": "raps", "penalty": 0.5}]}, "score"),
        (lambda rows, labels: ("mine", rows, labels[::-1].copy()), "data set"),
        (lambda rows, labels: ("mine", rows[::-1].copy(), labels), "data set"),
        (lambda rows, labels: ("yours", rows, labels), "data set"),
    ],
)
def test_another_configuration_is_rejected(folder, make_grid, data, changes, named):
    changes = {"datasets": [changes(*data)]} if callable(changes) else changes
    with pytest.raises(InputError, match=f"with another {named};"):
        run(make_grid(**changes), folder)


def test_files_are_identified_and_force_replaces_results(make_grid, data, tmp_path):
    def grid(factor):
        np.savez(tmp_path / "p.npz", logits=factor * np.log(data.rows), labels=data.labels)
        how = {"n_avg": [10], "scores": ["softmax"], "exact": False}
        return make_grid(datasets=[tmp_path / "p.npz"], title=f"factor {factor}", **how)

    first = run(grid(1.0), tmp_path / "out")
    with pytest.raises(InputError, match="another data set;"):
        run(grid(0.5), tmp_path / "out")
    second = run(grid(0.5), tmp_path / "out", force=True)
    assert Results.load(tmp_path / "out").records == second.records != first.records


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"{}"], ids=repr)
def test_a_damaged_part_is_reported(make_grid, tmp_path, damage):
    grid = make_grid(n_avg=[10], scores=["softmax"])
    run(grid, tmp_path / "out")
    part = next((tmp_path / "out").glob("part-*.json"))
    whole = part.read_bytes()
    part.write_bytes(damage)
    for read in (lambda: Results.load(tmp_path / "out"), lambda: run(grid, tmp_path / "out")):
        with pytest.raises(InputError, match="damaged"):
            read()
    part.unlink()
    run(grid, tmp_path / "out")
    assert part.read_bytes() == whole


def test_folders_of_other_things_are_left_alone(make_grid, tmp_path):
    (tmp_path / "thesis.txt").write_text("all my work")
    with pytest.raises(InputError, match="empty folder"):
        run(make_grid(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_folders_without_a_study_cannot_be_loaded(tmp_path):
    with pytest.raises(InputError, match=tmp_path.name):
        Results.load(tmp_path)


def test_an_unfinished_study_can_be_looked_at(make_grid, tmp_path, monkeypatch):
    monkeypatch.setattr("evencover.experiments.study.VECTORS_PER_UNIT", 6)
    run(make_grid(), tmp_path / "out")
    (tmp_path / "out" / "results.csv").unlink()
    next((tmp_path / "out").glob("part-*.json")).unlink()
    partial = Results.load(tmp_path / "out")
    assert partial.records
    assert not partial.is_complete
