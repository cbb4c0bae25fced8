"""The benchmarks are a package of the repository, not an installed one."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _benchmarks_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
