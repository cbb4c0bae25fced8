"""Read Dask arrays by row chunks; on a cluster, chunks stay on their worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from evencover.arrays import to_numpy
from evencover.data.columns import Contents, Keys, choose, integers_are_names
from evencover.data.frames import frame_columns
from evencover.data.source import RawBlock, Reader, slices
from evencover.errors import InputError
from evencover.validation import matrix_shape


@dataclass(frozen=True, kw_only=True)
class DaskArrayReader(Reader):
    """Reads an (N, K) `dask.array.Array`; its row chunks are the partitions."""

    array: Any

    def row_blocks(self) -> Iterator[RawBlock]:
        """Compute one chunk after the other."""
        for chunk in self.array.blocks:
            yield from slices(to_numpy(chunk.compute()))

    def split(self) -> list[Reader]:
        """Return the row chunks."""
        chunks, lengths = self.array.to_delayed().ravel(), self.array.chunks[0]
        starts = accumulate(lengths[:-1], initial=0)
        return [
            DaskChunkReader(
                chunk=chunk,
                n_classes=self.n_classes,
                n_rows=int(n_rows),
                name=self.name,
                first_row=int(start),
            )
            for chunk, start, n_rows in zip(chunks, starts, lengths, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class DaskChunkReader(Reader):
    """Reads one row chunk: a task graph, or its rows once computed on a worker."""

    chunk: Any

    def row_blocks(self) -> Iterator[RawBlock]:
        """Split the chunk."""
        rows = self.chunk
        if hasattr(rows, "compute"):
            rows = rows.compute(scheduler="synchronous")
        return slices(to_numpy(rows))

    def identity_of_rows(self) -> tuple[Any, ...]:
        """Identify the rows by their task."""
        return (self.chunk.key,)


def read_dask_array(array: Any, name: str = "the Dask array") -> DaskArrayReader:
    """Read whole rows of an array; count them first if the lengths of chunks are unknown."""
    if np.isnan(array.shape).any():
        array = array.compute_chunk_sizes()
    n_rows, n_classes = matrix_shape(array.shape, name)
    return DaskArrayReader(
        array=array.rechunk({1: -1}), n_rows=n_rows, n_classes=n_classes, name=name
    )


def open_dask_frame(frame: Any, keys: Keys) -> Contents:
    """Read the numbers of a Dask frame chunk by chunk, and its labels and ids now."""
    name, columns = "the Dask frame", frame_columns(frame._meta)
    layout = choose(columns, keys, name)
    if layout.is_list:
        raise InputError(
            "A Dask frame must have one column per class. "
            f"Got lists in {columns[layout.numbers[0]].name!r}; write it to Parquet first."
        )
    names = list(frame.columns)

    def column(place: int | None) -> Any:
        return None if place is None else np.asarray(frame[names[place]].compute())

    numbers = frame[[names[place] for place in layout.numbers]]
    return Contents(
        read_dask_array(numbers.to_dask_array(lengths=True), name),
        layout.class_names,
        labels=column(layout.label) if keys.read_labels else None,
        ids=column(layout.ids),
        integers_are_names=integers_are_names(layout.class_names),
        columns=layout.columns,
        shared=layout.shared_columns(columns, keys, column),
    )
