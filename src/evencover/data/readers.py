"""Readers of arrays, of streams of blocks, of several files, and of Dask arrays and frames."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from evencover.arrays import Array, to_numpy
from evencover.data.columns import USUAL, Contents, Keys
from evencover.data.frames import unpacked
from evencover.data.source import RawBlock, Reader, slices
from evencover.errors import InputError, listed
from evencover.randomness import row_ids
from evencover.topk import TopK
from evencover.validation import list_of_labels, matrix_shape, score_rows


@dataclass(frozen=True, kw_only=True)
class ArrayReader(Reader):
    """Splits an array, a memory map or top-k rows into blocks."""

    rows: Any
    is_open: bool = False  #: whether there may be other classes than those that rows list

    @property
    def is_censored(self) -> bool:
        """Whether rows lack classes."""
        return self.is_listed and not self.rows.is_whole

    def row_blocks(self) -> Iterator[RawBlock]:
        """Split the array."""
        return slices(self.rows)


def read_array(rows: Any, **about: Any) -> ArrayReader:
    """Read rows in memory; `about` are fields of the reader."""
    matrix = score_rows(rows)
    about |= {"is_listed": isinstance(matrix, TopK)}
    return ArrayReader(rows=matrix, n_rows=len(matrix), n_classes=matrix.shape[1], **about)


@dataclass(frozen=True, kw_only=True)
class StreamReader(Reader):
    """Reads an iterable of blocks, such as the batches of a data loader, once."""

    stream: Iterator[Any]
    class_names: Sequence[str] | None
    keys: Keys = USUAL
    ignores_ids: bool = False

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the blocks; split large ones."""
        start, index = 0, list[Array]()
        for item in self.stream:
            block = unpacked(item, self.keys)
            rows = score_rows(block.rows)
            labels = self._labels_of(block, len(rows))
            if block.class_names is not None and self.class_names != block.class_names:
                names = listed(block.class_names, 5)
                raise InputError(f"Blocks must have the same columns. Got {names}.")
            ids = self._ids_of(block, start)
            yield from slices(rows, labels, ids)
            start += len(rows)
            index += [row_ids(ids, len(rows))] if block.ids_are_index and ids is not None else []
        if index and len(np.unique(np.concatenate(index))) < sum(map(len, index)):
            raise InputError(
                "The index of all blocks must be unique to serve as ids. Got a value twice; reset "
                "the index, or put the ids into a column 'id'."
            )

    def without_ids(self) -> StreamReader:
        """Ignore the ids of the blocks."""
        return replace(self, has_ids=False, ignores_ids=True)

    def _labels_of(self, block: Contents, n_rows: int) -> Array | None:
        if not self.keys.read_labels:
            return None
        if (block.labels is not None) != self.has_labels:
            raise InputError("All blocks must come with labels, or none.")
        if block.labels is None:
            return None
        labels = list_of_labels(block.labels)
        if len(labels) != n_rows:
            raise InputError(
                f"'labels' must have one entry per row. Got {len(labels)} labels for {n_rows} rows."
            )
        return labels

    def _ids_of(self, block: Contents, start: int) -> Array | None:
        """Return the ids of a block; all blocks must have some, or none.

        An index that counts the rows, of the block or of all blocks, is not an id.
        """
        if self.ignores_ids:
            return None
        ids = block.ids if self.has_ids else block.known_ids
        if block.ids_are_index and not self.has_ids and ids is not None:
            counts = np.array_equal(ids, np.arange(start, start + len(ids)))
            ids = None if counts else ids
        if (ids is not None) != self.has_ids:
            raise InputError(
                f"All blocks must come with ids, or none. Got {'no' if ids is None else 'another'} "
                f"kind from row {start} on; put ids into a column 'id', or reset a frame's index."
            )
        return ids


def read_stream(blocks: Iterable[Any], keys: Keys = USUAL) -> Contents:
    """Read blocks of rows one by one; the first block shows what all of them contain."""
    stream = iter(blocks)
    item = next(stream, None)
    if item is None:
        return Contents(StreamReader(stream=stream, n_classes=0, n_rows=0, class_names=None))
    first = unpacked(item, keys)
    reader = StreamReader(
        stream=itertools.chain([item], stream),
        n_classes=score_rows(first.rows).shape[1],
        is_listed=isinstance(first.rows, TopK),
        n_rows=None,
        class_names=first.class_names,
        keys=keys,
        has_labels=keys.read_labels and first.labels is not None,
        has_ids=first.known_ids is not None,
    )
    return replace(first, rows=reader, labels=None, ids=None, index=None)


