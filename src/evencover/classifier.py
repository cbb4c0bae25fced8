"""ConformalClassifier: prediction sets from any scikit-learn classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import assert_all_finite, get_tags, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from evencover.arrays import Array, FloatArray
from evencover.classes import INDICES
from evencover.comparison.cost import Trial
from evencover.comparison.splits import other_rows, rows_of_each_class
from evencover.comparison.trials import ScoredRows
from evencover.data.open import as_source
from evencover.errors import InputError, warn_caller
from evencover.evaluation import CoverageReport
from evencover.predictors import DEFAULT_METHOD, BasePredictor, make_predictor
from evencover.randomness import check_random_state, row_indices
from evencover.scores import make_score
from evencover.sets import PredictionSets

DRAWN_BY_CLASS = (
    "Calibration rows were drawn from each class, so a guarantee of coverage over all examples "
    "holds approximately, and only for classes that the model has seen."
)


class ConformalClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a scikit-learn classifier to predict sets.

    Parameters
    ----------
    estimator
        A classifier with ``predict_proba``. `fit` trains it on a part of the rows and calibrates
        on the rest. A fitted model in ``FrozenEstimator`` is calibrated on all rows.
    predictor
        The method, as a predictor such as ``ClusteredPredictor(alpha=0.1)`` or its name;
        None is POOLED, as in the commands.
    alpha
        Target miscoverage; None leaves that of `predictor`, or 0.1.
    calibration_size
        Fraction used for calibration, in (0, 1). It is drawn from the rows of each class: at least
        one row of a class calibrates and at least one trains. A class with one row only trains.
        Guarantees of a class hold. Overall coverage is guaranteed only approximately, for rows
        of classes that the model has seen.
    random_state
        Seed of the calibration rows.

    Attributes
    ----------
    estimator_, predictor_
        The fitted model, and the calibrated predictor.
    classes_
        (K,) class labels; sets contain indices into them.

    Notes
    -----
    A scikit-learn ``Pipeline`` hides `predict_set`; write
    ``ConformalClassifier(make_pipeline(...))``.

    ``GridSearchCV`` maximizes accuracy by default, which does not depend on alpha or the method.
    Pass ``scoring=cost_scorer`` of this module (the cost of `compare`). Compare methods at one
    alpha: a larger alpha gives smaller sets, not better ones. ``predictor__...`` sets a parameter
    of the method.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from evencover import ConformalClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ConformalClassifier(KNeighborsClassifier(20), "classwise", alpha=0.05)
    >>> model.fit(X, y).predict_set(X[:3]).to_lists()
    [[0], [1], [8, 2]]
    """

    def __init__(
        self,
        estimator: Any,
        predictor: BasePredictor | str | None = None,
        *,
        alpha: Any = None,
        calibration_size: float = 0.3,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.predictor = predictor
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model on a part of the rows and calibrate it on the rest."""
        if y is None:  # in scikit-learn's words
            raise InputError("fit requires y to be passed, but the target y is None.")
        X, y = indexable(X, y)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        method = self._method()
        seed = check_random_state(self.random_state, "ConformalClassifier")
        if len(y) < 2 and not isinstance(self.estimator, FrozenEstimator):
            raise InputError(f"There must be at least 2 samples. Got {len(y)} sample.")
        if isinstance(self.estimator, FrozenEstimator):
            check_is_fitted(self.estimator)
            estimator, classes = self.estimator, self.estimator.classes_
            rows, labels = estimator.predict_proba(X), _labels(y, classes)
            method.fit(rows, labels, class_names=_names(classes))
        else:
            _warn_if_fitted(self.estimator)
            estimator, classes = self._train(method, X, y, seed)
        self.estimator_, self.classes_, self.predictor_ = estimator, classes, method
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters; ``predictor__...`` also works if `predictor` is None or a name."""
        if any(name.startswith("predictor__") for name in parameters):
            predictor = parameters.get("predictor", self.predictor)
            parameters["predictor"] = _make_method(predictor)
        return super().set_params(**parameters)

    def _method(self) -> BasePredictor:
        """Return an unfitted predictor with the parameters of the next fit."""
        method = clone(_make_method(self.predictor))
        return method if self.alpha is None else method.set_params(alpha=self.alpha)

    def _train(
        self, method: BasePredictor, X: Any, y: Array, seed: int
    ) -> tuple[BaseEstimator, Array]:
        """Train on some rows, calibrate on the others; return the model and its classes."""
        classes, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
        share = self.calibration_size
        if not isinstance(share, float | np.floating) or not 0 < share < 1:
            raise InputError(f"'calibration_size' must be a number in (0, 1). Got {share!r}.")
        wanted = np.minimum(np.maximum(np.rint(share * counts), 1), counts - 1).astype(np.int64)
        if not wanted.any():
            raise InputError("Some class must have at least 2 samples. Got 1 of each class.")
        calibration = rows_of_each_class(labels, wanted, seed, row_indices(0, len(labels)))
        model = clone(self.estimator)
        training = np.flatnonzero(other_rows(calibration, len(labels)))
        model.fit(*_safe_split(model, X, y, training))
        X_calibration, _ = _safe_split(model, X, y, calibration)
        rows = model.predict_proba(X_calibration)
        method.fit(rows, labels[calibration], class_names=_names(classes), labels_are=INDICES)
        return model, classes

    def predict(self, X: Any) -> Array:
        """Predict the model's most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(X))

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the model's probabilities (N, K)."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))

    def predict_set(self, X: Any, *, ids: Any = None) -> PredictionSets:
        """Compute the prediction set of each row, as indices into `classes_`."""
        check_is_fitted(self)
        rows = self.estimator_.predict_proba(X)
        return self.predictor_.predict_set(rows, ids=ids).indexed_like(X)

    def predict_p(self, X: Any, *, ids: Any = None) -> FloatArray:
        """Compute the conformal p-value of each class in each row (N, K)."""
        check_is_fitted(self)
        return self.predictor_.predict_p(self.estimator_.predict_proba(X), ids=ids)

    def evaluate(self, X: Any, y: Any, *, ids: Any = None) -> CoverageReport:
        """Measure coverage and set size on held-out examples.

        Labels that the model does not know count as misses; the report has their number.
        """
        check_is_fitted(self)
        rows = self.estimator_.predict_proba(X)
        return self.predictor_.evaluate(rows, _labels(y, self.classes_), ids=ids)

    @property
    def guarantee_text(self) -> str:
        """The guarantee of `predictor_`, and how it holds for rows that were drawn by class."""
        check_is_fitted(self)
        text = self.predictor_.guarantee_text
        if isinstance(self.estimator, FrozenEstimator):
            return text
        return f"{text} {DRAWN_BY_CLASS}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            inner = self.estimator.__sklearn_tags__().input_tags
            tags.input_tags.sparse = inner.sparse
            tags.input_tags.allow_nan = inner.allow_nan
        return tags


def _names(classes: Array) -> list[str]:
    return [str(label) for label in classes.tolist()]


def _labels(y: Any, classes: Array) -> Array:
    """Return labels as class names; they may be unknown, but not all of them."""
    y, names = column_or_1d(y, warn=True), _names(classes)
    indices = np.minimum(np.searchsorted(classes, y), len(names) - 1)
    is_unknown = classes[indices] != y
    if is_unknown.all() and len(y):
        raise InputError(f"The model must know some of the labels. Got {y[0]!r} in row 0.")
    labels = np.array(names, dtype=object)[indices]
    labels[is_unknown] = [str(label) for label in y[is_unknown].tolist()]
    return labels


def _make_method(predictor: BasePredictor | str | None) -> BasePredictor:
    return make_predictor(DEFAULT_METHOD if predictor is None else predictor)


def _warn_if_fitted(estimator: Any) -> None:
    """Warn that a fitted estimator is trained again."""
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):  # TypeError: it has no 'fit'
        return
    if get_tags(estimator).requires_fit:
        warn_caller(
            f"'estimator' is a fitted {type(estimator).__name__}; a copy of it is trained again on "
            "a part of these rows. To calibrate it as it is, pass FrozenEstimator(estimator) "
            "(sklearn.frozen)."
        )


def cost_scorer(model: ConformalClassifier, X: Any, y: Any) -> float:
    """Score by the negated cost of `compare`, in labels per example."""
    check_is_fitted(model)
    predictor, labels = model.predictor_, _labels(y, model.classes_)
    known: Any = {"class_names": predictor.class_names_, "allow_unknown": True}
    source = as_source(model.predict_proba(X), labels, **known)
    rows = ScoredRows(
        source,
        [make_score(predictor.score)],
        from_logits=predictor.from_logits,
        random_state=predictor.random_state,
        with_ranks="ranks" in predictor.needs,
    )
    (outcome,) = rows.measure([Trial(predictor, np.ones(len(labels), dtype=bool))])
    return -outcome.cost
