"""Executors seen alike, and what is said when they fail."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from evencover import InputError
from evencover.engine.blocks import as_workers
from evencover.engine.dask import dask_client
from evencover.engine.executors import Workers, results_in_order


def test_workers_that_die_are_told_in_one_sentence():
    with (
        ProcessPoolExecutor(1) as pool,
        pytest.raises(
            InputError,
            match=r"The work could not be finished: workers kept dying over it",
        ),
    ):
        list(results_in_order(Workers(pool), os._exit, [1]))


def test_dask_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'evencover\[dask\]'"), dask_client("local"):
        pass


def test_anything_that_submits_is_an_executor():
    class Here:
        def submit(self, function, *arguments):
            self.done = function(*arguments)
            return self

        def result(self):
            return self.done

        def cancel(self):
            pass

    assert sorted(results_in_order(as_workers(Here()), abs, [-1] * 9)) == [1] * 9
