"""Map on executors and Dask clusters, in order; raise InputError if they cannot do the work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import evencover
from evencover.errors import FileError, InputError, import_extra, one_line
from evencover.threads import map_ordered, n_threads

SECONDS = 30  # for the scheduler and for a first worker to answer; dask would wait forever

Item = TypeVar("Item")
Result = TypeVar("Result")


def results_in_order(
    executor: Any, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of the items, a few tasks per worker at a time."""
    with _translated_errors():
        submit, n_tasks = submitter(executor, function)
        yield from map_ordered(submit, fetch, items, n_tasks)


def fetch(future: Any) -> Any:
    """Wait for the result of a future."""
    return future.result()


def submitter(executor: Any, function: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], int]:
    """Return what submits ``function(item)``, and how many tasks keep all workers busy.

    On a `dask.distributed` client, results stay on the workers until requested. Tasks are pure: if
    a worker dies, the scheduler repeats its tasks elsewhere. Tasks that raise are not repeated.
    """
    client = getattr(executor, "_client", executor)  # Client.get_executor() wraps its client
    if type(client).__module__.split(".")[0] == "distributed":
        _check_workers(client)
        # The function is sent once, not with every item.
        sent = client.submit(_itself, function, pure=False)
        submit = partial(client.submit, _on_a_worker, sent, pure=False)
        return submit, 4 * max(1, sum(client.nthreads().values()))  # some may join later
    if not hasattr(executor, "submit"):
        raise InputError(
            "'executor' must be a concurrent.futures executor or a dask.distributed client. "
            f"Got {type(executor).__name__} instead."
        )
    return partial(executor.submit, function), 2 * int(getattr(executor, "_max_workers", 0) or 8)


def _check_workers(client: Any) -> None:
    """Raise InputError unless all workers have this version; dask would wait for others forever."""
    try:
        client.wait_for_workers(1, timeout=SECONDS)
        versions = client.run(_version, on_error="return")
    except Exception as error:
        versions = {client.scheduler.address: error}
    for address, version in versions.items():
        if version != evencover.__version__:
            found = f"evencover {version}" if isinstance(version, str) else one_line(version)
            raise InputError(
                f"Every worker must have evencover {evencover.__version__} and answer within "
                f"{SECONDS} s. Got {found} from {address}; start workers with this version."
            )


def _version() -> str:
    import evencover

    return evencover.__version__


_version.__module__ = "__main__"  # pickled by value: a worker may lack this package


def _itself(function: Item) -> Item:
    return function


def _on_a_worker(function: Callable[[Any], Result], item: Any) -> Result:
    """Call the function; add the worker to errors about files."""
    try:
        return function(item)
    except FileError as error:
        from distributed import get_worker

        raise FileError(
            f"{str(error).rstrip('.')} (on the worker {get_worker().address}; workers must see the "
            "same files under the same paths)."
        ) from error


@contextmanager
def _translated_errors() -> Iterator[None]:
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
    answer: Future[Any] = Future()

    def connect() -> None:
        try:
            answer.set_result(distributed.Client(address, timeout=SECONDS, set_as_default=False))
        except Exception as error:
            answer.set_exception(error)

    Thread(target=connect, daemon=True).start()  # a port that does not answer blocks it forever
    try:
        client = answer.result(SECONDS + 2)
    except Exception as error:
        raise InputError(
            f"No Dask scheduler answers at {address!r} within {SECONDS} s ({one_line(error)}); "
            "give its URL, such as tcp://host:8786, or 'local'. Certificates for tls:// are part "
            "of Dask's configuration (distributed.comm.tls)."
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception):  # do not wait for a lost cluster
            client.close(timeout=2)


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
