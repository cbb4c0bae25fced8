"""Pieces of a file read by threads, while whoever asked for them is busy with those before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from evencover.engine.workers import Workers, n_threads, results_in_order

Piece = TypeVar("Piece")
Content = TypeVar("Content")

MOST_READERS = 4  # each holds pieces in memory


def read_ahead(read: Callable[[Piece], Content], pieces: Iterable[Piece]) -> Iterator[Content]:
    """Yield ``read(piece)`` in the order of the pieces."""
    readers = min(n_threads(), MOST_READERS)
    if readers == 1:
        yield from map(read, pieces)
        return
    with ThreadPoolExecutor(readers) as pool:
        yield from results_in_order(Workers(pool), read, pieces, most=readers)
