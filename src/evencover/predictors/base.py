"""The base of all methods: parameters, fitting, updating, predicting, evaluating."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from evencover.answers import Answers, Levels
from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.engine.blocks import fold_source, map_source
from evencover.errors import InputError, NotFittedError, listed
from evencover.evaluation.metrics import EvaluationCounts
from evencover.evaluation.report import CoverageReport
from evencover.predictors import explanations
from evencover.predictors.acceptance import CONFIDENCE, Acceptance, fit_acceptance
from evencover.predictors.calibration import (
    CalibrationInputs,
    appended,
    read_calibration,
    read_predictions,
    require_labels,
    require_rereadable,
    rows_of_scores,
)
from evencover.predictors.caps import ScoreSample, check_price, sample_size, sampled_rows
from evencover.predictors.explanations import Explanation
from evencover.predictors.fit import Fit
from evencover.predictors.held_out import coverage_report, with_large_sets
from evencover.predictors.method import Method
from evencover.predictors.rule import BoundScore, SetRule
from evencover.quantiles import is_per_class
from evencover.rows import FLOAT_TYPES
from evencover.scores import Score, make_score
from evencover.scores.registry import Registry
from evencover.sets import PredictionSets
from evencover.sizes import at_once
from evencover.taxonomy import Taxonomy
from evencover.templates import Card, Shown
from evencover.validation import flag, real_number

FEW_ELEMENTS = at_once(1 << 16, 10)  # below this, starting threads takes longer than the work


@dataclass(kw_only=True, eq=False, repr=False)
class BasePredictor(Method, Shown):
    """Prediction sets {y : s(x, y) <= threshold of y}, with thresholds fitted by the method.

    A method is a subclass with a name, a summary, a guarantee and `_calibrate`; further parameters
    are the keyword-only fields of a dataclass. All that a fit finds is in one read-only value,
    `fit_`. A parameter that is changed later takes effect with the next `fit`; until then
    predictions raise.

    Parameters
    ----------
    alpha
        Target miscoverage in (0, 1), read as the decimal or fraction as written, so ranks are
        exact. Some methods take one per class: a mapping or Series by class, with "default" for
        all other classes, or a vector (K,).
    score
        "softmax", "aps", "raps", "saps", "pas", or a `Score`.
    exact
        Randomize between two neighboring ranks so that coverage is exactly 1 - alpha, or with
        POOLED close to it. A row's set then depends on its id (or content) and `random_state`.
    keep_top
        Include the most probable class in every set, so that no set is empty. Sets only grow, so
        every guarantee remains. "auto" means True, but False with `exact`, whose coverage would
        no longer be exactly 1 - alpha. False is the paper's definition.
    from_logits
        Apply a softmax to the rows. Raise for probabilities, unless the input declares them as
        logits.
    random_state
        Seed. With a row's id (or content and index) it determines every random choice.
    floor
        A guarantee for every class: its threshold is at least one of its own scores. A number
        guarantees that coverage to classes with at least 1/(1 - floor) - 1 calibration examples.
        "auto", the default of POOLED, guarantees k/(n+1), where k is the largest rank with
        P(Binomial(n, 1 - alpha) < k) <= 0.1: 73% with 10 examples, 82% with 50 at alpha 0.1.
    max_share
        The price that a class may have: the largest share of the sets of other classes that it
        may enter, such as 0.1. A threshold that exceeds it, and that of STANDARD, is lowered to
        the larger of both limits. Such a class has no guarantee; `is_capped_` and `share_` name
        it with its price. While a class is capped, other guarantees do not hold overall, for
        clusters or with a confidence. P-values ignore caps. `fit` reads the rows twice, so they
        cannot be an iterator. None caps nothing.
    """

    # ---- calibration -------------------------------------------------------------------------

    def _check_parameters(self) -> Score:
        """Raise InputError for an invalid parameter; return the score."""
        owner, values = type(self).__name__, vars(self)
        for cls in reversed(type(self).__mro__):
            for name, check in vars(cls).get("_constraints", {}).items():
                # The class attribute is the default, which needs no check.
                if name in values and values[name] is not getattr(type(self), name, None):
                    check(values[name], name, owner)
        if "exact" not in self.supports:
            self._reject_exact()
        check_price(self.max_share, self.floor, owner)
        if "class alpha" not in self.supports and is_per_class(self.alpha):
            takers = [name for name, cls in PREDICTORS.items() if "class alpha" in cls.supports]
            raise InputError(
                f"The 'alpha' parameter of {owner} must be one number for all classes. Got "
                f"one per class; {listed(map(repr, takers), 5)} take that."
            )
        return make_score(self.score)

    def fit(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        allow_sorted: bool = False,
        executor: Any = None,
    ) -> Self:
        """Fit the thresholds on data that the model was not trained on.

        Parameters
        ----------
        probabilities
            (N, K) array-like, `TopK` or a sparse matrix, the path of a file, or an iterable of
            (n, K) blocks or (block, labels) pairs; or a list of paths.
        labels
            (N,) class indices or names, unless the file or the blocks contain them. A frame or
            file with ids is joined to rows with ids.
        ids
            (N,) stable row ids, integers or text, which seed a row's random numbers; by default
            the row's content and index do. False ignores ids in the input.
        class_names
            One name per class, {index: name}, or the path of a file of names or of a model. Top-k
            rows need not list all of these classes.
        labels_are
            "indices" or "names": what integer labels are, if a class has a number as its name.
        allow_sorted
            Accept rows whose numbers all decrease, which are usually ranked lists.
        executor
            None for threads, a `concurrent.futures` executor, or a `dask.distributed` client. The
            result is the same.
        """
        score = self._check_parameters()
        how: Any = {"class_names": class_names, "labels_are": labels_are, "allow_unknown": True}
        source = as_source(probabilities, labels, ids=ids, allow_sorted=allow_sorted, **how)
        require_labels(source, "Calibration")
        assumed = BoundScore(score, self.from_logits, self.random_state, assumed=True)
        scoring, sample = assumed.for_input(source.logits), None
        if self.max_share is not None:
            require_rereadable(source, "'max_share'")
        rows, read, is_known = read_calibration(source, scoring, self.needs, executor)
        if self.max_share is not None:
            chosen = sampled_rows(rows.ids, sample_size(rows.n_classes))
            chosen = np.flatnonzero(is_known)[chosen]
            sample = ScoreSample.read(source, scoring, chosen, self.needs, executor)
        known = ((read.hexdigest(), len(rows.scores)),)
        inputs = CalibrationInputs(known, read.precision, read.k)
        self.fit_ = Fit.calibrated(self, rows, inputs, sample)
        return self

    def fit_scores(
        self,
        scores: Any,
        labels: Any,
        n_classes: int,
        *,
        ids: Any = None,
        ranks: Any = None,
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Fit the thresholds to the scores (N,) of the true labels.

        Some methods also need `ranks` (N,), from 1, of the true labels. `max_share` needs the
        scores of every class in some rows, which only `fit` has.
        """
        score = self._check_parameters()
        if self.max_share is not None:
            raise InputError(
                "'max_share' must be None in 'fit_scores', because it needs the scores of every "
                f"class. Got {self.max_share!r}; use 'fit' with the rows."
            )
        rows = rows_of_scores(
            scores,
            labels,
            int(n_classes),
            self.needs,
            ids=ids,
            ranks=ranks,
            class_names=class_names,
            of_base=score.base is score,
        )
        self.fit_ = Fit.calibrated(self, rows, CalibrationInputs())
        return self

    def partial_fit(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        window: int | None = None,
        executor: Any = None,
    ) -> Self:
        """Add labeled rows to the calibration set and refit the thresholds.

        The result is bit-identical to `fit` on all rows, the new ones after the old, with the
        same ids. With `max_share`, it keeps the limits of the first calibration.

        Parameters
        ----------
        probabilities, labels, ids, class_names, labels_are, executor
            New rows, as in `fit`. They need ids if the calibration rows have ids; otherwise ids
            are ignored with a warning.
        window
            Keep only this many rows, the newest.

        >>> from evencover import StandardPredictor
        >>> p = [[0.75, 0.25], [0.5, 0.5], [0.375, 0.625], [0.25, 0.75]]
        >>> parts = StandardPredictor(alpha=0.5).fit(p[:2], [0, 1]).partial_fit(p[2:], [0, 1])
        >>> parts.thresholds_ == StandardPredictor(alpha=0.5).fit(p, [0, 1, 0, 1]).thresholds_
        array([ True,  True])
        """
        fit = Fit.of(self)
        if not fit.rows.of_base:
            raise InputError(
                f"This {self.method!r} predictor cannot be updated, because its scores depend on "
                "the class counts; calibrate again on all rows."
            )
        source = fit.open(
            probabilities, labels, ids, class_names=class_names, labels_are=labels_are
        )
        require_labels(source, "Updating")
        scoring = fit.rule.scoring.for_input(source.logits)
        rows, inputs = appended(
            fit.rows, fit.inputs, source, scoring, self.needs, executor, window=window
        )
        self.fit_ = fit.refitted(rows, inputs)
        return self

    def fit_acceptance(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        accuracy: float = 0.95,
        confidence: float = CONFIDENCE,
        per_class: bool = True,
        taxonomy: Any = None,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        executor: Any = None,
    ) -> Self:
        """Choose which predictions to accept without a review, so that they are right often enough.

        With probability `confidence` over labeled rows, the accuracy among accepted predictions is
        at least `accuracy`. A prediction is then accepted if its probability reaches the cutoff of
        its class, whatever its set. With a `taxonomy`, rows whose class does not reach its cutoff
        are answered with a wider group that does (`answers`), and the accuracy is that of all
        answers. The calibration rows themselves can be used, because cutoffs do not depend on
        thresholds.

        Parameters
        ----------
        probabilities, labels, ids, class_names, labels_are, executor
            As in `fit`.
        accuracy
            Target accuracy among accepted predictions.
        confidence
            Probability of reaching it.
        per_class
            Whether the accuracy of each predicted class and group has the same target. False
            usually accepts more. Choose before you look at the result for either.
        taxonomy
            A `Taxonomy`, or what `Taxonomy.read` makes one from.
        """
        fit = Fit.of(self)
        for name, value in (("accuracy", accuracy), ("confidence", confidence)):
            real_number(value, name, "fit_acceptance", 0, 1, open_low=True, open_high=True)
        flag(per_class, "per_class", "fit_acceptance")
        if not fit.keep_top:
            raise InputError(
                f"'keep_top' of {type(self).__name__} must be True to accept predictions. Got "
                "False, so a set may lack the class that is accepted."
            )
        how = {"class_names": class_names, "labels_are": labels_are, "allow_unknown": True}
        source = fit.open(probabilities, labels, ids, **how)
        require_labels(source, "Acceptance")
        scoring = fit.rule.scoring.for_input(source.logits)
        levels = Levels.of_classes(fit.n_classes)
        if taxonomy is not None:
            levels = Taxonomy.read(taxonomy, source.class_names).levels(fit.n_classes)
        source = source.expecting(None, groups=levels.groups)
        found, keys = read_predictions(source, scoring, levels, executor)
        acceptance = fit_acceptance(
            found,
            levels,
            keys,
            accuracy=float(accuracy),
            confidence=float(confidence),
            per_class=per_class,
            random_state=self.random_state,
        )
        self.fit_ = replace(fit, acceptance=acceptance)
        return self

    def with_alpha(self, alpha: Any) -> Self:
        """Return this predictor at another alpha, refitted to the calibration rows that it keeps.

        The result is bit-identical to a new `fit` at this alpha on the same rows. With `max_share`,
        it keeps the limits of the first calibration.

        >>> from evencover import StandardPredictor
        >>> p = [[0.75, 0.25], [0.5, 0.5], [0.375, 0.625], [0.25, 0.75]]
        >>> StandardPredictor(alpha=0.5).fit(p, [0, 1, 0, 1]).with_alpha(0.25).thresholds_
        array([0.625, 0.625])
        """
        fit = Fit.of(self)
        other = replace(self, alpha=alpha)
        other._check_parameters()
        other.fit_ = fit.refitted(fit.rows, fit.inputs, alpha=alpha)
        return other

    # ---- the fit -----------------------------------------------------------------------------

    @property
    def _any_fit(self) -> Fit:
        """The fit, also if parameters were changed after it."""
        try:
            fit: Fit = vars(self)["fit_"]
        except KeyError:
            raise NotFittedError(
                f"This {type(self).__name__} is not calibrated yet; call 'fit' with calibration "
                "probabilities and labels first."
            ) from None
        return fit

    @property
    def thresholds_(self) -> FloatArray:
        """The threshold of each class (K,), +inf if always included; with `exact` the upper one."""
        return self._any_fit.thresholds.upper

    @property
    def class_counts_(self) -> IntArray:
        """The number of calibration rows of each class (K,)."""
        return self._any_fit.rows.class_counts

    @property
    def class_names_(self) -> tuple[str, ...] | None:
        """One name per class, or None."""
        return self._any_fit.class_names

    @property
    def n_classes_(self) -> int:
        """The number of classes."""
        return self._any_fit.n_classes

    @property
    def n_calibration_(self) -> int:
        """The number of calibration rows."""
        return len(self._any_fit.rows)

    @property
    def alpha_(self) -> FloatArray:
        """The target miscoverage of each class (K,)."""
        return self._any_fit.alpha.floats

    @property
    def score_(self) -> Score:
        """The score, with what the calibration labels decide filled in."""
        return self._any_fit.rule.scoring.score

    @property
    def acceptance_(self) -> Acceptance | None:
        """Which predictions are accepted, if `fit_acceptance` decided it."""
        return self._any_fit.acceptance

    @property
    def guarantees_(self) -> FloatArray:
        """The guaranteed coverage of each class (K,), on average over calibration sets; 0 if none.

        A threshold that is at least the k-th smallest of the class's own n calibration scores
        covers the class with probability k/(n+1) or more.
        """
        return self._any_fit.guarantees

    @property
    def is_capped_(self) -> Array:
        """Whether `max_share` lowers the threshold of each class (K,)."""
        return self._any_fit.is_capped

    @property
    def share_(self) -> FloatArray:
        """The share of the sets of other classes that each class would enter without caps (K,).

        NaN without `max_share`, and after an update or `with_alpha`.
        """
        return self._any_fit.share

    # ---- prediction --------------------------------------------------------------------------

    def rule(self, *, logits: bool | None = None) -> SetRule:
        """Return the frozen rule that turns rows and ids into sets.

        `logits` states whether rows are logits. By default `from_logits` does, and the rule
        rejects probabilities where it expects logits.
        """
        return Fit.of(self).rule.for_input(logits)

    def predict_set(
        self,
        probabilities: Any,
        *,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        executor: Any = None,
    ) -> PredictionSets:
        """Compute the prediction set of each row, the most probable class first.

        Parameters
        ----------
        probabilities, executor
            As in `fit`. The sets keep the index of a pandas frame for `to_pandas`.
        ids
            (N,) stable row ids; the same id always gets the same random choices. Without ids,
            equal rows that are passed one at a time share theirs.
        class_names
            Names of the classes of these rows by index, if neither rows nor model have them.
        labels_are
            "indices" or "names": what integers are that rows list, or that name columns.
        """
        fit, few = Fit.of(self), None
        if executor is None and class_names is None and ids is not False:
            few = _few_rows(probabilities, fit.rows.n_classes)
        if few is not None:
            sets = fit.rule.few_sets(few, ids)
            fit.check_precision(few)
            return sets
        how: Any = {"class_names": class_names, "labels_are": labels_are}
        source = fit.open(probabilities, ids=ids, read_labels=False, **how)
        parts = _map_sets(fit, source, executor)
        return PredictionSets.concatenate(parts, source.n_rows).indexed_like(probabilities)

    def answers(
        self,
        probabilities: Any,
        *,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        executor: Any = None,
    ) -> Answers:
        """Answer each row at the finest level that is accurate enough; None for a review.

        `fit_acceptance` must have fitted the cutoffs.

        Parameters
        ----------
        probabilities, ids, class_names, labels_are, executor
            As in `predict_set`.
        """
        how: Any = {"class_names": class_names, "labels_are": labels_are, "executor": executor}
        answers = self.predict_set(probabilities, ids=ids, **how).answers
        if answers is None:
            raise InputError("Answers need cutoffs; call 'fit_acceptance' (--accept-accuracy).")
        return answers

    def predict_set_blocks(
        self,
        probabilities: Any,
        *,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        executor: Any = None,
    ) -> Iterator[PredictionSets]:
        """Yield the prediction sets block by block; on an executor, part by part."""
        fit, how = Fit.of(self), {"class_names": class_names, "labels_are": labels_are}
        return _map_sets(fit, fit.open(probabilities, ids=ids, read_labels=False, **how), executor)

    def predict_p(
        self,
        probabilities: Any,
        *,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
    ) -> Any:
        """Compute the conformal p-value of each class in each row (N, K).

        The set at level alpha is {y : p > alpha}, for every alpha; a floor and the most probable
        class (`keep_top`) may add classes to it, and `max_share` may remove some. Of top-k rows
        the result is a SciPy CSR array with the p-values of the listed classes.
        """
        fit, how = Fit.of(self), {"class_names": class_names, "labels_are": labels_are}
        source = fit.open(probabilities, ids=ids, read_labels=False, **how)
        parts = list(map_source(source, partial(fit.p_values, logits=source.logits)))
        if not isinstance(parts[0], np.ndarray):
            from scipy.sparse import vstack

            return vstack(parts, format="csr")
        return np.concatenate(parts)

    def evaluate(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        allow_sorted: bool = False,
        executor: Any = None,
    ) -> CoverageReport:
        """Measure coverage and set size on held-out rows.

        Labels that are not among the classes count as misses. If at most 5% of the classes supply
        more than half of the labels in sets, the report names them, and rows that can be read again
        are read twice more to state what ``max_share=0.1`` would give.

        Parameters
        ----------
        probabilities, labels, ids, class_names, labels_are, allow_sorted, executor
            As in `fit`.
        """
        fit = Fit.of(self)
        how: Any = {"class_names": class_names, "labels_are": labels_are, "allow_unknown": True}
        how |= {"allow_sorted": allow_sorted, "groups": fit.label_groups}
        source = fit.open(probabilities, labels, ids, **how)
        require_labels(source, "Evaluation")
        count, finish = fit.rule.for_input(source.logits).counts, EvaluationCounts.abridged
        counts, read = fold_source(source, count, EvaluationCounts.total, finish, executor)
        return with_large_sets(fit, source, coverage_report(fit, source, read, counts), executor)

    def explain(self, report: CoverageReport, class_index: int) -> Explanation:
        """Explain a class's threshold and, if it is undercovered, why and what to try."""
        return explanations.explain(Fit.of(self), report, class_index)

    @property
    def guarantee_text(self) -> str:
        """The guarantee of this predictor, as `info` and the report show it."""
        return explanations.guarantee_text(Fit.of(self))

    def _card(self) -> Card:
        fit: Fit | None = vars(self).get("fit_")
        if fit is None:
            return Card(repr(self), lines=[self.summary])
        infinite = int(np.isinf(fit.thresholds.upper).sum())
        figures = [
            ("calibration examples", f"{len(fit.rows):,}", f"of {fit.n_classes:,} classes"),
            ("always included", f"{infinite:,}", "classes with an infinite threshold"),
        ]
        return Card(repr(fit.method), figures, lines=[explanations.guarantee_text(fit)])


PREDICTORS: Registry[BasePredictor] = Registry(
    "method", BasePredictor, "method", "evencover.predictors"
)


def _map_sets(fit: Fit, source: Source, executor: Any) -> Iterator[PredictionSets]:
    """Yield the prediction sets of each block or, on an executor, of each part."""
    sets = fit.rule.for_input(source.logits).sets
    return map_source(source, sets, PredictionSets.concatenate, executor)


def _few_rows(values: Any, n_classes: int) -> Array | None:
    """Return an array or tensor (n, K) that is small enough for one thread; otherwise None."""
    if type(values) is not np.ndarray:
        if not hasattr(values, "detach"):
            return None
        values = to_numpy(values)
    shape: tuple[int, ...] = values.shape
    if len(shape) != 2 or shape[1] != n_classes or not 0 < values.size <= FEW_ELEMENTS:
        return None
    return values if values.dtype in FLOAT_TYPES else None
