"""The predictor that owns everything but the one step in which methods differ.

rows -> scores of the true labels -> _calibrate (the method) -> thresholds -> rule -> sets
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from evencover._validation import (
    Array,
    FloatArray,
    InputError,
    IntArray,
    flag,
)
from evencover.data.fingerprint import Fingerprint
from evencover.data.names import as_class_names
from evencover.data.source import Block, Source
from evencover.engine.blocks import fold_source, map_source
from evencover.errors import warn_caller
from evencover.evaluation.confusions import Confusions
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.tally import Tally
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.explanation import Explanation, own_origin, some_names
from evencover.predictors.fitting import (
    base_rows,
    calibration_source,
    note_large_alpha,
    rows_of_scores,
    with_scores,
)
from evencover.predictors.matching import (
    like_calibration,
    require_fitted,
    require_labels,
)
from evencover.predictors.ready import few_rows, ready_rule
from evencover.predictors.rule import Rule
from evencover.predictors.scoring import Scoring
from evencover.predictors.temperature import FIT, check_temperature, fitted_temperature
from evencover.predictors.unlike import Count, ScoreBins, Seen, doubts, together
from evencover.predictors.updating import Updatable
from evencover.quantiles import Thresholds, exact_fraction
from evencover.randomness import check_random_state
from evencover.scores import make_score
from evencover.sets import PredictionSets


@dataclass(kw_only=True, eq=False, repr=False)
class BasePredictor(Updatable):
    """Prediction sets {y : s(x, y) <= threshold of y}, with thresholds learnt by the method.

    A method is a subclass with a name, a sentence or two, `_calibrate`, and what it keeps of a
    fit (`state`); everything else follows. `Method` lists what else it may say of itself.

    Parameters
    ----------
    alpha
        Miscoverage level in (0, 1); sets aim at coverage 1 - alpha. Read as the decimal or
        fraction that was written, so ranks are exact.
    score
        "softmax", "aps", "raps", "saps", "pas", or a `Score`.
    exact
        Randomise between two neighbouring ranks so that coverage is 1 - alpha, not at least
        1 - alpha; a row's set then depends on its id (or content) and `random_state`.
    allow_empty
        If False, an empty set is given the most probable class.
    from_logits
        The input holds logits; a softmax is applied to ``logits / temperature``. Rows that are
        probabilities are rejected, unless the input states that they are logits.
    temperature
        Divides logits; only used with them. "fit" learns it by likelihood from a fifth of the
        rows, at most 2000, which then do not calibrate.
    random_state
        Whole number that, with a row's id (or content and place), fixes every random choice.

    Attributes
    ----------
    thresholds_
        (K,) threshold of each class; +inf means the class is in every set.
    class_counts_
        (K,) calibration rows of each class.
    n_classes_, n_calibration_
        K, and the number of calibration rows.
    class_names_
        One name per class, or None.
    fingerprints_
        Tell inputs whose rows calibrated from others: [fingerprint, place after its last row] each.
    """

    # ---- calibration -------------------------------------------------------------------------

    def fit(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        class_names: Sequence[str] | None = None,
        executor: Any = None,
    ) -> Self:
        """Learn the thresholds from calibration rows that the model was not trained on.

        Parameters
        ----------
        probabilities
            (N, K) array-like, the path of a file, or an iterable of (n, K) blocks or
            (block, labels) pairs; with an executor also a Dask array, or a list or Dask bag of
            paths.
        labels
            (N,) class indices or names; may come with the file or the blocks. A Series, or a
            frame with a column of ids, is joined to rows with an index or ids.
        ids
            (N,) stable row ids, integers or text, from which a row's random numbers follow; by
            default they follow from the row's content and place in the input.
        groups
            (N,) the group of each row, for methods that give each group its own threshold.
        class_names
            One name per class, or {index: name}, carried along to the prediction sets.
        executor
            Where the rows are read and scored: None for this process's threads, a
            `concurrent.futures` executor, or a `dask.distributed` client. The result is the same.
        """
        self._check_parameters()
        note_large_alpha(self.alpha)
        self._check_groups(groups)
        source = calibration_source(probabilities, labels, ids, class_names)
        apart = self._fit_temperature(source, ids)
        base = base_rows(self, source, ids, groups, executor)
        base = base if apart is None else base.take(~apart)
        rows = with_scores(self, base, source.n_classes, source.class_names)
        self._fit_rows(rows, source.n_classes, source.class_names)
        if apart is None:
            self._keep_rows(base, by_place=ids is None and source.ids is None)
        self._keep_fingerprint(source.rows_read)
        return self

    def _fit_temperature(self, source: Source, ids: Any) -> Array | None:
        """Fit the temperature if asked to; return the rows (N,) that then do not calibrate."""
        self.temperature_ = None
        if self.temperature != FIT:
            return None
        logits = self.from_logits if source.logits is None else source.logits
        self.temperature_, apart = fitted_temperature(source, ids, logits, self.random_state)
        return apart

    def _keep_fingerprint(self, rows_read: Fingerprint | None) -> None:
        """What tells the calibration rows from others, and copies of them."""
        if rows_read is not None:
            self.fingerprints_ = [[rows_read.hexdigest(), self.n_calibration_]]
            self.row_sample_ = rows_read.sample.view(np.int64)
            self.row_sample_limit_ = rows_read.limit

    def fit_scores(
        self,
        scores: Any,
        labels: Any,
        n_classes: int,
        *,
        ids: Any = None,
        ranks: Any = None,
        groups: Any = None,
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Learn the thresholds from the true labels' scores (N,): all that most methods need.

        `ranks` (N,), from 1, are the true labels' ranks in their rows, `groups` (N,) the rows'
        groups, for methods that need them.
        """
        self._check_parameters()
        if self.temperature == FIT:
            raise InputError(
                "temperature='fit' needs the logits themselves. Got scores; 'fit' takes logits."
            )
        self.temperature_ = None
        self._check_groups(groups)
        rows = rows_of_scores(self, scores, labels, n_classes, ids, ranks, groups)
        names = as_class_names(class_names, int(n_classes))
        self._fit_rows(rows, int(n_classes), names)
        score = make_score(self.score)
        self._keep_rows(rows if score.base is score else None, by_place=ids is None)
        return self

    def _fit_rows(
        self, rows: CalibrationRows, n_classes: int, class_names: Sequence[str] | None
    ) -> Self:
        """Have the method learn from rows, and keep what it found."""
        self.n_classes_, self.class_names_ = n_classes, class_names
        self.row_sample_ = self.row_sample_limit_ = self.score_edges_ = self.score_counts_ = None
        self.fingerprints_, self.out_of_fold_ = [], False
        self._keep_rows(None)
        self.class_counts_ = np.bincount(rows.labels, minlength=n_classes)
        self.score_edges_, self.score_counts_ = ScoreBins.of(rows.scores)
        self.n_calibration_ = int(self.class_counts_.sum())
        self._keep_thresholds(self._calibrate(rows))
        self._warn_of_full_sets()
        missing = int((self.class_counts_ == 0).sum())
        if missing:
            warn_caller(
                f"{missing} of {self.n_classes_} classes have no calibration examples"
                f"{some_names(self.class_names_, self.class_counts_ == 0)}; "
                f"{self.fate_of_missing_classes}."
            )
        return self

    def _keep_thresholds(self, limits: Thresholds) -> None:
        self.thresholds_, self.lower_thresholds_, self.upper_probability_ = limits[:3]

    def _warn_of_full_sets(self) -> None:
        """Tell how many classes with rows are in every set all the same."""
        if len(self.thresholds_) != self.n_classes_:
            return  # thresholds of groups of rows
        few = int((np.isinf(self.thresholds_) & (self.class_counts_ > 0)).sum())
        if few and self.limits_.rank_limit is None:
            warn_caller(
                f"{few} of {self.n_classes_} classes have calibration examples, but too few for a "
                f"finite threshold {self._terms()}; they are in every set."
            )

    # ---- prediction --------------------------------------------------------------------------

    def rule(self, *, logits: bool | None = None, groups: Any = None) -> Rule:
        """Build the frozen rule that turns rows and ids into sets.

        `logits` states what the rows hold; by default `from_logits` does, and rows that are
        probabilities where logits are expected are rejected.
        """
        require_fitted(self)
        self._check_groups(groups)
        return self._rule(self.limits_, logits)

    def _rule(self, limits: Thresholds, logits: bool | None) -> Rule:
        """The rule with these limits of the score."""
        scoring = self.scoring(logits, self.score_)
        limits = scoring.score.base_thresholds(limits)
        return Rule(scoring, limits, self.allow_empty, self.class_names_)

    def predict_set(
        self, probabilities: Any, *, ids: Any = None, groups: Any = None, executor: Any = None
    ) -> PredictionSets:
        """Compute the prediction set of each row, the most probable class first.

        Parameters
        ----------
        probabilities, groups, executor
            As in `fit`. The sets keep the index of a pandas frame for `to_pandas`.
        ids
            (N,) stable row ids; the same id always gets the same random choices. Without them,
            equal rows that arrive one at a time share their fate.
        """
        if executor is None and groups is None:
            rows = few_rows(self, probabilities)
            if rows is not None:
                return ready_rule(self).predict_set(rows, ids)
        blocks = self.predict_set_blocks(probabilities, ids=ids, groups=groups, executor=executor)
        return PredictionSets.concatenate(blocks).indexed_like(probabilities)

    def predict_set_blocks(
        self, probabilities: Any, *, ids: Any = None, groups: Any = None, executor: Any = None
    ) -> Iterator[PredictionSets]:
        """The prediction sets as a stream, block by block; on an executor, part by part."""
        source = like_calibration(self, probabilities)
        sets = self.rule(logits=source.logits, groups=groups).sets
        return map_source(source, ids, sets, PredictionSets.concatenate, executor)

    def predict_p(self, probabilities: Any, *, ids: Any = None, groups: Any = None) -> FloatArray:
        """The conformal p-value of each class in each row (N, K).

        The set at level alpha is {y : p > alpha}, for every alpha.
        """
        source = like_calibration(self, probabilities)
        self._check_groups(groups)
        function = self._p_function(source, groups)
        return np.concatenate(list(map_source(source, ids, function)))

    def _p_function(
        self, source: Source, groups: Any
    ) -> Callable[[Block, Array | None], FloatArray]:
        """What turns a block and its ids into p-values."""
        return partial(self._p_block, self.scoring(source.logits, self.score_))

    def _p_block(self, scoring: Scoring, block: Block, ids: Array | None) -> FloatArray:
        scores = scoring.matrix(block, scoring.draws(block, ids))
        own_share = self._own_share(scoring, block, ids)
        return self._p_values(scores, np.arange(self.n_classes_), own_share)

    def _own_share(self, scoring: Scoring, block: Block, ids: Array | None) -> FloatArray:
        """Without a coin a row counts as one whole row more."""
        return 1.0 - scoring.coins(block, ids) if self.exact else np.ones(len(block.rows))

    def evaluate(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        executor: Any = None,
    ) -> CoverageReport:
        """Coverage and size of the sets on held-out rows; no sets are kept in memory.

        Parameters are those of `fit`. What an executor's workers send back does not grow with
        the rows.
        """
        self._check_groups(groups)
        source = like_calibration(self, probabilities, labels, ids)
        require_labels(source, "Evaluation")
        count = Count(self.rule(logits=source.logits, groups=groups), self.score_edges_)
        seen: Seen = fold_source(source, ids, count, together, Seen.shown, executor)
        return self.coverage_report(source, *seen)

    def coverage_report(
        self,
        source: Source,
        tally: Tally,
        confusions: Confusions,
        histogram: IntArray | None = None,
    ) -> CoverageReport:
        """The report on rows of a source that have been read and counted."""
        report = CoverageReport.from_tally(
            tally,
            self.alpha,
            class_names=source.class_names,
            calibration_counts=self.class_counts_,
            confusions=confusions,
            **self._about_classes(),
        )
        said = doubts(self, report, source, histogram)
        for sentence in said:
            warn_caller(sentence)
        return replace(report, doubts=tuple(said))

    def _about_classes(self) -> dict[str, Any]:
        """What a report says of each class beside its counts."""
        return {"thresholds": self.thresholds_}

    def explain(self, report: CoverageReport, class_index: int) -> Explanation:
        """Why a class has its threshold and, if it is covered too little, why and what to try."""
        sharing, n_rows = self._sharing(), int(self.class_counts_[class_index])
        return Explanation.of(
            report.class_view(class_index),
            own_origin(self.origin, n_rows) if sharing is None else sharing.origin(class_index),
            {name: float(shares[class_index]) for name, shares in self._weights().items()},
            self._cause(np.array([class_index])),
        )

    # ---- parameters --------------------------------------------------------------------------

    def _check_groups(self, groups: Any) -> None:
        needed = "row groups" in self.needs
        if needed and groups is None:
            raise InputError(
                f"{type(self).__name__} needs 'groups', one name or number per row. Got none."
            )
        if groups is not None and not needed:
            raise InputError(
                f"'groups' must be None for the method {self.method!r}, whose thresholds do not "
                "depend on groups of rows; the method 'row-grouped' does."
            )

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        exact_fraction(self.alpha, owner)
        make_score(self.score)
        for name in ("exact", "allow_empty", "from_logits"):
            flag(getattr(self, name), name, owner)
        if self.exact and not self.supports_exact:
            raise InputError(
                f"The 'exact' parameter of {owner} must be False, because its coverage does not "
                "come from one conformal rank that could be randomised. Got True instead."
            )
        check_temperature(self.temperature, owner)
        check_random_state(self.random_state, owner)
