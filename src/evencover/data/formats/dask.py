"""Read Dask arrays by row chunks; on a cluster, chunks stay on their worker."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from evencover.arrays import to_numpy
from evencover.data.columns import USUAL, Keys, are_numbers, choose, note_left_out
from evencover.data.frames import frame_columns
from evencover.data.source import RawBlocks, Source, SourceInfo, slices
from evencover.errors import InputError
from evencover.validation import matrix_shape


class DaskArraySource(Source):
    """An (N, K) `dask.array.Array`; its row chunks are the partitions."""

    def __init__(self, array: Any, name: str = "the Dask array", **facts: Any) -> None:
        if np.isnan(array.shape).any():  # unknown chunk lengths: count first
            array = array.compute_chunk_sizes()
        n_rows, n_classes = matrix_shape(array.shape, name)
        self.array = array.rechunk({1: -1})  # whole rows
        self.info = SourceInfo(n_classes, n_rows, name=name, **facts)

    def row_blocks(self) -> RawBlocks:
        """Compute one chunk after the other."""
        for chunk in self.array.blocks:
            yield from slices(to_numpy(chunk.compute()))

    def split(self) -> list[Source]:
        """Return the row chunks."""
        chunks, lengths = self.array.to_delayed().ravel(), self.array.chunks[0]
        starts = accumulate(lengths[:-1], initial=0)
        return [
            DaskChunkSource(chunk, replace(self.info, n_rows=int(n), first_row=int(start)))
            for chunk, start, n in zip(chunks, starts, lengths, strict=True)
        ]


def dask_frame(frame: Any, keys: Keys = USUAL) -> Source:
    """Read the numbers of a Dask frame chunk by chunk, and its labels and ids now."""
    name, columns = "the Dask frame", frame_columns(frame._meta)
    layout = choose(columns, keys, name)
    note_left_out(layout, name)
    if columns[layout.matrix[0]].kind.endswith("list"):
        raise InputError(
            "A Dask frame must have one column per class. "
            f"Got lists in {columns[layout.matrix[0]].name!r}; write it to Parquet first."
        )
    names = list(frame.columns)
    source = DaskArraySource(
        frame[[names[i] for i in layout.matrix]].to_dask_array(lengths=True),
        name,
        class_names=layout.class_names,
        numbers_are_names=are_numbers(layout.class_names or [""]),
        used=layout.used(columns),
        left_out=layout.left_out,
        allow_unknown=keys.allow_unknown,
    )
    if layout.ids is not None:
        source._ids = np.asarray(frame[names[layout.ids]].compute())
    if layout.label is not None:
        source.attach_labels(np.asarray(frame[names[layout.label]].compute()))
    return source


class DaskChunkSource(Source):
    """One row chunk: a task graph, or its rows once computed on a worker."""

    def __init__(self, chunk: Any, info: SourceInfo) -> None:
        self.chunk, self.info = chunk, info

    def row_blocks(self) -> RawBlocks:
        """Split the chunk."""
        rows = self.chunk
        if hasattr(rows, "compute"):
            rows = rows.compute(scheduler="synchronous")
        return slices(to_numpy(rows))
