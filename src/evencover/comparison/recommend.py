"""recommend(): which method for these labels, why, what to expect, and what would change it."""

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
from evencover.quantiles import (
    Alpha,
    ClassAlpha,
    check_alpha,
    exact_fraction,
    is_per_class,
    least_rows,
)
from evencover.validation import class_labels, real_number, whole_number

# Sizes are estimated from the first rows, about so many numbers.
SIZE_NUMBERS = 1 << 24
MOST_ALPHAS = 3  # of an alpha per class, in sentences
# The paper's boundaries, in examples per class at alpha = 0.1.
VERY_FEW, MANY, PLENTY = 10, 75, 100


@dataclass(frozen=True)
class Recommendation:
    """Advice in sentences, and the numbers behind it.

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
        Mean set sizes to expect by method, where probabilities were given.
    floor_cost
        Labels that the floor adds to the average set of the method, where one was asked for.
    alpha_for_size, coverage_for_size
        The smallest alpha at which the method's sets have at most `max_size` classes on average,
        and the coverage there, where one was asked for; None if there is no such alpha.
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
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())

    def __str__(self) -> str:
        return (
            f"Use {self.method} with the {self.score} score.\nWhy: {self.why}\n"
            f"Expect: {self.expect}\nWhat would change this: {self.would_change}"
        )


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
    """Choose a method from how many calibration rows each class has.

    Parameters
    ----------
    probabilities
        (N, K) array-like or the path of a file with the calibration rows; with them the advice
        includes set sizes. The labels alone may take their place.
    labels
        (N,) class indices of the calibration rows; may come with the file.
    n_classes
        The number of classes K, if only labels are given; by default one more than the largest.
    alpha
        Target miscoverage, one number or one per class, as for predictors. The paper's boundaries
        hold for 0.1; they move with 1/alpha, because what counts is the number of rows that a class
        may miss.
    floor
        Guaranteed coverage of every class; with probabilities, its cost in labels is measured.
    confidence
        Recommend a method that guarantees coverage of at least 1 - alpha with this probability over
        calibration sets.
    max_size
        Find the highest coverage that the method has with at most this many labels in the average
        set; needs probabilities and one alpha for all classes.
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
    check_alpha(alpha, owner="recommend")
    if max_size is not None:
        real_number(max_size, "max_size", "recommend", 0, open_low=True)
        if is_per_class(alpha):
            raise InputError("'max_size' and an 'alpha' per class of recommend cannot be combined.")
    names, halves = None, None
    if labels is None and _are_labels(probabilities):
        indices, n_classes = _checked(probabilities, n_classes)
    else:
        source = as_source(probabilities, labels)
        require_labels(source, "Advice")
        n_classes, names = source.n_classes, source.class_names
        indices, halves = _labels_and_halves(source)
    if max_size is not None and halves is None:
        raise InputError("'max_size' of recommend needs probabilities of 4 rows. Got fewer.")
    own = ClassAlpha.of(alpha, names, n_classes, "recommend")
    typical, level = own.typical, float(own.typical)
    counts = np.bincount(indices, minlength=n_classes)
    regime = _regime(counts, own.floats)
    paper_method = _paper_method(counts, typical, regime)
    if confidence is None:
        method = "classwise" if regime == "extremely high" else "pooled"
        why, expect = _why(counts, regime, paper_method), _expect(counts, level, method)
    else:
        method = paper_method
        why, expect = _with_confidence(counts, typical, confidence, method)
    if not own.is_one:
        expect += _other_alphas(counts, own)
    sizes: dict[str, float] = {}
    measured: dict[str, Any] = {}
    if floor is not None:
        expect += _floor_needs(counts, floor)
    if halves is not None:
        more = {} if confidence is None else {"confidence": confidence}
        given = {"alpha": typical if own.is_one else own, "from_logits": from_logits, **more}
        methods = ("standard", "classwise", "clustered" if more else "pooled")
        fits = {name: halves.fit(name, floor=floor, **given) for name in methods}
        sizes = {name: halves.size(fitted) for name, fitted in fits.items()}
        others = ", ".join(f"{name} {size:.1f}" for name, size in sizes.items() if name != method)
        expect += (
            f" Sets will hold about {sizes[method]:.1f} of the {n_classes} classes ({others}), as "
            "calibrating on half of these rows showed."
        )
        if floor is not None:
            plain = halves.size(halves.fit(method, **given))
            cost = measured["floor_cost"] = sizes[method] - plain
            expect += f" The floor adds {cost:.2f} labels to the average set"
            expect += f" ({cost / max(plain, 1e-9):+.0%})."
        if max_size is not None:
            alpha_there, coverage = halves.best_within(fits[method], max_size)
            measured |= {"alpha_for_size": alpha_there, "coverage_for_size": coverage}
            expect += _within(max_size, alpha_there, coverage)
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

    def fit(self, method: str, **parameters: Any) -> BasePredictor:
        with warnings.catch_warnings():  # about classes that half of the rows lack
            warnings.simplefilter("ignore", EvencoverWarning)
            predictor = make_predictor(method, **parameters)
            return predictor.fit(self.calibration, self.calibration_labels)

    def size(self, predictor: BasePredictor) -> float:
        """Return the mean set size."""
        return float(predictor.predict_set(self.test).sizes.mean())

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
                sets = predictor.with_alpha(Fraction(middle, 1000)).predict_set(self.test)
            if sets.sizes.mean() <= max_size:
                high, coverage = middle, float(sets.contains(self.test_labels).mean())
            else:
                low = middle
        return (None, None) if coverage is None else (high / 1000, coverage)


