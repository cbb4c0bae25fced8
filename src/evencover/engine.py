"""Map a function over row blocks on threads, results in order, only a few blocks in memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from evencover._validation import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """How many threads to use: EVENCOVER_THREADS, or every core this process may run on."""
    wish = os.environ.get("EVENCOVER_THREADS")
    if wish is None:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if not wish.isdecimal() or int(wish) < 1:
        raise InputError(f"EVENCOVER_THREADS must be a whole number of at least 1. Got {wish!r}.")
    return int(wish)


def map_blocks(function: Callable[[Item], Result], blocks: Iterable[Item]) -> Iterator[Result]:
    """Yield ``function(block)`` in the order of the blocks.

    The kernels release the interpreter lock, so threads run side by side; at most two blocks
    per thread are under way, so memory does not grow with the input.
    """
    workers = n_threads()
    if workers == 1:
        yield from map(function, blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for block in blocks:
                pending.append(pool.submit(function, block))
                if len(pending) >= 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # the reader or the consumer failed: do not start what nobody will use
            for future in pending:
                future.cancel()
