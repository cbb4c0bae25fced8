"""Map functions over row blocks, and merge the results: on threads, executors or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from evencover.arrays import Array
from evencover.data.fingerprint import Fingerprint, Sampler
from evencover.data.readers import ArrayReader, read_array
from evencover.data.source import Block, Source
from evencover.engine.executors import results_in_order
from evencover.sizes import at_once
from evencover.threads import map_on_threads, single_threaded
from evencover.topk import numbers_per_row


def joined(parts: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Concatenate each column of consecutive rows."""
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def gathered(parts: Iterable[tuple[Array, ...]], n_rows: int | None) -> tuple[Array, ...]:
    """Concatenate columns; fill preallocated arrays if the number of rows is known."""
    if n_rows is None:
        return joined(parts)
    columns: tuple[Array, ...] = ()
    start = 0
    for part in parts:
        columns = columns or tuple(np.empty((n_rows, *x.shape[1:]), x.dtype) for x in part)
        stop = start + len(part[0])
        for column, values in zip(columns, part, strict=True):
            column[start:stop] = values[: n_rows - start]  # the source raises at the end
        start = min(stop, n_rows)
    return columns


# About 4 MB of float32 for rows sent with a task: dask warns above 10 MB.
SENT_ELEMENTS = at_once(1 << 20, 90)

Result = TypeVar("Result")


# They sample blocks while these are mapped: `of` a block on any thread, and `add` here. Workers
# sample a partition with a `fresh` one, whose `result` is added. `fingerprint.Sampler` is one.
Samplers = Sequence[Any]


def _on_part(
    function: Callable[[Block], Result],
    merge: Callable[[Iterable[Result]], Result],
    samplers: Samplers,
    part: Source,
) -> tuple[Result, list[Any]]:
    """Compute a partition's result on one thread, and sample its rows."""
    with single_threaded():
        samplers = [sampler.fresh() for sampler in samplers]
        results = map(partial(_on_block, function, samplers), part.blocks())
        return merge(_sampled(samplers, results)), [sampler.result() for sampler in samplers]


def _on_block(
    function: Callable[[Block], Result], samplers: Samplers, block: Block
) -> tuple[Result, list[Any]]:
    return function(block), [sampler.of(block) for sampler in samplers]


def _sampled(samplers: Samplers, results: Iterable[tuple[Result, list[Any]]]) -> Iterator[Result]:
    """Pass the results of blocks or partitions on; add their samples."""
    for result, parts in results:
        for sampler, part in zip(samplers, parts, strict=True):
            sampler.add(part)
        yield result


def map_source(
    source: Source,
    function: Callable[[Block], Result],
    merge: Callable[[Iterable[Result]], Result] | None = None,
    executor: Any = None,
    *,
    samplers: Samplers = (),
) -> Iterator[Result]:
    """Yield ``function(block)`` per block or, on an executor, merged per partition.

    `samplers` have sampled all rows when the iterator ends.
    """
    if executor is None:
        on_block = partial(_on_block, function, samplers)
        return _sampled(samplers, map_on_threads(on_block, source.blocks()))
    assert merge is not None
    work = partial(_on_part, function, merge, [sampler.fresh() for sampler in samplers])
    return _sampled(samplers, results_in_order(executor, work, cut(source)))


def fold_source(
    source: Source,
    function: Callable[[Block], Result],
    merge: Callable[[Iterable[Result]], Result],
    finish: Callable[[Result], Any],
    executor: Any = None,
) -> tuple[Any, Fingerprint]:
    """Return ``finish(merge(all results))``, and the fingerprint of all rows."""
    sampler = Sampler(source.n_rows, source.offset)
    result = finish(merge(map_source(source, function, merge, executor, samplers=[sampler])))
    return result, sampler.result()


def cut(source: Source) -> Iterator[Source]:
    """Yield the partitions of a source, at least one; without files, chunks of its rows."""
    parts = source.parts()
    n_parts = 0
    for part in _chunks(source) if parts is None else parts:
        if part.n_rows:
            yield part
            n_parts += 1
    if n_parts == 0:
        empty = ArrayReader(
            rows=np.zeros((0, source.n_classes)), n_rows=0, n_classes=source.n_classes
        )
        yield replace(source, reader=empty, watch=None)


def _chunks(source: Source) -> Iterator[Source]:
    for block in source.blocks():
        step = max(1, SENT_ELEMENTS // max(1, numbers_per_row(block.rows)))
        for start in range(0, len(block.rows), step):
            chunk = block.take(slice(start, start + step))
            reader = read_array(chunk.rows, first_row=chunk.start - source.offset)
            yield source.part_of_block(chunk, reader)
