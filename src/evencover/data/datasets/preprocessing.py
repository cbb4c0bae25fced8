"""The paper's preprocessing of iNaturalist: leave out the classes that have too few examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from evencover._validation import (
    Array,
    InputError,
    IntArray,
    is_near_one,
    raise_bad_row,
    whole_number,
)
from evencover.data.opening import as_source
from evencover.data.source import IterableSource, Source


def drop_rare_classes(
    probabilities: Any, labels: Any = None, *, min_count: int = 250
) -> CommonClasses:
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
    CommonClasses
        A `Source` of the remaining rows; ``kept_classes`` has the old number of each class.

    Examples
    --------
    >>> rows = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]
    >>> source = drop_rare_classes(rows, [0, 2, 1, 0], min_count=2)
    Traceback (most recent call last):
    ...
    evencover.errors.InputError: At least 2 classes must have 2 examples or more. Got 1 ...
    >>> source = drop_rare_classes(rows, [0, 2, 2, 0], min_count=2)
    >>> source.kept_classes.tolist()
    [0, 2]
    >>> next(source.blocks()).rows.round(2).tolist()
    [[0.67, 0.33], [0.5, 0.5], [0.33, 0.67], [0.67, 0.33]]
    """
    whole_number(min_count, "min_count", "drop_rare_classes", 1)
    return CommonClasses(as_source(probabilities, labels), min_count)


class CommonClasses(Source):
    """The rows and columns of the classes that have enough examples.

    Attributes
    ----------
    kept_classes
        (K,) the number that each class had before.
    """

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
            self.class_names = [source.class_names[int(index)] for index in self.kept_classes]

    def row_blocks(self) -> Iterator[tuple[Array, Array]]:
        """What remains of each block."""
        for block in self._source.blocks():
            assert block.labels is not None
            labels = self._new_number[block.labels]
            kept_rows = np.flatnonzero(labels >= 0)
            if len(kept_rows) == 0:
                continue
            rows = block.rows[kept_rows]
            if self.logits:
                yield rows[:, self.kept_classes], labels[kept_rows]
                continue
            # Dividing would hide what is wrong with a row, so the rows are checked before.
            is_near = is_near_one(np.abs(rows.sum(axis=1, dtype=np.float64) - 1), rows)
            wrong = ~(is_near & (rows.min(axis=1) >= 0))
            if wrong.any():
                first = int(wrong.argmax())
                raise_bad_row(rows[first], block.start + int(kept_rows[first]), logits=False)
            kept = rows[:, self.kept_classes]
            total = kept.sum(axis=1, keepdims=True, dtype=np.float64)
            if not total.all():
                row = block.start + kept_rows[total.argmin()]
                raise InputError(
                    "The remaining classes must have some probability in every row. They have "
                    f"none in row {row}; leave that row out, or use a smaller 'min_count'."
                )
            yield (kept / total).astype(rows.dtype), labels[kept_rows]
