"""Map functions over row blocks, and merge the results: on threads, executors or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from evencover.arrays import Array
from evencover.data.fingerprint import Fingerprint, Sampler
from evencover.data.source import ArraySource, Block, Source
from evencover.engine.dask import DaskWorkers
from evencover.engine.executors import Workers, results_in_order
from evencover.errors import InputError
from evencover.randomness import row_ids
from evencover.threads import map_on_threads
from evencover.threads import n_threads as n_threads
from evencover.threads import single_threaded as single_threaded


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
        columns = columns or tuple(np.empty(n_rows, dtype=values.dtype) for values in part)
        stop = start + len(part[0])
        for column, values in zip(columns, part, strict=True):
            column[start:stop] = values[: n_rows - start]  # blocks_of raises at the end
        start = min(stop, n_rows)
    return columns


def as_workers(executor: Any) -> Workers:
    """Wrap an executor, a dask client or a dask client's executor."""
    client = getattr(executor, "_client", executor)  # Client.get_executor() wraps its client
    if type(client).__module__.split(".")[0] == "distributed":
        return DaskWorkers(client)
    if not hasattr(executor, "submit"):
        raise InputError(
            "'executor' must be a concurrent.futures executor or a dask.distributed client. "
            f"Got {type(executor).__name__} instead."
        )
    return Workers(executor)


# About 4 MB of float32 for rows sent with a task: dask warns above 10 MB.
SENT_ELEMENTS = 1 << 20

Result = TypeVar("Result")


class Part(NamedTuple):
    """Consecutive rows of the input, sent to a worker as one task.

    ``source`` knows the index of its first row in the whole input; ``ids`` are the user's ids, if
    any; ``number`` counts the partitions; ``written_ids`` are written with the sets.
    """

    source: Source
    ids: Array | None
    number: int
    written_ids: Array | None = None


def _on_part(
    function: Callable[[Block, Array | None], Result],
    merge: Callable[[Iterable[Result]], Result],
    fingerprint: bool,
    part: Part,
) -> tuple[Result, Fingerprint]:
    """Compute a partition's result on one thread, and the fingerprint of its rows."""
    with single_threaded():
        blocks = blocks_of(part.source, part.ids, fingerprint=fingerprint)
        result = merge(function(block, ids) for block, ids in blocks)
    return result, part.source.rows_read if fingerprint else Fingerprint()


def _merge_parts(
    merge: Callable[[Iterable[Result]], Result], parts: Iterable[tuple[Result, Fingerprint]]
) -> tuple[Result, Fingerprint]:
    rows_read = Fingerprint()

    def results() -> Iterator[Result]:
        nonlocal rows_read
        for result, fingerprint in parts:
            rows_read += fingerprint
            yield result

    return merge(results()), rows_read


def _finish_first(
    finish: Callable[[Result], Any], folded: tuple[Result, Fingerprint]
) -> tuple[Any, Fingerprint]:
    return finish(folded[0]), folded[1]


def map_source(
    source: Source,
    ids: Any,
    function: Callable[[Block, Array | None], Result],
    merge: Callable[[Iterable[Result]], Result] | None = None,
    executor: Any = None,
    *,
    fingerprint: bool = False,
) -> Iterator[Result]:
    """Yield ``function(block, row ids)`` per block or, on an executor, merged per partition.

    The ids are None if neither the user nor the input supplies any. With `fingerprint`, set
    ``source.rows_read`` at the end.
    """
    known = known_ids(source, ids)
    if executor is None:
        blocks = blocks_of(source, known, fingerprint=fingerprint)
        return map_on_threads(lambda item: function(*item), blocks)
    assert merge is not None
    work = partial(_on_part, function, merge, fingerprint)
    return _map_parts(source, known, work, as_workers(executor))


def _map_parts(source: Source, ids: Array | None, work: Any, workers: Workers) -> Iterator[Any]:
    rows_read = Fingerprint()
    for result, fingerprint in results_in_order(workers, work, cut(source, ids)):
        rows_read += fingerprint
        yield result
    if rows_read.first_row:
        source.rows_read = rows_read


def fold_source(
    source: Source,
    ids: Any,
    function: Callable[[Block, Array | None], Result],
    merge: Callable[[Iterable[Result]], Result],
    finish: Callable[[Result], Any],
    executor: Any = None,
) -> Any:
    """Return ``finish(merge(all results))``, and set ``source.rows_read``.

    On a cluster, only the value of `finish` is sent here.
    """
    if executor is None:
        return finish(merge(map_source(source, ids, function, fingerprint=True)))
    result, source.rows_read = as_workers(executor).fold(
        partial(_on_part, function, merge, True),
        cut(source, known_ids(source, ids)),
        partial(_merge_parts, merge),
        partial(_finish_first, finish),
    )
    return result


def blocks_of(
    source: Source, ids: Array | None = None, *, fingerprint: bool = False
) -> Iterator[tuple[Block, Array | None]]:
    """Yield the blocks of a source with the ids of their rows; see `map_source`."""
    n_rows, sampler = 0, Sampler() if fingerprint else None
    for block in source.blocks():
        start, n_rows = n_rows, n_rows + len(block.rows)
        if ids is not None and len(ids) < n_rows:
            _check_ids_fit(ids, n_rows)
        yield block, None if ids is None else ids[start:n_rows]  # work on it may begin
        if sampler is not None:
            sampler.add(block.start, block.rows, block.labels)
    if sampler is not None:
        source.rows_read = sampler.result()
    if source.n_rows not in (None, n_rows):  # else ids would be misaligned
        raise InputError(
            f"{source.name} must have the {source.n_rows} rows it had when it was opened. "
            f"Got {n_rows}; it has changed since."
        )
    if ids is not None:
        _check_ids_fit(ids, n_rows)


def known_ids(source: Source, ids: Any) -> Array | None:
    """Return the user's ids as numbers, else those stored with the rows, if any."""
    ids = source.ids if ids is None else ids
    if ids is None:
        return None
    n_rows = np.size(ids) if source.n_rows is None else source.n_rows
    return row_ids(ids, n_rows)


def _check_ids_fit(ids: Array, n_rows: int) -> None:
    if len(ids) != n_rows:
        raise InputError(f"'ids' must have one entry per row. Got {len(ids)} for {n_rows} rows.")


def cut(source: Source, ids: Array | None) -> Iterator[Part]:
    """Yield the partitions of a source; without any, chunks of its rows."""
    pieces = source.parts()
    start = number = 0
    for piece in _pieces_of_rows(source) if pieces is None else pieces:
        assert piece.n_rows is not None
        stop = start + piece.n_rows
        if stop > start:
            piece.offset = source.offset + start
            yield Part(piece, None if ids is None else ids[start:stop], number)
            number += 1
        start = stop
    if start == 0:
        raise InputError(f"There must be at least one row. Got none in {source.name}.")
    if ids is not None:
        _check_ids_fit(ids, start)


def _pieces_of_rows(source: Source) -> Iterator[Source]:
    step = max(1, SENT_ELEMENTS // source.n_classes)
    for block in source.blocks():
        for start in range(0, len(block.rows), step):
            piece = ArraySource(block.rows[start : start + step], first_row=block.start + start)
            if block.labels is not None:
                piece.attach_labels(block.labels[start : start + step])
            yield piece
