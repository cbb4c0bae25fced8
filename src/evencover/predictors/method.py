"""scikit-learn's parameter protocol without importing scikit-learn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Self

from evencover.arrays import FloatArray, IntArray
from evencover.errors import InputError
from evencover.predictors.explanation import CALIBRATION_ROWS, Details, Needs, Sharing, ways_out
from evencover.predictors.rule import Scoring
from evencover.predictors.state import Field
from evencover.quantiles import Alpha, Thresholds, conformal_ranks
from evencover.scores import Score, make_score
from evencover.validation import raise_unknown

# Every method has these; its own come after the first two.
FIRST = ("alpha", "score")


class Parameters:
    """Parameters are the keyword-only fields of a dataclass, stored under their own names.

    A subclass that has more of them is a dataclass, too, and lists only its own. Fields with
    ``init=False`` are no parameters but what is learnt.
    """

    @classmethod
    def parameter_names(cls) -> list[str]:
        """The names of all parameters: alpha, score, the method's own, and what all share."""
        own: Any = cls
        return list(_parameter_names(own))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; `deep` is there for scikit-learn."""
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
        """A new predictor that has learnt nothing, with some parameters changed."""
        return type(self)(**self.get_params()).set_params(**parameters)

    def __repr__(self) -> str:
        default = {each.name: each.default for each in fields(self)}  # type: ignore[arg-type]
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(default[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


@cache
def _parameter_names(cls: Any) -> tuple[str, ...]:
    names = [each.name for each in fields(cls) if each.init]
    shared = _common_names(cls)
    common = [name for name in names if name in shared]
    own = [name for name in names if name not in common]
    return (*FIRST, *own, *(name for name in common if name not in FIRST))


def _common_names(cls: type[Parameters]) -> set[str]:
    """The parameters of the class that adds them first."""
    first = next(base for base in reversed(cls.__mro__) if "__dataclass_fields__" in vars(base))
    return {each.name for each in fields(first)}


OUT_OF_FOLD = (
    "Nothing is guaranteed: the scores come from models of cross-validation folds, the sets from a "
    "model fitted on all rows. Coverage is near 1 - alpha if these models are alike."
)


@dataclass(kw_only=True, eq=False, repr=False)
class Method(Parameters):
    """Parameters, what a fit keeps, and what a method may change; only `_calibrate` is a must."""

    alpha: Alpha = 0.1
    score: Score | str = "softmax"
    exact: bool = False
    allow_empty: bool = True
    from_logits: bool = False
    temperature: float | str = 1.0
    random_state: int = 0

    thresholds_: FloatArray = field(init=False)
    lower_thresholds_: FloatArray | None = field(init=False)
    upper_probability_: FloatArray | None = field(init=False)
    class_counts_: IntArray = field(init=False)
    n_classes_: int = field(init=False)
    n_calibration_: int = field(init=False)
    class_names_: Sequence[str] | None = field(init=False)
    fingerprints_: list[list[Any]] = field(init=False)
    temperature_: float | None = field(init=False)
    score_edges_: FloatArray | None = field(init=False)
    score_counts_: IntArray | None = field(init=False)
    row_sample_: IntArray | None = field(init=False)
    row_sample_limit_: int | None = field(init=False)
    out_of_fold_: bool = field(init=False, default=False)

    method: ClassVar[str]
    # One sentence each, shown by help, `info`, the docs and the page.
    summary: ClassVar[str] = ""
    guarantee: ClassVar[str] = "Nothing is guaranteed."
    # Beside scores, labels and ids: "ranks" of the true labels, "row groups" given by the user.
    needs: ClassVar[tuple[str, ...]] = ()
    # What a fit keeps beside the thresholds; `save` writes it, `load` checks type and shape.
    state: ClassVar[dict[str, Field]] = {
        "thresholds_": Field(float, "K"),
        "lower_thresholds_": Field(float, "K", optional=True),
        "upper_probability_": Field(float, "K", optional=True),
        "class_counts_": Field(int, "K"),
        "n_classes_": Field(int),
        "n_calibration_": Field(int),
        "class_names_": Field(list, optional=True),
        "fingerprints_": Field(list),
        "temperature_": Field(float, optional=True),
        "score_edges_": Field(float, "?", optional=True),
        "score_counts_": Field(int, "?", optional=True),
        "row_sample_": Field(int, "??", optional=True),
        "row_sample_limit_": Field(int, optional=True),
        "out_of_fold_": Field(bool),
    }
    # Whether it aims at coverage of 1 - alpha over all rows, and whether that depends on the class
    # frequencies of the calibration rows.
    aims_at_average: ClassVar[bool] = True
    minds_frequencies: ClassVar[bool] = True
    # Whether it says nothing of its own without a parameter that only the user can give, so that
    # "all" methods leave it out.
    only_if_asked: ClassVar[bool] = False
    # Whether exact=True means something.
    supports_exact: ClassVar[bool] = True
    # Whether the threshold of a class comes from its own rows alone.
    own_rows_only: ClassVar[bool] = False
    # Where a threshold comes from; `{rows}` stands for the class's calibration rows.
    origin: ClassVar[str] = (
        "A class is in a set if its score is at most the threshold, which the method finds from "
        f"the {CALIBRATION_ROWS} of this class together with those of others."
    )
    fate_of_missing_classes: ClassVar[str] = "they use the standard threshold"

    @abstractmethod
    def _calibrate(self, rows: Any) -> Thresholds:
        """The method itself: thresholds from `CalibrationRows`.

        `class_counts_`, `n_classes_` and `n_calibration_` are set when this is called.
        """

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        """P-values from scores (n, J) of rows as members of `classes` (J,), if there are any.

        A row itself counts as `own_share` (n,) of one more calibration row.
        """
        raise InputError(f"The '{self.method}' method does not provide p-values.")

    def _restore(self) -> None:
        """Make from the state what `load` cannot read: it holds numbers and plain values."""

    def _sharing(self) -> Sharing | None:
        """The groups of calibration scores behind the thresholds, if they are kept."""
        return None

    def _level_rows(self) -> int:
        """How many rows decide how far all thresholds are raised together."""
        return self.n_calibration_

    def _weights(self) -> dict[str, FloatArray]:
        """Shares (K,) of what each class's threshold comes from, by what they are called."""
        return {}

    def _cause(self, under: IntArray) -> str:
        """Why this method may cover the classes `under` too little, and what to try."""
        cause = "Thresholds learnt from other classes may not suit these."
        return f"{cause} {ways_out(self.class_counts_[under], self.row_needs())}"

    def _class_facts(self) -> dict[str, list[str]]:
        """What else the page shows of each class, by title."""
        return {}

    def learnt(self) -> dict[str, Any]:
        """Plain values worth a column in a table, such as the number of clusters."""
        return {}

    def details(self) -> Details | None:
        """A table of what was learnt, for `info`."""
        return None

    def refit_exact(self, exact: bool) -> Self | None:
        """A copy with `exact` changed if nothing needs to be learnt again; else None."""
        return None

    @property
    def promise(self) -> str:
        """What this predictor guarantees, in words that `info` and the page show."""
        return OUT_OF_FOLD if self.out_of_fold_ else self._promise()

    def _promise(self) -> str:
        """State the guarantee with these parameters."""
        return self.guarantee

    def _terms(self) -> str:
        """At which level thresholds are sought, for a sentence that says it is not possible."""
        return f"at alpha = {self.alpha}"

    def group_ranks(self, counts: IntArray) -> IntArray:
        """Which of so many scores, in increasing order, is the threshold of each group."""
        return conformal_ranks(counts, self.alpha)

    def row_needs(self) -> Needs:
        """How many rows a threshold takes."""
        return Needs.at(self.alpha)

    @classmethod
    def all_state(cls) -> dict[str, Field]:
        """The fields of this class and those it inherits, in order."""
        fields: dict[str, Field] = {}
        for base in reversed(cls.__mro__):
            fields |= vars(base).get("state", {})
        return fields

    def __dir__(self) -> list[str]:
        """List what users need: parameters, methods and, after `fit`, fitted attributes."""
        shown = {*self.parameter_names(), "method", "summary", "guarantee", "promise"}
        hidden, is_fitted = vars(Method).keys() - shown, hasattr(self, "thresholds_")

        def is_public(name: str) -> bool:
            if name.startswith("_"):
                return name.startswith("__")
            return is_fitted if name.endswith("_") else name not in hidden

        return [name for name in super().__dir__() if is_public(name)]

    # ---- what follows from it ------------------------------------------------------------------

    @property
    def score_(self) -> Score:
        """The score, with what the calibration labels decide filled in."""
        return make_score(self.score).with_counts(self.class_counts_, self.class_names_)

    @property
    def limits_(self) -> Thresholds:
        """All that decides whether a class is in a set."""
        return Thresholds(self.thresholds_, self.lower_thresholds_, self.upper_probability_)

    @property
    def used_temperature(self) -> float:
        """The temperature that was given, or the one that was fitted."""
        if isinstance(self.temperature, str):
            assert self.temperature_ is not None
            return self.temperature_
        return self.temperature

    def scoring(self, logits: bool | None, score: Score | None = None) -> Scoring:
        """Build the scoring of an input that states whether it holds `logits`, or does not."""
        assumed = logits is None
        logits = self.from_logits if assumed else logits
        if self.from_logits and not logits and self.used_temperature != 1:
            raise InputError(
                f"The input must hold logits, which temperature={self.used_temperature:g} divides. "
                "Got probabilities; pass logits."
            )
        score = make_score(self.score) if score is None else score
        return Scoring(score, bool(logits), self.used_temperature, self.random_state, assumed)
