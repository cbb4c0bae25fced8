"""New labelled rows join the calibration rows: `partial_fit` is `fit` on all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from evencover._validation import Array, FloatArray, InputError, IntArray, whole_number
from evencover.data.fingerprint import sum_of
from evencover.data.source import Source
from evencover.errors import warn_caller
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.fitting import base_rows, warn_of_repeated_ids, with_scores
from evencover.predictors.matching import like_calibration, require_labels
from evencover.predictors.method import Method
from evencover.predictors.state import Field
from evencover.quantiles import GroupedScores
from evencover.randomness import places, row_ids


@dataclass(kw_only=True, eq=False, repr=False)
class Updatable(Method):
    """Keeps what was read of each calibration row: base score, label, id and rank.

    Rows without ids are known by their places, which are counted on: ``kept_ids_`` then holds only
    the place of the first one. Nothing is kept where the scores are not in one place.
    """

    state: ClassVar[dict[str, Field]] = {
        "kept_scores_": Field(float, "A", optional=True),
        "kept_labels_": Field(int, "A", optional=True),
        "kept_ids_": Field(int, "?", optional=True),
        "kept_ranks_": Field(int, "A", optional=True),
        "kept_values_": Field(float, "A", optional=True),
    }

    kept_scores_: FloatArray | None = field(init=False, default=None)
    kept_labels_: IntArray | None = field(init=False, default=None)
    kept_ids_: IntArray | None = field(init=False, default=None)
    kept_ranks_: IntArray | None = field(init=False, default=None)
    kept_values_: FloatArray | None = field(init=False, default=None)

    @abstractmethod
    def _fit_rows(self, rows: Any, n_classes: int, class_names: Sequence[str] | None) -> Self:
        """Have the method learn from rows, and keep what it found."""

    def partial_fit(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        window: int | None = None,
        since: Any = None,
        executor: Any = None,
    ) -> Self:
        """Let new labelled rows join the calibration rows, and learn the thresholds again.

        The result is what `fit` gives on all rows, the new ones after the old, with the same ids:
        the same thresholds, bit for bit, and the same sets.

        Parameters
        ----------
        probabilities, labels, ids, executor
            New rows, as in `fit`. If the calibration rows have ids, these must have some, too;
            otherwise their ids are ignored, with a warning.
        window
            Keep only this many rows, the newest.
        since
            Keep only the row with this id (without ids: this place, from 0) and those after it.

        >>> from evencover import StandardPredictor
        >>> p = [[0.75, 0.25], [0.5, 0.5], [0.375, 0.625], [0.25, 0.75]]
        >>> parts = StandardPredictor(alpha=0.5).fit(p[:2], [0, 1]).partial_fit(p[2:], [0, 1])
        >>> parts.thresholds_ == StandardPredictor(alpha=0.5).fit(p, [0, 1, 0, 1]).thresholds_
        array([ True,  True])
        """
        source = like_calibration(self, probabilities, labels, ids)
        require_labels(source, "Updating")
        old = self._kept_rows("It cannot be updated")
        first = self._next_place()
        has_ids = source.ids is not None
        if first is None and not has_ids:
            raise InputError(
                f"The new rows must have ids, because the calibration rows have. Got none with "
                f"{source.name}; pass 'ids' (--ids on the command line)."
            )
        if first is not None and has_ids:
            source.ignores_ids = True
            warn_caller(
                f"The ids of {source.name} are ignored, because the calibration rows have none; "
                "to keep ids, calibrate again on all rows with ids."
            )
        source.offset = first or 0
        new = base_rows(self, source, None, None, executor)
        if first is not None:
            new = new._replace(ids=places(first, first + len(new.scores)))
        rows = _one_after_the_other(old, new)
        first_kept = _first_kept(rows.ids, window, since)
        known = self._known_with(source, rows.labels, len(old.labels), first_kept)
        rows = rows.take(slice(first_kept, None))
        if first is None:
            warn_of_repeated_ids(rows.ids)
        names, out_of_fold = self.class_names_ or source.class_names, self.out_of_fold_
        self._fit_rows(with_scores(self, rows, self.n_classes_, names), self.n_classes_, names)
        self._keep_rows(rows, by_place=first is not None)
        self.fingerprints_, self.row_sample_, self.row_sample_limit_ = known
        self.out_of_fold_ = out_of_fold
        return self

    def _known_with(
        self, source: Source, labels: IntArray, n_old: int, first: int
    ) -> tuple[list[list[Any]], IntArray, int]:
        """Tell rows of old and new inputs from others; those before row `first` are forgotten.

        An input is known while any of its rows is kept; so are all rows as one input.
        """
        read, n_classes, known = source.rows_read, self.n_classes_, list(self.fingerprints_)
        assert read is not None
        if known:
            of_all = known[0][0][:16] + f"{sum_of(0, labels, n_classes):016x}"
            known.insert(0, [of_all, len(labels)])
        own = read._replace(total=sum_of(0, labels[n_old:], n_classes))
        known.append([own.hexdigest(), len(labels)])
        sample = read.sample.view(np.int64) + np.array([0, n_old - source.offset])
        limit = read.limit
        if self.row_sample_ is not None and self.row_sample_limit_ is not None:
            sample = np.concatenate([self.row_sample_, sample])
            limit = min(limit, self.row_sample_limit_)
        sample = sample - np.array([0, first])
        kept = (sample[:, 1] >= 0) & (sample[:, 0].view(np.uint64) <= np.uint64(limit))
        return [[text, end - first] for text, end in known if end > first], sample[kept], limit

    def own_scores(self) -> GroupedScores | None:
        """The calibration scores of each class, sorted, as the rule compares them; if kept."""
        if self.kept_scores_ is None or self.kept_labels_ is None:
            return None
        return GroupedScores.sort(self.kept_scores_, self.kept_labels_, self.n_classes_)

    # ---- what is kept --------------------------------------------------------------------------

    def _keep_rows(self, rows: CalibrationRows | None, *, by_place: bool = False) -> None:
        """Keep rows with their base scores; None: keep nothing."""
        self.kept_scores_ = self.kept_labels_ = self.kept_ids_ = self.kept_ranks_ = None
        self.kept_values_ = None
        if rows is None or rows.groups is not None:
            return
        self.kept_scores_ = rows.scores
        self.kept_labels_ = rows.labels.astype(np.int64, copy=False)
        ids = rows.ids.astype(np.uint64, copy=False).view(np.int64)
        self.kept_ids_ = ids[:1].copy() if by_place else ids
        self.kept_ranks_ = None if rows.ranks is None else rows.ranks.astype(np.int64, copy=False)
        self.kept_values_ = rows.label_values

    def _next_place(self) -> int | None:
        """The place of the first new row; None if the rows go by ids."""
        assert self.kept_ids_ is not None
        assert self.kept_scores_ is not None
        n_ids, n_rows = len(self.kept_ids_), len(self.kept_scores_)
        return None if n_ids == n_rows > 1 else int(self.kept_ids_[0]) + n_rows

    def _kept_rows(self, otherwise: str) -> CalibrationRows:
        if self.kept_scores_ is None or self.kept_labels_ is None or self.kept_ids_ is None:
            raise InputError(
                f"{otherwise}: this {self.method!r} predictor keeps no calibration rows, because "
                f"{self._why_nothing_is_kept()}; calibrate again on all rows."
            )
        ids = self.kept_ids_.view(np.uint64)
        after = self._next_place()
        if after is not None:
            ids = places(after - len(self.kept_scores_), after)
        return CalibrationRows(
            self.kept_scores_,
            self.kept_labels_,
            ids,
            self.kept_ranks_,
            label_values=self.kept_values_,
        )

    def _why_nothing_is_kept(self) -> str:
        if "row groups" in self.needs:
            return "its groups of rows are kept by number, and their names may come anew"
        return (
            "they were scored at a temperature that was fitted, or given as scores of a score that "
            "depends on the class counts"
        )


def _one_after_the_other(old: CalibrationRows, new: CalibrationRows) -> CalibrationRows:
    columns = zip(old, new, strict=True)
    joined: list[Array | None] = [
        None if mine is None or theirs is None else np.concatenate([mine, theirs])
        for mine, theirs in columns
    ]
    return CalibrationRows(*joined)  # type: ignore[arg-type]


def _first_kept(ids: Array, window: int | None, since: Any) -> int:
    """The place among all rows of the first one that stays."""
    first = 0
    if since is not None:
        found = np.flatnonzero(ids == row_ids([since], 1)[0])
        if not len(found):
            raise InputError(f"'since' must be the id of one of the rows. Got {since!r}.")
        first = int(found[0])
    if window is not None:
        first = max(first, len(ids) - whole_number(window, "window", "partial_fit", 1))
    return first
