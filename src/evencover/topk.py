"""Rows of which only the most probable classes are known: the top k of hosted or huge models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.errors import InputError


class TopK:
    """Class indices and probabilities of the listed classes of each row, as one sparse matrix.

    A class that a row does not list has an unknown probability, at most the smallest one listed.
    evencover therefore never puts it into the row's set, and gives a true label that is not listed
    the score +inf. Every listed class has its exact score, because all classes ahead of it are
    listed, too. The order within a row does not matter.

    Parameters
    ----------
    classes
        (N, k) class indices, or names if `class_names` are given; rows of different lengths may be
        a list of lists.
    probabilities
        Their probabilities, in the same shape. The sum of a row is at most 1.
    n_classes
        Number of classes K, unless `class_names` are given.
    class_names
        One name per class.

    >>> names = ["ant", "cat", "dog"]
    >>> rows = TopK([["cat", "dog"], ["ant"]], [[0.7, 0.2], [0.9]], class_names=names)
    >>> rows.shape, rows.n_listed
    ((2, 3), 3)
    """

    def __init__(
        self,
        classes: Any,
        probabilities: Any,
        n_classes: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        starts, listed = _flat(classes, "classes")
        lengths, values = _flat(probabilities, "probabilities")
        if not np.array_equal(starts, lengths):
            row = _first_difference(starts, lengths)
            raise InputError(
                "'classes' and 'probabilities' must have the same shape. They differ in row "
                f"{row} of the top-k rows."
            )
        names = None if class_names is None else [str(name) for name in class_names]
        if listed.dtype.kind in "UOT":
            listed = _indices(listed, names, starts)
        if names is not None:
            n_classes = len(names)
        if n_classes is None:
            raise InputError("'n_classes' of TopK must be the number of classes. Got none.")
        self._set(starts, listed, values, int(n_classes), names)

    @classmethod
    def from_csr(
        cls,
        starts: Any,
        classes: Any,
        probabilities: Any,
        n_classes: int,
        class_names: Sequence[str] | None = None,
    ) -> TopK:
        """Wrap the three arrays of a compressed sparse row matrix; stored zeros are listed."""
        rows = cls.__new__(cls)
        names = None if class_names is None else [str(name) for name in class_names]
        starts, classes, values = (to_numpy(part) for part in (starts, classes, probabilities))
        rows._set(starts.astype(np.int64), classes, values, int(n_classes), names)
        return rows

    @classmethod
    def from_sparse(cls, matrix: Any) -> TopK:
        """Read a SciPy sparse matrix or array (N, K)."""
        matrix = matrix.tocsr()
        if not matrix.has_canonical_format:
            unique = matrix.copy()
            unique.sum_duplicates()
            if unique.nnz != matrix.nnz:
                raise InputError("A sparse row must list each class once. Got a class twice.")
        return cls.from_csr(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])

    def _set(
        self, starts: IntArray, classes: Array, values: Array, n_classes: int, names: Any
    ) -> None:
        if classes.dtype.kind not in "iu":
            raise InputError(f"'classes' of TopK must be integers. Got {classes.dtype}.")
        if values.dtype.kind not in "iuf":
            raise InputError(f"'probabilities' of TopK must be numbers. Got {values.dtype}.")
        if len(starts) and (starts[-1] != len(classes) or len(classes) != len(values)):
            raise InputError("'classes' and 'probabilities' of TopK must have the same length.")
        if len(classes) and not 0 <= classes.min() <= classes.max() < n_classes:
            bad = int(np.flatnonzero((classes < 0) | (classes >= n_classes))[0])
            raise InputError(
                f"Classes must be indices from 0 to {n_classes - 1}. Got {classes[bad]} in row "
                f"{_row_of(starts, bad)} of the top-k rows."
            )
        is_float = values.dtype in (np.float32, np.float64)
        values = (
            values if is_float else values.astype(np.float32 if values.dtype.kind == "f" else float)
        )
        order = _order_within(starts, classes)
        if order is not None:
            classes, values = classes[order], values[order]
        inside = np.ones(len(classes), dtype=bool)
        inside[starts[:-1][starts[:-1] < len(classes)]] = False  # the first of each row
        repeated = np.flatnonzero(inside & (np.diff(classes, prepend=-1) == 0))
        if len(repeated):
            raise InputError(
                f"A row must list each class once. Got class {classes[repeated[0]]} twice in row "
                f"{_row_of(starts, int(repeated[0]))} of the top-k rows."
            )
        self.starts, self.n_classes, self.class_names = starts, n_classes, names
        self.classes = np.ascontiguousarray(classes, dtype=np.int32)
        self.values = np.ascontiguousarray(values)

    # ---- as an array of shape (N, K) -------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of classes."""
        return len(self.starts) - 1, self.n_classes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the probabilities."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """2, as of every matrix of rows."""
        return 2

    @property
    def size(self) -> int:
        """Number of numbers: the listed classes of all rows."""
        return len(self.values)

    n_listed = size

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: Any) -> TopK:
        """Return some of the rows; a slice shares memory."""
        part = TopK.__new__(TopK)
        part.n_classes, part.class_names = self.n_classes, self.class_names
        if isinstance(rows, slice) and rows.step in (None, 1):
            first, last, _ = rows.indices(len(self))
            starts = self.starts[first : max(first, last) + 1]
            listed = slice(int(starts[0]), int(starts[-1]))
            part.starts, part.classes = starts - starts[0], self.classes[listed]
            part.values = self.values[listed]
            return part
        chosen = np.arange(len(self))[rows].ravel()
        sizes = np.diff(self.starts)[chosen]
        part.starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.arange(part.starts[-1]) + np.repeat(
            self.starts[chosen] - part.starts[:-1], sizes
        )
        part.classes, part.values = self.classes[entries], self.values[entries]
        return part

    def with_columns(self, order: IntArray, class_names: Sequence[str]) -> TopK:
        """Rename the classes: class `order[i]` becomes class i."""
        new = np.empty(self.n_classes, dtype=np.int64)
        new[order] = np.arange(len(order))
        return TopK.from_csr(self.starts, new[self.classes], self.values, len(order), class_names)

    def to_dense(self) -> Array:
        """Return the matrix (N, K), with 0 for classes that are not listed."""
        dense = np.zeros(self.shape, dtype=self.dtype)
        dense[self.row_of_entry, self.classes] = self.values
        return dense

    @property
    def row_of_entry(self) -> IntArray:
        """The row of each listed class."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def __repr__(self) -> str:
        return f"TopK({len(self):,} rows, {self.size:,} listed of {self.n_classes:,} classes)"


