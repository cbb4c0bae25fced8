"""Run work on a dask cluster; raise within seconds if the cluster cannot do it.

dask itself waits indefinitely for a scheduler that does not answer, for workers to join, and for
workers without this package.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import evencover
from evencover.errors import FileError, InputError, import_extra, one_line
from evencover.threads import Workers, n_threads

SCHEDULER_SECONDS = 10  # timeout of the scheduler
WORKER_SECONDS = 30  # timeout of the first worker, and of all workers' versions

_checked: WeakSet[Any] = WeakSet()  # clients whose workers have been checked


def import_distributed() -> Any:
    """Import dask.distributed or raise with install instructions."""
    return import_extra("Dask clusters", "distributed", "dask", "dask.distributed")


def connect(address: str) -> Any:
    """Connect to a scheduler; raise InputError if it does not answer in time."""
    distributed = import_distributed()
    settings = {"timeout": SCHEDULER_SECONDS, "set_as_default": False}
    try:  # a client waits forever for a port that does not answer
        return _in_time(lambda: distributed.Client(address, **settings), SCHEDULER_SECONDS + 2)
    except Exception as error:
        raise InputError(
            f"No dask scheduler answers at {address!r} within {SCHEDULER_SECONDS} s "
            f"({one_line(error)}); give its URL, such as tcp://host:8786, or 'local'. Certificates "
            "for tls:// are part of dask's configuration (distributed.comm.tls)."
        ) from error


def check_workers(client: Any) -> None:
    """Raise InputError if a cluster has no workers, or workers lack this version."""
    if client in _checked or getattr(client, "asynchronous", False):
        return
    where = getattr(getattr(client, "scheduler", None), "address", "the cluster")
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
        versions = _in_time(lambda: client.run(_version, on_error="return"), WORKER_SECONDS)
    except Exception as error:
        raise InputError(
            f"No worker of the scheduler at {where} answers within {WORKER_SECONDS} s; start some "
            f"with 'dask worker {where}'."
        ) from error
    for worker, version in versions.items():
        if version != evencover.__version__:
            found = f"evencover {version}" if isinstance(version, str) else one_line(version)
            raise InputError(
                f"Every worker must have evencover {evencover.__version__}. Got {found} on "
                f"{worker}; install that version there, and start the worker again."
            )
    _checked.add(client)


def _version() -> str:
    import evencover

    return evencover.__version__


_version.__module__ = "__main__"  # pickled by value: a worker may lack this package


def _in_time(function: Callable[[], Any], seconds: float) -> Any:
    """Call a function; raise TimeoutError if it takes too long."""
    result: Future[Any] = Future()

    def call() -> None:
        try:
            result.set_result(function())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return result.result(seconds)


Item = TypeVar("Item")
Result = TypeVar("Result")


class DaskWorkers(Workers):
    """Workers of a `dask.distributed.Client`; results stay on the workers until requested.

    Tasks are pure. If a worker dies, the scheduler repeats its tasks elsewhere. Tasks that raise
    are not repeated.
    """

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        check_workers(executor)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit ``function(*arguments)``; futures among the arguments become their results."""
        return self.executor.submit(_on_a_worker, function, *arguments, pure=False)

    def submitter(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Send the function once, not with every item."""
        return partial(self.submit, operator.call, self.submit(_itself, function))

    def n_under_way(self) -> int:
        """Return enough tasks for all workers, and for some that may join later."""
        return 4 * max(1, sum(self.executor.nthreads().values()))


def local_cluster(n_workers: int) -> Any:
    """Start a dask cluster on this machine: processes with one thread each."""
    distributed = import_distributed()
    import dask

    # By default dask's workers return freed memory to the system. Allocating it again page by page
    # doubles the time of an evaluation.
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
    """Connect to the cluster at `address`, or start one on this machine ("local").

    A local cluster has one process with one thread per core.
    """
    distributed = import_distributed()
    if address == "local":
        with local_cluster(n_threads()) as cluster, distributed.Client(cluster) as client:
            yield client
        return
    client = connect(address)
    try:
        yield client
    finally:
        with suppress(Exception):  # do not wait for a lost cluster
            client.close(timeout=2)


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
