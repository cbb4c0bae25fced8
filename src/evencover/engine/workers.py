"""Workers: threads, any executor of the concurrent.futures kind, or a dask cluster, seen alike."""

from __future__ import annotations

from typing import Any

from evencover._threads import n_threads as n_threads
from evencover._threads import one_of_many as one_of_many
from evencover.engine.dask import DaskWorkers
from evencover.engine.executors import Workers as Workers
from evencover.engine.executors import results_in_order as results_in_order
from evencover.errors import InputError


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
