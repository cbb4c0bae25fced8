"""The base of all methods: fit, update, predict, evaluate and explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.columns import as_class_names
from evencover.data.fingerprint import sum_of
from evencover.data.open import as_source
from evencover.data.source import Block, Source
from evencover.engine.blocks import fold_source, map_source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.report import Confusions, CoverageReport, Tally
from evencover.predictors.explanation import CALIBRATION_ROWS, Explanation, some_names
from evencover.predictors.fitting import (
    CalibrationRows,
    align_to_calibration,
    base_rows,
    require_fitted,
    require_labels,
    rows_of_scores,
    warn_of_repeated_ids,
    with_scores,
)
from evencover.predictors.method import MethodContract
from evencover.predictors.prevalence import read_target
from evencover.predictors.rule import BoundScore, SetRule
from evencover.predictors.shift_checks import (
    EvaluationCounts,
    bin_scores,
    count_block,
    merge_counts,
    shift_warnings,
)
from evencover.predictors.state import kept
from evencover.predictors.temperature import FIT, fitted_temperature
from evencover.quantiles import GroupedScores, Thresholds, check_alpha
from evencover.randomness import places, row_ids
from evencover.scores import make_score
from evencover.sets import PredictionSets
from evencover.validation import FLOAT_TYPES, whole_number

FEW_ELEMENTS = 1 << 16  # below this, starting threads takes longer than the work


@dataclass(kw_only=True, eq=False, repr=False)
class BasePredictor(MethodContract):
    """Prediction sets {y : s(x, y) <= threshold of y}, with thresholds fitted by the method.

    A method is a subclass with a name, a summary, `_calibrate`, and its fitted state (`state`).
    `MethodContract` lists what else it may override.

    Parameters
    ----------
    alpha
        Target miscoverage in (0, 1), read as the decimal or fraction as written, so ranks are
        exact. Some methods take one per class: a mapping or Series by class, with "default" for
        all other classes, or a vector (K,).
    score
        "softmax", "aps", "raps", "saps", "pas", or a `Score`.
    exact
        Randomize between two neighboring ranks so that coverage is exactly 1 - alpha. A row's set
        then depends on its id (or content) and `random_state`.
    allow_empty
        If False, replace empty sets with the most probable class.
    from_logits
        Apply a softmax to ``logits / temperature``. Raise for probabilities, unless the input
        declares them as logits.
    temperature
        Divide logits by this. "fit" estimates it by maximum likelihood on a fifth of the rows, at
        most 2000, which are not used for calibration.
    random_state
        Seed. With a row's id (or content and index) it determines every random choice.
    floor
        Guarantee this coverage to every class with at least 1/(1 - floor) - 1 calibration
        examples: its threshold is at least CLASSWISE's at that level.
    strict_floor
        Always include classes with too few examples for the floor.

    Attributes
    ----------
    thresholds_
        (K,) threshold of each class; +inf means that the class is always included.
    class_counts_
        (K,) calibration rows of each class.
    n_classes_, n_calibration_
        K, and the number of calibration rows.
    class_names_
        One name per class, or None.
    fingerprints_
        [fingerprint, index after its last row] of each calibration input.
    """

    # The base score, label, id, rank and value of each calibration row, for `partial_fit`. Without
    # ids, kept_ids_ has the index of the first row.
    kept_scores_: FloatArray | None = kept(float, "A", optional=True)
    kept_labels_: IntArray | None = kept(int, "A", optional=True)
    kept_ids_: IntArray | None = kept(int, "?", optional=True)
    kept_ranks_: IntArray | None = kept(int, "A", optional=True)
    kept_values_: FloatArray | None = kept(float, "A", optional=True)

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
        """Fit the thresholds on data that the model was not trained on.

        Parameters
        ----------
        probabilities
            (N, K) array-like, the path of a file, or an iterable of (n, K) blocks or
            (block, labels) pairs; with an executor also a Dask array, or a list or Dask bag of
            paths.
        labels
            (N,) class indices or names, unless the file or the blocks contain them. A Series, or
            a frame with ids, is joined to rows with an index or ids.
        ids
            (N,) stable row ids, integers or text, which seed a row's random numbers; by default
            the row's content and index do.
        groups
            (N,) the group of each row, for methods with a threshold per group of rows.
        class_names
            One name per class, or {index: name}.
        executor
            None for threads, a `concurrent.futures` executor, or a `dask.distributed` client. The
            result is the same.
        """
        self._check_parameters()
        self._warn_of_large_alpha()
        self._check_groups(groups)
        given: Any = {"ids": ids, "class_names": class_names, "allow_unknown": True}
        source = as_source(probabilities, labels, **given)
        require_labels(source, "Calibration")
        self.temperature_, apart = None, None
        if self.temperature == FIT:
            logits = self.from_logits if source.logits is None else source.logits
            self.temperature_, apart = fitted_temperature(source, ids, logits, self.random_state)
        base = base_rows(self, source, ids, groups, executor, apart)
        rows = with_scores(self, base, source.n_classes, source.class_names)
        self._fit_rows(rows, source.n_classes, source.class_names)
        if apart is None:
            self._keep_rows(base, by_place=ids is None and source.ids is None)
        read = source.rows_read
        self.fingerprints_ = [[read.hexdigest(), self.n_calibration_]]
        self.row_sample_, self.row_sample_limit_ = read.sample.view(np.int64), read.limit
        return self

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
        """Fit the thresholds to the scores (N,) of the true labels.

        Some methods also need `ranks` (N,), from 1, of the true labels, or `groups` (N,) of rows.
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
        if score.base is score:
            self._keep_rows(rows, by_place=ids is None)
        return self

    def _fit_rows(
        self, rows: CalibrationRows, n_classes: int, class_names: Sequence[str] | None
    ) -> Self:
        """Calibrate the method on rows, and keep the result."""
        self.n_classes_, self.class_names_ = n_classes, class_names
        self.fingerprints_, self.out_of_fold_ = [], False
        self.row_sample_ = self.row_sample_limit_ = None
        self.kept_scores_ = self.kept_labels_ = self.kept_ids_ = None
        self.kept_ranks_ = self.kept_values_ = None
        self.class_counts_ = np.bincount(rows.labels, minlength=n_classes)
        self.n_calibration_ = int(self.class_counts_.sum())
        self.score_edges_, self.score_counts_ = bin_scores(rows.scores)
        self.target_prevalence_ = read_target(self)
        self.limits_ = self._with_floor(self._calibrate(rows), rows)
        self._warn_of_few_rows()
        return self

    def _warn_of_large_alpha(self) -> None:
        """Warn of an alpha that seems to be the coverage."""
        largest = check_alpha(self.alpha)
        if largest > 0.5:
            warn_caller(
                f"alpha is {largest:g}, the target miscoverage; for coverage {largest:g} use "
                f"alpha={1 - largest:g}."
            )

    def _with_floor(self, thresholds: Thresholds, rows: CalibrationRows) -> Thresholds:
        """Raise the thresholds to CLASSWISE's at 1 - floor, of classes with enough rows for it.

        A larger threshold only enlarges sets, so the guarantee of CLASSWISE at that level holds.
        """
        self.floor_thresholds_ = None
        if self.floor is None:
            return thresholds

        def quantiles(values: FloatArray) -> FloatArray:
            own = GroupedScores.sort(values, rows.labels, self.n_classes_)
            found = own.quantiles(self.floor_share)
            return found if self.strict_floor else np.where(self.below_floor_, -np.inf, found)

        self.floor_thresholds_ = quantiles(rows.scores)
        ranks = None if rows.ranks is None else quantiles(rows.ranks.astype(np.float64))
        return self._raised(thresholds, ranks)

    def _raised(self, thresholds: Thresholds, rank_floor: FloatArray | None = None) -> Thresholds:
        if self.floor_thresholds_ is None:
            return thresholds
        return thresholds.at_least(self.floor_thresholds_, rank_floor)

    def _warn_of_few_rows(self) -> None:
        """Warn of classes that are always included, and of classes without rows."""
        absent, rank_limit = self.class_counts_ == 0, self.limits_.rank_limit
        few = 0
        if len(self.thresholds_) == self.n_classes_ and rank_limit is None:
            few = int((np.isinf(self.thresholds_) & ~absent).sum())
        if few:
            terms = f"alpha = {self.class_alpha}"
            if self.confidence is not None:
                least = self.row_needs().least
                terms += f" and confidence = {self.confidence}, which takes {least}"
            warn_caller(
                f"{few} of {self.n_classes_} classes have calibration examples, but too few for a "
                f"finite threshold at {terms}; they are always included."
            )
        if absent.any():
            warn_caller(
                f"{int(absent.sum())} of {self.n_classes_} classes have no calibration examples"
                f"{some_names(self.class_names_, absent)}; {self.missing_class_note}."
            )

    # ---- updating ----------------------------------------------------------------------------

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
        """Add labeled rows to the calibration set and refit the thresholds.

        The result is bit-identical to `fit` on all rows, the new ones after the old, with the
        same ids.

        Parameters
        ----------
        probabilities, labels, ids, executor
            New rows, as in `fit`. They need ids if the calibration rows have ids; otherwise ids
            are ignored with a warning.
        window
            Keep only this many rows, the newest.
        since
            Keep only rows from this id on (without ids: from this index on).

        >>> from evencover import StandardPredictor
        >>> p = [[0.75, 0.25], [0.5, 0.5], [0.375, 0.625], [0.25, 0.75]]
        >>> parts = StandardPredictor(alpha=0.5).fit(p[:2], [0, 1]).partial_fit(p[2:], [0, 1])
        >>> parts.thresholds_ == StandardPredictor(alpha=0.5).fit(p, [0, 1, 0, 1]).thresholds_
        array([ True,  True])
        """
        source = align_to_calibration(self, probabilities, labels, ids)
        require_labels(source, "Updating")
        old, first = self._kept_rows()
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
        rows = old.followed_by(new)
        first_kept = 0
        if since is not None:
            found = np.flatnonzero(rows.ids == row_ids([since], 1)[0])
            if not len(found):
                raise InputError(f"'since' must be the id of one of the rows. Got {since!r}.")
            first_kept = int(found[0])
        if window is not None:
            n_kept = whole_number(window, "window", "partial_fit", 1)
            first_kept = max(first_kept, len(rows.ids) - n_kept)
        known = self._known_with(source, rows.labels, len(old.labels), first_kept)
        rows = rows.take(slice(first_kept, None))
        if first is None:
            warn_of_repeated_ids(rows.ids)
        self.class_names_ = self.class_names_ or source.class_names
        return self._refit(rows, *known, by_place=first is not None)

    def with_alpha(self, alpha: Any) -> Self:
        """Return this predictor at another alpha, refitted to the calibration rows that it keeps.

        The result is bit-identical to a new `fit` at this alpha on the same rows.

        >>> from evencover import StandardPredictor
        >>> p = [[0.75, 0.25], [0.5, 0.5], [0.375, 0.625], [0.25, 0.75]]
        >>> StandardPredictor(alpha=0.5).fit(p, [0, 1, 0, 1]).with_alpha(0.25).thresholds_
        array([0.625, 0.625])
        """
        require_fitted(self)
        rows, first = self._kept_rows()
        other = copy(self).set_params(alpha=alpha)
        other._check_parameters()
        other._warn_of_large_alpha()
        known = self.fingerprints_, self.row_sample_, self.row_sample_limit_
        return other._refit(rows, *known, by_place=first is not None)

    def _refit(
        self,
        rows: CalibrationRows,
        fingerprints: list[list[Any]],
        row_sample: IntArray | None,
        row_sample_limit: int | None,
        *,
        by_place: bool,
    ) -> Self:
        """Fit to rows with base scores; keep class names and fingerprints."""
        n_classes, names, out_of_fold = self.n_classes_, self.class_names_, self.out_of_fold_
        self._fit_rows(with_scores(self, rows, n_classes, names), n_classes, names)
        self._keep_rows(rows, by_place=by_place)
        self.fingerprints_, self.out_of_fold_ = fingerprints, out_of_fold
        self.row_sample_, self.row_sample_limit_ = row_sample, row_sample_limit
        return self

    def _known_with(
        self, source: Source, labels: IntArray, n_old: int, first: int
    ) -> tuple[list[list[Any]], IntArray, int]:
        """Return fingerprints, row sample and its limit of all inputs, from row `first` on.

        An input is known while any of its rows is kept; so are all rows as one input.
        """
        read, n_classes, known = source.rows_read, self.n_classes_, list(self.fingerprints_)
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
        """Return the calibration scores of each class, sorted, as the rule compares them."""
        if self.kept_scores_ is None or self.kept_labels_ is None:
            return None
        return GroupedScores.sort(self.kept_scores_, self.kept_labels_, self.n_classes_)

    def _keep_rows(self, rows: CalibrationRows, *, by_place: bool) -> None:
        """Keep rows with their base scores."""
        if rows.groups is not None:
            return
        self.kept_scores_, self.kept_values_ = rows.scores, rows.label_values
        self.kept_labels_ = rows.labels.astype(np.int64, copy=False)
        ids = rows.ids.astype(np.uint64, copy=False).view(np.int64)
        self.kept_ids_ = ids[:1].copy() if by_place else ids
        self.kept_ranks_ = None if rows.ranks is None else rows.ranks.astype(np.int64, copy=False)

    def _kept_rows(self) -> tuple[CalibrationRows, int | None]:
        """Return the kept rows and the place of the next one; None if rows go by ids."""
        scores, labels, ids = self.kept_scores_, self.kept_labels_, self.kept_ids_
        if scores is None or labels is None or ids is None:
            raise InputError(
                f"This {self.method!r} predictor cannot be updated, because it keeps no "
                "calibration rows: these have groups, a fitted temperature, or scores that depend "
                "on the class counts; calibrate again on all rows."
            )
        first, keys = None, ids.view(np.uint64)
        if not len(ids) == len(scores) > 1:
            first = int(ids[0]) + len(scores)
            keys = places(int(ids[0]), first)
        kept = CalibrationRows(
            scores, labels, keys, self.kept_ranks_, label_values=self.kept_values_
        )
        return kept, first

    # ---- prediction --------------------------------------------------------------------------

    def rule(self, *, logits: bool | None = None, groups: Any = None) -> SetRule:
        """Build the frozen rule that turns rows and ids into sets.

        `logits` states whether rows are logits. By default `from_logits` does, and the rule
        rejects probabilities where it expects logits.
        """
        require_fitted(self)
        self._check_groups(groups)
        return self._rule(self.limits_, logits)

    def _rule(self, limits: Thresholds, logits: bool | None) -> SetRule:
        score = self.score_
        limits = score.base_thresholds(limits)
        scoring = self.bound_score(logits, score)
        return SetRule(scoring, limits, self.allow_empty, self.class_names_)

    def _are_few(self, values: Any) -> bool:
        """Return whether this is an array or tensor that is small enough for one thread."""
        if "row groups" in self.needs:
            return False
        if type(values) is not np.ndarray:
            if not hasattr(values, "detach"):
                return False
            values = to_numpy(values)
        is_few = values.ndim == 2 and 0 < values.size <= FEW_ELEMENTS
        has_classes = is_few and values.shape[1] == getattr(self, "n_classes_", 0)
        return has_classes and values.dtype in FLOAT_TYPES

    @cached_property
    def _few_rule(self) -> SetRule:
        """The rule for a few rows: built once, until an attribute is set."""
        return self.rule()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a parameter or fitted attribute, for which a rule is built again."""
        super().__setattr__(name, value)
        vars(self).pop("_few_rule", None)
        if name in ("alpha", "class_names_", "n_classes_"):
            vars(self).pop("class_alpha", None)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of copies and pickles what is built when needed."""
        built = ("_few_rule", "class_alpha")
        return {name: value for name, value in vars(self).items() if name not in built}

    def predict_set(
        self, probabilities: Any, *, ids: Any = None, groups: Any = None, executor: Any = None
    ) -> PredictionSets:
        """Compute the prediction set of each row, the most probable class first.

        Parameters
        ----------
        probabilities, groups, executor
            As in `fit`. The sets keep the index of a pandas frame for `to_pandas`.
        ids
            (N,) stable row ids; the same id always gets the same random choices. Without ids,
            equal rows that are passed one at a time share theirs.
        """
        if executor is None and groups is None and self._are_few(probabilities):
            return self._few_rule.predict_set(probabilities, ids)
        blocks = self.predict_set_blocks(probabilities, ids=ids, groups=groups, executor=executor)
        return PredictionSets.concatenate(blocks).indexed_like(probabilities)

    def predict_set_blocks(
        self, probabilities: Any, *, ids: Any = None, groups: Any = None, executor: Any = None
    ) -> Iterator[PredictionSets]:
        """Yield the prediction sets block by block; on an executor, part by part."""
        source = align_to_calibration(self, probabilities)
        sets = self.rule(logits=source.logits, groups=groups).sets
        return map_source(source, ids, sets, PredictionSets.concatenate, executor)

    def predict_p(self, probabilities: Any, *, ids: Any = None, groups: Any = None) -> FloatArray:
        """Compute the conformal p-value of each class in each row (N, K).

        The set at level alpha is {y : p > alpha}, for every alpha; a floor may add classes to it.
        """
        source = align_to_calibration(self, probabilities)
        self._check_groups(groups)
        function = self._p_function(source, groups)
        return np.concatenate(list(map_source(source, ids, function)))

    def _p_function(
        self, source: Source, groups: Any
    ) -> Callable[[Block, Array | None], FloatArray]:
        """Return the function from a block and its ids to p-values."""
        return partial(self._p_block, self.bound_score(source.logits, self.score_))

    def _p_block(self, scoring: BoundScore, block: Block, ids: Array | None) -> FloatArray:
        scores = scoring.matrix(block, scoring.draws(block, ids))
        own_share = self._own_share(scoring, block, ids)
        return self._p_values(scores, np.arange(self.n_classes_), own_share)

    def _own_share(self, scoring: BoundScore, block: Block, ids: Array | None) -> FloatArray:
        """Return how much a row itself counts (n,): 1, or at random."""
        return 1.0 - scoring.rank_draws(block, ids) if self.exact else np.ones(len(block.rows))

    def evaluate(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        executor: Any = None,
        top: int | None = None,
    ) -> CoverageReport:
        """Measure coverage and set size on held-out rows.

        Labels that are not among the classes count as misses.

        Parameters
        ----------
        probabilities, labels, ids, groups, executor
            As in `fit`.
        top
            Also measure sets cut to this many most probable classes (``at_top``).
        """
        source = align_to_calibration(self, probabilities, labels, ids, allow_unknown=True)
        require_labels(source, "Evaluation")
        if top is not None:
            whole_number(top, "top", "evaluate", 1)
        rule = self.rule(logits=source.logits, groups=groups)
        count = partial(count_block, rule, self.score_edges_, top)
        finish = EvaluationCounts.abridged
        counts = fold_source(source, ids, count, merge_counts, finish, executor)
        return self.coverage_report(source, *counts)

    def coverage_report(
        self,
        source: Source,
        tally: Tally,
        confusions: Confusions,
        histogram: IntArray | None = None,
        cut: Tally | None = None,
    ) -> CoverageReport:
        """Make the report on rows of a source that have been read and counted."""
        if not tally.rows.any():
            raise source.no_known_label()
        about = {"class_names": source.class_names, "calibration_counts": self.class_counts_}
        about |= self._about_classes()
        report = CoverageReport.from_tally(tally, self.class_alpha, confusions=confusions, **about)
        if cut is not None:
            at_top = CoverageReport.from_tally(cut, self.class_alpha, **about)
            report = replace(report, at_top=at_top)
        found = shift_warnings(self, report, source, histogram)
        for warning in found:
            warn_caller(warning)
        return replace(report, data_warnings=tuple(found))

    def _about_classes(self) -> dict[str, Any]:
        """Return what a report shows of each class next to its counts."""
        return {"thresholds": self.thresholds_}

    def explain(self, report: CoverageReport, class_index: int) -> Explanation:
        """Explain a class's threshold and, if it is undercovered, why and what to try."""
        sharing, n = self._sharing(), int(self.class_counts_[class_index])
        rows = f"{n:,} calibration example{'' if n == 1 else 's'}"
        view = report.class_view(class_index)
        return Explanation(
            view.name,
            view.threshold,
            sharing.origin(class_index) if sharing else self.origin.replace(CALIBRATION_ROWS, rows),
            {name: float(shares[class_index]) for name, shares in self._weights().items()},
            self._cause(np.array([class_index])),
        )

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
