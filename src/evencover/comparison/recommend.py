"""recommend(): a method for these labels, with reasons, expected results and alternatives."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from html import escape
from math import ceil, sqrt
from typing import Any

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.comparison.trials import calibration_split, other_rows
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import EvencoverWarning, InputError
from evencover.evaluation.statistics import class_balance
from evencover.predictors import BasePredictor, make_predictor
from evencover.predictors.clustered import automatic_parameters, least_count
from evencover.predictors.fitting import require_labels
from evencover.quantiles import Alpha, ClassAlpha, exact_fraction, least_rows
from evencover.sets import PredictionSets
from evencover.validation import class_labels, real_number, whole_number

# Set sizes are estimated on the first rows, up to this many numbers.
SIZE_NUMBERS = 1 << 24
# The paper's boundaries, in examples per class at alpha = 0.1.
VERY_FEW, MANY, PLENTY = 10, 75, 100


@dataclass(frozen=True)
class Recommendation:
    """A recommended method, the reasons, and the numbers behind them.

    Attributes
    ----------
    method, score
        The recommended ones.
    regime, paper_method
        The paper's regime of the data, from "extremely low" to "extremely high", and its advice
        there among STANDARD, CLASSWISE and CLUSTERED.
    why, expect, would_change
        Reasons, expectations, and conditions for other advice.
    n_rows, n_classes, examples_per_class, smallest_class, class_balance
        A summary of the labels; the balance is the paper's metric, 1 for equal classes.
    expected_sizes
        Mean set sizes to expect by method, if probabilities were given.
    floor_cost
        Labels that the floor adds to the average set of the recommended method, if it was measured.
    alpha_for_size, coverage_for_size
        With a `max_size`: the smallest alpha whose sets are small enough, and the overall coverage
        there; None if no alpha has such sets.
    """

    method: str
    score: str
    regime: str
    paper_method: str
    why: str
    expect: str
    would_change: str
    n_rows: int
    n_classes: int
    examples_per_class: float
    smallest_class: int
    class_balance: float
    expected_sizes: dict[str, float] = field(default_factory=dict)
    floor_cost: float | None = None
    alpha_for_size: float | None = None
    coverage_for_size: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return every field, ready for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return f"<pre style='white-space: pre-wrap'>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        parts = (self.why, self.expect, self.would_change)
        lines = [line for part in parts for line in part.splitlines()]
        return "\n  ".join([f"Recommended: {self.method} + {self.score}", *lines])


def recommend(
    probabilities: Any,
    labels: Any = None,
    *,
    n_classes: int | None = None,
    alpha: Any = 0.1,
    floor: Alpha | None = None,
    confidence: Alpha | None = None,
    max_size: float | None = None,
    from_logits: bool = False,
) -> Recommendation:
    """Recommend a method from the number of calibration examples of each class.

    Parameters
    ----------
    probabilities
        (N, K) array-like or the path of a file with the calibration rows; the advice then
        includes set sizes. Or the labels alone.
    labels
        (N,) class indices of the calibration rows; may come with the file.
    n_classes
        The number of classes K, if only labels are given; by default one more than the largest.
    alpha, floor
        Target miscoverage, one number or one per class, and guaranteed coverage of every class, as
        for predictors. The paper's boundaries are for an alpha of 0.1; they scale with 1/alpha of
        each class. With probabilities, the advice states the floor's cost in labels.
    confidence
        Recommend a method that guarantees coverage of at least 1 - alpha with this probability over
        calibration sets.
    max_size
        Find the highest coverage of the method with at most this average set size; for
        probabilities and one alpha.
    from_logits
        The rows hold logits.

    >>> advice = recommend([0] * 400 + [1] * 300 + [2] * 200)
    >>> advice.method, advice.regime
    ('classwise', 'extremely high')
    >>> recommend(list(range(50)) * 20, alpha=0.1).method
    'pooled'
    >>> recommend(list(range(50)) * 20, confidence=0.9).method
    'standard'
    """
    source: Source | None = None
    halves: _Halves | None = None
    if labels is None and _are_labels(probabilities):
        indices, n_classes = _checked(probabilities, n_classes)
    else:
        source = as_source(probabilities, labels, allow_unknown=True)
        require_labels(source, "Advice")
        n_classes = source.n_classes
        indices, halves = _labels_and_halves(source, from_logits)
    names = None if source is None else source.class_names
    own = ClassAlpha.of(alpha, names, n_classes, "recommend")
    if max_size is not None:
        real_number(max_size, "max_size", "recommend", 0, open_low=True)
        if halves is None or not own.is_one:
            raise InputError(
                "The 'max_size' parameter of recommend needs probabilities of at least 4 rows and "
                "one alpha for all classes."
            )
    counts, level = np.bincount(indices, minlength=n_classes), float(own.typical)
    regime = _regime(counts, own.floats)
    paper_method = _paper_method(counts, own.typical, regime)
    if confidence is None:
        method = "classwise" if regime == "extremely high" else "pooled"
        why, expect = _why(counts, regime, paper_method), _expect(counts, own, method)
    else:
        method = paper_method
        why, expect = _with_confidence(counts, own.typical, confidence, method)
    sizes: dict[str, float] = {}
    measured: dict[str, float | None] = {}
    if halves is not None:
        asked: dict[str, Any] = {"alpha": own.typical if own.is_one else own, "floor": floor}
        asked |= {} if confidence is None else {"confidence": confidence}
        methods = ("standard", "classwise", "pooled" if confidence is None else "clustered")
        fits = {name: halves.fit(name, **asked) for name in methods}
        sizes = {name: halves.sets(fitted).sizes.mean().item() for name, fitted in fits.items()}
        others = ", ".join(f"{name} {size:.1f}" for name, size in sizes.items() if name != method)
        expect += (
            f"\nAverage set size about {sizes[method]:.1f} of {n_classes:,} classes ({others}), "
            "measured by calibrating on half of these examples."
        )
        if floor is not None:
            plain = halves.sets(halves.fit(method, **asked | {"floor": None})).sizes.mean().item()
            cost = measured["floor_cost"] = sizes[method] - plain
            expect += (
                f"\nThe floor of {float(100 * exact_fraction(floor)):g}% adds {cost:.2f} labels "
                f"to the average set ({cost / max(plain, 1e-9):+.0%})."
            )
        if max_size is not None:
            found = halves.best_within(fits[method], max_size)
            measured |= dict(zip(("alpha_for_size", "coverage_for_size"), found, strict=True))
            best = (
                "no alpha" if found[0] is None else f"alpha {found[0]:g}, coverage {found[1]:.1%}"
            )
            expect += f"\nHighest coverage with an average set size up to {max_size:g}: {best}."
    return Recommendation(
        method=method,
        score="softmax",
        regime=regime,
        paper_method=paper_method,
        why=why,
        expect=expect,
        would_change=_would_change(counts, level, regime),
        n_rows=len(indices),
        n_classes=n_classes,
        examples_per_class=float(counts.mean()),
        smallest_class=int(counts.min()),
        class_balance=class_balance(counts),
        expected_sizes=sizes,
        **measured,
    )


def _are_labels(values: Any) -> bool:
    """Whether these are labels, and not rows, a file or a source."""
    if isinstance(values, list | tuple):
        return not values or not isinstance(values[0], str | os.PathLike | list | tuple)
    return getattr(values, "ndim", None) == 1


def _checked(labels: Any, n_classes: int | None) -> tuple[IntArray, int]:
    values = to_numpy(labels)
    if not values.size:
        raise InputError("There must be at least one label. Got none.")
    if n_classes is None:
        n_classes = int(values.max()) + 1 if values.dtype.kind in "iu" else 2
    n_classes = max(whole_number(n_classes, "n_classes", "recommend", 1), 2)
    return class_labels(values, n_classes, None), n_classes


@dataclass(frozen=True)
class _Halves:
    """Half of the first rows to calibrate on, and the other half to measure on."""

    calibration: Source
    calibration_labels: IntArray
    test: Source
    test_labels: IntArray
    from_logits: bool

    def fit(self, method: str, **parameters: Any) -> BasePredictor:
        with warnings.catch_warnings():  # about classes that half of the rows lack
            warnings.simplefilter("ignore", EvencoverWarning)
            predictor = make_predictor(method, from_logits=self.from_logits, **parameters)
            return predictor.fit(self.calibration, self.calibration_labels)

    def sets(self, predictor: BasePredictor) -> PredictionSets:
        return predictor.predict_set(self.test)

    def best_within(
        self, predictor: BasePredictor, max_size: float
    ) -> tuple[float, float] | tuple[None, None]:
        """Find the smallest alpha, in thousandths, whose sets are small enough, and its coverage.

        Sets shrink as alpha grows, so bisection finds it.
        """
        low, high, coverage = 0, 1000, None
        while high - low > 1:
            middle = (low + high) // 2
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EvencoverWarning)
                sets = self.sets(predictor.with_alpha(Fraction(middle, 1000)))
            if sets.sizes.mean() <= max_size:
                high, coverage = middle, float(sets.contains(self.test_labels).mean())
            else:
                low = middle
        return (None, None) if coverage is None else (high / 1000, coverage)


def _labels_and_halves(source: Source, from_logits: bool) -> tuple[IntArray, _Halves | None]:
    """Read all labels of known classes, and split the first rows in two; None if there are few."""
    first_rows: list[Array] = []
    all_labels: list[Array] = []
    for block in source.blocks():
        assert block.labels is not None
        known = block.labels < source.n_classes
        all_labels.append(block.labels[known])
        if sum(map(len, first_rows)) * source.n_classes < SIZE_NUMBERS:
            first_rows.append(np.array(block.rows[known]))
    rows, labels = np.concatenate(first_rows), np.concatenate(all_labels)
    if not len(labels):
        raise source.no_known_label()
    if len(rows) < 4:
        return labels, None
    calibration = calibration_split(labels[: len(rows)], 0)
    test = other_rows(calibration, len(rows))
    own, others = (as_source(rows[part], logits=source.logits) for part in (calibration, test))
    return labels, _Halves(own, labels[calibration], others, labels[test], from_logits)


def _regime(counts: IntArray, alpha: FloatArray) -> str:
    """Name the regime of the paper by the examples of most classes, the mean and the rarest."""
    at_a_tenth = counts * alpha / 0.1
    if (at_a_tenth < VERY_FEW).mean() > 0.5:
        return "extremely low"
    if at_a_tenth.min() >= PLENTY:
        return "extremely high"
    return "high" if at_a_tenth.mean() > MANY else "low"


def _paper_method(counts: IntArray, alpha: Alpha, regime: str) -> str:
    if regime == "extremely high":
        return "classwise"
    gamma, n_clusters = automatic_parameters(counts, alpha)
    n_clusterable = int((counts * float(gamma) >= least_count(alpha)).sum())
    possible = n_clusters >= 2 and n_clusterable > n_clusters
    return "clustered" if regime != "extremely low" and possible else "standard"


def _why(counts: IntArray, regime: str, paper_method: str) -> str:
    have = (
        f"{len(counts):,} classes have {counts.mean():.3g} calibration examples on average, the "
        f"smallest {counts.min():,}."
    )
    if regime == "extremely high":
        return f"{have}\nThat is enough for classwise, which guarantees coverage for each class."
    return (
        f"{have}\nFor this {regime}-data regime, Ding et al. (2023) recommend {paper_method}. "
        "Pooled had the lowest cost of four methods in all of 135 benchmark settings."
    )


def _with_confidence(
    counts: IntArray, alpha: Alpha, confidence: Alpha, method: str
) -> tuple[str, str]:
    """Return reasons and expectations with a guarantee for one calibration set."""
    share = float(100 * exact_fraction(confidence, "recommend", "confidence"))
    least = least_rows(alpha, confidence)
    whom = {"standard": "overall", "classwise": "of each class", "clustered": "of each cluster"}
    return (
        f"Of the methods that guarantee coverage for one calibration set, {method} suits "
        f"{counts.mean():.3g} calibration examples per class.",
        f"With probability {share:g}%, coverage {whom[method]} is at least "
        f"{float(100 * (1 - exact_fraction(alpha))):g}%; sets are larger.\n"
        f"A class needs {least:,} examples for its own threshold; {int((counts < least).sum()):,} "
        f"of {len(counts):,} classes have fewer.",
    )


def _expect(counts: IntArray, alpha: ClassAlpha, method: str) -> str:
    level, middle = float(alpha.typical), int(np.median(counts))
    noise = f"{100 * sqrt(level * (1 - level) / (middle + 2)):.1f} points"
    target = f"{100 * (1 - level):.4g}%" if alpha.is_one else "its own target"
    if method == "classwise":
        return f"Each class is covered at {target}, with sampling noise of about {noise}."
    alone = int((counts < ceil(round(1 / level - 1, 9))).sum())
    always = f", and {alone:,} of {len(counts):,} classes would always be included" * (alone > 0)
    return (
        f"Pooled targets {target} for each class, without a guarantee.\n"
        f"Classwise thresholds from {middle:,} examples would have sampling noise of about "
        f"{noise}{always}."
    )


def _would_change(counts: IntArray, alpha: float, regime: str) -> str:
    plenty = ceil(PLENTY * 0.1 / alpha)
    if regime == "extremely high":
        return f"If classes are added or some have fewer than {plenty:,} examples, use pooled."
    short, unseen = counts < plenty, int((counts == 0).sum())
    first = f" Begin with the {unseen:,} classes without any." if unseen else ""
    return (
        f"{int((plenty - counts[short]).sum()):,} more labels would give each class {plenty:,} "
        f"examples; classwise then guarantees coverage for each class.{first}\n"
        "To compare methods on your data, run 'evencover compare'."
    )
