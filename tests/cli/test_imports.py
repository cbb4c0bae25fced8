"""Imports are cheap: nothing heavy is loaded before it is used."""

import subprocess
import sys

import pytest
from cli.running import environment, succeeded


def modules_after(code, folder):
    """What is in sys.modules after running the code in a new process."""
    code = f"{code}\nimport sys; print(*sorted(sys.modules), file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        check=True,
    )
    return {name.partition(".")[0] for name in result.stderr.split()}


HEAVY = {"sklearn", "scipy", "pyarrow", "matplotlib", "pandas", "polars", "torch", "dask", "rich"}


def test_importing_evencover_imports_nothing_heavy(tmp_path):
    assert not modules_after("import evencover", tmp_path) & HEAVY
    used = modules_after("from evencover import StandardPredictor, load, evaluate", tmp_path)
    assert not used & (HEAVY | {"cyclopts", "safetensors"})


@pytest.mark.parametrize("method", ["clustered", "pooled"])
def test_predict_imports_no_scikit_learn(folder, run, method):
    clusters = ("--set", "gamma=0.4", "--set", "n_clusters=2") if method == "clustered" else ()
    succeeded(run("calibrate", "cal.npz", "--method", method, *clusters, "-o", "m.safetensors"))
    arguments = ["predict", "m.safetensors", "new.npy", "-o", "sets.jsonl"]
    used = modules_after(f"from evencover.cli import main; main({arguments})", folder)
    assert "safetensors" in used
    assert not used & {"sklearn", "pandas", "matplotlib", "pyarrow"}
    assert "scipy" not in used or method == "pooled"
    assert (folder / "sets.jsonl").exists()


ROOMS = [
    *("comparison", "data", "engine", "evaluation", "experiments", "inference", "monitoring"),
    *("output", "predictors", "report", "scores", "serving"),
]
# One process with NumPy, whose children differ in what they import of the package, and that first.
ENTER = """
import importlib, os, sys, traceback
import numpy
for room in sys.argv[1:]:
    assert not any(name.startswith("evencover") for name in sys.modules)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            importlib.import_module(f"evencover.{room}")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1] != 0:
        print(room)
"""


def test_every_room_can_be_entered_first():
    """A worker imports what it is sent, in any order: there must be no circles."""
    done = subprocess.run(
        [sys.executable, "-c", ENTER, *ROOMS, "no_such_room"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert done.stdout.split() == ["no_such_room"], done.stderr
