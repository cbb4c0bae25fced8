"""Thousands of tiny calibrations, one after the other."""

import pytest


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """Threads would wait for each other longer than they work; that none matters is seen elsewhere.

    See test_one_thread_and_three_give_the_identical_result in tests/predictors.
    """
    monkeypatch.setenv("EVENCOVER_THREADS", "1")
