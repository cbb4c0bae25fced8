"""Many files as one source: the files of a folder or of a pattern, one after the other."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.source import Source


class PartsSource(Source):
    """Sources of the same kind of rows, end to end."""

    def __init__(self, sources: Sequence[Source], name: str) -> None:
        self.name = f"'{name}'"
        self.sources = [source for source in sources if source.n_rows != 0] or list(sources[:1])
        first = self.sources[0]
        for other in self.sources[1:]:
            _refuse_mixture(first, other)
        self._starts = list(accumulate((s.n_rows or 0 for s in self.sources), initial=0))
        self.n_rows, self.n_classes = self._starts[-1], first.n_classes
        self.class_names, self.logits = first.class_names, first.logits
        self.has_labels, self.may_be_ranked = first.has_labels, first.may_be_ranked
        self.used, self.left_out = first.used, first.left_out

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """The blocks of each file."""
        for source in self.sources:
            start = 0
            for rows, labels in source.labelled_blocks():
                if labels is not None and source.numbers_are_names:
                    labels = source._check_labels(labels, len(rows), start)
                yield rows, labels
                start += len(rows)

    def _read_ids(self) -> Array | None:
        found = [source.ids for source in self.sources]
        known = [ids for ids in found if ids is not None]
        return np.concatenate(known) if len(known) == len(found) else None

    def split(self) -> list[Source]:
        """The parts of each file."""
        parts: list[Source] = []
        for source in self.sources:
            parts += source.parts() or [copy.copy(source)]
        return parts

    def refuse_misfits(self, columns: Sequence[tuple[str, int]]) -> None:
        """Check that files of labels, (name, rows) each, fit the parts one by one."""
        columns = [column for column in columns if column[1]]  # as empty parts are left out
        for source, (name, n_rows) in zip(self.sources, columns, strict=False):
            if source.n_rows != n_rows:
                raise InputError(
                    f"Every file of labels must fit the part beside it. Got {n_rows} labels in "
                    f"{name} for {source.n_rows} rows in {source.name}."
                )
        if len(columns) != len(self.sources):
            raise InputError(
                f"There must be a file of labels for each part, or one for all. "
                f"Got {len(columns)} files of labels for {len(self.sources)} parts of {self.name}."
            )

    def place(self, row: int) -> str:
        """The file and the row in it."""
        which = min(bisect_right(self._starts, row), len(self.sources)) - 1
        return self.sources[which].place(row - self._starts[which])


def _refuse_mixture(first: Source, other: Source) -> None:
    """All files must have the same classes, and labels must be in all of them or in none."""
    if other.n_classes != first.n_classes:
        problem = f"{other.n_classes} classes in {other.name}, and {first.n_classes}"
    elif (other.class_names is None) != (first.class_names is None):
        with_names, without = (first, other) if first.class_names else (other, first)
        problem = f"class names in {with_names.name}, and none in {without.name}"
        raise InputError(f"All parts must have class names, or none. Got {problem}.")
    elif list(other.class_names or ()) != list(first.class_names or ()):
        pairs = zip(other.class_names or (), first.class_names or (), strict=True)
        index, (mine, theirs) = next(
            (i, pair) for i, pair in enumerate(pairs) if len(set(pair)) > 1
        )
        problem = f"{mine!r} as class {index} of {other.name}, and {theirs!r}"
    elif other.has_labels != first.has_labels:
        labelled, bare = (first, other) if first.has_labels else (other, first)
        raise InputError(
            f"All parts must come with labels, or none. Got labels in {labelled.name}, "
            f"and none in {bare.name}."
        )
    elif other.logits != first.logits:
        kinds = ["logits" if source.logits else "probabilities" for source in (other, first)]
        problem = f"{kinds[0]} in {other.name}, and {kinds[1]}"
    else:
        return
    raise InputError(f"All parts must have the same classes. Got {problem} in {first.name}.")
