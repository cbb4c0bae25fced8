"""A working folder with a model and data, and commands that run in this process."""

import shutil
from functools import partial

import numpy as np
import pytest
from cli.running import NAMES, K, run_here

from evencover.cli import main


@pytest.fixture(scope="session")
def data(simulate):
    return simulate(600, K, seed=8)


@pytest.fixture
def folder(tmp_path, monkeypatch, data):
    """A working folder with calibration, test and new rows."""
    monkeypatch.chdir(tmp_path)
    rows, labels = data
    np.savez("cal.npz", probs=rows[:300], labels=labels[:300], class_names=NAMES)
    np.savez("test.npz", probs=rows[300:], labels=labels[300:])
    np.save("new.npy", rows[300:])
    np.save("labels.npy", labels[300:])
    return tmp_path


@pytest.fixture(scope="session")
def classwise(data, tmp_path_factory):
    """A CLASSWISE model, calibrated by the command."""
    path = tmp_path_factory.mktemp("model")
    np.savez(path / "cal.npz", probs=data.rows[:300], labels=data.labels[:300], class_names=NAMES)
    to = path / "model.safetensors"
    main(["calibrate", str(path / "cal.npz"), "--method", "classwise", "-o", str(to)])
    return to


@pytest.fixture
def model(folder, classwise):
    """The name of the model in the folder."""
    shutil.copy(classwise, folder)
    return classwise.name


@pytest.fixture
def run(capsys):
    return partial(run_here, capsys)
