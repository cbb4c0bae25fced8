"""Labels that come later than their rows, and join them by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from evencover._types import Array
from evencover._validation import plain_array
from evencover.data.source import Source
from evencover.errors import InputError
from evencover.randomness import row_ids


class LabelledRows(Source):
    """The rows of a source whose label is known by now, with ids and labels.

    Parameters
    ----------
    source
        All rows.
    ids
        (N,) their ids.
    label_ids, labels
        (M,) the ids of labels that are known, in any order, and the labels.
    label_place
        What a message calls a label, by its place among these.
    """

    def __init__(
        self,
        source: Source,
        ids: Any,
        label_ids: Any,
        labels: Any,
        label_place: Callable[[int], str] = lambda row: f"label {row}",
    ) -> None:
        mine = row_ids(ids, len(ids) if source.n_rows is None else source.n_rows)
        labels = plain_array(labels)
        theirs = row_ids(label_ids, len(labels))
        for keys, what in ((mine, "rows"), (theirs, "labels")):
            n_repeated = len(keys) - len(np.unique(keys))
            if n_repeated:
                raise InputError(
                    f"To join labels by id every id must be there once. Got {n_repeated} of the "
                    f"{what} with the id of an earlier one."
                )
        order = np.argsort(theirs)
        place = np.minimum(np.searchsorted(theirs[order], mine), max(0, len(theirs) - 1))
        self._is_known = np.zeros(len(mine), dtype=bool)
        if len(theirs):
            self._is_known = theirs[order][place] == mine
        if not self._is_known.any():
            raise InputError(
                f"None of the {len(labels)} labels has the id of one of the {len(mine)} rows."
            )
        self._source, self._all_keys = source, mine
        self._all_ids, self._labels = plain_array(ids), labels
        self._place_of_label, self._label_place_of = order[place], label_place
        self.n_waiting = int((~self._is_known).sum())
        self.n_unused = len(labels) - int(self._is_known.sum())
        for same in ("n_classes", "class_names", "logits", "name", "numbers_are_names", "watch"):
            setattr(self, same, getattr(source, same))
        self._take_known()

    @property
    def keys(self) -> Array:
        """(n_rows,) the ids as numbers of 64 bits."""
        return self._all_keys[self._is_known]

    def leave_out(self, keys: Array) -> int:
        """Leave out the rows with these ids; how many they are."""
        n_before = self.n_rows or 0
        self._is_known &= ~np.isin(self._all_keys, keys)
        self._take_known()
        return n_before - int(self._is_known.sum())

    def _take_known(self) -> None:
        self.n_rows, self._ids = int(self._is_known.sum()), self._all_ids[self._is_known]
        places = self._place_of_label[self._is_known]
        name = self._label_place_of
        self.attach_labels(self._labels[places], lambda row: name(int(places[row])))
        self.labels_given = True

    def row_blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """The rows with a label, in their order."""
        start = 0
        for rows, _ in self._source.row_blocks():
            stop = start + len(rows)
            known = self._is_known[start:stop]
            if known.any():
                yield plain_array(rows)[known], None
            start = stop
