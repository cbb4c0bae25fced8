"""Workers: threads, any executor of the concurrent.futures kind, or a dask cluster, seen alike."""

from __future__ import annotations

import copy
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, TypeVar

from evencover._validation import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

FAN_IN = 16  # results that are merged by one task on a cluster


_is_one_of_many: ContextVar[bool] = ContextVar("is_one_of_many", default=False)


@contextmanager
def one_of_many() -> Iterator[None]:
    """What is done inside is a task among others, which share the cores: it starts no threads."""
    before = _is_one_of_many.set(True)
    try:
        yield
    finally:
        _is_one_of_many.reset(before)


def n_threads() -> int:
    """How many threads to use: EVENCOVER_THREADS, or every core this process may run on."""
    if _is_one_of_many.get():
        return 1
    wish = os.environ.get("EVENCOVER_THREADS")
    if wish is None:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if not wish.isdecimal() or int(wish) < 1:
        raise InputError(f"EVENCOVER_THREADS must be a whole number of at least 1. Got {wish!r}.")
    return int(wish)


class Workers:
    """Workers of a `concurrent.futures.Executor`: every result comes back to this process."""

    n_at_once: ClassVar[int] = 1  # how many results are asked for together

    def __init__(self, executor: Any) -> None:
        self.executor = executor

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A future of ``function(*arguments)``."""
        return self.executor.submit(function, *arguments)

    def submitter(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What makes a future of ``function(item)`` for each of many items."""
        return partial(self.submit, function)

    def n_under_way(self) -> int:
        """How many tasks keep every worker busy; their results wait in this process's memory."""
        return 2 * int(getattr(self.executor, "_max_workers", None) or 8)

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """The results of several futures."""
        with _deaths_in_a_sentence():
            return [future.result() for future in futures]

    def keep(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A handle on a result that is too large to bring here: a recipe, followed in each use."""
        return partial(function, *arguments)

    def fold(
        self,
        function: Callable[[Any], Result],
        items: Iterable[Any],
        merge: Callable[[Iterable[Result]], Result],
        finish: Callable[[Result], Any] | None = None,
    ) -> Any:
        """Merge the results of all items, which may be handles, in their order."""
        result = merge(results_in_order(self, partial(_apply, function), items))
        return result if finish is None else finish(result)


class DaskWorkers(Workers):
    """Workers of a `dask.distributed.Client`: results stay on them until they are asked for.

    Tasks are pure, so when a worker dies the scheduler runs them, and whatever was lost with it,
    again elsewhere. A task that raises is not tried again: bad input stays bad.
    """

    n_at_once: ClassVar[int] = 4  # each request costs this process milliseconds

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A dask future of ``function(*arguments)``; futures among these become their results."""
        sent = (self._with_chunk(argument) for argument in arguments)
        return self.executor.submit(function, *sent, pure=False)

    def submitter(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function, with all that it carries, is sent once and not with every item."""
        sent = self.submit(_same, function)
        return partial(self.submit, _call, sent)

    def _with_chunk(self, argument: Any) -> Any:
        """A part of a Dask array is made on a worker, of a chunk that is there already."""
        source: Any = getattr(argument, "source", None)
        if not hasattr(getattr(source, "chunk", None), "compute"):
            return argument
        chunk, bare = self.executor.compute(source.chunk), copy.copy(source)
        bare.chunk = None
        return self.executor.submit(_fill, argument._replace(source=bare), chunk, pure=False)

    def n_under_way(self) -> int:
        """Enough that no worker waits for this process, and for some that may join later."""
        return 4 * max(1, sum(self.executor.nthreads().values()))

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """The results of several futures, fetched together."""
        with _deaths_in_a_sentence():
            return list(self.executor.gather(list(futures)))

    def keep(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result stays in the memory of the worker that made it."""
        return self.submit(function, *arguments)

    def fold(
        self,
        function: Callable[[Any], Result],
        items: Iterable[Any],
        merge: Callable[[Iterable[Result]], Result],
        finish: Callable[[Result], Any] | None = None,
    ) -> Any:
        """Merge on the workers, as a tree: only what `finish` returns is sent here."""
        submit = self.submitter(function)
        futures = [submit(item) for item in items]
        while len(futures) > 1:
            batches = (futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN))
            futures = [self.submit(_merge, merge, *batch) for batch in batches]
        last = futures if finish is None else [self.submit(finish, futures[0])]
        return self.results(last)[0]


def as_workers(executor: Any) -> Workers:
    """The workers behind an executor, a dask client or a dask client's executor."""
    client = getattr(executor, "_client", executor)  # Client.get_executor() wraps its client
    if type(client).__module__.split(".")[0] == "distributed":
        return DaskWorkers(client)
    if not hasattr(executor, "submit"):
        raise InputError(
            "'executor' must be a concurrent.futures executor or a dask.distributed client. "
            f"Got {type(executor).__name__} instead."
        )
    return Workers(executor)


def results_in_order(
    workers: Workers,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    most: int | None = None,
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of the items; only a few per worker are under way."""
    pending: deque[Any] = deque()
    submit, most = workers.submitter(function), most or workers.n_under_way()

    def first_few() -> list[Result]:
        n = min(len(pending), workers.n_at_once)
        return workers.results([pending.popleft() for _ in range(n)])

    try:
        for item in items:
            pending.append(submit(item))
            if len(pending) >= most:
                yield from first_few()
        while pending:
            yield from first_few()
    finally:  # the reader or the consumer failed: do not start what nobody will use
        for future in pending:
            future.cancel()


@contextmanager
def _deaths_in_a_sentence() -> Iterator[None]:
    """Workers that die again and again are told in one sentence."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ not in (
            "KilledWorker",
            "BrokenProcessPool",
            "FutureCancelledError",
        ):
            raise
        raise InputError(
            "The work could not be finished: workers died while at it "
            f"({' '.join(str(error).split())[:200]}); give them more memory, or smaller parts."
        ) from error


def import_distributed() -> Any:
    """The optional dependency, or a sentence that says how to get it."""
    try:
        import distributed
    except ImportError:
        raise InputError(
            "--dask needs dask.distributed; install it with 'pip install evencover[dask]'."
        ) from None
    return distributed


def local_cluster(n_workers: int) -> Any:
    """A dask cluster of so many processes with one thread each, on this machine."""
    distributed = import_distributed()
    import dask

    # By default dask's workers hand every freed array back to the system, and fetching memory
    # anew, page by page, makes evaluation take twice the time.
    keep = {"MALLOC_TRIM_THRESHOLD_": 1 << 29, "MALLOC_MMAP_THRESHOLD_": 1 << 28}
    with dask.config.set(
        {f"distributed.nanny.pre-spawn-environ.{key}": value for key, value in keep.items()}
    ):
        return distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        )


@contextmanager
def dask_client(address: str) -> Iterator[Any]:
    """A client of the cluster at `address`, or of one on this machine that ends with it ("local").

    A local cluster has one process with one thread per core: processes share nothing that
    could get in each other's way.
    """
    distributed = import_distributed()
    if address == "local":
        with local_cluster(n_threads()) as cluster, distributed.Client(cluster) as client:
            yield client
        return
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(
            f"No dask scheduler answers at {address!r}; give its address, such as "
            "tcp://host:8786, or 'local'."
        ) from error
    with client:
        yield client


def _apply(function: Callable[[Any], Result], item: Any) -> Result:
    """``function(item)``, where the item may be a recipe (`Workers.keep`)."""
    return function(item() if isinstance(item, partial) else item)


def _same(function: Item) -> Item:
    return function


def _call(function: Callable[[Any], Result], item: Any) -> Result:
    return function(item)


def _fill(part: Any, rows: Any) -> Any:
    source = copy.copy(part.source)
    source.chunk = rows
    return part._replace(source=source)


def _merge(merge: Callable[[Iterable[Result]], Result], *results: Result) -> Result:
    return merge(results)