def _within(max_size: float, alpha: float | None, coverage: float | None) -> str:
    """State the best coverage with sets of at most this many labels."""
    if alpha is None:
        return f" No alpha gives an average set of at most {max_size:g} labels."
    return (
        f" With at most {max_size:g} labels in the average set, use alpha = {alpha:g}: overall "
        f"coverage {coverage:.1%}."
    )


def _other_alphas(counts: IntArray, own: ClassAlpha) -> str:
    """State how many classes have too few examples for a threshold of their own at each alpha."""
    sentences = []
    for index, value in enumerate(own.values[:MOST_ALPHAS]):
        least, of_alpha = least_rows(value), counts[own.of_class == index]
        sentences.append(
            f" At alpha = {float(value):g} a class needs {least} examples for a threshold of its "
            f"own; {int((of_alpha < least).sum())} of {len(of_alpha)} classes have fewer."
        )
    return "".join(sentences)


def _floor_needs(counts: IntArray, floor: Alpha) -> str:
    """State how many classes have too few examples for the floor."""
    share = 1 - exact_fraction(floor, "recommend", "floor")
    least = least_rows(share)
    return (
        f" The floor of {float(1 - share):.0%} is guaranteed to every class with at least {least} "
        f"examples; {int((counts < least).sum())} of {len(counts)} classes have fewer."
    )


def _labels_and_halves(source: Source) -> tuple[IntArray, _Halves | None]:
    """Read all labels, and split the first rows in two; None if there are too few."""
    first_rows: list[Array] = []
    all_labels: list[Array] = []
    for block in source.blocks():
        assert block.labels is not None
        all_labels.append(block.labels)
        if sum(map(len, first_rows)) * source.n_classes < SIZE_NUMBERS:
            first_rows.append(np.array(block.rows))
    rows, labels = np.concatenate(first_rows), np.concatenate(all_labels)
    if len(rows) < 4:
        return labels, None
    calibration = calibration_split(labels[: len(rows)], 0)
    test = other_rows(calibration, len(rows))
    own, others = (as_source(rows[part], logits=source.logits) for part in (calibration, test))
    return labels, _Halves(own, labels[calibration], others, labels[test])


def _regime(counts: IntArray, alpha: FloatArray) -> str:
    """The paper's discussion: by how many examples most classes, the mean and the rarest have."""
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
        f"{len(counts)} classes have {counts.mean():.3g} calibration rows on average, "
        f"the smallest {counts.min()}"
    )
    if regime == "extremely high":
        return f"{have}: enough for classwise, the one method that guarantees coverage to each."
    return (
        f"{have}. For this {regime}-data regime Ding et al. (2023) advise {paper_method}; pooled "
        "uses every row for every class, and in our study its cost, in labels listed and missed, "
        "was the lowest of four methods in 124 of 126 settings."
    )


def _with_confidence(
    counts: IntArray, alpha: Alpha, confidence: Alpha, method: str
) -> tuple[str, str]:
    """Why, and what to expect, where a guarantee for one calibration set is required."""
    share = float(100 * exact_fraction(confidence, "recommend", "confidence"))
    least = least_rows(alpha, confidence)
    whom = {"standard": "all rows together", "classwise": "each class", "clustered": "each cluster"}
    return (
        f"of the methods that can guarantee coverage for one calibration set, {method} suits "
        f"{counts.mean():.3g} calibration rows per class.",
        f"with probability {share:g}%, coverage of at least {float(1 - exact_fraction(alpha)):g} "
        f"of {whom[method]}, for larger sets. {int((counts < least).sum())} of {len(counts)} "
        f"classes have fewer than the {least} rows that a threshold of their own would take.",
    )


def _expect(counts: IntArray, alpha: float, method: str) -> str:
    middle = int(np.median(counts))
    noise = f"{100 * sqrt(alpha * (1 - alpha) / (middle + 2)):.1f} points"
    if method == "classwise":
        return f"coverage of {1 - alpha:g} for every class, with sampling noise of about {noise}."
    alone = int((counts < ceil(round(1 / alpha - 1, 9))).sum())
    always = f"; {alone} of {len(counts)} classes would be in every set" if alone else ""
    return (
        f"coverage of about {1 - alpha:g} overall and for most classes, without a guarantee. A "
        f"classwise threshold from {middle} rows has sampling noise of about {noise}{always}."
    )


def _would_change(counts: IntArray, alpha: float, regime: str) -> str:
    plenty = ceil(PLENTY * 0.1 / alpha)
    if regime == "extremely high":
        return f"new classes, or fewer than {plenty} rows in some: then use pooled."
    short, unseen = counts < plenty, int((counts == 0).sum())
    first = f"Begin with the {unseen} classes without any. " if unseen else ""
    return (
        f"{int((plenty - counts[short]).sum())} more labels, to give the {int(short.sum())} "
        f"classes below {plenty} rows that many; then classwise can guarantee coverage to every "
        f"class. {first}To weigh size against evenness on your data, use 'evencover compare'."
    )
