"""New labelled rows join the calibration rows: `partial_fit` is `fit` on all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.columns import as_class_names
from evencover.data.fingerprint import Fingerprint, sum_of
from evencover.data.source import Block, Source
from evencover.engine.blocks import fold_source, map_source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.report import Confusions, CoverageReport, Tally
from evencover.predictors.explanation import Explanation, own_origin, some_names
from evencover.predictors.fitting import (
    CalibrationRows,
    base_rows,
    calibration_source,
    like_calibration,
    note_large_alpha,
    require_fitted,
    require_labels,
    rows_of_scores,
    warn_of_repeated_ids,
    with_scores,
)
from evencover.predictors.method import Method
from evencover.predictors.rule import Rule, Scoring
from evencover.predictors.shift_checks import Count, ScoreBins, Seen, doubts, together
from evencover.predictors.state import Field
from evencover.predictors.temperature import FIT, check_temperature, fitted_temperature
from evencover.quantiles import GroupedScores, Thresholds, exact_fraction
from evencover.randomness import check_random_state, places, row_ids
from evencover.scores import make_score
from evencover.sets import PredictionSets
from evencover.validation import FLOAT_TYPES, flag, whole_number


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


FEW_ELEMENTS = 1 << 16  # up to so many numbers it takes longer to start threads than to use one

# The rule of each predictor that was asked for a few rows, and what it was made of.
_ready: WeakKeyDictionary[Method, tuple[list[Any], Rule]] = WeakKeyDictionary()


def few_rows(predictor: Method, values: Any) -> Array | None:
    """An array or tensor that is small enough for one thread, as it is; None for all else."""
    if "row groups" in predictor.needs:
        return None
    if type(values) is not np.ndarray:
        if not hasattr(values, "detach"):
            return None
        values = to_numpy(values)
    is_few = values.ndim == 2 and 0 < values.size <= FEW_ELEMENTS and values.dtype in FLOAT_TYPES
    has_classes = is_few and values.shape[1] == getattr(predictor, "n_classes_", 0)
    return values if has_classes else None


def ready_rule(predictor: Any) -> Rule:
    """Its rule, made anew only where a parameter or anything learnt is another object by now."""
    now = list(vars(predictor).values())
    before, rule = _ready.get(predictor, ((), None))
    if rule is not None and len(before) == len(now) and all(map(is_, before, now)):
        return rule
    rule = predictor.rule()
    # Limits that were computed from the thresholds would not see these edited in place.
    if rule.limits.upper is predictor.thresholds_:
        _ready[predictor] = now, rule
    return rule


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
