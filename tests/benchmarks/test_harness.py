"""The small benchmark runs through, and its answers are right; its times are not looked at.

The whole of it starts some forty processes: ``make test`` runs one comparison.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    done = run("-m", "benchmarks", "--small", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert (folder / "latest.md").read_text() in done.stdout
    return json.loads((folder / "latest.json").read_text())


@pytest.mark.deep
def test_it_says_which_kernels_were_measured(results):
    from evencover import _kernels

    assert results["small"] is True
    assert results["machine"]["kernels"] == _kernels.NAME


@pytest.mark.deep
def test_sets_of_the_numpy_version_are_ours(results):
    assert len(results["agreement"]) == 3
    for record in results["agreement"]:
        assert record["agrees"] is True
        assert record["memberships"] > 0
        assert record["largest_threshold_difference"] < 1e-12
        assert record["classes_infinite_in_one_only"] == 0


@pytest.mark.deep
def test_every_comparison_covers_what_it_promises(results):
    ran = {(r["method"], r["score"], r["contestant"]) for r in results["comparisons"]}
    assert ("clustered", "aps", "evencover") in ran
    assert ("standard", "aps", "numpy_sort") in ran
    for record in results["comparisons"]:
        assert "error" not in record
        assert record["calibrate_seconds"] > 0
        assert record["predict_seconds"] > 0
        # Thresholds from 2000 rows, seen on 2000 others: a standard deviation of about 0.0095.
        assert 0.85 < record["coverage"] < 0.97
        assert len(record["runs"]) >= 2


@pytest.mark.deep
def test_evencover_alone_is_measured_on_every_axis(results):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert results["threads"][0]["threads"] == 1
    assert results["threads"][-1]["threads"] == cores
    for axis in ("rows", "classes"):
        points = results["scaling"][axis]
        assert len(points) == 3
        assert all(point["predict_seconds"] > 0 for point in points)
    assert results["memory"]["rows"] == 20_000
    assert 0.85 < results["memory"]["coverage"] < 0.97


@pytest.mark.deep
def test_every_bar_has_a_verdict(results):
    assert len(results["bars"]) == 30
    for bar in results["bars"]:
        assert bar["met"] in (True, False, None)
        assert (bar["met"] is None) == (bar["measured"] is None)
        assert bar["note"]


def test_one_comparison(monkeypatch):
    """As above, but of one method and score."""
    from benchmarks import agreement, comparisons, data
    from benchmarks.plan import BASELINE, SMALL

    monkeypatch.setattr(agreement, "AGREEMENTS", [("standard", "softmax", (BASELINE,))])
    monkeypatch.setattr(comparisons, "COMPARISONS", [("standard", "aps", True, (BASELINE,))])
    plan = replace(SMALL, repetitions=1)
    calibration, test = (data.make(plan.n_rows, plan.n_classes, seed=seed) for seed in (1, 2))
    given = (plan, comparisons.interpreters(plan), calibration, test)
    (agreed,) = agreement.check_all(*given)
    assert agreed["agrees"] is True
    assert agreed["memberships"] > 0
    assert agreed["largest_threshold_difference"] < 1e-12
    ours, theirs = comparisons.compare_all(*given)
    assert [ours["contestant"], theirs["contestant"]] == ["evencover", "numpy_sort"]
    for record in (ours, theirs):
        assert record["predict_seconds"] > 0
        assert 0.85 < record["coverage"] < 0.97


def test_a_wrong_answer_is_noticed():
    from benchmarks.agreement import difference

    ours = {"sizes": np.array([2, 1]), "indices": np.array([0, 3, 1]), "thresholds": np.ones(4)}
    theirs = {"sizes": np.array([1, 1]), "indices": np.array([3, 2]), "thresholds": np.zeros(4)}
    assert difference(ours, ours)["differing"] == 0
    record = difference(ours, theirs)
    assert record["differing"] == 3  # (0, 0) and (1, 1) lost, (1, 2) gained
    assert record["agrees"] is False
    assert record["largest_threshold_difference"] == 1


def test_a_job_that_fails_or_hangs_is_a_result(tmp_path):
    from benchmarks.processes import run_job

    assert "KeyError" in run_job(sys.executable, {"no": "kind"})["error"]
    assert run_job(sys.executable, {"kind": "alone"}, time_limit=0.01) == {
        "error": "took longer than 0 s"
    }


def test_importing_evencover_loads_nothing_heavy(tmp_path):
    target = tmp_path / "import_time.json"
    done = run("benchmarks/import_time.py", "--processes", "1", "--out", str(target))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(target.read_text())
    assert result["heavy_packages_loaded"]["predictor"] == []
