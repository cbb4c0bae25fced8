"""Number of threads; ordered maps on threads and on the workers of an executor."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from evencover.errors import InputError, one_line

Item = TypeVar("Item")
Result = TypeVar("Result")

_is_single_threaded: ContextVar[bool] = ContextVar("is_single_threaded", default=False)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Start no threads inside this context."""
    before = _is_single_threaded.set(True)
    try:
        yield
    finally:
        _is_single_threaded.reset(before)


def n_threads() -> int:
    """Return EVENCOVER_THREADS, or the number of cores this process may run on."""
    if _is_single_threaded.get():
        return 1
    setting = os.environ.get("EVENCOVER_THREADS")
    if setting is None:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if not setting.isdecimal() or int(setting) < 1:
        raise InputError(f"EVENCOVER_THREADS must be an integer of at least 1. Got {setting!r}.")
    return int(setting)


def map_on_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    most_threads: int | None = None,
    ahead: int = 2,
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of the items; `ahead` of them per thread at a time.

    The function itself runs `single_threaded`.
    """

    def one(item: Item) -> Result:
        with single_threaded():
            return function(item)

    threads = n_threads() if most_threads is None else min(n_threads(), most_threads)
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        submit = partial(pool.submit, one)  # type: ignore[call-arg]
        yield from map_ordered(submit, Future.result, items, ahead * threads)


def on_slices(function: Callable[[slice], None], n: int, most: int) -> None:
    """Call a function with slices of n numbers, at most `most` in each, on threads."""
    slices = [slice(first, min(first + most, n)) for first in range(0, n, most)]
    deque(map_on_threads(function, slices, most_threads=len(slices) or 1), maxlen=0)


def map_ordered(
    submit: Callable[[Item], Any],
    fetch: Callable[[Any], Result],
    items: Iterable[Item],
    max_under_way: int,
) -> Iterator[Result]:
    """Yield the results of futures in the order of the items."""
    pending: deque[Any] = deque()
    try:
        for item in items:
            pending.append(submit(item))
            if len(pending) >= max_under_way:
                yield fetch(pending.popleft())
        while pending:
            yield fetch(pending.popleft())
    finally:  # after an error, do not start work without a consumer
        for future in pending:
            future.cancel()


class Workers:
    """Workers of a `concurrent.futures.Executor`; every result returns to this process."""

    def __init__(self, executor: Any) -> None:
        self.executor = executor

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit ``function(*arguments)``."""
        return self.executor.submit(function, *arguments)

    def submitter(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that submits ``function(item)`` for many items."""
        return partial(self.submit, function)

    def n_under_way(self) -> int:
        """Return the number of tasks that keeps every worker busy."""
        return 2 * int(getattr(self.executor, "_max_workers", None) or 8)

    def result(self, future: Any) -> Any:
        """Wait for the result of a future."""
        return future.result()


def results_in_order(
    workers: Workers, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of the items, a few tasks per worker at a time."""
    with translate_worker_errors():
        submit = workers.submitter(function)
        yield from map_ordered(submit, workers.result, items, workers.n_under_way())


@contextmanager
def translate_worker_errors() -> Iterator[None]:
    """Raise InputError for dying workers and lost connections."""
    try:
        yield
    except Exception as error:
        kind = type(error).__name__
        if kind in ("FutureCancelledError", "CancelledError", "CommClosedError", "RPCClosed"):
            raise InputError(
                "The connection to the scheduler was lost before the work was finished "
                f"({one_line(error)}); start it again, then run the same command."
            ) from error
        if kind not in ("KilledWorker", "BrokenProcessPool"):
            raise
        last = getattr(getattr(error, "last_worker", None), "address", None)
        raise InputError(
            "The work could not be finished: workers died repeatedly"
            f"{'' if last is None else f', the last one at {last}'} ({one_line(error)}); "
            "give them more memory, or smaller partitions."
        ) from error
