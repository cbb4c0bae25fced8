"""Dask arrays, row chunk by row chunk: on a cluster a chunk never leaves its worker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.source import Source, slices


class DaskArraySource(Source):
    """An (N, K) `dask.array.Array`; its row chunks are the parts."""

    name = "the Dask array"

    def __init__(self, array: Any) -> None:
        if array.ndim != 2:
            raise InputError(
                "A Dask array must be a matrix with one row per example and one column per class. "
                f"Got {array.ndim} dimensions instead."
            )
        if np.isnan(array.shape[0]):  # nobody knows how long the chunks are: count first
            array = array.compute_chunk_sizes()
        self.array = array.rechunk({1: -1})  # whole rows
        self.n_rows, self.n_classes = (int(size) for size in self.array.shape)

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Blocks of one chunk after the other."""
        for chunk in self.array.blocks:
            yield from ((rows, None) for rows in slices(np.asarray(chunk.compute())))

    def split(self) -> list[Source]:
        """The row chunks."""
        chunks, lengths = self.array.to_delayed().ravel(), self.array.chunks[0]
        starts = accumulate(lengths[:-1], initial=0)
        return [
            DaskChunkSource(chunk, int(start), int(n_rows), self.n_classes)
            for chunk, start, n_rows in zip(chunks, starts, lengths, strict=True)
        ]


class DaskChunkSource(Source):
    """One row chunk: a recipe, or the rows themselves once a worker has made them."""

    name = "the Dask array"

    def __init__(self, chunk: Any, first_row: int, n_rows: int, n_classes: int) -> None:
        self.chunk, self.first_row = chunk, first_row
        self.n_rows, self.n_classes = n_rows, n_classes

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Slices of the chunk."""
        rows = self.chunk
        if hasattr(rows, "compute"):
            rows = rows.compute(scheduler="synchronous")
        return ((part, None) for part in slices(np.asarray(rows)))
