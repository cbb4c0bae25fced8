"""Run work on a Dask cluster; raise InputError if the cluster cannot do it."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import evencover
from evencover.errors import FileError, InputError, import_extra, one_line
from evencover.threads import Workers, n_threads

SECONDS = 30  # for the scheduler and for a first worker to answer; dask would wait forever

Item = TypeVar("Item")
Result = TypeVar("Result")


class DaskWorkers(Workers):
    """Workers of a `dask.distributed.Client`; results stay on the workers until requested.

    Tasks are pure. If a worker dies, the scheduler repeats its tasks elsewhere. Tasks that raise
    are not repeated.
    """

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        try:
            executor.wait_for_workers(1, timeout=SECONDS)
            versions = executor.run(_version, on_error="return")
        except Exception as error:
            versions = {executor.scheduler.address: error}
        for address, version in versions.items():
            if version != evencover.__version__:  # dask would wait forever for such workers
                found = f"evencover {version}" if isinstance(version, str) else one_line(version)
                raise InputError(
                    f"Every worker must have evencover {evencover.__version__} and answer within "
                    f"{SECONDS} s. Got {found} from {address}; start workers with this version."
                )

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit ``function(*arguments)``; futures among the arguments become their results."""
        return self.executor.submit(_on_a_worker, function, *arguments, pure=False)

    def submitter(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Send the function once, not with every item."""
        return partial(self.submit, operator.call, self.submit(_itself, function))

    def n_under_way(self) -> int:
        """Return enough tasks for all workers, and for some that may join later."""
        return 4 * max(1, sum(self.executor.nthreads().values()))


def _version() -> str:
    import evencover

    return evencover.__version__


_version.__module__ = "__main__"  # pickled by value: a worker may lack this package


def _on_a_worker(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call the function; add the worker to errors about files."""
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


@contextmanager
def dask_client(address: str) -> Iterator[Any]:
    """Connect to the cluster at `address`, or start one on this machine ("local").

    A local cluster has one process with one thread per core.
    """
    distributed = import_extra("Dask clusters", "distributed", "dask", "dask.distributed")
    if address == "local":
        with local_cluster(n_threads()) as cluster, distributed.Client(cluster) as client:
            yield client
        return
    client = _connect(distributed, address)
    try:
        yield client
    finally:
        with suppress(Exception):  # do not wait for a lost cluster
            client.close(timeout=2)


def _connect(distributed: Any, address: str) -> Any:
    """Connect to a scheduler; raise InputError if it does not answer in time."""
    answer: Future[Any] = Future()

    def connect() -> None:
        try:
            answer.set_result(distributed.Client(address, timeout=SECONDS, set_as_default=False))
        except Exception as error:
            answer.set_exception(error)

    Thread(target=connect, daemon=True).start()  # a port that does not answer blocks it forever
    try:
        return answer.result(SECONDS + 2)
    except Exception as error:
        raise InputError(
            f"No Dask scheduler answers at {address!r} within {SECONDS} s ({one_line(error)}); "
            "give its URL, such as tcp://host:8786, or 'local'. Certificates for tls:// are part "
            "of Dask's configuration (distributed.comm.tls)."
        ) from error


def local_cluster(n_workers: int) -> Any:
    """Start a Dask cluster on this machine: processes with one thread each."""
    import dask
    from distributed import LocalCluster

    # By default Dask's workers return freed memory to the system. Allocating it again page by page
    # doubles the time of an evaluation.
    keep = {"MALLOC_TRIM_THRESHOLD_": 1 << 29, "MALLOC_MMAP_THRESHOLD_": 1 << 28}
    with dask.config.set(
        {f"distributed.nanny.pre-spawn-environ.{key}": value for key, value in keep.items()}
    ):
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
