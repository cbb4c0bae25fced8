"""A dask cluster: its workers, which keep results until they are wanted, and ways to reach one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, TypeVar

from evencover._threads import n_threads
from evencover.engine.clusters import close, connected, import_distributed, refuse_unfit, wait_for
from evencover.engine.executors import Workers, deaths_in_a_sentence
from evencover.errors import FileError

Item = TypeVar("Item")
Result = TypeVar("Result")

FAN_IN = 16  # results that are merged by one task


class DaskWorkers(Workers):
    """Workers of a `dask.distributed.Client`: results stay on them until they are asked for.

    Tasks are pure, so when a worker dies the scheduler runs them, and whatever was lost with it,
    again elsewhere. A task that raises is not tried again: bad input stays bad.
    """

    n_at_once: ClassVar[int] = 4  # each request costs this process milliseconds

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        refuse_unfit(executor)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A dask future of ``function(*arguments)``; futures among these become their results."""
        sent = (self._with_chunk(argument) for argument in arguments)
        return self.executor.submit(_on_a_worker, function, *sent, pure=False)

    def submitter(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function, with all that it carries, is sent once and not with every item."""
        sent = self.submit(_itself, function)
        return partial(self.submit, _call, sent)

    def _with_chunk(self, argument: Any) -> Any:
        """A part of a Dask array is made on a worker, of a chunk that is there already."""
        source: Any = getattr(argument, "source", None)
        if not hasattr(getattr(source, "chunk", None), "compute"):
            return argument
        chunk, bare = self.executor.compute(source.chunk), copy.copy(source)
        bare.chunk = None
        return self.executor.submit(_with_rows, argument._replace(source=bare), chunk, pure=False)

    def n_under_way(self) -> int:
        """Enough that no worker waits for this process, and for some that may join later."""
        return 4 * max(1, sum(self.executor.nthreads().values()))

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """The results of several futures, fetched together."""
        with deaths_in_a_sentence():
            wait_for(self.executor, list(futures))
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
        with deaths_in_a_sentence():
            submit = self.submitter(function)
            futures = [submit(item) for item in items]
            while len(futures) > 1:
                batches = (futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN))
                futures = [self.submit(_merge, merge, *batch) for batch in batches]
            last = futures if finish is None else [self.submit(finish, futures[0])]
            return self.results(last)[0]


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
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
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
    client = connected(address)
    try:
        yield client
    finally:
        close(client)


def _on_a_worker(function: Callable[..., Result], *arguments: Any) -> Result:
    """``function(*arguments)``; a file that is not what it was here is told with the worker."""
    try:
        return function(*arguments)
    except FileError as error:
        from distributed import get_worker

        raise FileError(
            f"{str(error).rstrip('.')} (on the worker {get_worker().address}; workers must see the "
            "same files under the same paths)."
        ) from error


def _itself(function: Item) -> Item:
    return function


def _call(function: Callable[[Any], Result], item: Any) -> Result:
    return function(item)


def _with_rows(part: Any, rows: Any) -> Any:
    source = copy.copy(part.source)
    source.chunk = rows
    return part._replace(source=source)


def _merge(merge: Callable[[Iterable[Result]], Result], *results: Result) -> Result:
    return merge(results)
