"""recommend(): a method for calibration data, from a comparison on one split, in words."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, sqrt
from typing import Any

import numpy as np

from evencover.arrays import IntArray
from evencover.comparison.compare import DEFAULT_METHODS, compare_on, make_methods
from evencover.comparison.result import Comparison
from evencover.comparison.trials import ScoredRows, Split, calibration_split
from evencover.data.open import as_source
from evencover.errors import InputError
from evencover.evaluation.statistics import class_balance
from evencover.quantiles import Alpha, ClassAlpha, exact_fraction, least_rows
from evencover.scores import Softmax

CONFIDENT_METHODS = ("standard", "classwise", "clustered")
PLENTY = 100  # examples of each class for CLASSWISE at alpha = 0.1, as the paper advises
LEAST_ROWS = 4  # to calibrate on one half and test on the other


def recommend(
    probabilities: Any,
    labels: Any = None,
    *,
    alpha: Any = 0.1,
    floor: Alpha | None = None,
    confidence: Alpha | None = None,
    from_logits: bool = False,
) -> Recommendation:
    """Recommend a method for calibration data.

    Compare four methods with the softmax score on one split into halves, and recommend the one with
    the lowest cost of those that reach the target. `compare` tries several splits and scores.

    Parameters
    ----------
    probabilities
        (N, K) array-like or the path of a file with the calibration rows; it is read twice.
    labels
        (N,) class indices of the calibration rows; may come with the file.
    alpha, floor
        Target miscoverage, one number or one per class, and guaranteed coverage of every class, as
        for predictors. The advice states the floor's cost in labels.
    confidence
        Recommend a method that guarantees coverage of at least 1 - alpha with this probability over
        calibration sets.
    from_logits
        The rows hold logits.

    >>> from evencover.data import load_languages
    >>> p, y, _ = load_languages()
    >>> recommend(p, y).method
    'pooled'
    """
    source = as_source(probabilities, labels, allow_unknown=True)
    rows = ScoredRows(source, [Softmax()], from_logits=from_logits, random_state=0)
    n_rows, n_classes = len(rows.labels), rows.n_classes
    if n_rows < LEAST_ROWS:
        raise InputError(f"There must be at least {LEAST_ROWS} rows to compare on. Got {n_rows}.")
    class_alpha = ClassAlpha.of(alpha, source.class_names, n_classes, "recommend")
    # Set sizes depend on the number of calibration examples, and counting them takes no test
    # labels: so thresholds of all rows give the sizes to expect.
    halves = Split.of(0.5, 0, calibration_split(rows.labels, 0), n_rows)
    everything = Split(1.0, 0, np.arange(n_rows), np.ones(n_rows, dtype=bool))
    methods = DEFAULT_METHODS if confidence is None else CONFIDENT_METHODS
    predictors = make_methods(methods, class_alpha, confidence)
    full = compare_on(rows, predictors, [halves, everything], 0, alpha=class_alpha, floor=floor)
    return Recommendation(
        full.smaller[0],
        {candidate.method: candidate.mean("avg_size") for candidate in full.candidates},
        {candidate.method: candidate.avg_size_without_floor for candidate in full.candidates},
        np.bincount(rows.labels, minlength=n_classes)[:n_classes],
        class_alpha,
        confidence,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """A recommended method, the reasons, and the numbers behind them.

    Attributes
    ----------
    comparison
        The comparison on one split into halves.
    expected_sizes, sizes_without_floor
        Mean set sizes by method, with thresholds from all rows; the latter if there is a floor.
    class_counts, alpha, confidence
        Calibration examples of each class (K,), and what was asked for.
    """

    comparison: Comparison
    expected_sizes: dict[str, float]
    sizes_without_floor: dict[str, float | None]
    class_counts: IntArray
    alpha: ClassAlpha
    confidence: Alpha | None

    score = "softmax"

    @property
    def method(self) -> str:
        """The recommended method: the lowest cost of those that reach the target."""
        return self.comparison.best.method

    @property
    def costs(self) -> dict[str, float]:
        """Labels per example by method, from one half of the rows to the other: see `compare`."""
        return {
            candidate.method: candidate.mean("cost") for candidate in self.comparison.candidates
        }

    @property
    def floor_cost(self) -> float | None:
        """Labels that the floor adds to the average set of the recommended method, if any."""
        plain = self.sizes_without_floor[self.method]
        return None if plain is None else self.expected_sizes[self.method] - plain

    @property
    def why(self) -> str:
        """The reasons."""
        counts = self.class_counts
        return (
            f"{self.comparison.gain}\nThis compares the methods calibrated on one half of these "
            "examples and tested on the other.\n"
            f"{len(counts):,} classes have {counts.mean():.3g} calibration examples on average, "
            f"the smallest {counts.min():,}."
        )

    @property
    def expect(self) -> str:
        """The guarantee, its precision, and set sizes."""
        sizes = self.expected_sizes
        text = (
            f"{self._guarantee()}\nAverage set size about {sizes[self.method]:.1f} of "
            f"{len(self.class_counts):,} classes ({self._others(sizes)}), with thresholds from all "
            "of these examples."
        )
        added = self.floor_cost
        if added is None:
            return text
        share = added / max(sizes[self.method] - added, 1e-9)
        return f"{text}\nThe floor adds {added:.2f} labels to the average set ({share:+.0%})."

    def _others(self, values: dict[str, float]) -> str:
        others = (f"{name} {value:.1f}" for name, value in values.items() if name != self.method)
        return ", ".join(others)

    def _guarantee(self) -> str:
        level, middle = float(self.alpha.typical), int(np.median(self.class_counts))
        target = f"{100 * (1 - level):.4g}%" if self.alpha.is_one else "its own target"
        n_classes = f"{len(self.class_counts):,} classes"
        if self.confidence is not None:
            share = float(100 * exact_fraction(self.confidence, "recommend", "confidence"))
            least = least_rows(self.alpha.typical, self.confidence)
            scopes = {"standard": "overall", "classwise": "of each class"}
            return (
                f"With probability {share:g}%, coverage "
                f"{scopes.get(self.method, 'of each cluster')} is at least {target}; sets are "
                f"larger.\nA class needs {least:,} examples for its own threshold; "
                f"{int((self.class_counts < least).sum()):,} of {n_classes} have fewer."
            )
        noise = f"{100 * sqrt(level * (1 - level) / (middle + 2)):.1f} points"
        if self.method == "classwise":
            return f"Each class is covered at {target}, with sampling noise of about {noise}."
        guarantees = {
            "standard": f"Standard guarantees {target} over all examples, not for each class.",
            "clustered": f"Clustered guarantees {target} over the classes of each cluster.",
            "pooled": f"Pooled targets {target} for each class.",
        }
        n_alone = int((self.class_counts < ceil(round(1 / level - 1, 9))).sum())
        always = f", and {n_alone:,} of {n_classes} would always be included" if n_alone else ""
        return (
            f"{guarantees[self.method]}\nClasswise thresholds from {middle:,} examples would have "
            f"sampling noise of about {noise}{always}."
        )

    @property
    def would_change(self) -> str:
        """Conditions for other advice."""
        plenty = ceil(PLENTY * 0.1 / float(self.alpha.typical))
        n_missing = int(np.maximum(plenty - self.class_counts, 0).sum())
        if not n_missing:
            return f"If classes are added or some have fewer than {plenty:,} examples, ask again."
        n_empty = int((self.class_counts == 0).sum())
        first = f" Begin with the {n_empty:,} classes without any." if n_empty else ""
        return (
            f"{n_missing:,} more labels would give each class {plenty:,} examples; classwise "
            f"then guarantees coverage for each class.{first}\n"
            "To compare methods and scores on several splits, run 'evencover compare'."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        counts = self.class_counts
        names = ("method", "score", "why", "expect", "would_change", "costs", "expected_sizes")
        return {
            **{name: getattr(self, name) for name in (*names, "floor_cost")},
            "n_rows": int(counts.sum()),
            "n_classes": len(counts),
            "examples_per_class": float(counts.mean()),
            "smallest_class": int(counts.min()),
            "class_balance": class_balance(counts),
        }

    def __str__(self) -> str:
        lines = "\n".join([self.why, self.expect, self.would_change]).splitlines()
        return "\n  ".join([f"Recommended: {self.method} + {self.score}", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre style='white-space: pre-wrap'>{escape(str(self))}</pre>"
