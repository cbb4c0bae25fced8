"""How columns of row blocks, and of parts of the input, become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from evencover.arrays import Array
from evencover.data.fingerprint import Fingerprint
from evencover.data.source import ArraySource, Block, Source
from evencover.engine.dask import DaskWorkers
from evencover.engine.executors import Workers, results_in_order
from evencover.errors import InputError
from evencover.randomness import row_ids
from evencover.threads import map_on_threads
from evencover.threads import n_threads as n_threads
from evencover.threads import single_threaded as single_threaded


def joined(parts: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Scores, labels and what else there is of consecutive rows."""
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def gathered(parts: Iterable[tuple[Array, ...]], n_rows: int | None) -> tuple[Array, ...]:
    """`joined`, but each part is put in its place when it comes, if the number of rows is known."""
    if n_rows is None:
        return joined(parts)
    columns: tuple[Array, ...] = ()
    start = 0
    for part in parts:
        columns = columns or tuple(np.empty(n_rows, dtype=values.dtype) for values in part)
        stop = start + len(part[0])
        for column, values in zip(columns, part, strict=True):
            column[start:stop] = values[: n_rows - start]  # whoever reads too many says so at last
        start = min(stop, n_rows)
    return columns


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


# About 4 MB of float32, where rows travel with a task: dask warns of more than 10 MB.
SENT_ELEMENTS = 1 << 20

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_blocks(function: Callable[[Item], Result], blocks: Iterable[Item]) -> Iterator[Result]:
    """Yield ``function(block)`` in the order of the blocks, on this process's threads.

    The kernels release the interpreter lock, so threads run side by side; at most two blocks
    per thread are under way, so memory does not grow with the input.
    """
    return map_on_threads(function, blocks)


@contextmanager
def workers_of(executor: Any) -> Iterator[Workers]:
    """The executor's workers; this process's threads if there is none."""
    if executor is not None:
        yield as_workers(executor)
        return
    with ThreadPoolExecutor(n_threads()) as pool:
        yield Workers(pool)


class Part(NamedTuple):
    """Consecutive rows of the input, as they are sent to a worker.

    Its ``source`` knows the number of its first row in the whole input; ``ids`` are the rows' ids,
    if the user gave any; ``number`` counts the parts.
    """

    source: Source
    ids: Array | None = None
    number: int = 0

    @property
    def start(self) -> int:
        """The number of the first row in the whole input."""
        return self.source.offset

    def blocks(self) -> Iterator[tuple[Block, Array | None]]:
        """Blocks, and the ids of their rows."""
        n_rows, stop = self.source.n_rows, self.start
        for block in self.source.blocks():
            stop = block.start + len(block.rows)
            if self.ids is None:
                yield block, None
                continue
            ids = self.ids[block.start - self.start : stop - self.start]
            if len(ids) != len(block.rows):
                raise InputError(f"'ids' must have one entry per row. Got only {len(self.ids)}.")
            yield block, ids
        if n_rows is not None and stop - self.start != n_rows:  # other rows would get its ids
            raise InputError(
                f"{self.source.name} must have the {n_rows} rows it had when it was opened. "
                f"Got {stop - self.start}; it was changed meanwhile."
            )


@dataclass(frozen=True)
class Work:
    """What is done with a part: a function of each block and its ids, then one merge of all."""

    function: Callable[[Block, Array | None], Any]
    merge: Callable[[Iterable[Any]], Any]

    def __call__(self, part: Part) -> tuple[Any, Fingerprint]:
        """The part's result, made on one thread, and what tells its rows from others."""
        with single_threaded():
            result = self.merge(self.function(block, ids) for block, ids in part.blocks())
        assert part.source.rows_read is not None
        return result, part.source.rows_read

    def merge_parts(self, parts: Iterable[tuple[Any, Fingerprint]]) -> tuple[Any, Fingerprint]:
        """One result from those of consecutive parts."""
        rows_read = Fingerprint()

        def results() -> Iterator[Any]:
            nonlocal rows_read
            for result, fingerprint in parts:
                rows_read += fingerprint
                yield result

        return self.merge(results()), rows_read


