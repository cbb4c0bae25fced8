"""A working folder, commands in this process, and no warnings of ours."""

import warnings
from functools import partial

import pytest
from cli.running import run_here

from evencover import EvencoverWarning


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    return partial(run_here, capsys)
