"""What a method is: parameters, words, and the functions that it may override."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any, ClassVar, Self

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError
from evencover.predictors import explanations
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.caps import exact_share
from evencover.predictors.fit import Fit, parameters_in
from evencover.predictors.guarantees import AUTO, Floor
from evencover.quantiles import Alpha, ClassAlpha, Thresholds, check_alpha, exact_fraction
from evencover.scores import Score
from evencover.validation import Check, flag, raise_unknown, unless, whole_number


@dataclass(kw_only=True, eq=False, repr=False)
class Method:
    """A method and its parameters, which `BasePredictor` describes.

    A method is a class with a name, a summary, a guarantee and `_calibrate`. The other functions
    have a default. Those with a `fit` are called on `fit.method`, whose parameters are the fit's.
    """

    alpha: Alpha | Mapping[Any, Any] | Sequence[Any] | Array = 0.1
    score: Score | str = "softmax"
    exact: bool = False
    keep_top: bool | str = AUTO
    from_logits: bool = False
    random_state: int = 0
    floor: Alpha | None = None
    max_share: Alpha | None = None

    method: ClassVar[str]
    # One sentence each, shown by help, `info`, the docs and the report.
    summary: ClassVar[str] = ""
    # In a guarantee, {sets} is "on average over calibration sets", or as many of them as the
    # confidence, and {single} that no single class has one, unless a floor gives it one.
    guarantee: ClassVar[str] = "No guarantee."
    # Next to scores, labels and ids: "ranks" of the true labels, "label values".
    needs: ClassVar[tuple[str, ...]] = ()
    # Of "exact", for exact=True, and "class alpha", for an alpha per class.
    supports: ClassVar[tuple[str, ...]] = ("exact",)
    # Whether it targets coverage of 1 - alpha over all rows.
    _targets_average: ClassVar[bool] = True

    # Whether that depends on class frequencies.
    _depends_on_prevalence: ClassVar[bool] = True
    # Whether it needs a parameter that only the user can give, so that "all" methods omit it.
    _only_if_asked: ClassVar[bool] = False
    # Where a threshold comes from; {rows} are the class's calibration rows.
    _origin: ClassVar[str] = (
        "A set includes the class if its score is at most the threshold. The threshold comes from "
        "the {rows} of this class and those of other classes."
    )
    # The NamedTuple that `_calibrate` returns next to the thresholds, if it does.
    _State: ClassVar[Any] = type(None)
    # One check per parameter: a function of value, name and owner that raises InputError.
    _constraints: ClassVar[dict[str, Check]] = {
        "alpha": check_alpha,
        "exact": flag,
        "keep_top": unless((AUTO,), flag),
        "from_logits": flag,
        "random_state": partial(whole_number, low=0, high=2**64 - 1),
        "floor": unless((None, AUTO), exact_fraction),
        "max_share": unless((None,), exact_share),
    }
    # Words: the guarantee if classes have their own alpha and it is another one; why a class may be
    # undercovered, and the methods to try then for classes with many and with few calibration rows;
    # what happens to classes without calibration rows.
    _guarantee_by_alpha: ClassVar[str] = ""
    _usual_cause: ClassVar[str] = "Thresholds shared with other classes may not suit these."
    _remedies: ClassVar[tuple[str | None, str | None]] = ("classwise", "pooled")
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

    def _derive(self, rows: CalibrationRows, state: Any) -> Any:
        """Compute what p-values and explanations need next to the state; made when first needed.

        It becomes `fit.derived`. `Groups` of calibration scores give p-values and explanations.
        """

    def _p_values(
        self, fit: Fit, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        """Compute p-values from scores (n, J) of rows as members of `classes` (J,).

        A row itself counts as `own_share` (n, 1), or (n, J), of one more calibration row.
        """
        raise InputError(f"The '{self.method}' method does not provide p-values.")

    def _own_guarantees(self, fit: Fit) -> FloatArray:
        """Return the coverage (K,) that the method itself guarantees to each class."""
        return np.zeros(fit.n_classes)

    def _guarantor(self, fit: Fit) -> type[Method]:
        """Return the method whose guarantee holds."""
        return type(self)

    def _guarantee_of(self, fit: Fit) -> str:
        """State the guarantee of the method, and that of the floor."""
        return explanations.method_guarantee(fit, self._guarantor(fit))

    def _level_rows(self, fit: Fit) -> int:
        """Count the rows that decide the level of all thresholds together."""
        return len(fit.rows)

    def _weights(self, fit: Fit) -> dict[str, FloatArray]:
        """Return shares (K,) of the sources of each class's threshold, by name."""
        return {}

    def _cause(self, fit: Fit, under: IntArray) -> str:
        """Explain why the classes `under` may be undercovered."""
        return self._guarantor(fit)._usual_cause

    def _fitted_values(self, fit: Fit) -> dict[str, Any]:
        """Return plain values worth a column in a table, such as the number of clusters."""
        return {}

    def _with_floor(self, thresholds: Thresholds, rows: CalibrationRows) -> Thresholds:
        """Raise the thresholds to the class's own score that the floor guarantees coverage with."""
        if self.floor is None:
            return thresholds
        return self._floor.raised(thresholds, rows, self._class_alpha(rows))

    def _standard(self, rows: CalibrationRows) -> Thresholds:
        """Compute STANDARD's thresholds with the parameters of this method, without a floor."""
        alpha = self._class_alpha(rows)
        return rows.by_alpha(alpha).thresholds(
            alpha,
            exact=self.exact,
            random_state=self.random_state,
            confidence=getattr(self, "confidence", None),
        )

    def _reject_exact(self) -> None:
        """Raise InputError for `exact`: coverage does not come from one conformal rank."""
        if self.exact:
            raise InputError(
                f"The 'exact' parameter of {type(self).__name__} must be False: its coverage does "
                "not come from one conformal rank. Got True."
            )

    @property
    def _floor(self) -> Floor:
        """The guarantee of every class; RC3P's sets have two conditions."""
        return Floor(self.floor, 2 if "ranks" in self.needs else 1)

    def _class_alpha(self, rows: CalibrationRows) -> ClassAlpha:
        """Return the target miscoverage of each class."""
        return ClassAlpha.of(self.alpha, rows.class_names, rows.n_classes, type(self).__name__)

    # ---- parameters ------------------------------------------------------------------------------

    @classmethod
    @cache
    def _parameter_names(cls) -> tuple[str, ...]:
        """Return the names of all parameters: alpha, score, the method's own, the shared ones."""
        names = [field.name for field in fields(cls)]
        shared = [field.name for field in fields(Method)]
        return (*shared[:2], *(name for name in names if name not in shared), *shared[2:])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name; `deep` is there for scikit-learn."""
        cls: Any = type(self)
        return dict(zip(cls._parameter_names(), parameters_in(cls)(vars(self)), strict=True))

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name, for the next `fit`."""
        known = self._parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise_unknown(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self

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
