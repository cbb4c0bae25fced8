"""recommend(): which method for these labels, why, what to expect, and what would change it."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, dataclass, field
from html import escape
from math import ceil, sqrt
from typing import Any

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.comparison.trials import calibration_split, other_rows
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import EvencoverWarning, InputError
from evencover.evaluation.statistics import class_balance
from evencover.predictors import make_predictor
from evencover.predictors.clustered import automatic_parameters, least_count
from evencover.predictors.fitting import require_labels
from evencover.quantiles import Alpha, exact_fraction, least_rows
from evencover.validation import class_labels, whole_number

# Sizes are estimated from the first rows, about so many numbers.
SIZE_NUMBERS = 1 << 24
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
    alpha: Alpha = 0.1,
    confidence: Alpha | None = None,
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
        Target miscoverage. The paper's boundaries hold for 0.1; they move with 1/alpha, because
        what counts is the number of rows that a class may miss.
    confidence
        Recommend a method that guarantees coverage of at least 1 - alpha with this probability over
        calibration sets.
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
    level = float(exact_fraction(alpha, "recommend"))
    sizes: dict[str, float] = {}
    if labels is None and _are_labels(probabilities):
        indices, n_classes = _checked(probabilities, n_classes)
    else:
        source = as_source(probabilities, labels)
        require_labels(source, "Advice")
        n_classes = source.n_classes
        indices, sizes = _labels_and_sizes(source, alpha, confidence, from_logits)
    counts = np.bincount(indices, minlength=n_classes)
    regime = _regime(counts, level)
    paper_method = _paper_method(counts, alpha, regime)
    if confidence is None:
        method = "classwise" if regime == "extremely high" else "pooled"
        why, expect = _why(counts, regime, paper_method), _expect(counts, level, method)
    else:
        method = paper_method
        why, expect = _with_confidence(counts, alpha, confidence, method)
    if sizes:
        others = ", ".join(f"{name} {size:.1f}" for name, size in sizes.items() if name != method)
        expect += (
            f" Sets will hold about {sizes[method]:.1f} of the {n_classes} classes ({others}), as "
            "calibrating on half of these rows showed."
        )
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


def _labels_and_sizes(
    source: Source, alpha: Alpha, confidence: Alpha | None, from_logits: bool
) -> tuple[IntArray, dict[str, float]]:
    """Read all labels; mean set sizes by method, where half of the first rows calibrate."""
    first_rows: list[Array] = []
    all_labels: list[Array] = []
    for block in source.blocks():
        assert block.labels is not None
        all_labels.append(block.labels)
        if sum(map(len, first_rows)) * source.n_classes < SIZE_NUMBERS:
            first_rows.append(np.array(block.rows))
    rows, labels = np.concatenate(first_rows), np.concatenate(all_labels)
    if len(rows) < 4:
        return labels, {}
    calibration = calibration_split(labels[: len(rows)], 0)
    own = as_source(rows[calibration], logits=source.logits)
    others = as_source(rows[other_rows(calibration, len(rows))], logits=source.logits)
    more = {} if confidence is None else {"confidence": confidence}
    sizes = {}
    with warnings.catch_warnings():  # about classes that half of the rows lack
        warnings.simplefilter("ignore", EvencoverWarning)
        for method in ("standard", "classwise", "clustered" if more else "pooled"):
            predictor = make_predictor(method, alpha=alpha, from_logits=from_logits, **more)
            predictor.fit(own, labels[calibration])
            sizes[method] = float(predictor.predict_set(others).sizes.mean())
    return labels, sizes


def _regime(counts: IntArray, alpha: float) -> str:
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
