"""Rows of which only the most probable classes are known: the top k of hosted or huge models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evencover.arrays import Array, IntArray, explained, to_numpy
from evencover.errors import InputError

OWNER = "the top-k rows"  # in messages


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TopK:
    """Class indices and probabilities of the listed classes of each row, as one sparse matrix.

    A class that a row does not list has an unknown probability, at most the smallest one listed.
    evencover therefore never puts it into the row's set, and gives a true label that is not listed
    the score +inf. Every listed class has its exact score, because all classes ahead of it are
    listed, too. The order within a row does not matter. Arrays of int32 and float32 or float64 are
    not copied, so do not change them afterwards.

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
    >>> rows.shape, rows.size
    ((2, 3), 3)
    """

    starts: IntArray  #: (N + 1,) where the entries of each row begin, and the end
    classes: Array  #: (size,) class indices
    values: Array  #: (size,) their probabilities
    n_classes: int
    class_names: tuple[str, ...] | None

    def __init__(
        self,
        classes: Any,
        probabilities: Any,
        n_classes: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        starts, listed = _concatenated(classes, "classes")
        lengths, values = _concatenated(probabilities, "probabilities", starts)
        if starts is not lengths and not np.array_equal(starts, lengths):
            n = min(len(starts), len(lengths))
            row = int(np.append(starts[:n] == lengths[:n], False).argmin()) - 1
            raise InputError(
                "'classes' and 'probabilities' must have the same shape. They differ in row "
                f"{row} of the top-k rows."
            )
        if listed.dtype.kind in "UOT" and len(listed):
            listed = _indices(listed, class_names, starts)
        n_classes = n_classes if class_names is None else len(class_names)
        if n_classes is None:
            raise InputError("'n_classes' of TopK must be the number of classes. Got none.")
        self._set(starts, listed, values, int(n_classes), class_names)

    @classmethod
    def from_csr(
        cls,
        starts: Any,
        classes: Any,
        probabilities: Any,
        n_classes: int,
        class_names: Sequence[str] | None = None,
        *,
        owner: str = OWNER,
    ) -> TopK:
        """Use the three arrays of a compressed sparse row matrix; stored zeros are listed.

        Messages use `owner` for the rows.
        """
        rows = cls.__new__(cls)
        starts, classes, values = (to_numpy(part) for part in (starts, classes, probabilities))
        _check_starts(starts, len(classes), len(values), owner)
        rows._set(starts, classes, values, int(n_classes), class_names, owner)
        return rows

    @classmethod
    def from_sparse(cls, matrix: Any) -> TopK:
        """Use a SciPy sparse matrix or array (N, K); stored zeros are listed."""
        matrix = matrix.tocsr()
        return cls.from_csr(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1])

    def _set(
        self,
        starts: IntArray,
        classes: Array,
        values: Array,
        n_classes: int,
        names: Any,
        owner: str = OWNER,
    ) -> None:
        if classes.dtype.kind not in "iu" and len(classes):
            raise InputError(f"'classes' of TopK must be integers. Got {classes.dtype}.")
        if values.dtype.kind not in "iuf":
            raise InputError(f"'probabilities' of TopK must be numbers. Got {values.dtype}.")
        is_short = classes.dtype == np.int32  # as unsigned integers, negative ones are large
        largest = (classes.view(np.uint32) if is_short else classes).max(initial=0)
        if len(classes) and not (largest < n_classes and (is_short or classes.min() >= 0)):
            bad = int(np.flatnonzero((classes < 0) | (classes >= n_classes))[0])
            raise InputError(
                f"Classes must be indices from 0 to {n_classes - 1}. Got {classes[bad]} in row "
                f"{row_of(starts, bad)} of {owner}."
            )
        explained(n_classes, classes.nbytes, f"The number of classes of {owner}")
        names = None if names is None else tuple(map(str, names))
        if names is not None and len(names) != n_classes:
            raise InputError(f"There must be one name per class. Got {len(names)} of {n_classes}.")
        is_float32 = values.dtype.kind == "f" and values.dtype.itemsize <= 4
        arrays: dict[str, Array] = {
            "starts": np.ascontiguousarray(starts, dtype=np.int64)[:],
            "classes": np.ascontiguousarray(classes, dtype=np.int32)[:],
            "values": np.ascontiguousarray(values, np.float32 if is_float32 else np.float64)[:],
        }
        for array in arrays.values():
            array.setflags(write=False)
        vars(self).update(arrays, n_classes=n_classes, class_names=names)

    def _with(self, starts: IntArray, classes: Array, values: Array) -> TopK:
        """Return other rows of these classes."""
        rows = TopK.__new__(TopK)
        for array in (starts, classes, values):
            array.setflags(write=False)
        vars(rows).update(vars(self), starts=starts, classes=classes, values=values)
        return rows

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
    def size(self) -> int:
        """Number of numbers: the listed classes of all rows."""
        return len(self.values)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: Any) -> Any:
        """Return some of the rows, or the numbers ``[rows, classes]``; a slice shares memory."""
        if isinstance(rows, tuple):
            chosen, classes = np.broadcast_arrays(*rows)
            return self._numbers(chosen.ravel(), classes.ravel()).reshape(chosen.shape)
        if isinstance(rows, slice) and rows.step in (None, 1):
            first, last, _ = rows.indices(len(self))
            starts = self.starts[first : max(first, last) + 1]
            listed = slice(int(starts[0]), int(starts[-1]))
            return self._with(starts - starts[0], self.classes[listed], self.values[listed])
        chosen = np.asarray(rows)
        if chosen.dtype.kind not in "iu" or (chosen < 0).any():
            chosen = np.arange(len(self))[rows]
        chosen = chosen.ravel()
        sizes = self.starts[chosen + 1] - self.starts[chosen]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.repeat(self.starts[chosen] - starts[:-1], sizes)
        entries += np.arange(starts[-1])
        return self._with(starts, self.classes[entries], self.values[entries])

    def _numbers(self, rows: IntArray, classes: Array) -> Array:
        """Return the numbers of classes in rows (n,); 0 if the row does not list the class."""
        distinct, row = np.unique(rows, return_inverse=True)
        if len(distinct) == len(rows):
            some = self[rows]
            return some.pick(some.values, classes, 0)
        some = self[distinct]  # many classes of a row, each of which would compare all it lists
        keys = np.append(some.row_of_entry * self.n_classes + some.classes, -1)
        values = np.append(some.values, some.dtype.type(0))
        order = np.argsort(keys, kind="stable")
        wanted = row * self.n_classes + classes
        entries = order[np.searchsorted(keys, wanted, side="right", sorter=order) - 1]
        return np.where(keys[entries] == wanted, values[entries], values[-1])

    def pick(self, values: Array, classes: IntArray, missing: Any) -> Array:
        """Return the value of one class in each row (N,), of values in the order of the entries.

        It is `missing` where a row does not list its class.
        """
        wanted = np.repeat(classes.astype(np.int32), np.diff(self.starts))
        entries = np.flatnonzero(self.classes == wanted)
        picked = np.full(len(self), missing, dtype=values.dtype)
        picked[np.searchsorted(self.starts, entries, side="right") - 1] = values[entries]
        return picked

    def lists(self, classes: IntArray) -> Array:
        """Return whether each row lists its class of these (N,)."""
        return self.pick(np.ones(self.size, dtype=bool), classes, False)

    def tobytes(self) -> bytes:
        """Return the bytes of the arrays."""
        return self.starts.tobytes() + self.classes.tobytes() + self.values.tobytes()

    def ravel(self) -> Array:
        """Return the numbers of all rows."""
        return self.values

    def argmax(self, axis: int) -> IntArray:
        """Return the most probable class of each row (N,)."""
        assert axis == 1
        if not self.size:
            return np.zeros(len(self), dtype=np.int64)
        return self.classes[self.top_entries()].astype(np.int64)

    def top_entries(self) -> IntArray:
        """Return the most probable entry of each row (N,); any for a row without entries."""
        is_filled, sizes = np.diff(self.starts) > 0, np.diff(self.starts)
        largest = np.maximum.reduceat(self.values, self.starts[:-1][is_filled])
        top = np.flatnonzero(self.values == np.repeat(largest, sizes[is_filled]))
        # The last assignment wins, so of equal entries the first class comes last.
        top = top[np.argsort(-self.classes[top], kind="stable")]
        entries = np.zeros(len(self), dtype=np.int64)
        entries[self.row_of_entry[top]] = top
        return entries

    def every(self, step: int, missing: Any = 0) -> Array:
        """Return the matrix (N, D) of every `step`-th class, `missing` where it is not listed."""
        dense = np.zeros((len(self), -(-self.n_classes // step)), dtype=self.dtype)
        if missing:  # zeros take no time before they are read
            dense.fill(missing)
        chosen = self.classes % step == 0
        dense[self.row_of_entry[chosen], self.classes[chosen] // step] = self.values[chosen]
        return dense

    def to_dense(self, missing: Any = 0) -> Array:
        """Return the matrix (N, K), with `missing` for classes that are not listed."""
        return self.every(1, missing)

    def renumbered(self, new: IntArray, n_classes: int) -> TopK:
        """Give class i the index new[i] among other classes."""
        return TopK.from_csr(self.starts, new[self.classes], self.values, n_classes)

    def with_values(self, values: Array) -> TopK:
        """Return the same rows with other numbers."""
        return self._with(self.starts, self.classes, values)

    @property
    def row_of_entry(self) -> IntArray:
        """The row of each listed class."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def __repr__(self) -> str:
        return f"TopK({len(self):,} rows, {self.size:,} listed of {self.n_classes:,} classes)"


