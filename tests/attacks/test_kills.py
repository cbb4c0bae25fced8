"""A writing command is killed at any moment: nothing is half-written, the same again ends it."""

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
from contextlib import closing, suppress

import numpy as np
import pytest
from attacks.forked import command, warm
from depth import IS_DEEP, size

K, N_KILLS = 5, size(short=1, deep=10)
GRID = """
datasets = ["cal.npz"]
methods = ["standard", "classwise"]
scores = ["softmax", "aps"]
n_avg = [5, 8]
repetitions = 2
"""
COMMANDS = {
    "calibrate": ["calibrate", "cal.npz", "--method", "classwise", "-o", "out/m.safetensors"],
    "parquet": ["predict", "m.safetensors", "new.npy", "-o", "out/sets.parquet"],
    "csv": ["predict", "m.safetensors", "new.npy", "-o", "out/sets.csv"],
    "folder": ["predict", "m.safetensors", "parts", "-o", "out/sets"],
    "jsonl": ["predict", "m.safetensors", "new.npy", "-o", "out/sets.jsonl"],
    "update": ["update", "m.safetensors", "cal.npz", "-o", "out/m.safetensors"],
    "export": ["export", "m.safetensors", "-o", "out/m.onnx"],
    "report": ["report", "m.safetensors", "cal.npz", "-o", "out/page.html"],
    "compare": ["compare", "cal.npz", "--methods", "standard", "--csv", "out/c.csv"],
    "study": ["experiment", "run", "grid.toml", "-o", "out/study"],
    "figures": ["experiment", "figures", "study", "-o", "out/figures"],
    "infer": ["infer", "model.py:lengths", "texts.csv", "-o", "out/scores"],
}
# These go on where they stopped; the others are told to overwrite.
RESUMED = ("folder", "study", "infer")
NEEDS = {"export": "onnx"}
MODEL = """
def lengths(texts):
    return [[float(len(text) == length) for length in range(700)] for text in texts]
"""
STEPS = ("fsync", "replace", "open", "unlink")  # calls of the system at which a child ends itself


@pytest.fixture(scope="module")
def made(tmp_path_factory, simulate):
    """Inputs, and for each command what it writes when nobody disturbs it."""
    folder = tmp_path_factory.mktemp("kills")
    rows, labels = simulate(300, K, seed=4)
    np.savez(folder / "cal.npz", softmax=rows, labels=labels)
    np.save(folder / "new.npy", np.tile(rows, (10, 1)).astype(np.float32))
    (folder / "parts").mkdir()
    for number in range(4):
        np.save(folder / "parts" / f"{number}.npy", rows)
    (folder / "grid.toml").write_text(GRID)
    (folder / "model.py").write_text(MODEL)
    (folder / "texts.csv").write_text("\n".join(["text", *("x" * (n % 700) for n in range(9000))]))
    (folder / "out").mkdir()
    warm(["calibrate", "cal.npz", "--method", "classwise", "-o", "m.safetensors"], folder)
    if IS_DEEP:
        warm(["experiment", "run", "grid.toml", "-o", "study"], folder)
    return folder


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def work(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return tmp_path


def begin(work):
    """Empty the folder that commands write to."""
    shutil.rmtree(work / "out")
    (work / "out").mkdir()


def undisturbed(name, work):
    """What the command leaves when nobody kills it, and how long it takes."""
    pytest.importorskip(NEEDS.get(name, "numpy"))
    begin(work)
    if name != "report":
        warm(COMMANDS[name], work)
        begin(work)
    return ended(name, work)


def ended(name, work):
    """The command, without a kill; the tree it leaves, and how long it took."""
    arguments = COMMANDS[name]
    if name not in RESUMED and any((work / "out").iterdir()):
        arguments = [*arguments, "--force"]
    done = command(arguments, work)
    assert done.code == 0, done.said
    return tree(work / "out"), done.seconds


def assert_nothing_half_written(work, expected):
    for name, content in tree(work / "out").items():
        last = name.split("/")[-1]
        if name in expected:
            assert content == expected[name]
        elif last.startswith("_"):
            assert json.loads(content)  # the plan
        else:
            assert last.startswith(".")  # a temporary file, which nobody takes for a result


@pytest.mark.parametrize("name", COMMANDS if IS_DEEP else ["parquet", "folder"])
def test_a_kill_at_any_moment(name, work):
    expected, seconds = undisturbed(name, work)
    moments = random.Random(name)
    n_rounds = n_killed = 0
    while n_killed < N_KILLS:
        n_rounds += 1
        assert n_rounds <= 10 * N_KILLS
        begin(work)
        how = (signal.SIGKILL, signal.SIGTERM)[n_rounds % 2]
        for _ in range(moments.choice([1, 1, 3])):
            done = command(COMMANDS[name], work, kill=(how, moments.uniform(0, seconds)))
            n_killed += done.code in (-how, 128 + how)
            if done.code == 143:
                assert "terminated" in done.said
                assert not any(".part" in file for file in tree(work / "out"))
            assert_nothing_half_written(work, expected)
        found, _ = ended(name, work)
        assert found == expected  # byte by byte, and nothing beside it


def test_a_monitor_that_is_killed_counts_every_row_once(work):
    """At any moment: the rows are in the state, all or none; the same again counts the rest."""
    monitor = ["monitor", "m.safetensors", "--state", "out/watch.db", "new.npz"]
    rows = np.roll(np.load(work / "new.npy")[:300], 1, axis=1)
    np.savez(work / "new.npz", softmax=rows, labels=rows.argmax(axis=1), ids=np.arange(300))
    warm(monitor, work)
    seconds, moments = command(monitor, work).seconds, random.Random("monitor")
    for _ in range(N_KILLS):
        begin(work)
        command(monitor, work, kill=(signal.SIGKILL, moments.uniform(0, seconds)))
        with suppress(sqlite3.Error):
            assert n_counted(work) in (None, 300)
        assert command(monitor, work).code == 0
        assert n_counted(work) == 300


def n_counted(work):
    with closing(sqlite3.connect(work / "out" / "watch.db")) as state:
        return state.execute("SELECT COUNT(*) FROM labels").fetchone()[0] or None


def die_at(step, number):
    """Before the child begins: the call of this number kills it there."""

    def prepare():
        call, left = getattr(os, step), [number]

        def counted(*arguments, **named):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        setattr(os, step, counted)

    return prepare


STEPPED = [
    *itertools.product(["calibrate", "folder"], STEPS[: size(short=2, deep=4)]),
    *itertools.product(["study"], STEPS),
    *itertools.product(["update", "export", "report", "figures"], ["fsync", "replace"]),
]


@pytest.mark.parametrize(("name", "step"), STEPPED if IS_DEEP else STEPPED[:4])
def test_a_kill_at_every_step_of_writing(name, step, work):
    expected, _ = undisturbed(name, work)
    n_killed = 0
    for number in range(1, size(short=2, deep=60)):
        begin(work)
        done = command(COMMANDS[name], work, before=die_at(step, number))
        if done.code == 0:
            break
        n_killed += 1
        assert_nothing_half_written(work, expected)
        assert ended(name, work)[0] == expected
    assert n_killed > 0
