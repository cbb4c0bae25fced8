"""Read what Python holds: frames, dictionaries, outputs of trainers, and iterables of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evencover.arrays import to_numpy
from evencover.classes import checked_names
from evencover.data.arrays import beside
from evencover.data.columns import USUAL, Keys, matrix_key
from evencover.data.entries import of_table
from evencover.data.frames import FrameTable, is_frame
from evencover.data.readers import ArrayReader, RawBlock, Reader, read_array, slices
from evencover.data.source import Contents, Labels
from evencover.errors import InputError, listed


def in_memory(values: Any, keys: Keys = USUAL) -> Contents:
    """Read a frame, a dictionary, a Trainer's output, or rows."""
    if is_frame(values):
        return of_table(FrameTable.of(values), keys)
    if isinstance(values, Mapping):
        owner = "the dictionary"
        key, logits = matrix_key(values, owner, keys)
        reader = read_array(values[key])
        about = beside(values, {key}, keys, owner, values.__getitem__, reader.n_classes)
        return Contents(reader=reader, logits=logits, **about)
    if is_trainer_output(values):
        rows, labels = values.predictions, Labels(to_numpy(values.label_ids, "'labels'"))
        rows = rows[0] if isinstance(rows, tuple | list) else rows  # hidden states follow it
        return Contents(reader=read_array(rows), labels=labels, logits=True)
    names = getattr(values, "class_names", None)  # of top-k rows
    if names is not None:
        names = checked_names(names, len(names), "'class_names' of TopK")
    return Contents(reader=read_array(values), class_names=names)


def unpacked(block: Any, keys: Keys = USUAL) -> Contents:
    """Unpack a block of a stream: rows, or a pair of rows and labels."""
    rows, labels = rows_and_labels(block)
    contents = in_memory(rows, keys)
    if labels is None:
        return contents
    return replace(contents, labels=Labels(to_numpy(labels, "'labels'")))


def is_trainer_output(values: Any) -> bool:
    """Return whether values are the output of Trainer.predict (Hugging Face)."""
    return hasattr(values, "predictions") and hasattr(values, "label_ids")


def rows_and_labels(block: Any) -> tuple[Any, Any]:
    """Separate a block and its labels; a torch DataLoader yields lists, not tuples."""
    is_pair = isinstance(block, tuple | list) and len(block) == 2
    if is_pair and (isinstance(block, tuple) or getattr(block[0], "ndim", 0) == 2):
        return block[0], block[1]
    return block, None


@dataclass(frozen=True, kw_only=True)
class StreamReader(Reader):
    """Reads an iterable of blocks, such as the batches of a data loader, once."""

    stream: Iterator[Any]
    class_names: tuple[str, ...] | None
    keys: Keys = USUAL

    def row_blocks(self) -> Iterator[RawBlock]:
        """Read the blocks; split large ones."""
        start = 0
        for item in self.stream:
            block = unpacked(item, self.keys)
            assert isinstance(block.reader, ArrayReader)
            rows, ids = block.reader.rows, block.ids
            labels = None if block.labels is None or not self.has_labels else block.labels.values
            if block.class_names != self.class_names:
                names = listed(block.class_names or ["no names"], 5)
                raise InputError(f"Blocks must have the same columns. Got {names}.")
            for name, column in (("labels", block.labels), ("ids", ids)):
                if (column is not None) != getattr(self, f"has_{name}") and (
                    name == "ids" or self.keys.read_labels
                ):
                    raise InputError(
                        f"All blocks must come with {name}, or none. Got a change from row {start} "
                        f"on; put the {name} into every block."
                    )
            if labels is not None and labels.shape[:1] != (len(rows),):
                raise InputError(
                    f"'labels' must have one entry per row. Got {labels.size} labels for "
                    f"{len(rows)} rows."
                )
            yield from slices(rows, labels, ids)
            start += len(rows)

    def without_ids(self) -> StreamReader:
        """Ignore the ids of the blocks."""
        return replace(self, has_ids=False, keys=replace(self.keys, read_ids=False))


def read_stream(blocks: Iterable[Any], keys: Keys = USUAL) -> Contents:
    """Read blocks of rows one by one; the first block shows what all of them contain."""
    stream = iter(blocks)
    item = next(stream, None)
    if item is None:
        reader = StreamReader(stream=stream, n_classes=0, n_rows=0, class_names=None)
        return Contents(reader=reader)
    first = unpacked(item, keys)
    reader = StreamReader(
        stream=itertools.chain([item], stream),
        n_classes=first.reader.n_classes,
        is_top_k=first.reader.is_top_k,
        n_rows=None,
        class_names=first.class_names,
        keys=keys,
        has_labels=keys.read_labels and first.labels is not None,
        has_ids=first.ids is not None,
    )
    return replace(first, reader=reader, labels=None, ids=None)
