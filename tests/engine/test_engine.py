"""Blocks on threads: order kept, few in memory, errors passed on, nothing left running."""

import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from evencover import InputError
from evencover.engine.blocks import gathered, joined
from evencover.engine.executors import dask_client, results_in_order
from evencover.threads import keeping_threads, map_on_threads, n_threads, single_threaded

THREADS = [1, 2, 4]


@pytest.fixture(params=THREADS)
def threads(request, monkeypatch):
    monkeypatch.setenv("EVENCOVER_THREADS", str(request.param))
    return request.param


def slow_for_even(number):
    time.sleep(0.002 * (number % 2 == 0))
    return number * number


def test_results_come_in_the_order_of_the_blocks(threads):
    assert list(map_on_threads(slow_for_even, range(30))) == [n * n for n in range(30)]


@pytest.mark.parametrize(("most_threads", "ahead"), [(None, 2), (2, 1)])
def test_only_a_few_blocks_are_read_ahead(threads, most_threads, ahead):
    read = []
    reader = (read.append(number) or number for number in range(50))
    results = map_on_threads(slow_for_even, reader, most_threads=most_threads, ahead=ahead)
    for done, _ in enumerate(results, start=1):
        assert len(read) <= done + ahead * min(threads, most_threads or threads)


def test_an_error_in_the_function_is_passed_on(threads):
    started = []

    def function(number):
        started.append(number)
        if number == 5:
            raise InputError("block 5 is bad")
        return number

    results = map_on_threads(function, range(1000))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="block 5 is bad"):
        next(results)
    assert len(started) <= 6 + 2 * threads
    assert list(results) == []


def test_what_is_only_queued_is_not_started_after_an_early_end(threads):
    before = threading.active_count()
    started, release = [], threading.Event()

    def function(number):
        started.append(number)
        assert number == 0 or release.wait(timeout=10)
        return number

    results = map_on_threads(function, range(1000))
    assert next(results) == 0
    timer = threading.Timer(0.05, release.set)
    timer.start()
    results.close()  # waits for what is running, and for nothing else
    assert len(started) <= 1 + threads
    timer.join()
    assert threading.active_count() <= before


def test_threads_are_the_cores_this_process_may_use(monkeypatch):
    monkeypatch.delenv("EVENCOVER_THREADS", raising=False)
    assert n_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("EVENCOVER_THREADS", "3")
    assert n_threads() == 3


def test_threads_are_kept_for_several_maps(monkeypatch):
    monkeypatch.setenv("EVENCOVER_THREADS", "2")

    def names():
        together = threading.Barrier(2)  # so that both threads are needed

        def name(_):
            together.wait(10)
            return threading.current_thread().name

        return set(map_on_threads(name, range(2)))

    with keeping_threads():
        kept = names()
        assert names() == kept
    assert not kept & {thread.name for thread in threading.enumerate()}
    assert not names() & kept


def test_a_task_among_others_starts_no_threads(monkeypatch):
    monkeypatch.setenv("EVENCOVER_THREADS", "3")
    with single_threaded():
        assert n_threads() == 1
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(n_threads).result() == 3  # it is this thread that is busy
    assert n_threads() == 3


@pytest.mark.parametrize("wish", ["0", "-1", "two", "", "1.5", " 2", "²"])
def test_a_bad_number_of_threads_is_refused(monkeypatch, wish):
    monkeypatch.setenv("EVENCOVER_THREADS", wish)
    with pytest.raises(InputError, match="EVENCOVER_THREADS"):
        n_threads()


PARTS = [
    (np.array([0.5, 0.25]), np.array([3, 1], dtype=np.uint8)),
    (np.array([0.75]), np.array([2], dtype=np.uint8)),
]


@pytest.mark.parametrize("n_rows", [3, None])
def test_parts_are_put_one_after_the_other(n_rows):
    for ours, expected in zip(gathered(iter(PARTS), n_rows), joined(PARTS), strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)


def test_workers_that_die_are_told_in_one_sentence():
    with ProcessPoolExecutor(1) as pool, pytest.raises(InputError, match="workers died"):
        list(results_in_order(pool, os._exit, [1]))


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

    assert sorted(results_in_order(Here(), abs, [-1] * 9)) == [1] * 9
