"""The base of all methods: parameters, fitting, updating, predicting, evaluating, explaining."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from operator import itemgetter
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.data.fingerprint import Fingerprint, Sampler
from evencover.data.open import as_source
from evencover.data.source import Block, Source
from evencover.engine.blocks import fold_source, gathered, joined, map_source
from evencover.errors import InputError, NotFittedError, warn_caller
from evencover.evaluation.metrics import EvaluationCounts
from evencover.evaluation.report import CoverageReport
from evencover.predictors.acceptance import CONFIDENCE, Acceptance, Predictions, fit_acceptance
from evencover.predictors.calibration import (
    CalibrationInputs,
    CalibrationRows,
    appended,
    read_rows,
    require_labels,
    rows_of_scores,
    warn_of_mismatch,
)
from evencover.predictors.fit import Fit
from evencover.predictors.guarantees import (
    AUTO,
    NO_CLASS,
    ON_AVERAGE,
    TOP_K_LOSES,
    Explanation,
    Floor,
    Needs,
    as_percent,
    remedy,
    some_names,
)
from evencover.predictors.rule import BoundScore, SetRule
from evencover.predictors.shift_checks import shift_warnings
from evencover.quantiles import (
    Alpha,
    ClassAlpha,
    Groups,
    Thresholds,
    check_alpha,
    exact_fraction,
    is_per_class,
)
from evencover.rows import FLOAT_TYPES
from evencover.scores import Score, make_score
from evencover.sets import PredictionSets
from evencover.sizes import at_once
from evencover.topk import TopK
from evencover.validation import Check, flag, raise_unknown, real_number, unless, whole_number

FEW_ELEMENTS = at_once(1 << 16, 10)  # below this, starting threads takes longer than the work

Value = TypeVar("Value")

# What reads the values of all parameters of a class from the attributes of a predictor.
_parameters_in: Callable[[Any], itemgetter[Any]] = cache(
    lambda cls: itemgetter(*cls._parameter_names())
)


@dataclass(kw_only=True, eq=False, repr=False)
class BasePredictor:
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
        Randomize between two neighboring ranks so that coverage is exactly 1 - alpha. A row's set
        then depends on its id (or content) and `random_state`.
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
    """

    alpha: Alpha | Mapping[Any, Any] | Sequence[Any] | Array = 0.1
    score: Score | str = "softmax"
    exact: bool = False
    keep_top: bool | str = AUTO
    from_logits: bool = False
    random_state: int = 0
    floor: Alpha | None = None

    method: ClassVar[str]
    # One sentence each, shown by help, `info`, the docs and the report.
    summary: ClassVar[str] = ""
    # In a guarantee, {sets} is "on average over calibration sets", or as many of them as the
    # confidence, and {single} that no single class has one, unless a floor gives it one.
    guarantee: ClassVar[str] = "No guarantee."
    # Next to scores, labels and ids: "ranks" of the true labels, "label values".
    needs: ClassVar[tuple[str, ...]] = ()

    # The NamedTuple that `_calibrate` returns next to the thresholds, if it does.
    _State: ClassVar[Any] = type(None)
    # One check per parameter: a function of value, name and owner that raises InputError.
    _constraints: ClassVar[dict[str, Check]] = {
        "alpha": check_alpha,
        "exact": flag,
        "keep_top": unless((AUTO,), flag),
        "from_logits": flag,
        "random_state": partial(whole_number, low=0, high=2**64 - 1),
        "confidence": unless((None,), exact_fraction),
        "floor": unless((None, AUTO), exact_fraction),
    }
    # Whether it takes exact=True, and an alpha per class.
    _supports_exact: ClassVar[bool] = True
    _supports_class_alpha: ClassVar[bool] = False
    # Whether it targets coverage of 1 - alpha over all rows, and whether that depends on their
    # class frequencies.
    _targets_average: ClassVar[bool] = True
    _depends_on_prevalence: ClassVar[bool] = True
    # Whether it needs a parameter that only the user can give, so that "all" methods omit it.
    _only_if_asked: ClassVar[bool] = False
    # Words: the guarantee if classes have their own alpha and it is another one; where a threshold
    # comes from ({rows} are the class's calibration rows), why a class may be undercovered, and
    # what happens to classes without calibration rows.
    _guarantee_by_alpha: ClassVar[str] = ""
    _origin: ClassVar[str] = (
        "A set includes the class if its score is at most the threshold. The threshold comes from "
        "the {rows} of this class and those of other classes."
    )
    _usual_cause: ClassVar[str] = "Thresholds shared with other classes may not suit these."
    _missing_class_note: ClassVar[str] = "they use the standard threshold"

    # ---- for a method to override ----------------------------------------------------------------

    @abstractmethod
    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, Any]:
        """Compute thresholds from calibration rows: the method itself.

        Return the thresholds, and what else p-values and explanations need: a NamedTuple of arrays
        and numbers that the class names as `_State`, or None. What is set on `self` is lost.
        """

    def _check_fit(self, fit: Fit) -> None:
        """Raise InputError if the state of a fit, which may come from a file, does not fit."""

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        """Compute p-values from scores (n, J) of rows as members of `classes` (J,).

        A row itself counts as `own_share` (n, 1), or (n, J), of one more calibration row.
        """
        raise InputError(f"The '{self.method}' method does not provide p-values.")

    @property
    def _groups(self) -> Groups | None:
        """The groups of calibration scores behind the thresholds, if there are such."""
        return None

    def _own_guarantees(self) -> FloatArray:
        """Return the coverage (K,) that the method itself guarantees to each class."""
        return np.zeros(self.n_classes_)

    def _level_rows(self) -> int:
        """Count the rows that decide the level of all thresholds together."""
        return self.n_calibration_

    def _rows_behind(self, report: CoverageReport) -> float:
        """Return the number of rows behind the average coverage, as if in one group."""
        if self._groups is None:
            return self._level_rows()
        counts, of_class = self._groups.scores.counts, self._groups.of_class
        rows = np.bincount(of_class, weights=report.class_counts, minlength=len(counts))
        return float(1 / ((rows / report.n_rows) ** 2 / (counts + 2)).sum() - 2)

    def _weights(self) -> dict[str, FloatArray]:
        """Return shares (K,) of the sources of each class's threshold, by name."""
        return {}

    def _cause(self, under: IntArray) -> str:
        """Explain why the classes `under` may be undercovered, and what to try."""
        counts = self.class_counts_[under]
        cause = self._guarantor()._usual_cause
        return f"{cause} {remedy(counts, self._row_needs(), self.method)}".rstrip()

    def _fitted_values(self) -> dict[str, Any]:
        """Return plain values worth a column in a table, such as the number of clusters."""
        return {}

    # ---- parameters ------------------------------------------------------------------------------

    @classmethod
    @cache
    def _parameter_names(cls) -> tuple[str, ...]:
        """Return the names of all parameters: alpha, score, the method's own, the shared ones."""
        names = [field.name for field in fields(cls)]
        shared = [field.name for field in fields(BasePredictor)]
        return (*shared[:2], *(name for name in names if name not in shared), *shared[2:])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name; `deep` is there for scikit-learn."""
        return dict(
            zip(self._parameter_names(), _parameters_in(type(self))(vars(self)), strict=True)
        )

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name, for the next `fit`."""
        known = self._parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise_unknown(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self

    def _with_params(self, **parameters: Any) -> Self:
        """Return a new, unfitted predictor with some parameters changed."""
        return type(self)(**self.get_params()).set_params(**parameters)

    def __sklearn_tags__(self) -> Any:
        """Describe the predictor to scikit-learn, for `check_is_fitted`."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def __repr__(self) -> str:
        default = {field.name: field.default for field in fields(self)}
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(default[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _check_parameters(self) -> Score:
        """Raise InputError for an invalid parameter; return the score."""
        owner, values = type(self).__name__, vars(self)
        for cls in reversed(type(self).__mro__):
            for name, check in vars(cls).get("_constraints", {}).items():
                # The class attribute is the default, which needs no check.
                if name in values and values[name] is not getattr(type(self), name, None):
                    check(values[name], name, owner)
        if self.exact and not self._supports_exact:
            raise InputError(
                f"The 'exact' parameter of {owner} must be False: its coverage does not come from "
                "one conformal rank. Got True."
            )
        if not self._supports_class_alpha and is_per_class(self.alpha):
            raise InputError(
                f"The 'alpha' parameter of {owner} must be one number for all classes. Got "
                "one per class; 'standard', 'classwise', 'clustered', 'pooled' and 'rc3p' "
                "take that."
            )
        if self.exact and getattr(self, "confidence", None) is not None:
            raise InputError(
                f"'exact' and 'confidence' of {owner} cannot be combined: each has ranks of its "
                "own; use one of them."
            )
        return make_score(self.score)

    def _own_parameters(
        self, score: Score, n_classes: int, class_names: Sequence[str] | None
    ) -> dict[str, Any]:
        """Return the parameters as a fit keeps them: copies, and vectors in the classes' order."""
        values = deepcopy(_parameters_in(type(self))(vars(self)))
        parameters = dict(zip(self._parameter_names(), values, strict=True)) | {"score": score}
        if not isinstance(self.alpha, str | int | float):
            alpha = ClassAlpha.of(self.alpha, class_names, n_classes, type(self).__name__)
            if is_per_class(self.alpha) or isinstance(self.alpha, ClassAlpha):
                parameters["alpha"] = alpha.floats if alpha.one is None else alpha.one
        return parameters

    # ---- calibration -------------------------------------------------------------------------

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
        source = as_source(
            probabilities,
            labels,
            ids=ids,
            class_names=class_names,
            labels_are=labels_are,
            allow_sorted=allow_sorted,
            allow_unknown=True,
        )
        require_labels(source, "Calibration")
        is_stated = source.logits is not None
        logits = bool(source.logits) if is_stated else self.from_logits
        scoring = BoundScore(score, logits, self.random_state, assumed=not is_stated)
        rows, read = read_rows(source, scoring, self.needs, executor)
        fingerprints = ((read.hexdigest(), len(rows.scores)),)
        inputs = CalibrationInputs(fingerprints, read.sample, read.limit, read.precision, read.k)
        self.fit_ = self._fit_rows(score, rows, inputs)
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

        Some methods also need `ranks` (N,), from 1, of the true labels.
        """
        score = self._check_parameters()
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
        self.fit_ = self._fit_rows(score, rows, CalibrationInputs())
        return self

    def _fit_rows(
        self,
        score: Score,
        rows: CalibrationRows,
        inputs: CalibrationInputs,
        *,
        given: tuple[Any, ...] | None = None,
    ) -> Fit:
        """Calibrate the method on rows; return the whole fit, ready to be assigned."""
        parameters = self._own_parameters(score, rows.n_classes, rows.class_names)
        method = type(self)(**parameters)  # its parameters are our own
        scored = rows.scored_by(score.with_counts(rows.class_counts, rows.class_names))
        result = method._calibrate(scored)
        if len(result) != 2 or not isinstance(result[1], self._State):
            raise TypeError(
                f"{type(self).__name__}._calibrate must return thresholds and "
                f"{self._State.__name__}. Got {result!r}."
            )
        thresholds, state = result
        if self.floor is not None:
            thresholds = method._with_floor(thresholds, scored)
        given = _parameters_in(type(self))(vars(self)) if given is None else given
        fit = Fit(parameters, rows, thresholds, state, inputs, given)
        method._check_fit(fit)
        self._warn_of_fit(fit)
        return fit

    def _adopt(self, fit: Fit, score: Score) -> None:
        """Take a fit that was read from a file, if it is one of this predictor."""
        rows = fit.rows
        parameters = self._own_parameters(score, rows.n_classes, rows.class_names)
        type(self)(**parameters)._check_fit(fit)
        fit = replace(fit, parameters=parameters, given=_parameters_in(type(self))(vars(self)))
        _ = fit.rule  # raises if the score does not fit the classes
        self.fit_ = fit

    def _class_alpha(self, rows: CalibrationRows) -> ClassAlpha:
        """Return the target miscoverage of each class."""
        return ClassAlpha.of(self.alpha, rows.class_names, rows.n_classes, type(self).__name__)

    def _with_floor(self, thresholds: Thresholds, rows: CalibrationRows) -> Thresholds:
        """Raise the thresholds to the class's own score that the floor guarantees coverage with."""
        return self._floor.raised(thresholds, rows, self._class_alpha(rows))

    @property
    def _floor(self) -> Floor:
        """The guarantee of every class; RC3P's sets have two conditions."""
        return Floor(self.floor, 2 if "ranks" in self.needs else 1)

    def _warn_of_fit(self, fit: Fit) -> None:
        """Warn of an alpha that seems to be the coverage, and of classes with too few rows."""
        largest = float(fit.alpha.values[-1])
        if largest > 0.5:
            warn_caller(
                f"alpha is {largest:g}, the target miscoverage; for coverage {largest:g} use "
                f"alpha={1 - largest:g}."
            )
        is_absent, n_classes = fit.rows.class_counts == 0, fit.rows.n_classes
        where_listed = " where a row lists them" if fit.rows.is_listed else ""
        if fit.rows.is_listed and fit.recall is not None:
            target = float(1 - fit.alpha.typical)
            warning = fit.recall.warning(target)
            if warning is not None:
                warn_caller(warning)
        if fit.thresholds.rank_limit is None:
            n_few = int((np.isinf(fit.thresholds.upper) & ~is_absent).sum())
            if n_few:
                least = Needs.at(fit.alpha.typical, getattr(self, "confidence", None)).least
                takes = f", which takes {least}" if fit.alpha.is_one else ""
                warn_caller(
                    f"{n_few} of {n_classes} classes have calibration examples, but too few for a "
                    f"finite threshold at alpha = {fit.alpha}{takes}; they are always included"
                    f"{where_listed}."
                )
        if is_absent.any():
            warn_caller(
                f"{int(is_absent.sum())} of {n_classes} classes have no calibration examples"
                f"{some_names(fit.class_names, is_absent)}; {self._missing_class_note}."
            )

    # ---- updating ----------------------------------------------------------------------------

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
        same ids.

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
        fit = self._current_fit()
        old = fit.rows
        if not old.of_base:
            raise InputError(
                f"This {self.method!r} predictor cannot be updated, because its scores depend on "
                "the class counts; calibrate again on all rows."
            )
        how = _stated(class_names=class_names, labels_are=labels_are)
        source = fit.open(probabilities, labels, ids, **how)
        require_labels(source, "Updating")
        rows, inputs = appended(
            fit.rows,
            fit.inputs,
            source,
            fit.rule.scoring.for_input(source.logits),
            self.needs,
            executor,
            window=window,
        )
        self.fit_ = self._refit(fit, rows, inputs)
        return self

    def fit_acceptance(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        accuracy: float = 0.95,
        confidence: float = CONFIDENCE,
        ids: Any = None,
        class_names: Any = None,
        labels_are: str | None = None,
        executor: Any = None,
    ) -> Self:
        """Choose which predictions to accept without a review, so that they are right often enough.

        With probability `confidence` over labeled rows, the accuracy among accepted predictions is
        at least `accuracy`; the accuracy of each predicted class has the same target. A prediction
        is then accepted if its probability reaches the cutoff of its class, whatever its set. The
        calibration rows themselves can be used, because cutoffs do not depend on thresholds.

        Parameters
        ----------
        probabilities, labels, ids, class_names, labels_are, executor
            As in `fit`.
        accuracy
            Target accuracy among accepted predictions.
        confidence
            Probability of reaching it.
        """
        fit = self._current_fit()
        for name, value in (("accuracy", accuracy), ("confidence", confidence)):
            real_number(value, name, "fit_acceptance", 0, 1, open_low=True, open_high=True)
        if not fit.keep_top:
            raise InputError(
                f"'keep_top' of {type(self).__name__} must be True to accept predictions. Got "
                "False, so a set may lack the class that is accepted."
            )
        how = _stated(class_names=class_names, labels_are=labels_are)
        source = fit.open(probabilities, labels, ids, allow_unknown=True, **how)
        require_labels(source, "Acceptance")
        scoring = fit.rule.scoring.for_input(source.logits)
        sampler = Sampler(source.n_rows, source.offset)
        parts = map_source(source, scoring.predictions, joined, executor, sampler=sampler)
        scores, classes, is_right, keys = gathered(parts, source.n_rows)
        warn_of_mismatch(source, sampler.result(), scoring)
        acceptance = fit_acceptance(
            Predictions(scores, classes, is_right),
            fit.rows.n_classes,
            keys,
            accuracy=float(accuracy),
            confidence=float(confidence),
            random_state=self.random_state,
        )
        if not acceptance.n_tested.any():
            warn_caller(
                f"No prediction is accepted: with {len(keys)} rows, no rule is shown to have "
                f"accuracy {accuracy:g} with confidence {confidence:g}. Use more labeled rows, or "
                "a lower accuracy."
            )
        self.fit_ = replace(fit, acceptance=acceptance)
        return self

    def with_alpha(self, alpha: Any) -> Self:
        """Return this predictor at another alpha, refitted to the calibration rows that it keeps.

        The result is bit-identical to a new `fit` at this alpha on the same rows.

        >>> from evencover import StandardPredictor
        >>> p = [[0.75, 0.25], [0.5, 0.5], [0.375, 0.625], [0.25, 0.75]]
        >>> StandardPredictor(alpha=0.5).fit(p, [0, 1, 0, 1]).with_alpha(0.25).thresholds_
        array([0.625, 0.625])
        """
        fit = self._current_fit()
        other = self._with_params(alpha=alpha)
        other._check_parameters()
        other.fit_ = other._refit(fit, fit.rows, fit.inputs, alpha=alpha)
        return other

    def _refit(
        self, fit: Fit, rows: CalibrationRows, inputs: CalibrationInputs, **changed: Any
    ) -> Fit:
        """Calibrate on other rows, or with another alpha; otherwise as for the fit."""
        method = type(self)(**(dict(fit.parameters) | changed))
        refitted = method._fit_rows(
            make_score(method.score),
            rows,
            inputs,
            given=_parameters_in(type(self))(vars(self)),
        )
        return refitted if fit.acceptance is None else replace(refitted, acceptance=fit.acceptance)

    # ---- the fit -----------------------------------------------------------------------------

    @property
    def _any_fit(self) -> Fit:
        """The fit, also if parameters were changed after it."""
        try:
            return self.fit_
        except AttributeError:
            raise NotFittedError(
                f"This {type(self).__name__} is not calibrated yet; call 'fit' with calibration "
                "probabilities and labels first."
            ) from None

    def _current_fit(self) -> Fit:
        """Return the fit; raise if there is none, or if a parameter was changed after it."""
        attributes = vars(self)
        fit: Fit = attributes.get("fit_") or self._any_fit
        values = _parameters_in(type(self))(attributes)
        try:
            if values == fit.given:  # one comparison; the same object is equal
                return fit
        except ValueError:  # arrays have no truth value
            pass
        for name, now, then in zip(self._parameter_names(), values, fit.given, strict=True):
            if not _is_same(now, then):
                remedy = "; 'with_alpha' changes alpha without data" if name == "alpha" else ""
                raise InputError(
                    f"'{name}' of this {type(self).__name__} must be that of its fit, {then!r}. "
                    f"Got {now!r}; call 'fit' again{remedy}."
                )
        return fit

    def _from_fit(self, make: Callable[[Any, CalibrationRows, Any], Value]) -> Value:
        """Return what a function of the method, rows and state derives; made when first needed.

        It is called with the parameters of the fit, which users cannot change.
        """
        fit = self._current_fit()
        return fit.once(
            make.__qualname__,
            lambda: make(type(self)(**fit.parameters), fit.scored_rows, fit.state),
        )

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

    # ---- prediction --------------------------------------------------------------------------

    def rule(self, *, logits: bool | None = None) -> SetRule:
        """Return the frozen rule that turns rows and ids into sets.

        `logits` states whether rows are logits. By default `from_logits` does, and the rule
        rejects probabilities where it expects logits.
        """
        return self._current_fit().rule.for_input(logits)

    def predict_set(
        self,
        probabilities: Any,
        *,
        ids: Any = None,
        class_names: Any = None,
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
        """
        fit = self._current_fit()
        few = None
        if executor is None and class_names is None and ids is not False:
            few = _few_rows(probabilities, fit.rows.n_classes)
        if few is not None:
            sets = fit.rule.few_sets(few, ids)
            fit.check_precision(few)
            return sets
        how = _stated(class_names=class_names)
        source = fit.open(probabilities, ids=ids, read_labels=False, **how)
        parts = _map_sets(fit, source, executor)
        return PredictionSets.concatenate(parts, source.n_rows).indexed_like(probabilities)

    def predict_set_blocks(
        self, probabilities: Any, *, ids: Any = None, executor: Any = None
    ) -> Iterator[PredictionSets]:
        """Yield the prediction sets block by block; on an executor, part by part."""
        fit = self._current_fit()
        return _map_sets(fit, fit.open(probabilities, ids=ids, read_labels=False), executor)

    def predict_p(self, probabilities: Any, *, ids: Any = None) -> Any:
        """Compute the conformal p-value of each class in each row (N, K).

        The set at level alpha is {y : p > alpha}, for every alpha; a floor and the most probable
        class (`keep_top`) may add classes to it. Of top-k rows the result is a SciPy CSR array
        with the p-values of the listed classes.
        """
        fit = self._current_fit()
        source = fit.open(probabilities, ids=ids, read_labels=False)
        function = partial(self._p_block, fit.rule.scoring.for_input(source.logits))
        parts = list(map_source(source, function))
        if not isinstance(parts[0], np.ndarray):
            from scipy.sparse import vstack

            return vstack(parts, format="csr")
        return np.concatenate(parts)

    def _p_block(self, scoring: BoundScore, block: Block) -> Any:
        rows, draws = block.rows, scoring.draws(block)
        own_share = np.ones(len(rows))
        if self.exact:  # a row itself counts at random
            own_share -= scoring.rank_draws(block)
        if not isinstance(rows, TopK):
            scores = scoring.matrix(block, draws)
            return self._p_values(scores, np.arange(self.n_classes_), own_share[:, None])
        from scipy.sparse import csr_array

        # The entries of all rows are one row of the classes that they list.
        scores, own_share = scoring.entries(block, draws)[0], own_share[rows.row_of_entry]
        p_values = self._p_values(scores[None], rows.classes, own_share[None])[0]
        return csr_array((p_values, rows.classes, rows.starts), shape=rows.shape)

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

        Labels that are not among the classes count as misses.

        Parameters
        ----------
        probabilities, labels, ids, class_names, labels_are, allow_sorted, executor
            As in `fit`.
        """
        fit = self._current_fit()
        how = _stated(class_names=class_names, labels_are=labels_are)
        how |= {"allow_unknown": True, "allow_sorted": allow_sorted}
        source = fit.open(probabilities, labels, ids, **how)
        require_labels(source, "Evaluation")
        count, finish = fit.rule.for_input(source.logits).counts, EvaluationCounts.abridged
        counts, read = fold_source(source, count, EvaluationCounts.total, finish, executor)
        return self._coverage_report(source, read, counts)

    def _coverage_report(
        self, source: Source, read: Fingerprint, counts: EvaluationCounts
    ) -> CoverageReport:
        """Make the report on rows of a source that have been read and counted."""
        fit, tally = self._current_fit(), counts.tally
        if not tally.rows.any():
            raise source.no_known_label()
        if not source.reader.is_censored:
            tally = tally._replace(listed=None)
        report = CoverageReport.from_tally(
            tally,
            fit.alpha,
            class_names=source.class_names,
            calibration_counts=self.class_counts_,
            thresholds=self.thresholds_,
            guarantees=self.guarantees_,
            cluster_of_class=getattr(self, "cluster_of_class_", None),
            confusions=counts.confusions,
            accept_accuracy=0.95 if fit.acceptance is None else fit.acceptance.accuracy,
        )
        mismatch = warn_of_mismatch(source, read, fit.rule.scoring.for_input(source.logits))
        if mismatch is not None:
            return replace(report, labels_fit=False, data_warnings=(mismatch,))
        messages = shift_warnings(
            fit,
            report,
            read,
            depends_on_prevalence=self._depends_on_prevalence,
            n_behind=self._rows_behind(report) if self._targets_average else None,
        )
        for message in messages:
            warn_caller(message)
        return replace(report, data_warnings=tuple(messages))

    # ---- guarantees and explanations ---------------------------------------------------------

    @property
    def guarantees_(self) -> FloatArray:
        """The guaranteed coverage of each class (K,), on average over calibration sets; 0 if none.

        A threshold that is at least the k-th smallest of the class's own n calibration scores
        covers the class with probability k/(n+1) or more.
        """
        fit = self._current_fit()
        by_floor = self._floor.guarantees(fit.rows.class_counts, fit.alpha)
        guarantees = np.maximum(self._own_guarantees(), by_floor)
        return guarantees if fit.recall is None else fit.recall.limited(guarantees)

    @property
    def guarantee_text(self) -> str:
        """The guarantee of this predictor, as `info` and the report show it."""
        fit = self._current_fit()
        sentences = [] if fit.alpha.is_one else [f"Classes have their own alpha: {fit.alpha}."]
        sentences.append(self._method_guarantee())
        sentences.append(TOP_K_LOSES if fit.recall is None else fit.recall.sentences)
        return " ".join(sentences)

    def _method_guarantee(self) -> str:
        """State the guarantee of the method, and that of the floor."""
        fit, method = self._current_fit(), self._guarantor()
        text = method.guarantee if fit.alpha.is_one else method._guarantee_by_alpha
        confidence, sets = getattr(self, "confidence", None), ON_AVERAGE
        if confidence is not None:
            sets = f"in at least {as_percent(confidence)} of all calibration sets"
        text = (text or method.guarantee).replace("{sets}", sets)
        text = text.replace("{single}", "" if self.floor is not None else NO_CLASS)
        floor = self._floor.sentence(self.guarantees_ == 0, fit.alpha, fit.class_names)
        return f"{text} {floor}".rstrip()

    def _guarantor(self) -> type[BasePredictor]:
        """Return the method whose guarantee holds."""
        return type(self)

    def _set_by_floor(self) -> Array:
        """Return whether the floor sets a class's threshold (K,)."""
        fit = self._current_fit()
        ranks = self._floor.ranks(fit.rows.class_counts, fit.alpha)
        return (ranks > 0) & (fit.scored_rows.by_class.at_ranks(ranks) == fit.thresholds.upper)

    def _row_needs(self) -> Needs:
        """Return how many rows a threshold takes."""
        return Needs.at(self._current_fit().alpha.typical, getattr(self, "confidence", None))

    def explain(self, report: CoverageReport, class_index: int) -> Explanation:
        """Explain a class's threshold and, if it is undercovered, why and what to try."""
        groups, n = self._groups, int(self.class_counts_[class_index])
        rows = f"{n:,} calibration example{'' if n == 1 else 's'}"
        view, origin = report.class_view(class_index), self._origin.format(rows=rows)
        if groups is not None:
            group = int(groups.of_class[class_index])
            n_scores, whose = int(groups.scores.counts[group]), groups.whose[group]
            origin = f"The threshold comes from {n_scores:,} calibration scores {whose}."
        if self._set_by_floor()[class_index]:
            rank = self._floor.ranks(self.class_counts_, self._current_fit().alpha)[class_index]
            origin = f"Its guarantee sets the threshold: the score of rank {rank} among its {rows}."
        return Explanation(
            view.name,
            view.threshold,
            float(self.guarantees_[class_index]),
            origin,
            {name: float(shares[class_index]) for name, shares in self._weights().items()},
            self._cause(np.array([class_index])),
            view.appears,
        )


def _stated(**options: Any) -> dict[str, Any]:
    """Return the options that are given."""
    return {name: value for name, value in options.items() if value is not None}


def _map_sets(fit: Fit, source: Source, executor: Any) -> Iterator[PredictionSets]:
    """Yield the prediction sets of each block or, on an executor, of each part."""
    sets = fit.rule.for_input(source.logits).sets
    return map_source(source, sets, PredictionSets.concatenate, executor)


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two values of a parameter are the same, also if they are arrays."""
    if first is second:
        return True
    try:
        return bool(np.shape(first) == np.shape(second) and np.all(first == second))
    except (TypeError, ValueError):
        return False


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
