"""Submit tasks to an executor and return their results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, TypeVar

from evencover.errors import InputError, one_line
from evencover.threads import map_ordered

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Workers of a `concurrent.futures.Executor`; every result returns to this process."""

    n_at_once: ClassVar[int] = 1  # number of results requested together

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

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of several futures."""
        with translate_worker_errors():
            return [future.result() for future in futures]

    def fold(
        self,
        function: Callable[[Any], Result],
        items: Iterable[Any],
        merge: Callable[[Iterable[Result]], Result],
        finish: Callable[[Result], Any] | None = None,
    ) -> Any:
        """Merge the results of all items in order."""
        result = merge(results_in_order(self, function, items))
        return result if finish is None else finish(result)


def results_in_order(
    workers: Workers, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of the items, a few tasks per worker at a time."""
    with translate_worker_errors():
        submit, fetch = workers.submitter(function), workers.results
        yield from map_ordered(submit, fetch, items, workers.n_under_way(), workers.n_at_once)


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