def is_sparse(values: Any) -> bool:
    """Return whether values are a SciPy sparse matrix or array."""
    return type(values).__module__.startswith("scipy.sparse") and hasattr(values, "tocsr")


def concatenate_rows(parts: Sequence[Any]) -> Any:
    """Concatenate matrices of rows, or top-k rows of the same classes; a single part as it is."""
    if len(parts) == 1:
        return parts[0]
    if not isinstance(parts[0], TopK):
        return np.concatenate(parts)
    sizes = np.concatenate([np.diff(part.starts) for part in parts])
    classes = np.concatenate([part.classes for part in parts])
    values = np.concatenate([part.values for part in parts])
    return parts[0]._with(np.append(0, np.cumsum(sizes)), classes, values)


def label_values(rows: Any, labels: IntArray) -> Array:
    """Return each row's number for its label (n,); 0 for a label that is not listed."""
    if isinstance(rows, TopK):  # without a copy of the rows, as `__getitem__` makes
        return rows.pick(rows.values, labels, 0)
    values: Array = rows[np.arange(len(rows)), labels]
    return values


def numbers_per_row(rows: Any) -> int:
    """Return how many numbers a row has: K or, of top-k rows, the mean."""
    return rows.size // len(rows) if isinstance(rows, TopK) and len(rows) else rows.shape[1]


