"""ConformalClassifier: prediction sets from any scikit-learn classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import assert_all_finite, indexable
from sklearn.utils.metaestimators import _safe_split, available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from evencover._validation import Array, FloatArray, InputError, IntArray
from evencover.comparison.splitting import calibration_split, other_rows
from evencover.evaluation import CoverageReport
from evencover.predictors import DEFAULT_METHOD, BasePredictor, make_predictor
from evencover.randomness import check_random_state
from evencover.sets import PredictionSets


def _inner_has(name: str) -> Any:
    def check(self: Any) -> bool:
        getattr(self.estimator, name)
        return True

    return check


class ConformalClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that also answers with prediction sets.

    Parameters
    ----------
    estimator
        A classifier with ``predict_proba``. It is fitted on a part of the rows and
        calibrated on the others; a fitted model in scikit-learn's ``FrozenEstimator`` is kept as
        it is and calibrated on all rows.
    predictor
        The method, as a predictor such as ``ClusteredPredictor(alpha=0.1)`` or its name;
        None is the default of the commands, POOLED, at alpha = 0.1.
    calibration_size
        Share of each class's rows that calibrates, in (0, 1).
    random_state
        Whole number that fixes which rows calibrate.

    Attributes
    ----------
    estimator_, predictor_
        The fitted model, and the calibrated predictor.
    classes_
        (K,) class labels; sets hold indices into them.

    Notes
    -----
    A scikit-learn ``Pipeline`` hides `predict_set`: put the pipeline inside,
    ``ConformalClassifier(make_pipeline(...))``, not the other way round.

    ``GridSearchCV`` maximises accuracy unless told otherwise, and accuracy knows nothing of alpha
    or the method. Pass ``scoring=covgap_scorer`` (even coverage) or ``scoring=avg_size_scorer``
    (small sets), both of this module. Small sets alone are no aim: the largest alpha wins, so
    search over it with `covgap_scorer`, or keep it fixed.

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from evencover import ClasswisePredictor, ConformalClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ConformalClassifier(KNeighborsClassifier(20), ClasswisePredictor(alpha=0.05))
    >>> model.fit(X, y).predict_set(X[:3]).to_lists()
    [[0], [1], [2, 8]]
    """

    def __init__(
        self,
        estimator: Any,
        predictor: BasePredictor | str | None = None,
        *,
        calibration_size: float = 0.3,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.predictor = predictor
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model on a part of the rows and calibrate it on the rest."""
        if y is None:
            raise InputError(
                "ConformalClassifier requires y to be passed, but the target y is None."
            )
        X, y = indexable(X, y)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        calibration = np.arange(len(y))
        if isinstance(self.estimator, FrozenEstimator):
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
        else:
            calibration, training = self._split(y)
            self.estimator_ = clone(self.estimator)
            self.estimator_.fit(*_safe_split(self.estimator_, X, y, training))
        self.classes_ = self.estimator_.classes_
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        X_calibration, y_calibration = _safe_split(self.estimator_, X, y, calibration)
        method = make_predictor(DEFAULT_METHOD if self.predictor is None else self.predictor)
        self.predictor_ = clone(method).fit(
            self.estimator_.predict_proba(X_calibration),
            self._class_indices(y_calibration),
            class_names=[str(label) for label in self.classes_.tolist()],
        )
        return self

    @available_if(_inner_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Array:
        """The model's most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(X))

    @available_if(_inner_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """The model's probabilities (N, K)."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))

    def predict_set(self, X: Any, *, ids: Any = None) -> PredictionSets:
        """The prediction set of each row, as indices into `classes_`."""
        check_is_fitted(self)
        return self.predictor_.predict_set(self.estimator_.predict_proba(X), ids=ids)

    def predict_p(self, X: Any, *, ids: Any = None) -> FloatArray:
        """The conformal p-value of each class in each row (N, K)."""
        check_is_fitted(self)
        return self.predictor_.predict_p(self.estimator_.predict_proba(X), ids=ids)

    def evaluate(self, X: Any, y: Any, *, ids: Any = None) -> CoverageReport:
        """Coverage and size of the sets on rows that neither trained nor calibrated the model."""
        check_is_fitted(self)
        labels = self._class_indices(column_or_1d(y, warn=True))
        return self.predictor_.evaluate(self.estimator_.predict_proba(X), labels, ids=ids)

    def _split(self, y: Array) -> tuple[IntArray, IntArray]:
        """Rows that calibrate and rows that train; every class keeps a row to train on."""
        share = self.calibration_size
        if not isinstance(share, float | np.floating) or not 0 < share < 1:
            raise InputError(
                "The 'calibration_size' parameter of ConformalClassifier must be a number in "
                f"(0, 1). Got {share!r} instead."
            )
        seed = check_random_state(self.random_state, "ConformalClassifier")
        _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
        n_per_class = np.floor(share * counts).astype(np.int64)
        if not n_per_class.any():
            raise InputError(
                f"There must be a class with at least {int(np.ceil(1 / share))} samples to set "
                f"some aside for calibration. Got at most {counts.max()} sample(s) of a class."
            )
        calibration = calibration_split(labels, seed, n_per_class=n_per_class)
        return calibration, np.flatnonzero(other_rows(calibration, len(y)))

    def _class_indices(self, y: Array) -> IntArray:
        indices = np.searchsorted(self.classes_, y)
        indices = np.minimum(indices, len(self.classes_) - 1)
        unknown = self.classes_[indices] != y
        if unknown.any():
            raise InputError(
                "Every label must be a class that the model knows. "
                f"Got {y[unknown.argmax()]!r} in row {int(unknown.argmax())}."
            )
        return indices

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            inner = self.estimator.__sklearn_tags__().input_tags
            tags.input_tags.sparse = inner.sparse
            tags.input_tags.allow_nan = inner.allow_nan
        return tags


def covgap_scorer(model: ConformalClassifier, X: Any, y: Any) -> float:
    """CovGap, negated: higher where the coverage of the classes is nearer to the aim."""
    return -float(model.evaluate(X, y).covgap)


def avg_size_scorer(model: ConformalClassifier, X: Any, y: Any) -> float:
    """The average size of the sets, negated: higher where sets are smaller."""
    return -float(model.evaluate(X, y).avg_size)
