"""The paper's preprocessing of iNaturalist: leave out the classes that have too few examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from evencover._validation import Array, InputError, IntArray, raise_bad_row, whole_number
from evencover.data.source import Block, IterableSource, Source, as_source


def drop_rare_classes(probabilities: Any, labels: Any = None, *, min_count: int = 250) -> Source:
    """Leave out classes with fewer than `min_count` examples, as if the model never knew them.

    Rows of these classes are dropped, the probabilities of the others are divided by their sum
    (logits need no division), and the remaining classes are numbered anew in the same order.

    Parameters
    ----------
    probabilities
        An (N, K) array-like, the path of a file or a `Source`. Its labels are read now, its rows
        in blocks whenever the result is read.
    labels
        (N,) class indices; may come with the file.
    min_count
        The fewest examples a class may have; 250 in Ding et al. (2023).

    Returns
    -------
    Source
        The remaining rows; ``kept_classes`` has the old number of each remaining class.

    Examples
    --------
    >>> rows = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]
    >>> source = drop_rare_classes(rows, [0, 2, 1, 0], min_count=2)
    Traceback (most recent call last):
    ...
    evencover._validation.InputError: At least 2 classes must have 2 examples or more. Got 1 ...
    >>> source = drop_rare_classes(rows, [0, 2, 2, 0], min_count=2)
    >>> source.kept_classes.tolist()
    [0, 2]
    >>> next(source.blocks()).rows.round(2).tolist()
    [[0.67, 0.33], [0.5, 0.5], [0.33, 0.67], [0.67, 0.33]]
    """
    whole_number(min_count, "min_count", "drop_rare_classes", 1)
    return _CommonClasses(as_source(probabilities, labels), min_count)


class _CommonClasses(Source):
    """The rows and columns of the classes that have enough examples."""

    has_labels = True

    def __init__(self, source: Source, min_count: int) -> None:
        if isinstance(source, IterableSource):
            raise InputError(
                "The rows are read twice. Got an iterator, which can be read once; "
                "pass an array or the path of a file."
            )
        if not source.has_labels:
            raise InputError(f"Labels are needed. Got none with {source.name}; pass 'labels'.")
        self._source = source
        counts = np.zeros(source.n_classes, dtype=np.int64)
        for block in source.blocks():
            assert block.labels is not None
            counts += np.bincount(block.labels, minlength=source.n_classes)
        is_kept = counts >= min_count
        self.kept_classes: IntArray = np.flatnonzero(is_kept)
        self.n_classes = len(self.kept_classes)
        if self.n_classes < 2:
            raise InputError(
                f"At least 2 classes must have {min_count} examples or more. Got {self.n_classes} "
                f"of {source.n_classes}; use a smaller 'min_count'."
            )
        self._new_number = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
        self.n_rows = int(counts[is_kept].sum())
        self.name, self.logits = source.name, source.logits
        if source.class_names is not None:
            self.class_names = [source.class_names[int(place)] for place in self.kept_classes]

    def row_blocks(self) -> Iterator[tuple[Array, Array]]:
        """What remains of each block."""
        for block in self._source.blocks():
            assert block.labels is not None
            labels = self._new_number[block.labels]
            places = np.flatnonzero(labels >= 0)
            if len(places) == 0:
                continue
            rows = block.rows[places][:, self.kept_classes]
            if not self.logits:
                total = rows.sum(axis=1, keepdims=True, dtype=np.float64)
                wrong = ~((total[:, 0] > 0) & np.isfinite(total[:, 0]))
                if wrong.any():
                    _refuse(block, int(places[wrong.argmax()]))
                rows = (rows / total).astype(block.rows.dtype)
            yield rows, labels[places]


def _refuse(block: Block, place: int) -> NoReturn:
    """Say why a row cannot be divided by its sum."""
    row, index = block.rows[place], block.start + place
    if np.isfinite(row).all() and row.sum() > 0:
        raise InputError(
            "The probabilities of the remaining classes are divided by their sum. Row "
            f"{index} gives them none at all; use a smaller 'min_count', or leave it out."
        )
    raise_bad_row(row, index, logits=False)
