"""Many fits of one comparison, on all cores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

from evencover._threads import map_on_threads
from evencover.errors import EvencoverWarning

Job = TypeVar("Job")
Fit = TypeVar("Fit")


def fit_all(fit: Callable[[Job], Fit], jobs: Iterable[Job]) -> list[Fit]:
    """``fit(job)`` of every job, in their order.

    Nothing is said of what a split lacks: it is in the table, not news. Libraries of linear
    algebra start no threads of their own meanwhile. Their limit is one for the whole process, and
    each k-means sets it and puts it back, so it is set here before the first and until the last.
    """
    from threadpoolctl import threadpool_limits

    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        warnings.simplefilter("ignore", EvencoverWarning)
        return list(map_on_threads(fit, jobs))