def map_source(
    source: Source,
    ids: Any,
    function: Callable[[Block, Array | None], Result],
    merge: Callable[[Iterable[Result]], Result] | None = None,
    executor: Any = None,
) -> Iterator[Result]:
    """Yield ``function(block, row ids)`` of each block or, on an executor, merged for each part.

    The ids are None if the user gave none and none came with the rows.
    """
    known = known_ids(source, ids)
    if executor is None:
        return map_blocks(lambda item: function(*item), blocks_of(source, known))
    assert merge is not None
    return _map_parts(source, known, Work(function, merge), as_workers(executor))


def _map_parts(source: Source, ids: Array | None, work: Work, workers: Workers) -> Iterator[Any]:
    rows_read = Fingerprint()
    for result, fingerprint in results_in_order(workers, work, cut(source, ids)):
        rows_read += fingerprint
        yield result
    source.rows_read = rows_read


def fold_source(
    source: Source,
    ids: Any,
    function: Callable[[Block, Array | None], Result],
    merge: Callable[[Iterable[Result]], Result],
    finish: Callable[[Result], Any],
    executor: Any = None,
) -> Any:
    """``finish(merge(all results))``; on a cluster, all but its value stays on the workers."""
    if executor is None:
        return finish(merge(map_source(source, ids, function)))
    workers, work = as_workers(executor), Work(function, merge)
    parts = cut(source, known_ids(source, ids))
    last = partial(_finish_first, finish)
    result, source.rows_read = workers.fold(work, parts, work.merge_parts, last)
    return result


def _finish_first(
    finish: Callable[[Result], Any], folded: tuple[Result, Fingerprint]
) -> tuple[Any, Fingerprint]:
    return finish(folded[0]), folded[1]


def blocks_of(source: Source, ids: Array | None = None) -> Iterator[tuple[Block, Array | None]]:
    """The blocks of the whole input, and the ids of their rows."""
    stop = 0
    for block, block_ids in Part(source, ids).blocks():
        stop = block.start + len(block.rows)
        yield block, block_ids
    _check_ids_fit(ids, stop)


def known_ids(source: Source, ids: Any) -> Array | None:
    """The user's ids as numbers, else those found with the rows; None if there are none."""
    ids = source.ids if ids is None else ids
    if ids is None:
        return None
    n_rows = np.size(ids) if source.n_rows is None else source.n_rows
    return row_ids(ids, n_rows)


def _check_ids_fit(ids: Array | None, n_rows: int) -> None:
    if ids is not None and len(ids) != n_rows:
        raise InputError(
            f"'ids' must have one entry per row. Got {len(ids)} ids for {n_rows} rows."
        )


def cut(source: Source, ids: Array | None) -> Iterator[Part]:
    """The parts of a source; where it has none, its rows themselves are sent, some at a time."""
    pieces: Iterable[Source] | None = source.parts()
    if pieces is None:
        pieces = _pieces_of_rows(source)
    start = number = 0
    for piece in pieces:
        assert piece.n_rows is not None
        stop = start + piece.n_rows
        if stop > start:
            piece.offset = source.offset + start
            yield Part(_with_absolute_path(piece), None if ids is None else ids[start:stop], number)
            number += 1
        start = stop
    if start == 0:
        raise InputError(f"There must be at least one row. Got none in {source.name}.")
    _check_ids_fit(ids, start)


def _with_absolute_path(piece: Source) -> Source:
    """Workers may run in another folder: a relative path would mean another file."""
    location = getattr(piece, "location", None)
    if isinstance(location, Path):
        piece.location = location.absolute()  # type: ignore[attr-defined]
    return piece


def _pieces_of_rows(source: Source) -> Iterator[Source]:
    step = max(1, SENT_ELEMENTS // source.n_classes)
    for block in source.blocks():
        for start in range(0, len(block.rows), step):
            piece = ArraySource(block.rows[start : start + step])
            piece.first_row = block.start + start
            if block.labels is not None:
                piece.attach_labels(block.labels[start : start + step])
            yield piece
