"""ROW-GROUPED: coverage for groups of rows, such as hospitals or cameras."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from evencover import _kernels
from evencover._validation import Array, FloatArray, InputError, IntArray
from evencover.data.source import Block
from evencover.evaluation.confusions import Confusions
from evencover.evaluation.report import CoverageReport, Tally
from evencover.predictors.grouped import OverGroups, name_groups
from evencover.quantiles import Alpha, Thresholds
from evencover.scores import Score
from evencover.sets import PredictionSets


class RowGroupedPredictor(OverGroups):
    """One threshold per group of rows, for all classes: each row says which group it is in.

    `fit`, `predict_set`, `predict_p` and `evaluate` take ``groups=``, one name or number per
    row; a group must have been seen in `fit`. A method is applied to the groups as if they were
    classes: "classwise" lets every group stand alone (Mondrian conformal prediction, Vovk et al.
    2003), "clustered" and "pooled" let many small groups share data.

    Guarantee: that of the method, with groups for classes. "classwise":
    P(Y in C(X) | group g) >= 1 - alpha for every g, for rows exchangeable within their group.
    Classes are promised nothing.

    Parameters
    ----------
    over_groups
        The method: "classwise", "standard", "clustered", "pooled" or "macro".
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

    _given: Any = None
    _group_of_row: IntArray

    def __init__(
        self,
        *,
        alpha: Alpha = 0.1,
        score: Score | str = "softmax",
        over_groups: str = "classwise",
        exact: bool = False,
        allow_empty: bool = True,
        from_logits: bool = False,
        temperature: float = 1.0,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            alpha=alpha,
            score=score,
            exact=exact,
            allow_empty=allow_empty,
            from_logits=from_logits,
            temperature=temperature,
            random_state=random_state,
        )
        self.over_groups = over_groups

    def fit(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        groups: Any = None,
        ids: Any = None,
        class_names: Sequence[str] | None = None,
        executor: Any = None,
        gather: bool = True,
    ) -> Self:
        """Learn the thresholds, with the group of each row (N,)."""
        self._given = _needed(groups)
        more: Any = {"class_names": class_names, "executor": executor, "gather": gather}
        try:
            return super().fit(probabilities, labels, ids=ids, **more)
        finally:
            del self._given

    def predict_set_blocks(
        self, probabilities: Any, *, groups: Any = None, ids: Any = None, executor: Any = None
    ) -> Iterator[PredictionSets]:
        """The prediction sets as a stream, each row by the threshold of its group."""
        return super(OverGroups, self._of(groups)).predict_set_blocks(
            probabilities, ids=ids, executor=executor
        )

    def predict_set(
        self, probabilities: Any, *, groups: Any = None, ids: Any = None, executor: Any = None
    ) -> PredictionSets:
        """The prediction set of each row, by the threshold of its group."""
        blocks = self.predict_set_blocks(probabilities, groups=groups, ids=ids, executor=executor)
        return PredictionSets.concatenate(blocks)

    def predict_p(self, probabilities: Any, *, groups: Any = None, ids: Any = None) -> FloatArray:
        """P-value of each class in each row (N, K), among the rows of its group."""
        return super(OverGroups, self._of(groups)).predict_p(probabilities, ids=ids)

    def evaluate(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        groups: Any = None,
        ids: Any = None,
        executor: Any = None,
    ) -> CoverageReport:
        """Coverage and size of the sets on held-out rows."""
        report = super(OverGroups, self._of(groups)).evaluate(
            probabilities, labels, ids=ids, executor=executor
        )
        return replace(report, thresholds=None)  # which are of groups, not of classes

    def _of(self, groups: Any) -> Self:
        """A predictor for rows of these groups."""
        values = np.asarray(_needed(groups))
        if not hasattr(self, "thresholds_"):
            return self  # which is refused with the right words
        place = {name: index for index, name in enumerate(self.group_names_)}
        unknown = [str(v) for v in values.ravel().tolist() if str(v) not in place]
        if unknown:
            raise InputError(
                "'groups' must be groups that the calibration rows had. "
                f"Got {unknown[0]!r}; known are {', '.join(self.group_names_[:5])}, ..."
            )
        fitted = copy(self)
        fitted._group_of_row = np.array([place[str(v)] for v in values.ravel().tolist()], dtype=int)
        return fitted

    def _calibrate(self, scores: FloatArray, labels: IntArray, ids: Array) -> Thresholds:
        self.group_names_, group_of_row = name_groups(_needed(self._given), len(scores), "row")
        self._keep_rows(scores, group_of_row, ids)
        return self._group_thresholds()

    def _kept_thresholds(self) -> Thresholds:
        return self._group_thresholds()

    def _groups_of(self, block: Block) -> list[tuple[int, IntArray]]:
        """The groups in a block, and the rows of each."""
        own = self._group_of_row[block.start : block.start + len(block.rows)]
        if len(own) != len(block.rows):
            raise InputError(
                f"'groups' must have one entry per row. Got only {len(self._group_of_row)}."
            )
        return [(int(group), np.flatnonzero(own == group)) for group in np.unique(own)]

    def _set_block(self, block: Block, ids: Array | None, logits: bool) -> PredictionSets:
        score, draws = self.score_, self._draws(block, ids)
        # Groups take the rows out of their places: their keys go with them.
        keys = _kernels.row_keys(block.rows, draws)
        parts, order = [], []
        for group, rows in self._groups_of(block):
            limits = self.limits_.of_classes(np.full(self.n_classes_, group))
            sizes, indices, bad = _kernels.prediction_sets(
                score.base,
                block.rows[rows],
                draws._replace(ids=keys[rows]),
                score.base_thresholds(limits),
                **self._set_options(logits),
            )
            self._refuse(block, int(rows[bad]) if bad >= 0 else -1, logits)
            parts.append(
                PredictionSets.from_sizes(sizes, indices, self.n_classes_, self.class_names_)
            )
            order.append(rows)
        return PredictionSets.concatenate(parts)[np.argsort(np.concatenate(order))]

    def _tally_block(
        self, block: Block, ids: Array | None, logits: bool
    ) -> tuple[Tally, Confusions]:
        assert block.labels is not None
        tally = Tally.of(self._set_block(block, ids, logits), block.labels)
        top_classes = block.rows.argmax(axis=1)
        return tally, Confusions.of(block.labels, top_classes, self.n_classes_)

    def _p_block(self, block: Block, ids: Array | None, logits: bool) -> FloatArray:
        score, classes = self.score_, np.arange(self.n_classes_)
        draws = self._draws(block, ids)
        own_share = 1.0 - _kernels.row_numbers(block.rows, draws._replace(score_use=None))[1]
        scores, bad = _kernels.score_matrix(
            score.base, block.rows, draws, logits=logits, temperature=self.temperature
        )
        self._refuse(block, bad, logits)
        scores = score.from_base(scores, classes)
        for group, rows in self._groups_of(block):
            scores[rows] = self.over_groups_._p_of_scores(
                scores[rows], np.full(self.n_classes_, group), own_share[rows]
            )
        return scores

    def _fate_of_missing_classes(self) -> str:
        return "the thresholds of the groups hold for them too"


def _needed(groups: Any) -> Any:
    if groups is None:
        raise InputError(
            "RowGroupedPredictor needs 'groups', one name or number per row. Got none."
        )
    return groups
