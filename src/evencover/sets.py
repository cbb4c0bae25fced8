"""PredictionSets: the sets of all rows as class indices in CSR layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from evencover.answers import REVIEW, Answers
from evencover.arrays import Array, IntArray, data_frame, to_numpy
from evencover.classes import Classes
from evencover.errors import InputError
from evencover.templates import Card, Shown
from evencover.validation import whole_number


@dataclass(frozen=True, eq=False)
class PredictionSets(Shown):
    """One set of classes per row.

    Row i contains the classes ``indices[indptr[i]:indptr[i + 1]]``. Predictors list classes by
    decreasing probability, ties by class index.

    Parameters
    ----------
    indptr
        (N + 1,) boundaries of each row's classes in `indices`.
    indices
        Class indices of all rows, concatenated.
    n_classes
        The number of classes K.
    class_names
        One name per class, optional.
    index
        (N,) row labels in `to_pandas`, optional.

    >>> sets = PredictionSets.from_mask([[True, False, True], [False, False, False]])
    >>> len(sets), sets.sizes.tolist(), sets[0].tolist(), sets.to_lists()
    (2, [2, 0], [0, 2], [[0, 2], []])
    """

    indptr: IntArray
    indices: Array
    n_classes: int
    class_names: Sequence[str] | None = None
    index: Any = None
    _accepted: Array | None = None  # None: the sets with one class, which is the most probable
    _answers: Answers | None = None  # None without fitted cutoffs

    def __post_init__(self) -> None:
        indptr, indices = np.asarray(self.indptr), np.asarray(self.indices)
        if (
            indptr.ndim != 1
            or len(indptr) == 0
            or indptr[0] != 0
            or indptr[-1] != len(indices)
            or (np.diff(indptr) < 0).any()
        ):
            raise InputError("'indptr' must rise from 0 to the number of indices.")
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.n_classes):
            raise InputError(f"'indices' must be class indices from 0 to {self.n_classes - 1}.")

    @classmethod
    def from_sizes(
        cls,
        sizes: IntArray,
        indices: Array,
        n_classes: int,
        names: Sequence[str] | None = None,
        accepted: Array | None = None,
    ) -> PredictionSets:
        """Make sets from the number of classes in each row, without checks."""
        indptr = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=indptr[1:])
        return cls.from_csr(indptr, indices, n_classes, names, accepted)

    @classmethod
    def from_csr(
        cls,
        indptr: IntArray,
        indices: Array,
        n_classes: int,
        names: Sequence[str] | None = None,
        accepted: Array | None = None,
    ) -> PredictionSets:
        """Make sets from row boundaries, without checks."""
        sets = object.__new__(cls)
        sets.__dict__.update(indptr=indptr, indices=indices, n_classes=n_classes, class_names=names)
        if accepted is not None:
            sets.__dict__["_accepted"] = accepted
        return sets

    @classmethod
    def from_mask(cls, mask: Any, class_names: Sequence[str] | None = None) -> PredictionSets:
        """Make sets from an (N, K) boolean matrix."""
        mask = to_numpy(mask)
        if mask.ndim != 2 or mask.dtype != bool:
            raise InputError(
                "'mask' must be a boolean matrix (rows by classes). "
                f"Got type {mask.dtype} and shape {mask.shape} instead."
            )
        indices = np.nonzero(mask)[1].astype(np.int32)
        return cls.from_sizes(mask.sum(axis=1), indices, mask.shape[1], class_names)

    @classmethod
    def concatenate(
        cls, parts: Iterable[PredictionSets], n_rows: int | None = None
    ) -> PredictionSets:
        """Concatenate the rows of all parts, which are not kept if `n_rows` of all is known."""
        if n_rows is None:
            parts = list(parts)
            n_rows = sum(map(len, parts))
        starts, indices = np.zeros(n_rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
        row, with_accepted, whole = 0, [], None
        answers: list[Answers] = []
        for part in parts:
            if len(part) == n_rows:
                whole = part
                continue
            begin, stop = int(starts[row]), row + len(part)
            np.add(part.indptr[1:], begin, out=starts[row + 1 : stop + 1])
            end = begin + len(part.indices)
            if end > len(indices):
                # Room for all rows with sets as large as so far; the first may be the largest.
                enough = end + end * (n_rows - stop) * 17 // (16 * stop)
                room = np.empty(min(enough, 16 * end), dtype=np.int32)
                room[:begin] = indices[:begin]
                indices = room
            indices[begin:end] = part.indices
            if part._accepted is not None:
                with_accepted.append((slice(row, stop), part._accepted))
            if part._answers is not None:
                answers.append(part._answers)
            row = stop
        if whole is not None:
            return whole
        sets = cls.from_csr(starts, indices[: starts[row]], part.n_classes, part.class_names)
        if with_accepted:
            sets.__dict__["_accepted"] = accepted = sets.sizes == 1
            for rows, own in with_accepted:
                accepted[rows] = own
        if answers and sum(map(len, answers)) == row:
            return sets.with_answers(Answers.concatenate(answers))
        return sets

    def with_answers(self, answers: Answers) -> PredictionSets:
        """Return the sets with the answer to each row."""
        sets = object.__new__(PredictionSets)
        sets.__dict__.update(self.__dict__, _answers=answers)
        return sets

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: Any) -> Any:
        """Return the classes of one row (an array), or the sets of several (PredictionSets)."""
        if isinstance(row, int | np.integer):
            if not -len(self) <= row < len(self):
                raise IndexError(f"row {row} of {len(self)}")
            row = int(row) % len(self)
            return self.indices[self.indptr[row] : self.indptr[row + 1]]
        rows = np.arange(len(self))[row]
        sizes = self.sizes[rows]
        if isinstance(row, slice) and row.step in (None, 1) and len(rows):
            picked = self.indices[self.indptr[rows[0]] : self.indptr[rows[-1] + 1]]
        else:
            starts = np.repeat(self.indptr[rows] - np.cumsum(sizes) + sizes, sizes)
            picked = self.indices[starts + np.arange(sizes.sum())]
        accepted = None if self._accepted is None else self._accepted[rows]
        sets = PredictionSets.from_sizes(sizes, picked, self.n_classes, self.class_names, accepted)
        if self._answers is not None:
            sets = sets.with_answers(self._answers[rows])
        return sets if self.index is None else replace(sets, index=self.index[rows])

    def __iter__(self) -> Iterator[Array]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PredictionSets):
            return NotImplemented
        return (
            self.n_classes == other.n_classes
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self._ascending(), other._ascending())
        )

    def _ascending(self) -> Array:
        """Return `indices` with each row's classes in ascending order."""
        rows = np.repeat(np.arange(len(self)), self.sizes)
        return self.indices[np.lexsort((self.indices, rows))]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = self.sizes
        mean = sizes.mean() if len(self) else 0.0
        return (
            f"PredictionSets({len(self)} rows, {self.n_classes} classes, average size {mean:.2f}, "
            f"{int((sizes == 0).sum())} empty)"
        )

    def _card(self) -> Card:
        first = self[:5]
        lists = first.to_lists(names=self.class_names is not None)
        index = range(len(first)) if first.index is None else first.index
        rows = [
            (row, ", ".join(map(str, members)), "yes" if is_accepted else "no")
            for row, members, is_accepted in zip(index, lists, first.accepted, strict=True)
        ]
        return Card(repr(self), (), ("row", "set", "accepted"), rows)

    @property
    def sizes(self) -> IntArray:
        """Number of classes in each row's set (N,)."""
        return self.indptr[1:] - self.indptr[:-1]

    @property
    def accepted(self) -> Array:
        """Whether the most probable class of each row can be accepted without a review (N,).

        A row is accepted if its set is exactly its most probable class, or by the cutoffs of
        `fit_acceptance`. The other rows are for review. Without cutoffs so are top-k rows to whose
        set a class might belong that they do not list.
        """
        return self.sizes == 1 if self._accepted is None else self._accepted

    @property
    def answers(self) -> Answers | None:
        """The answer to each row by the cutoffs of `fit_acceptance`; None without them."""
        if self._answers is None or self.index is None:
            return self._answers
        return replace(self._answers, index=self.index)

    def answer_columns(self) -> dict[str, list[Any]]:
        """Return the columns of `answers` if groups may answer; otherwise `accepted` is enough."""
        answers = self._answers
        return {} if answers is None or not answers.hierarchy.groups else answers.columns()

    @property
    def answer_nodes(self) -> IntArray:
        """The node of each row's answer (N,), the class if that is accepted; -1 for a review."""
        if self._answers is not None:
            return self._answers.nodes
        first = np.append(self.indices, REVIEW)[self.indptr[:-1]]
        return np.where(self.accepted, first, REVIEW)

    def contains(self, labels: Any, *, labels_are: str | None = None) -> Array:
        """Check whether each row's set contains its label, an index or a class name (N,).

        `labels_are` is "indices" or "names": what integers are, if a class has a number as its
        name.

        >>> PredictionSets.from_mask([[True, False], [True, False]]).contains([0, 1])
        array([ True, False])
        """
        names = None if self.class_names is None else tuple(self.class_names)
        classes = Classes(self.n_classes, names)
        return self.have(classes.label_indices(labels, len(self), labels_are=labels_are))

    def have(self, labels: IntArray) -> Array:
        """Check membership of class indices that are already validated."""
        hits = np.flatnonzero(self.indices == np.repeat(labels, self.sizes))
        has_label = np.zeros(len(self), dtype=bool)
        has_label[np.searchsorted(self.indptr, hits, side="right") - 1] = True
        return has_label

    def top(self, n: int) -> PredictionSets:
        """Keep the n most probable classes of each set; coverage falls accordingly.

        >>> PredictionSets.from_mask([[True, False, True], [False, True, False]]).top(1).to_lists()
        [[0], [1]]
        """
        whole_number(n, "n", "top", 1)
        index = np.arange(len(self.indices)) - np.repeat(self.indptr[:-1], self.sizes)
        indptr = np.concatenate([[0], np.cumsum(np.minimum(self.sizes, n))])
        kept = self.indices[index < n]
        return replace(self, indptr=indptr, indices=kept, _accepted=self.accepted)

    def to_mask(self) -> Array:
        """Return the (N, K) boolean matrix."""
        mask = np.zeros((len(self), self.n_classes), dtype=bool)
        mask[np.repeat(np.arange(len(self)), self.sizes), self.indices] = True
        return mask

    def to_lists(self, *, names: bool = False) -> list[list[Any]]:
        """List each row's classes, as indices or class names."""
        if names and self.class_names is None:
            raise InputError("These sets have no class names; use names=False.")
        flat: list[Any] = self.indices.tolist()
        if names and self.class_names is not None:
            flat = [self.class_names[index] for index in flat]
        return [flat[a:b] for a, b in pairwise(self.indptr.tolist())]

    def to_pandas(self) -> Any:
        """Build a pandas data frame with one row per set.

        The columns are ``set``, a list of class names (or indices), ``size``, ``accepted``, and
        those of `answers` if groups may answer. The index is that of the frame used for prediction.
        """
        lists = self.to_lists(names=self.class_names is not None)
        columns = {"set": lists, "size": self.sizes, "accepted": self.accepted}
        return data_frame(columns | self.answer_columns(), self.index)

    def indexed_like(self, rows: Any) -> PredictionSets:
        """Return the sets with the index of a pandas frame, if `rows` is one."""
        if type(rows).__module__.split(".")[0] != "pandas":
            return self
        return replace(self, index=rows.index)
