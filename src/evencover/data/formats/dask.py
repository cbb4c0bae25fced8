"""Dask arrays, row chunk by row chunk: on a cluster a chunk never leaves its worker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.data.columns import USUAL, Keys, are_numbers, choose, note_left_out
from evencover.data.frames import frame_columns
from evencover.data.source import Source, slices
from evencover.errors import InputError


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
            yield from ((rows, None) for rows in slices(to_numpy(chunk.compute())))

    def split(self) -> list[Source]:
        """The row chunks."""
        chunks, lengths = self.array.to_delayed().ravel(), self.array.chunks[0]
        starts = accumulate(lengths[:-1], initial=0)
        return [
            DaskChunkSource(chunk, int(start), int(n_rows), self.n_classes)
            for chunk, start, n_rows in zip(chunks, starts, lengths, strict=True)
        ]


class DaskFrameSource(DaskArraySource):
    """A Dask frame: its numbers are read chunk by chunk, its labels and ids are brought here."""

    name = "the Dask frame"

    def __init__(self, frame: Any, keys: Keys = USUAL) -> None:
        columns = frame_columns(frame._meta)
        layout = choose(columns, keys, self.name)
        note_left_out(layout, self.name)
        if columns[layout.matrix[0]].kind.endswith("list"):
            raise InputError(
                "A Dask frame must have one column per class. "
                f"Got lists in {columns[layout.matrix[0]].name!r}; write it to Parquet first."
            )
        names = [frame.columns[place] for place in range(len(columns))]
        super().__init__(frame[[names[i] for i in layout.matrix]].to_dask_array(lengths=True))
        self.class_names = layout.class_names
        self.numbers_are_names = are_numbers(self.class_names or [""])
        self.used, self.left_out = layout.used(columns), layout.left_out
        if layout.ids is not None:
            self._ids = np.asarray(frame[names[layout.ids]].compute())
        if layout.label is not None:
            self.attach_labels(np.asarray(frame[names[layout.label]].compute()))


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
        return ((part, None) for part in slices(to_numpy(rows)))
