"""Reaching a dask cluster, and finding out in time that it cannot do the work.

A scheduler that says nothing, no workers, or workers without this package would else be waited for
without a word.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import evencover
from evencover.errors import InputError, one_line

SCHEDULER_SECONDS = 10  # for a scheduler to answer
WORKER_SECONDS = 30  # for the first worker to join, and for all to tell their version

_fit: WeakSet[Any] = WeakSet()  # clients whose workers have been asked


def import_distributed() -> Any:
    """The optional dependency, or a sentence that says how to get it."""
    try:
        import distributed
    except ImportError:
        raise InputError(
            "Running on dask needs dask.distributed; install it with pip install 'evencover[dask]'."
        ) from None
    return distributed


def connected(address: str) -> Any:
    """A client of the scheduler at an address, which must answer in time."""
    distributed = import_distributed()
    try:
        _in_time(lambda: asyncio.run(_ask(address)), SCHEDULER_SECONDS + 1)
        return distributed.Client(address, timeout=SCHEDULER_SECONDS, set_as_default=False)
    except Exception as error:
        remedy = "give its address, such as tcp://host:8786, or 'local'"
        if address.startswith("tls:"):
            remedy = (
                "name the certificates in dask's configuration (distributed.comm.tls.ca-file and "
                "distributed.comm.tls.client), and give an address such as tls://host:8786"
            )
        raise InputError(
            f"No dask scheduler answers at {address!r} within {SCHEDULER_SECONDS} s "
            f"({one_line(error)}); {remedy}."
        ) from error


async def _ask(address: str) -> None:
    """Have a scheduler say who it is; a client would wait for one that says nothing."""
    from distributed import Security, rpc

    secrets = Security().get_connection_args("client")
    async with asyncio.timeout(SCHEDULER_SECONDS):
        scheduler = rpc(address, timeout=SCHEDULER_SECONDS, connection_args=secrets)
        try:
            await scheduler.identity()
        finally:
            await scheduler.close_rpc()


def close(client: Any) -> None:
    """Leave a cluster; one that is gone is not waited for."""
    with suppress(Exception):
        client.close(timeout=2)


def refuse_unfit(client: Any) -> None:
    """Refuse a cluster without workers, or with workers that lack this version of the package."""
    if client in _fit or getattr(client, "asynchronous", False):
        return
    where = getattr(getattr(client, "scheduler", None), "address", "the cluster")
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except Exception as error:
        raise InputError(
            f"No worker has joined the scheduler at {where} within {WORKER_SECONDS} s; start some "
            f"with 'dask worker {where}'."
        ) from error
    try:
        versions = _in_time(lambda: client.run(_version, on_error="return"), WORKER_SECONDS)
    except Exception as error:
        raise InputError(
            f"The workers of the scheduler at {where} do not answer within {WORKER_SECONDS} s; "
            "see whether they still run."
        ) from error
    for worker, version in versions.items():
        if version != evencover.__version__:
            found = f"evencover {version}" if isinstance(version, str) else one_line(version)
            raise InputError(
                f"Every worker must have evencover {evencover.__version__}. Got {found} on "
                f"{worker}; install that version there, and start the worker again."
            )
    _fit.add(client)


def wait_for(client: Any, futures: Sequence[Any]) -> None:
    """Wait until tasks are done, but not for workers that are all gone."""
    distributed = import_distributed()
    was_empty = False
    while True:
        try:
            with client.as_current():  # it may not be this process's default
                distributed.wait(futures, timeout=WORKER_SECONDS)
            return
        except TimeoutError:
            is_empty = not client.nthreads()
            if was_empty and is_empty:
                raise InputError(
                    "No worker is left to finish the work, and none has joined within "
                    f"{WORKER_SECONDS} s; start some, then run the same command."
                ) from None
            was_empty = is_empty


def _version() -> str:
    import evencover

    return evencover.__version__


_version.__module__ = "__main__"  # so that it is sent as a whole: a worker may lack this package


def _in_time(function: Callable[[], Any], seconds: float) -> Any:
    """What a call returns or raises; a call that takes too long is left to itself."""
    results: list[Any] = []

    def call() -> None:
        try:
            results.append((function(), None))
        except Exception as error:
            results.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if not results:
        raise TimeoutError
    result, error = results[0]
    if error is not None:
        raise error
    return result
