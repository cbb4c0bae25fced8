"""Counts of test rows, which add up over disjoint data, and the metrics that follow from them.

To add a metric, write its formula as a property of `CoverageMetrics` and its entry in `METRICS`.
Report, comparison, study, pages, JSON and the table in docs/metrics.md follow from the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from evencover._kernels import Coverage
from evencover.answers import REVIEW, Answers, Levels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.evaluation import statistics
from evencover.evaluation.conditional import LEAST_ROWS, Stratum, WorstSlab, strata_by_size
from evencover.sets import PredictionSets

Page = Literal["report", "comparison", "study"]


class Tally(NamedTuple):
    """Count what every metric needs; tallies of disjoint data add up.

    ``rows`` and ``covered`` (K,) count test rows and covered rows by class; ``sizes`` (K + 1,)
    counts sets by size; ``size_sums`` (K,) adds sizes by the row's class, None if not counted.
    ``n_unknown`` counts rows with label K, not among the classes; ``sizes`` includes them.
    ``appearances`` (K,) counts the sets that contain each class. ``accepted`` and
    ``accepted_right`` (K,) count accepted rows by predicted class. ``listed`` (K,) counts top-k
    rows that list their label. ``answered`` and ``answered_right`` (M,) count the rows that each
    node answers, where groups may. ``covered_sizes`` (K + 1,) counts covered rows by the size of
    their set. None where not counted.
    """

    rows: IntArray
    covered: IntArray
    sizes: IntArray
    size_sums: IntArray | None = None
    n_unknown: int = 0
    appearances: IntArray | None = None
    accepted: IntArray | None = None
    accepted_right: IntArray | None = None
    listed: IntArray | None = None
    answered: IntArray | None = None
    answered_right: IntArray | None = None
    covered_sizes: IntArray | None = None

    @classmethod
    def of(cls, sets: PredictionSets, labels: IntArray) -> Tally:
        """Count one part of the data."""
        # The first class of an accepted set is the most probable one.
        first = np.append(sets.indices, 0)[sets.indptr[:-1]].astype(np.int64)
        appearances = np.bincount(sets.indices, minlength=sets.n_classes)
        is_alone = sets.sizes == 1
        is_covered = sets.have(np.minimum(labels, sets.n_classes))
        coverage = Coverage(sets.sizes, is_covered, first, is_alone, appearances)
        return cls.of_coverage(labels, coverage, sets.accepted, sets.answers)

    @classmethod
    def of_coverage(
        cls, labels: IntArray, coverage: Coverage, is_accepted: Array, answers: Answers | None
    ) -> Tally:
        """Count rows, their sets, accepted predictions, and answers if there are any.

        Labels above K are those of groups, as in `Levels`, and unknown but for answers.
        """
        n_classes, accepted = len(coverage.appearances), coverage.top_classes[is_accepted]
        levels = Levels.of_classes(n_classes) if answers is None else answers.hierarchy
        right = accepted[levels.are_right(accepted, labels[is_accepted])]
        label_nodes, labels = labels, np.minimum(labels, n_classes)
        rows = np.bincount(labels, minlength=n_classes + 1)
        sums = np.bincount(labels, weights=coverage.sizes, minlength=n_classes)
        tally = cls(
            rows[:n_classes],
            np.bincount(labels[coverage.is_covered], minlength=n_classes)[:n_classes],
            np.bincount(coverage.sizes, minlength=n_classes + 1),
            sums[:n_classes].astype(np.int64),
            int(rows[n_classes]),
            coverage.appearances,
            np.bincount(accepted, minlength=n_classes),
            np.bincount(right, minlength=n_classes),
            covered_sizes=np.bincount(coverage.sizes[coverage.is_covered], minlength=n_classes + 1),
        )
        if answers is None or not levels.groups:
            return tally
        nodes = answers.nodes
        right = nodes[levels.are_right(nodes, label_nodes)]
        return tally._replace(
            answered=np.bincount(nodes[nodes != REVIEW], minlength=levels.n_nodes),
            answered_right=np.bincount(right, minlength=levels.n_nodes),
        )

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        pairs = zip(self, other, strict=True)
        return Tally(*(None if a is None or b is None else a + b for a, b in pairs))  # type: ignore[arg-type]


class Confusions(NamedTuple):
    """How often class ``first`` is the most probable one in rows of class ``true``, wrongly.

    ``pairs`` holds ``true * K + first``, ascending; ``counts`` how often each occurs.
    """

    pairs: IntArray
    counts: IntArray
    n_classes: int

    @classmethod
    def of(cls, labels: IntArray, first: IntArray, n_classes: int) -> Confusions:
        """Count the rows whose most probable class is not the true one."""
        wrong = (labels != first) & (labels < n_classes)
        pairs, counts = np.unique(labels[wrong] * n_classes + first[wrong], return_counts=True)
        return cls(pairs, counts, n_classes)

    @classmethod
    def total(cls, parts: list[Confusions]) -> Confusions:
        """Add up the counts of all parts."""
        all_pairs = np.concatenate([part.pairs for part in parts])
        pairs, inverse = np.unique(all_pairs, return_inverse=True)
        counts = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(counts, inverse, np.concatenate([part.counts for part in parts]))
        return cls(pairs, counts, parts[0].n_classes)

    def most_frequent(self, most: int = 5) -> Confusions:
        """Keep only the pairs that `of_class` shows: O(K) of them, where there may be K**2."""
        true = self.pairs // self.n_classes
        order = np.lexsort((self.pairs, -self.counts, true))
        starts = np.searchsorted(true, true)  # pairs ascend, and so do their true classes
        kept = np.sort(order[np.arange(len(order)) - starts < most])
        return Confusions(self.pairs[kept], self.counts[kept], self.n_classes)

    def of_class(self, true: int, most: int = 5) -> list[tuple[int, int]]:
        """List the classes that most often stand first in rows of `true`, with their counts.

        >>> seen = Confusions.of(np.array([0, 0, 0, 1]), np.array([2, 2, 1, 1]), n_classes=3)
        >>> seen.of_class(0), seen.of_class(1)
        ([(2, 2), (1, 1)], [])
        """
        bounds = [true * self.n_classes, (true + 1) * self.n_classes]
        start, stop = np.searchsorted(self.pairs, bounds)
        counts = self.counts[start:stop]
        order = np.argsort(-counts, kind="stable")[:most]
        first = self.pairs[start:stop][order] - true * self.n_classes
        return list(zip(first.tolist(), counts[order].tolist(), strict=True))


class EvaluationCounts(NamedTuple):
    """Counts of coverage and sizes, and of confusions."""

    tally: Tally
    confusions: Confusions

    @classmethod
    def total(cls, parts: Iterable[EvaluationCounts]) -> EvaluationCounts:
        """Add the counts of all parts; memory does not grow with their number."""
        tally: Any = None
        confusions: list[Confusions] = []
        for part in parts:
            tally = part.tally if tally is None else tally + part.tally
            confusions.append(part.confusions)
            if len(confusions) == 256:
                confusions = [Confusions.total(confusions)]
        return cls(tally, Confusions.total(confusions))

    def abridged(self) -> EvaluationCounts:
        """Keep a few confusions of each class, which is all that a report shows."""
        return self._replace(confusions=self.confusions.most_frequent())


@dataclass(frozen=True, eq=False, repr=False)
class CoverageMetrics:
    """The formulas, from counts; those over classes skip classes without test rows."""

    alpha: float
    class_counts: IntArray
    class_covered: IntArray
    size_counts: IntArray
    class_alpha: FloatArray | None = None
    n_unknown: int = 0
    covered_sizes: IntArray | None = None
    worst_slab: WorstSlab | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self.class_counts)

    @property
    def n_rows(self) -> int:
        """Number of test rows."""
        return int(self.class_counts.sum()) + self.n_unknown

    @property
    def evaluated(self) -> Array:
        """Which classes have test rows (K,)."""
        return self.class_counts > 0

    @property
    def n_classes_evaluated(self) -> int:
        """How many classes have test rows; metrics over classes are means over these."""
        return int(self.evaluated.sum())

    @cached_property
    def class_coverage(self) -> FloatArray:
        """Coverage of each class (K,); NaN for classes without test rows."""
        with np.errstate(invalid="ignore"):
            return self.class_covered / self.class_counts

    @property
    def class_target(self) -> FloatArray:
        """Target coverage of each class (K,)."""
        alphas = self.class_alpha
        return np.full(len(self.class_counts), 1 - self.alpha) if alphas is None else 1 - alphas

    @property
    def alphas(self) -> float | FloatArray:
        """Target miscoverage: one number, or that of each class (K,)."""
        return self.alpha if self.class_alpha is None else self.class_alpha

    @property
    def size_quantiles(self) -> dict[str, int]:
        """Set sizes that 0, 5, 25, 50, 75, 95 and 100% of the rows do not exceed."""
        shares = (0, 5, 25, 50, 75, 95, 100)
        ranks = [max(1, -(-share * self.n_rows // 100)) for share in shares]
        sizes = np.searchsorted(np.cumsum(self.size_counts), ranks).tolist()
        return dict(zip(map(str, shares), sizes, strict=True))

    @property
    def strata(self) -> list[Stratum]:
        """Rows by the size of their set, with their coverage; none if they were not counted."""
        if self.covered_sizes is None:
            return []
        return strata_by_size(self.size_counts, self.covered_sizes)

    def metrics(self) -> dict[str, float]:
        """Every metric under its attribute's name."""
        return {metric.name: metric.of(self) for metric in METRICS}

    @cached_property
    def _true_gap(self) -> statistics.TrueGap:
        return statistics.true_gap(self.class_covered, self.class_counts, self.alphas)

    @property
    def true_gap_interval(self) -> tuple[float, float]:
        """95% confidence interval of `true_gap`, in percentage points."""
        return self._true_gap.low, self._true_gap.high

    @property
    def likely_below(self) -> Array:
        """Which classes are likely covered less than 1 - alpha (K,), at a 5% false discovery rate.

        Exact binomial tests of all classes (Benjamini and Hochberg 1995).
        """
        return statistics.likely_below(self.class_covered, self.class_counts, self.alphas)

    @property
    def too_few_to_judge(self) -> Array:
        """Which classes have too few test rows for `likely_below` to name them, if any (K,)."""
        return statistics.too_few_to_judge(self.likely_below, self.class_counts, self.alphas)

    @property
    def n_likely_below(self) -> int:
        """How many classes are `likely_below`."""
        return int(self.likely_below.sum())

    @property
    def n_undercovered(self) -> int:
        """How many classes have coverage <= 1 - alpha - 0.1."""
        return round(self.frac_undercovered * self.n_classes_evaluated)

    # ---- the metrics -------------------------------------------------------------------------

    @property
    def true_gap(self) -> float:
        """Root mean squared distance of a class's coverage from 1 - alpha, without test noise."""
        return self._true_gap.gap

    @property
    def shortfall(self) -> float:
        """Root mean squared distance of coverage below 1 - alpha, over classes, without noise."""
        squares = statistics.squared_shortfalls(self.class_covered, self.class_counts, self.alphas)
        return statistics.root_mean(squares)

    @property
    def empty_share(self) -> float:
        """Fraction of rows whose set is empty."""
        return float(self.size_counts[0] / self.n_rows)

    @property
    def marginal_coverage(self) -> float:
        """Fraction of rows whose set contains their label."""
        return float(self.class_covered.sum() / self.n_rows)

    @property
    def covgap(self) -> float:
        """Mean over classes of abs(coverage - (1 - alpha)), in percentage points."""
        gaps = 100 * (self.class_coverage - self.class_target)[self.evaluated]
        return float(np.abs(gaps).mean())

    @cached_property
    def covgap_noise_floor(self) -> float:
        """The CovGap expected on this test set from a method with exactly 1 - alpha everywhere."""
        alpha = 1 - self.class_target[self.evaluated]
        return statistics.covgap_noise_floor(self.class_counts[self.evaluated], alpha)

    @property
    def avg_size(self) -> float:
        """Mean number of classes in a set."""
        return float(self.size_counts @ np.arange(len(self.size_counts)) / self.n_rows)

    @property
    def frac_undercovered(self) -> float:
        """Share of classes with coverage <= 1 - alpha - 0.1 (the paper's FracUnderCov)."""
        # In counts, with some room: 0.9 - 0.1 in floating point would miss a coverage of 0.8.
        most = self.class_counts * (self.class_target - 0.1) + 1e-6
        return float((self.class_covered <= most)[self.evaluated].mean())

    @property
    def frac_below_half(self) -> float:
        """Share of classes with coverage below 1/2 (FracBelow50 of Ding et al. 2025)."""
        return float((2 * self.class_covered < self.class_counts)[self.evaluated].mean())

    @property
    def macro_coverage(self) -> float:
        """Mean coverage over classes, each counted once."""
        return float(self.class_coverage[self.evaluated].mean())

    @property
    def size_stratified_coverage(self) -> float:
        """Lowest coverage of the `strata` with 20 rows or more; NaN if there are none."""
        return min((s.coverage for s in self.strata if s.rows >= LEAST_ROWS), default=np.nan)

    @property
    def worst_slab_coverage(self) -> float:
        """Coverage in the `worst_slab` of the features; NaN if `evaluate` had no features."""
        return np.nan if self.worst_slab is None else self.worst_slab.coverage

    @property
    def class_balance(self) -> float:
        """Mean number of rows of the rarest 5% of classes, as a share of that of all classes."""
        rarest = np.sort(self.class_counts)[: max(1, self.n_classes // 20)]
        return float(rarest.mean() / self.class_counts.mean())


@dataclass(frozen=True)
class Metric:
    """Name, meaning and format of a metric, and where it is shown.

    Parameters
    ----------
    name, title
        The attribute of a report and key in JSON; the title for people.
    meaning, formula
        A phrase in which ``{target}`` stands for 1 - alpha; the formula, c_y being the coverage of
        class y.
    better
        Which values are good: lower or higher ones, those near 1 - alpha ("target"), or neither.
    shown
        Where it is shown, and its position there.
    detail
        A longer meaning for one report.
    by_class
        Whether counts by class suffice, which is all that comparisons and studies keep.
    """

    name: str
    title: str
    meaning: str
    unit: Literal["points", "share", "classes"]
    digits: int
    better: Literal["lower", "higher", "target", "neither"]
    shown: Mapping[Page, int] = field(default_factory=dict)
    formula: str = ""
    detail: Callable[[CoverageMetrics], str] | None = None
    by_class: bool = True

    def of(self, report: CoverageMetrics) -> float:
        """Return its value."""
        return float(getattr(report, self.name))

    def text(self, value: float) -> str:
        """Format a value, shares in percent; unknown if no class has enough test rows."""
        if np.isnan(value):
            return "–"
        if self.unit == "share":
            return f"{value:.{self.digits - 2}%}"
        return f"{value:.{self.digits}f}"

    def describe(self, target: str, report: CoverageMetrics | None = None) -> str:
        """Describe it; `target` stands for 1 - alpha."""
        if report is not None and self.detail is not None:
            return self.detail(report)
        return self.meaning.format(target=target)


def _with_interval(report: CoverageMetrics) -> str:
    low, high = report.true_gap_interval
    interval = "" if np.isnan(low) else f"; 95% confidence interval {low:.1f} to {high:.1f}"
    return f"typical deviation of a class from its target coverage{interval}"


def _usual_sizes(report: CoverageMetrics) -> str:
    sizes = report.size_quantiles
    return f"classes in a set; median {sizes['50']}, 95% have at most {sizes['95']}"


# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric(
        "n_likely_below", "below target", "classes significantly below {target}, at a 5% false "
        "discovery rate",
        "classes", 1, "lower", {"comparison": 0},
        formula="number of classes that exact binomial tests find below 1 - alpha",
    ),
    Metric(
        "marginal_coverage", "coverage", "fraction of examples whose set contains their label",
        "share", 3, "target", {"report": 0, "comparison": 3},
        detail=lambda report: f"of {report.n_rows:,} examples; target "
        f"{100 * (1 - report.alpha):.4g}%",
    ),
    Metric(
        "covgap", "CovGap", "mean deviation of class coverage from {target}",
        "points", 2, "lower", {"report": 4, "comparison": 5, "study": 1},
        formula="100 · mean over classes of abs(c_y - (1 - alpha))",
    ),
    Metric(
        "covgap_noise_floor", "noise floor", "CovGap expected from test noise alone",
        "points", 2, "neither", {"report": 5},
        formula="expected CovGap if every c_y is 1 - alpha, from the number of test examples",
    ),
    Metric(
        "true_gap", "TrueGap",
        "typical deviation of class coverage from {target}, noise-corrected",
        "points", 2, "lower", {"report": 3, "comparison": 4, "study": 4},
        formula="root of the mean over classes of an unbiased estimate of (c_y - (1 - alpha))²",
        detail=_with_interval,
    ),
    Metric(
        "shortfall", "Shortfall", "typical shortfall of class coverage from {target}, "
        "noise-corrected",
        "points", 2, "lower", {"report": 2, "comparison": 1},
        formula="root of the mean over classes of an estimate of min(c_y - (1 - alpha), 0)²",
    ),
    Metric(
        "avg_size", "AvgSize", "mean number of classes in a set",
        "classes", 2, "lower", {"report": 1, "comparison": 2, "study": 2},
        detail=_usual_sizes,
    ),
    Metric(
        "frac_undercovered", "FracUnderCov", "fraction of classes 10 points or more below {target}",
        "share", 3, "lower", {"report": 6, "comparison": 6, "study": 3},
        formula="c_y <= 1 - alpha - 0.1",
        detail=lambda report: f"{report.n_undercovered} of {report.n_classes_evaluated} classes "
        "are 10 points or more below",
    ),
    Metric(
        "frac_below_half", "FracBelow50", "fraction of classes with coverage below 50%",
        "share", 3, "lower", {"report": 7, "comparison": 7}, formula="c_y < 1/2",
    ),
    Metric(
        "macro_coverage", "MacroCov", "mean coverage over classes",
        "share", 3, "target", {"report": 9, "comparison": 8}, formula="mean of c_y",
    ),
    Metric(
        "empty_share", "empty", "fraction of examples with an empty set",
        "share", 3, "neither", {"report": 12},
    ),
    Metric(
        "size_stratified_coverage", "SSC", "lowest coverage among examples with sets of similar "
        "size (size-stratified coverage)",
        "share", 3, "higher", {"report": 10},
        formula="minimum over sets of 0, 1, 2, 3–5, 6–10, 11–20, 21–50, ... classes with "
        f"{LEAST_ROWS} examples or more",
        by_class=False,
    ),
    Metric(
        "worst_slab_coverage", "WSC", "coverage in the worst slab of the features",
        "share", 3, "higher", {"report": 11},
        formula="held-out coverage where a <= vᵀx <= b; v, a, b by search; needs `features`",
        by_class=False,
    ),
    Metric(
        "class_balance", "class balance", "test examples of the rarest 5% of classes, as a share "
        "of those of equally frequent classes",
        "share", 3, "neither", {"report": 13},
        formula="mean number of examples of the rarest 5% of classes / that of all classes",
    ),
)
# fmt: on


def metric_names() -> list[str]:
    """List the metrics that follow from counts by class, by the names of their attributes."""
    return [metric.name for metric in METRICS if metric.by_class]


def shown_in(table: Page) -> list[Metric]:
    """List the metrics of a table, in its order."""
    shown = [metric for metric in METRICS if table in metric.shown]
    return sorted(shown, key=lambda metric: metric.shown[table])


def descriptions(
    table: Page, target: str, report: CoverageMetrics | None = None
) -> list[dict[str, Any]]:
    """Describe the metrics of a report, ready for JSON."""
    return [
        {
            "name": metric.name,
            "title": metric.title[0].upper() + metric.title[1:],
            "meaning": metric.describe(target, report),
            "unit": metric.unit,
            "digits": metric.digits,
            "better": metric.better,
        }
        for metric in shown_in(table)
    ]
