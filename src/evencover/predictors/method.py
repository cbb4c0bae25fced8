"""The contract of a method: parameters, what a fit keeps, and what a subclass may change."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError
from evencover.predictors.explanation import (
    CALIBRATION_ROWS,
    Details,
    Needs,
    Sharing,
    some_names,
    ways_out,
)
from evencover.predictors.rule import BoundScore
from evencover.predictors.state import Field, kept
from evencover.predictors.temperature import FIT
from evencover.quantiles import (
    Alpha,
    ClassAlpha,
    Thresholds,
    check_alpha,
    conformal_ranks,
    exact_fraction,
    is_per_class,
    least_rows,
)
from evencover.randomness import check_random_state
from evencover.scores import Score, make_score
from evencover.validation import Check, flag, raise_unknown, real_number, unless

OUT_OF_FOLD = (
    "No guarantee: the scores come from models of cross-validation folds, the sets from a model "
    "fitted on all examples. Coverage is near 1 - alpha if these models agree."
)
SAME_ALPHA = "Coverage over the classes with the same alpha"
# What a floor makes untrue.
NO_CLASS = re.compile(r"; (no (single )?class has a|a class within its group has no) guarantee")
FOR_TARGET = (
    " Overall coverage is for the target prevalence, if only class frequencies differ from the "
    "calibration set, up to the error of the given and the counted frequencies."
)

ClassValues = Mapping[Any, Any] | Sequence[Any] | Array | str | os.PathLike[str]


def in_unit_interval(value: Any, name: str, owner: str) -> Any:
    """Check a level in (0, 1)."""
    return exact_fraction(value, owner, name)


@dataclass(kw_only=True, eq=False, repr=False)
class MethodContract:
    """Parameters, what a fit keeps, and what a method may change; only `_calibrate` is a must.

    Parameters are the keyword-only fields of a dataclass; a subclass with more of them is a
    dataclass, too. Fields with ``init=False`` are fitted, or parameters of some methods only.
    """

    alpha: Alpha | ClassValues = 0.1
    score: Score | str = "softmax"
    exact: bool = False
    allow_empty: bool = True
    from_logits: bool = False
    temperature: float | str = 1.0
    random_state: int = 0
    floor: Alpha | None = None
    strict_floor: bool = False
    target_prevalence: ClassValues | None = field(init=False, default=None)
    confidence: Alpha | None = field(init=False, default=None)

    limits_: Thresholds = kept(Thresholds, "K")
    class_counts_: IntArray = kept(int, "K")
    n_classes_: int = kept(int)
    n_calibration_: int = kept(int)
    class_names_: Sequence[str] | None = kept(list, optional=True)
    fingerprints_: list[list[Any]] = kept(list)
    temperature_: float | None = kept(float, optional=True)
    target_prevalence_: FloatArray | None = kept(float, "K", optional=True)
    score_edges_: FloatArray | None = kept(float, "?", optional=True)
    score_counts_: IntArray | None = kept(int, "?", optional=True)
    row_sample_: IntArray | None = kept(int, "??", optional=True)
    row_sample_limit_: int | None = kept(int, optional=True)
    out_of_fold_: bool = kept(bool, default=False)
    floor_thresholds_: FloatArray | None = kept(float, "K", optional=True)

    method: ClassVar[str]
    # One sentence each, shown by help, `info`, the docs and the report.
    summary: ClassVar[str] = ""
    guarantee: ClassVar[str] = "No guarantee."
    # The guarantee with a confidence; {confidence} stands for the probability.
    confident_guarantee: ClassVar[str]
    # The guarantee with an alpha per class, where that changes more than the number.
    class_alpha_guarantee: ClassVar[str] = ""
    # Next to scores, labels and ids: "ranks" of the true labels, "row groups" given by the user.
    needs: ClassVar[tuple[str, ...]] = ()
    # One check per parameter: a function of value, name and owner that raises InputError.
    constraints: ClassVar[dict[str, Check]] = {
        "alpha": check_alpha,
        "score": lambda score, *_: make_score(score),
        "exact": flag,
        "allow_empty": flag,
        "from_logits": flag,
        "temperature": unless((FIT,), partial(real_number, low=0, open_low=True)),
        "random_state": lambda value, _, owner: check_random_state(value, owner),
        "confidence": unless((None,), in_unit_interval),
        "floor": unless((None,), in_unit_interval),
        "strict_floor": flag,
    }
    # What a fit keeps, if not declared by `kept`; `save` writes it, `load` checks type and shape.
    state: ClassVar[dict[str, Field]] = {}
    # Whether it targets coverage of 1 - alpha over all rows, and whether that depends on the class
    # frequencies of the calibration rows.
    targets_average: ClassVar[bool] = True
    depends_on_prevalence: ClassVar[bool] = True
    # Whether it needs a parameter that only the user can give, so that "all" methods omit it.
    only_if_asked: ClassVar[bool] = False
    supports_exact: ClassVar[bool] = True
    supports_class_alpha: ClassVar[bool] = False
    # Whether the threshold of a class comes from its own examples alone.
    own_examples_only: ClassVar[bool] = False
    # Where a threshold comes from; `{rows}` stands for the class's calibration rows.
    origin: ClassVar[str] = (
        "A set includes the class if its score is at most the threshold. The threshold comes "
        f"from the {CALIBRATION_ROWS} of this class and those of other classes."
    )
    # Why a class may be undercovered.
    cause: ClassVar[str] = "Thresholds shared with other classes may not suit these."
    missing_class_note: ClassVar[str] = "they use the standard threshold"

    # ---- for a method to override ----------------------------------------------------------------

    @abstractmethod
    def _calibrate(self, rows: Any) -> Thresholds:
        """Compute thresholds from `CalibrationRows`: the method itself.

        `class_counts_`, `n_classes_` and `n_calibration_` are set when this is called.
        """

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        """Compute p-values from scores (n, J) of rows as members of `classes` (J,).

        A row itself counts as `own_share` (n,) of one more calibration row.
        """
        raise InputError(f"The '{self.method}' method does not provide p-values.")

    def _restore(self) -> Any:
        """Rebuild from the state what files cannot hold."""

    def _sharing(self) -> Sharing | None:
        """Return the groups of calibration scores behind the thresholds, if they are kept."""
        return None

    def _level_rows(self) -> int:
        """Count the rows that decide the level of all thresholds together."""
        return self.n_calibration_

    def _weights(self) -> dict[str, FloatArray]:
        """Return shares (K,) of the sources of each class's threshold, by name."""
        return {}

    def _cause(self, under: IntArray) -> str:
        """Explain why the classes `under` may be undercovered, and what to try."""
        return f"{self.cause} {ways_out(self.class_counts_[under], self.row_needs())}"

    def _class_facts(self) -> dict[str, list[str]]:
        """Return more columns for the classes in the report, by title."""
        return {}

    def fitted_values(self) -> dict[str, Any]:
        """Return plain values worth a column in a table, such as the number of clusters."""
        return {}

    def details(self) -> Details | None:
        """Return a table of what was fitted, for `info`."""
        return None

    def refit_exact(self, exact: bool) -> Self | None:
        """Return a copy with `exact` changed if that takes no new fit; else None."""
        return None

    # ---- parameters ------------------------------------------------------------------------------

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Return the names of all parameters: alpha, score, the method's own, the shared ones."""
        names = [each.name for each in fields(cls) if each.init]
        shared = [each.name for each in fields(MethodContract) if each.init and each.name in names]
        own = [name for name in names if name not in shared]
        return [*shared[:2], *own, *shared[2:]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name; `deep` is there for scikit-learn."""
        return {name: getattr(self, name) for name in self.parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters by name."""
        known = self.parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise_unknown(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self

    def with_params(self, **parameters: Any) -> Self:
        """Return a new, unfitted predictor with some parameters changed."""
        return type(self)(**self.get_params()).set_params(**parameters)

    def __repr__(self) -> str:
        default = {each.name: each.default for each in fields(self)}
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(default[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def _inherited(cls, table: str) -> dict[str, Any]:
        """Merge a class-level table with those of all bases."""
        merged: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            merged |= vars(base).get(table, {})
        return merged

    @classmethod
    def all_state(cls) -> dict[str, Field]:
        """Return what a fit keeps: the `kept` attributes, and those that `state` declares."""
        state: dict[str, Field] = {}
        for each in fields(cls):
            if "kept" in each.metadata:
                state |= each.metadata["kept"].columns(each.name)
        return state | cls._inherited("state")

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        for name, check in self._inherited("constraints").items():
            check(getattr(self, name), name, owner)
        if self.exact and not self.supports_exact:
            raise InputError(
                f"The 'exact' parameter of {owner} must be False: its coverage does not come from "
                "one conformal rank. Got True."
            )
        if is_per_class(self.alpha) and not self.supports_class_alpha:
            raise InputError(
                f"The 'alpha' parameter of {owner} must be one number for all classes. Got one per "
                "class; 'standard', 'classwise', 'clustered', 'pooled' and 'rc3p' take that."
            )
        if is_per_class(self.alpha) and self.target_prevalence is not None:
            raise InputError(
                f"The 'alpha' parameter of {owner} must be one number for all classes with a "
                "'target_prevalence'. Got one per class."
            )
        ways = ["exact"] * self.exact
        ways += [n for n in ("confidence", "target_prevalence") if getattr(self, n) is not None]
        if len(ways) > 1:
            raise InputError(
                f"'{ways[0]}' and '{ways[1]}' of {owner} cannot be combined: each has ranks of its "
                "own; use one of them."
            )

    def __dir__(self) -> list[str]:
        """List what users need: parameters, methods and, after `fit`, fitted attributes."""
        shown = {*self.parameter_names(), "method", "summary", "guarantee", "guarantee_text"}
        shown |= {"get_params", "set_params", "with_params", "parameter_names"}
        hidden, is_fitted = vars(MethodContract).keys() - shown, hasattr(self, "thresholds_")

        def is_public(name: str) -> bool:
            if name.startswith("_"):
                return name.startswith("__")
            return is_fitted if name.endswith("_") else name not in hidden

        return [name for name in super().__dir__() if is_public(name)]

    # ---- what follows ----------------------------------------------------------------------------

    @property
    def guarantee_text(self) -> str:
        """The guarantee of this predictor, as `info` and the report show it."""
        if self.out_of_fold_:
            return OUT_OF_FOLD
        alpha, text = self.class_alpha, self.guarantee
        if not alpha.is_one:
            text = self.class_alpha_guarantee or text
        if self.confidence is not None:
            share = f"{float(100 * exact_fraction(self.confidence)):g}%"
            text = self.confident_guarantee.replace("{confidence}", share)
            if not alpha.is_one:
                text = text.replace("Overall coverage", SAME_ALPHA)
        text += FOR_TARGET * (self.target_prevalence is not None)
        if not alpha.is_one:
            text += f" Alpha is {alpha}."
        if self.floor is None:
            return text
        return f"{NO_CLASS.sub('', text)} {self._floor_guarantee()}"

    def _floor_guarantee(self) -> str:
        """State the floor, and which classes have too few calibration examples for it."""
        level = f"{float(100 * exact_fraction(self.floor, name='floor')):g}%"
        few = self.below_floor_
        if self.strict_floor or not few.any():
            return f"Every class is guaranteed {level} coverage."
        return (
            f"Every class with at least {least_rows(self.floor_share)} calibration examples is "
            f"guaranteed {level} coverage; {int(few.sum()):,} of {self.n_classes_:,} classes have "
            f"fewer{some_names(self.class_names_, few)}."
        )

    @property
    def floor_share(self) -> Fraction:
        """The miscoverage that the floor allows each condition of a set: score, and rank if any."""
        share = 1 - exact_fraction(self.floor, name="floor")
        return share / 2 if "ranks" in self.needs else share

    @property
    def below_floor_(self) -> Array:
        """Which classes have too few calibration examples for the floor (K,)."""
        if self.floor is None:
            return np.ones(self.n_classes_, dtype=bool)
        return self.class_counts_ < least_rows(self.floor_share)

    @cached_property
    def class_alpha(self) -> ClassAlpha:
        """The target miscoverage of each class."""
        owner = type(self).__name__
        return ClassAlpha.of(self.alpha, self.class_names_, self.n_classes_, owner)

    @property
    def alpha_(self) -> FloatArray:
        """The target miscoverage of each class (K,)."""
        return self.class_alpha.floats

    def group_ranks(self, counts: IntArray) -> IntArray:
        """Return the rank of each group's threshold among its scores; 0 if there is no such one."""
        alpha = self.class_alpha
        if self.target_prevalence is not None or not alpha.is_one:
            return 0 * counts
        return conformal_ranks(counts, alpha.typical, self.confidence)

    def row_needs(self) -> Needs:
        """Return how many rows a threshold takes."""
        return Needs.at(self.class_alpha.typical, self.confidence)

    @property
    def score_(self) -> Score:
        """The score, with what the calibration labels decide filled in."""
        return make_score(self.score).with_counts(self.class_counts_, self.class_names_)

    @property
    def thresholds_(self) -> FloatArray:
        """The threshold of each class; with `exact` the upper one of two."""
        return self.limits_.upper

    @thresholds_.setter
    def thresholds_(self, thresholds: FloatArray) -> None:
        self.limits_ = self.limits_._replace(upper=thresholds)

    @property
    def used_temperature(self) -> float:
        """The temperature that was given, or the one that was fitted."""
        if isinstance(self.temperature, str):
            assert self.temperature_ is not None
            return self.temperature_
        return self.temperature

    def bound_score(self, logits: bool | None, score: Score | None = None) -> BoundScore:
        """Bind the score to an input that states whether it holds `logits`, or does not."""
        assumed, temperature = logits is None, self.used_temperature
        logits = self.from_logits if assumed else logits
        if self.from_logits and not logits and temperature != 1:
            raise InputError(
                f"The input must hold logits, which temperature={temperature:g} divides. "
                "Got probabilities; pass logits."
            )
        score = make_score(self.score) if score is None else score
        return BoundScore(score, bool(logits), temperature, self.random_state, assumed)