def smallest_k(rows: Any) -> int | None:
    """Return the fewest classes that a row lists; None if all rows list all classes."""
    if not isinstance(rows, TopK) or not len(rows):
        return None
    k = int(np.diff(rows.starts).min())
    return None if k == rows.n_classes else k


def fewer(first: int | None, second: int | None) -> int | None:
    """Return the smaller number of listed classes; None stands for all."""
    return second if first is None else first if second is None else min(first, second)


def most_numbers_per_row(rows: Any) -> int:
    """Return how many numbers the longest row has: K or, of top-k rows, at most that."""
    return int(np.diff(rows.starts).max(initial=0)) if isinstance(rows, TopK) else rows.shape[1]


def _concatenated(rows: Any, name: str, starts: IntArray | None = None) -> tuple[IntArray, Array]:
    """Concatenate rows; return where each begins, too: these `starts` if they are the same."""
    if isinstance(rows, list | tuple):
        for row, part in enumerate(rows):
            if not hasattr(part, "__len__") or (isinstance(part, list) and None in part):
                raise InputError(
                    f"'{name}' must be a list without gaps in every row. Got {part!r} in row {row}."
                )
        sizes = [len(row) for row in rows]
        if len(set(sizes)) > 1 or not any(sizes):
            filled = [to_numpy(row) for row in rows if len(row)] or [np.zeros(0, np.int64)]
            return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]), np.concatenate(filled)
    matrix = to_numpy(rows)
    if matrix.ndim != 2:
        raise InputError(f"'{name}' of TopK must have one row per example. Got {matrix.ndim}-D.")
    n_rows, k = matrix.shape
    if (
        starts is None
        or len(starts) != n_rows + 1
        or starts[-1] != n_rows * k
        or (n_rows and starts[1] != k)
    ):
        starts = np.arange(0, n_rows * k + 1, k) if k else np.zeros(n_rows + 1, dtype=np.int64)
    return starts, matrix.ravel()


def _indices(names: Array, class_names: Sequence[str] | None, starts: IntArray) -> IntArray:
    if class_names is None:
        raise InputError("'class_names' of TopK must be given for classes by name. Got none.")
    index = {str(name): k for k, name in enumerate(class_names)}
    listed = [index.get(str(name), -1) for name in names.tolist()]
    if -1 in listed:
        bad = listed.index(-1)
        raise InputError(
            f"Classes must be among the {len(index)} class names. Got {str(names[bad])!r} in row "
            f"{row_of(starts, bad)} of the top-k rows."
        )
    return np.array(listed, dtype=np.int64)


def _check_starts(starts: IntArray, n_classes: int, n_values: int, owner: str) -> None:
    """Check where rows begin among this many classes and probabilities."""
    if starts.ndim != 1 or not len(starts) or starts.dtype.kind not in "iu" or starts[0] != 0:
        raise InputError("'starts' of TopK must be integers from 0 on, one per row and the end.")
    falls = np.flatnonzero(starts[1:] < starts[:-1])
    if len(falls):
        row = int(falls[0])
        raise InputError(
            "'starts' of TopK must not decrease. Got "
            f"{starts[row]} and then {starts[row + 1]} in row {row} of {owner}."
        )
    if not n_classes == n_values == starts[-1]:
        row = row_of(starts, min(n_classes, n_values))
        is_row = row < len(starts) - 1
        reach = f"; row {row} of {owner} reaches beyond these" if is_row else ""
        raise InputError(
            "'classes' and 'probabilities' of TopK must have as many entries as all rows. Got "
            f"{n_classes} classes and {n_values} probabilities for {starts[-1]} entries{reach}."
        )


def row_of(starts: Any, entry: int) -> int:
    """Return the row that an entry belongs to, of rows that begin at `starts`."""
    return int(np.searchsorted(starts, entry, side="right")) - 1