def is_sparse(values: Any) -> bool:
    """Return whether values are a SciPy sparse matrix or array."""
    return type(values).__module__.startswith("scipy.sparse") and hasattr(values, "tocsr")


def _flat(rows: Any, name: str) -> tuple[IntArray, Array]:
    """Concatenate rows; return where each begins, too."""
    if isinstance(rows, list | tuple) and len({len(row) for row in rows}) > 1:
        parts = [to_numpy(row) for row in rows]
        filled = [part for part in parts if len(part)]
        sizes = [len(part) for part in parts]
        return np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(filled)
    matrix = to_numpy(rows)
    if matrix.ndim != 2:
        raise InputError(f"'{name}' of TopK must have one row per example. Got {matrix.ndim}-D.")
    n_rows, k = matrix.shape
    return np.arange(n_rows + 1) * k, matrix.ravel()


def _indices(names: Array, class_names: Sequence[str] | None, starts: IntArray) -> IntArray:
    if class_names is None:
        raise InputError("'class_names' of TopK must be given for classes by name. Got none.")
    index = {name: place for place, name in enumerate(class_names)}
    listed = [index.get(str(name), -1) for name in names.tolist()]
    if -1 in listed:
        bad = listed.index(-1)
        raise InputError(
            f"Classes must be among the {len(index)} class names. Got {str(names[bad])!r} in row "
            f"{_row_of(starts, bad)} of the top-k rows."
        )
    return np.array(listed, dtype=np.int64)


def _order_within(starts: IntArray, classes: Array) -> IntArray | None:
    """Order that sorts the classes of each row; None if they are sorted."""
    decreases = np.flatnonzero(np.diff(classes.astype(np.int64)) < 0) + 1
    if np.isin(decreases, starts).all():
        return None
    row_of_entry = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return np.lexsort((classes, row_of_entry))


def _row_of(starts: IntArray, entry: int) -> int:
    return int(np.searchsorted(starts, entry, side="right")) - 1


def _first_difference(starts: IntArray, others: IntArray) -> int:
    n = min(len(starts), len(others))
    differs = np.flatnonzero(np.diff(starts[:n]) != np.diff(others[:n]))
    return int(differs[0]) if len(differs) else n - 1
