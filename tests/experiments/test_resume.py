"""A study that was killed goes on where it stopped, and ends with the same bytes."""

import csv
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from depth import size

from evencover import ClusteredPredictor, InputError
from evencover.experiments import Results, run

STUDY = """
import sys, warnings
import evencover.experiments.study as runner
import scipy.special  # now: kills must hit the work, not an import
from evencover.experiments import Grid
runner.VECTORS_PER_UNIT = 1
grid = Grid.from_toml(sys.argv[1])
print("ready", flush=True)
runner.run(grid, sys.argv[2])
print("done", flush=True)
"""
GRID = """
datasets = ["p.npz"]
methods = ["standard", "classwise"]
n_avg = [5, 8]
exact = [false, true]
repetitions = 3
"""


def start(grid, folder):
    process = subprocess.Popen(
        [sys.executable, "-c", STUDY, grid, folder], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def part_times(folder):
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("part-*.json")}


@pytest.mark.deep
def test_kills_at_random_moments_change_no_byte(tmp_path, data):
    np.savez(tmp_path / "p.npz", softmax=data.rows, labels=data.labels)
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    clean, killed = tmp_path / "clean", tmp_path / "killed"
    process = start(grid, clean)
    begun = time.monotonic()
    assert process.communicate()[0] == "done\n"
    duration = time.monotonic() - begun
    assert len(part_times(clean)) == 3 * 4

    moments = random.Random(0)
    n_kills, n_interrupted = 0, 0
    while n_kills < size(short=1, deep=30):
        before = part_times(killed)
        process = start(grid, killed)
        while not part_times(killed):  # the first kill hits the work, however slow the machine
            time.sleep(0.001)
        time.sleep(moments.uniform(0, duration / 6))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        n_kills += 1
        after = part_times(killed)
        assert before.items() <= after.items()  # nothing lost, nothing computed again
        n_interrupted += 0 < len(after) < 3 * 4
        assert not (killed / "results.csv").exists() or len(after) == 3 * 4
    assert n_interrupted > 0  # the kills did hit the work
    before = part_times(killed)
    process = start(grid, killed)
    assert process.communicate()[0] == "done\n"
    assert process.returncode == 0
    assert before.items() <= part_times(killed).items()
    assert (killed / "results.csv").read_bytes() == (clean / "results.csv").read_bytes()
    assert not list(killed.rglob(".*.part"))


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
    "changes",
    [
        {"n_avg": [10]},
        {"seed": 8},
        {"alpha": 0.2},
        {"repetitions": 4},
        {"exact": False},
        {"scores": ["softmax", "aps", {"name": "raps", "penalty": 0.5}]},
        {"methods": ["standard", "classwise", ClusteredPredictor(gamma=0.3)]},
        {"datasets": "labels"},
        {"datasets": "rows"},
        {"datasets": "name"},
    ],
    ids=str,
)
def test_another_configuration_is_rejected(folder, make_grid, data, changes):
    rows, labels = data
    datasets = {
        "labels": [("mine", rows, labels[::-1].copy())],
        "rows": [("mine", rows[::-1].copy(), labels)],
        "name": [("yours", rows, labels)],
    }
    key, value = next(iter(changes.items()))
    changes = {key: datasets[value]} if key == "datasets" else changes
    setting = "method" if key in ("alpha", "exact") else key.rstrip("s").replace("taset", "ta set")
    with pytest.raises(InputError, match=f"another (number of )?{setting}s?;"):
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