@dataclass(frozen=True, kw_only=True)
class ConcatenatedReader(Reader):
    """Reads several files or chunks with the same classes, one after the other."""

    readers: tuple[Reader, ...]

    @property
    def _starts(self) -> list[int]:
        return list(accumulate((reader.n_rows or 0 for reader in self.readers), initial=0))

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the blocks of each file."""
        return itertools.chain.from_iterable(reader.row_blocks() for reader in self.readers)

    def split(self) -> Sequence[Reader]:
        """Split each file."""
        return [part for reader in self.readers for part in reader.split() or [reader]]

    def row_name(self, row: int) -> str:
        """Describe a row by its file and its index there."""
        starts = self._starts
        which = min(bisect_right(starts, row), len(self.readers)) - 1
        return self.readers[which].row_name(row - starts[which])

    def check_label_files(self, columns: Sequence[tuple[str, int]]) -> None:
        """Check that files of labels, (name, rows) each, match the data files one by one."""
        if isinstance(self.readers[0], DaskChunkReader):
            return
        columns = [column for column in columns if column[1]]  # empty data files are skipped, too
        for reader, (name, n_rows) in zip(self.readers, columns, strict=False):
            if reader.n_rows != n_rows:
                raise InputError(
                    f"Every file of labels must match the data file at its position. Got {n_rows} "
                    f"labels in {name} for {reader.n_rows} rows in {reader.name}."
                )
        if len(columns) != len(self.readers):
            raise InputError(
                "There must be a file of labels for each data file, or one for all. "
                f"Got {len(columns)} files of labels for {len(self.readers)} files of {self.name}."
            )


def concatenated(files: Sequence[Contents], name: str) -> Contents:
    """Concatenate files with the same classes; files without rows are skipped."""
    files = [file for file in files if file.rows.n_rows != 0] or list(files[:1])
    first = files[0]
    for other in files[1:]:
        _reject_mixture(first, other)
    readers = tuple(file.rows for file in files)
    reader = ConcatenatedReader(
        readers=readers,
        n_classes=readers[0].n_classes,
        n_rows=sum(reader.n_rows for reader in readers),
        name=f"'{name}'",
    )
    labels = [file.labels for file in files if file.labels is not None]
    if len({array.dtype.kind in "iu" for array in labels}) > 1:
        raise InputError(f"The labels of all files of '{name}' must be names, or all numbers.")
    ids = [file.known_ids for file in files]
    left_out = {column: why for file in files for column, why in file.columns.left_out.items()}
    guessed = tuple(dict.fromkeys(column for file in files for column in file.columns.guessed))
    return replace(
        first,
        rows=reader,
        labels=np.concatenate(labels) if labels else None,
        ids=None if any(array is None for array in ids) else np.concatenate(ids),  # type: ignore[arg-type]
        ids_are_index=False,
        columns=first.columns._replace(left_out=left_out, guessed=guessed),
        shared={
            name: np.concatenate([file.shared[name] for file in files])
            for name in first.shared
            if all(name in file.shared for file in files)
        },
    )


def _reject_mixture(first: Contents, other: Contents) -> None:
    """Check that two files have the same classes, and that both or neither have labels."""
    names, others = first.class_names or (), other.class_names or ()
    pair = (other, first)
    if other.rows.n_classes != first.rows.n_classes:
        mine, theirs = (f"{file.rows.n_classes} classes" for file in pair)
    elif (other.labels is None) != (first.labels is None):
        mine, theirs = ("no labels" if file.labels is None else "labels" for file in pair)
    elif bool(names) != bool(others):
        mine, theirs = ("class names" if file.class_names else "no class names" for file in pair)
    elif names != others:
        column = next(i for i in range(len(names)) if names[i] != others[i])
        mine, theirs = f"{others[column]!r} as class {column}", f"{names[column]!r}"
    elif other.logits != first.logits:
        mine, theirs = ("logits" if file.logits else "probabilities" for file in pair)
    else:
        return
    raise InputError(
        f"All files must have the same classes, and labels in all or none. "
        f"Got {mine} in {other.rows.name}, and {theirs} in {first.rows.name}."
    )


@dataclass(frozen=True, kw_only=True)
class DaskChunkReader(Reader):
    """Reads one row chunk: a task graph, or its rows once computed on a worker."""

    chunk: Any

    def row_blocks(self) -> Iterator[RawBlock]:
        """Split the chunk."""
        rows = self.chunk
        if hasattr(rows, "compute"):
            rows = rows.compute()
        return slices(to_numpy(rows))

    def identity_of_rows(self) -> tuple[Any, ...]:
        """Identify the rows by their task."""
        return (self.chunk.key,)


def read_dask_array(array: Any) -> ConcatenatedReader:
    """Read the row chunks of an (N, K) array; count the rows first if lengths are unknown."""
    if np.isnan(array.shape).any():
        array = array.compute_chunk_sizes()
    n_rows, n_classes = matrix_shape(array.shape, "the Dask array")
    chunks, lengths = array.rechunk({1: -1}).to_delayed().ravel(), array.chunks[0]
    about: Any = {"n_classes": n_classes, "name": "the Dask array"}
    readers = tuple(
        DaskChunkReader(chunk=chunk, n_rows=int(length), first_row=int(start), **about)
        for chunk, start, length in zip(
            chunks, accumulate((0, *lengths[:-1])), lengths, strict=True
        )
    )
    return ConcatenatedReader(readers=readers, n_rows=n_rows, **about)
