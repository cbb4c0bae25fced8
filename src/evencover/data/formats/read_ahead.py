"""Pieces of a file read by threads, while whoever asked for them is busy with those before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from evencover._threads import map_on_threads

Piece = TypeVar("Piece")
Content = TypeVar("Content")

MOST_READERS = 4  # each holds pieces in memory


def read_ahead(read: Callable[[Piece], Content], pieces: Iterable[Piece]) -> Iterator[Content]:
    """Yield ``read(piece)`` in the order of the pieces."""
    return map_on_threads(read, pieces, most_threads=MOST_READERS, ahead=1)
