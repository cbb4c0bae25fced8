"""ROW-GROUPED: coverage for groups of rows, such as hospitals or cameras."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from evencover import _kernels
from evencover._kernels import BadRow
from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.source import Block, Source
from evencover.errors import InputError
from evencover.predictors.fitting import CalibrationRows, require_fitted
from evencover.predictors.grouped import OverGroups, name_groups
from evencover.predictors.rule import BoundScore, SetRule
from evencover.predictors.state import kept
from evencover.quantiles import Thresholds
from evencover.sets import PredictionSets


@dataclass(frozen=True)
class RowGroupRule(SetRule):
    """Apply the thresholds of each row's group.

    ``of_groups`` holds the rule of each group, ``group_of_row`` (N,) the groups of the input.
    """

    of_groups: tuple[SetRule, ...]
    group_of_row: IntArray

    def _ready(self, rows: Array, ids: Array | None) -> tuple[IntArray, Array]:
        sets = self._sets(Block(0, rows, None, None), ids)
        return sets.indptr, sets.indices

    def _sets(self, block: Block, ids: Array | None) -> PredictionSets:
        parts, order = [], []
        for rule, part, keys, rows in self._parts(block, ids):
            with renumbering_bad_rows(rows):
                parts.append(rule._sets(part, keys))
            order.append(rows)
        return PredictionSets.concatenate(parts)[np.argsort(np.concatenate(order))]

    def _coverage(self, block: Block, ids: Array | None) -> tuple[IntArray, Array, IntArray]:
        n = len(block.rows)
        sizes, covered, top = np.empty(n, np.int64), np.empty(n, bool), np.empty(n, np.int64)
        for rule, part, keys, rows in self._parts(block, ids):
            with renumbering_bad_rows(rows):
                sizes[rows], covered[rows], top[rows] = rule._coverage(part, keys)
        return sizes, covered, top

    def _parts(
        self, block: Block, ids: Array | None
    ) -> Iterator[tuple[SetRule, Block, Array | None, IntArray]]:
        """Yield the rule of each group in a block, its rows, their keys and their indices."""
        draws, keys = self._draws(block, ids), ids
        if draws.any:  # rows are taken out of their places
            keys = _kernels.row_keys(block.rows, draws)
        for group, rows in rows_by_group(block, self.group_of_row):
            labels = None if block.labels is None else block.labels[rows]
            part = block._replace(rows=block.rows[rows], labels=labels)
            yield self.of_groups[group], part, None if keys is None else keys[rows], rows


@contextmanager
def renumbering_bad_rows(rows: IntArray) -> Iterator[None]:
    """Report a bad row by its index in the block it was taken from."""
    try:
        yield
    except BadRow as bad:
        raise BadRow(int(rows[bad.row])) from None


def rows_by_group(block: Block, group_of_row: IntArray) -> list[tuple[int, IntArray]]:
    """Return the groups in a block, and the rows of each."""
    own = group_of_row[block.start : block.start + len(block.rows)]
    if len(own) != len(block.rows):
        raise InputError(f"'groups' must have one entry per row. Got only {len(group_of_row)}.")
    return [(int(group), np.flatnonzero(own == group)) for group in np.unique(own)]


@dataclass(kw_only=True, eq=False, repr=False)
class RowGroupedPredictor(OverGroups):
    """One threshold per group of rows, for all classes.

    `fit`, `predict_set`, `predict_p` and `evaluate` take ``groups=``, one name or number per
    row, each known from `fit`. The method treats groups as classes: "classwise" fits each group
    separately (Mondrian conformal prediction, Vovk et al. 2003); "clustered" and "pooled" share
    data between groups.

    Guarantee: that of the method, for groups in place of classes. "classwise":
    P(Y in C(X) | group g) >= 1 - alpha for every g, for rows exchangeable within their group.

    Parameters
    ----------
    over_groups
        The method: "classwise", "standard", "clustered", "pooled" or "macro".
    confidence
        As for `StandardPredictor`, for the coverage of a group.
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor.

    Attributes
    ----------
    thresholds_
        (G,) threshold of each group, in the order of `group_names_`.
    group_names_
        The names of the groups, sorted.
    over_groups_
        The fitted predictor whose classes are the groups.

    >>> p = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]
    >>> by_site = RowGroupedPredictor(alpha=0.5).fit(p, [0, 0, 1, 0], groups=["x", "x", "y", "y"])
    >>> by_site.thresholds_
    array([0.5 , 0.25])
    >>> by_site.predict_set([[0.6, 0.4], [0.6, 0.4]], groups=["x", "y"]).to_lists()
    [[0], []]
    """

    method: ClassVar[str] = "row-grouped"
    summary: ClassVar[str] = "one threshold per group of examples, such as one hospital"
    guarantee: ClassVar[str] = (
        "Each group of examples has the guarantee that the method over groups gives a class "
        "(classwise: coverage of 1 - alpha); no class has a guarantee."
    )
    confident_guarantee: ClassVar[str] = (
        "Each group of examples has the guarantee that the method over groups gives a class "
        "(classwise: coverage of at least 1 - alpha in at least {confidence} of all calibration "
        "sets); no class has a guarantee."
    )
    needs: ClassVar[tuple[str, ...]] = ("row groups",)
    missing_class_note: ClassVar[str] = "they use the thresholds of the groups"
    origin: ClassVar[str] = (
        "A set includes the class if its score is at most the threshold of the example's group. "
        "The threshold is the same for all classes."
    )
    limits_: Thresholds = kept(Thresholds, "G")

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        self.group_names_, group_of_row = name_groups(rows.groups, self.n_calibration_, "row")
        return self._fit_groups(rows, group_of_row)

    def _with_floor(self, thresholds: Thresholds, rows: CalibrationRows) -> Thresholds:
        super()._with_floor(Thresholds(np.empty(self.n_classes_)), rows)
        return thresholds  # of groups of rows; `rule` raises them for each class

    def rule(self, *, logits: bool | None = None, groups: Any = None) -> SetRule:
        """Build the rule for rows of these groups."""
        require_fitted(self)
        self._check_groups(groups)
        of_groups = [
            self._rule(
                self._raised(self.limits_.of_classes(np.full(self.n_classes_, group))), logits
            )
            for group in range(len(self.group_names_))
        ]
        group_of_row = self._group_of_row(groups)
        first = of_groups[0]
        options = (first.scoring, first.limits, first.allow_empty, first.class_names)
        return RowGroupRule(*options, tuple(of_groups), group_of_row)

    def _group_of_row(self, groups: Any) -> IntArray:
        """Return known groups as indices (N,)."""
        index = {name: place for place, name in enumerate(self.group_names_)}
        names = [str(value) for value in to_numpy(groups).ravel().tolist()]
        unknown = [name for name in names if name not in index]
        if unknown:
            raise InputError(
                "'groups' must be groups that the calibration rows had. "
                f"Got {unknown[0]!r}; known are {', '.join(self.group_names_[:5])}, ..."
            )
        return np.array([index[name] for name in names], dtype=np.int64)

    def _p_function(
        self, source: Source, groups: Any
    ) -> Callable[[Block, Array | None], FloatArray]:
        scoring = self.bound_score(source.logits, self.score_)
        return partial(self._p_of_groups, scoring, self._group_of_row(groups))

    def _p_of_groups(
        self, scoring: BoundScore, group_of_row: IntArray, block: Block, ids: Array | None
    ) -> FloatArray:
        scores = scoring.matrix(block, scoring.draws(block, ids))
        own_share = self._own_share(scoring, block, ids)
        for group, rows in rows_by_group(block, group_of_row):
            groups = np.full(self.n_classes_, group)
            scores[rows] = self.over_groups_._p_values(scores[rows], groups, own_share[rows])
        return scores

    def _about_classes(self) -> dict[str, Any]:
        return {}  # thresholds are of groups, not of classes

    def _cause(self, under: IntArray) -> str:
        return (
            "All classes share the threshold of the example's group, so hard classes are covered "
            "less and easy classes more. Try pooled, which adapts to classes."
        )
