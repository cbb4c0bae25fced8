"""Number of threads, and ordered maps on threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from evencover.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

_is_single_threaded: ContextVar[bool] = ContextVar("is_single_threaded", default=False)
_kept: ContextVar[ThreadPoolExecutor | None] = ContextVar("kept", default=None)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Start no threads inside this context."""
    before = _is_single_threaded.set(True)
    try:
        yield
    finally:
        _is_single_threaded.reset(before)


@contextmanager
def keeping_threads() -> Iterator[None]:
    """Start threads once inside this context, and not in each of many short maps (.2 ms)."""
    with ThreadPoolExecutor(n_threads()) as pool:
        before = _kept.set(pool)
        try:
            yield
        finally:
            _kept.reset(before)


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
    kept = _kept.get()
    with ThreadPoolExecutor(threads) if kept is None else nullcontext(kept) as pool:
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
