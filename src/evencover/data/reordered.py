"""The columns of a source in another order: that of the calibration data, found by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from evencover._validation import Array, InputError, plain_array
from evencover.data.folder import PartsSource
from evencover.data.source import Source


def in_order(source: Source, class_names: Sequence[str]) -> Source:
    """The source with its columns in the order of these names, all of which it has."""
    if not isinstance(source, PartsSource):
        return ReorderedSource(source, class_names)
    whole = ReorderedSource(source, class_names)  # which knows what becomes of all the labels
    parts = copy(source)
    parts.sources = [ReorderedSource(each, class_names) for each in source.sources]
    parts.class_names, parts.labels = class_names, whole.labels
    return parts


class ReorderedSource(Source):
    """A source whose class k is the class of the k-th of `class_names`.

    Labels by name follow their class. Labels that are numbers and were given apart already count
    in the new order. Numbers that came with the rows could count either, and are refused.
    """

    def __init__(self, source: Source, class_names: Sequence[str]) -> None:
        assert source.class_names is not None
        place = {name: index for index, name in enumerate(source.class_names)}
        self._source = source
        self._order = np.array([place[name] for name in class_names])
        self.class_names, self.n_classes = class_names, len(class_names)
        for same in ("n_rows", "logits", "name", "has_labels", "numbers_are_names", "watch"):
            setattr(self, same, getattr(source, same))
        for same in ("labels_given", "labels_by_name", "used", "left_out", "first_row", "index"):
            setattr(self, same, getattr(source, same))
        if source.labels is not None:
            self.labels = self._labels_in_order(source.labels)
            self._label_place, self._labels_checked = source._label_place, source._labels_checked

    def _labels_in_order(self, labels: Array) -> Array:
        if labels.dtype.kind not in "iu":
            return labels
        if self.labels_by_name:
            return np.argsort(self._order)[labels].astype(labels.dtype)
        if self.labels_given:
            return labels
        raise self._unclear()

    def _unclear(self) -> InputError:
        return InputError(
            f"The labels with {self.name} must be class names, because its columns are in another "
            "order than those of the calibration data. Got numbers, which may count either; use "
            "names, or give the numbers apart (labels=, --labels) in the calibration data's order."
        )

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """The blocks with their columns put in order."""
        for rows, labels in self._source.row_blocks():
            if labels is not None and self.labels is None and not self.numbers_are_names:
                labels = plain_array(labels)
                if labels.dtype.kind not in "UOT":
                    raise self._unclear()
            yield np.asarray(rows)[:, self._order], labels

    def split(self) -> list[Source] | None:
        """The parts of the source, each put in order."""
        parts = self._source.parts()
        assert self.class_names is not None
        return None if parts is None else [ReorderedPart(part, self) for part in parts]

    def place(self, row: int) -> str:
        """What the source calls it."""
        return self._source.place(row)

    def _read_ids(self) -> Array | None:
        return self._source.ids

    @property
    def location(self) -> Any:
        """Where the file is, if it is one."""
        return getattr(self._source, "location", None)

    @location.setter
    def location(self, value: Any) -> None:
        self._source.location = value  # type: ignore[attr-defined]


class ReorderedPart(ReorderedSource):
    """A part of a source that is put in order; its labels, if kept apart, are given later."""

    def __init__(self, part: Source, whole: ReorderedSource) -> None:
        self._source, self._order = part, whole._order
        part.labels = None  # the whole's, which are in order, come instead
        self.class_names, self.n_classes = whole.class_names, whole.n_classes
        for same in ("n_rows", "logits", "name", "has_labels", "first_row"):
            setattr(self, same, getattr(part, same))
        self.numbers_are_names = whole.numbers_are_names
