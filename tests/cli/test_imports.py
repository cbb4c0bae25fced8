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
