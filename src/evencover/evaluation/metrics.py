"""The one list of metrics: their formulas, what they are called and mean, and where they are shown.

To add one, write its formula as a property of `CoverageMetrics` and its entry in `METRICS`. Report,
comparison, study, pages, JSON and the table in docs/methods.md follow from the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.evaluation import statistics
from evencover.evaluation.statistics import TrueGap, true_gap
from evencover.quantiles import exact_fraction
from evencover.validation import raise_unknown

Place = Literal["report", "comparison", "comparison table", "study"]


class CoverageMetrics:
    """The formulas, from counts; those over classes skip classes without test rows."""

    alpha: float
    class_counts: IntArray
    class_covered: IntArray
    size_counts: IntArray
    size_sums: IntArray | None

    @property
    def n_rows(self) -> int:
        """Number of test rows."""
        return int(self.class_counts.sum())

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

    @cached_property
    def _gaps(self) -> FloatArray:
        return 100 * (self.class_coverage[self.evaluated] - (1 - self.alpha))

    @property
    def size_quantiles(self) -> dict[str, int]:
        """Set sizes that 0, 5, 25, 50, 75, 95 and 100% of the rows do not exceed."""
        cumulative = np.cumsum(self.size_counts)
        ranks = {str(q): max(1, -(-q * self.n_rows // 100)) for q in (0, 5, 25, 50, 75, 95, 100)}
        return {q: int(np.searchsorted(cumulative, rank)) for q, rank in ranks.items()}

    def metrics(self) -> dict[str, float]:
        """Every metric under its attribute's name."""
        return {metric.name: metric.of(self) for metric in METRICS}

    @cached_property
    def _true_gap(self) -> TrueGap:
        return true_gap(self.class_covered, self.class_counts, self.alpha)

    @property
    def true_gap_interval(self) -> tuple[float, float]:
        """95% confidence interval of `true_gap`, in percentage points."""
        return self._true_gap.low, self._true_gap.high

    @property
    def likely_below(self) -> Array:
        """Which classes are likely covered less than 1 - alpha (K,).

        Exact binomial tests of all classes, with the false discovery rate held at 5% (Benjamini
        and Hochberg 1995): of the classes named, at most one in twenty is expected to be innocent.
        """
        return statistics.likely_below(self.class_covered, self.class_counts, self.alpha)

    @property
    def too_few_to_judge(self) -> Array:
        """Which classes have too few test rows for `likely_below` to name them, if any (K,)."""
        return statistics.too_few_to_judge(self.likely_below, self.class_counts, self.alpha)

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
    def empty_share(self) -> float:
        """Share of rows whose set is empty."""
        return float(self.size_counts[0] / self.n_rows)

    @property
    def marginal_coverage(self) -> float:
        """Share of rows whose set holds their label."""
        return float(self.class_covered.sum() / self.n_rows)

    @property
    def covgap(self) -> float:
        """Mean over classes of abs(coverage - (1 - alpha)), in percentage points."""
        return float(np.abs(self._gaps).mean())

    @cached_property
    def covgap_noise_floor(self) -> float:
        """The CovGap expected on this test set from a method with exactly 1 - alpha everywhere."""
        return statistics.covgap_noise_floor(self.class_counts[self.evaluated], self.alpha)

    @property
    def avg_size(self) -> float:
        """Mean number of classes in a set."""
        return float(self.size_counts @ np.arange(len(self.size_counts)) / self.n_rows)

    @property
    def avg_size_over_classes(self) -> float:
        """Mean over classes of the mean size of their rows' sets; NaN if that was not counted."""
        if self.size_sums is None:
            return float("nan")
        own = self.size_sums[self.evaluated] / self.class_counts[self.evaluated]
        return float(own.mean())

    @property
    def frac_undercovered(self) -> float:
        """Share of classes with coverage <= 1 - alpha - 0.1 (the paper's FracUnderCov)."""
        # In counts, because 0.9 - 0.1 in floating point would miss a coverage of exactly 0.8.
        limit = 1 - exact_fraction(self.alpha) - exact_fraction(0.1)
        rows, covered = self.class_counts[self.evaluated], self.class_covered[self.evaluated]
        is_under = [
            hits * limit.denominator <= n * limit.numerator
            for hits, n in zip(covered.tolist(), rows.tolist(), strict=True)
        ]
        return float(np.mean(is_under))

    @property
    def frac_below_half(self) -> float:
        """Share of classes with coverage below 1/2 (FracBelow50 of Ding et al. 2025)."""
        return float((2 * self.class_covered < self.class_counts)[self.evaluated].mean())

    @property
    def macro_coverage(self) -> float:
        """Mean coverage over classes, each counted once."""
        return float(self.class_coverage[self.evaluated].mean())

    @property
    def undercov_gap(self) -> float:
        """Mean over classes of the shortfall max(0, 1 - alpha - coverage), in percentage points."""
        return float(np.maximum(-self._gaps, 0).mean())

    @property
    def overcov_gap(self) -> float:
        """Mean over classes of the excess max(0, coverage - (1 - alpha)), in percentage points."""
        return float(np.maximum(self._gaps, 0).mean())

    @property
    def max_gap(self) -> float:
        """The largest abs(coverage - (1 - alpha)) of a class, in percentage points."""
        return float(np.abs(self._gaps).max())


@dataclass(frozen=True)
class Metric:
    """How a metric is called, what it means, and where it is shown.

    Parameters
    ----------
    name, title
        The attribute of a report and key in JSON; what people read.
    meaning, formula
        One plain phrase, in which ``{aim}`` stands for 1 - alpha; how it is computed, for the
        documentation, c_y being the coverage of class y.
    unit, digits
        What it is measured in, and how many decimals are shown.
    better
        Which values are good: lower or higher ones, those near 1 - alpha ("aim"), or neither.
    shown
        Where it is shown, and at which place in the row there.
    detail
        Says more than the meaning does where there is one report to speak of.
    """

    name: str
    title: str
    meaning: str
    unit: Literal["points", "share", "classes"]
    digits: int
    better: Literal["lower", "higher", "aim", "neither"]
    shown: Mapping[Place, int] = field(default_factory=dict)
    formula: str = ""
    detail: Callable[[CoverageMetrics], str] | None = None

    def of(self, report: CoverageMetrics) -> float:
        """Its value."""
        return float(getattr(report, self.name))

    def text(self, value: float) -> str:
        """A value as people read it."""
        return f"{value:.{self.digits}f}"

    def say(self, aim: str, report: CoverageMetrics | None = None) -> str:
        """What it means, in the words of a page or a table for 1 - alpha."""
        if report is not None and self.detail is not None:
            return self.detail(report)
        return self.meaning.format(aim=aim)

    def loss(self, values: FloatArray, alpha: float) -> FloatArray:
        """Values turned so that the lowest is the best."""
        if self.better == "aim":
            return np.abs(values - (1 - alpha))
        return -values if self.better == "higher" else values


def _of_the_rows(report: CoverageMetrics) -> str:
    return f"of all rows; the aim is {1 - report.alpha:g}"


def _with_interval(report: CoverageMetrics) -> str:
    low, high = report.true_gap_interval
    interval = "" if np.isnan(low) else f"; 95% confidence interval {low:.1f} to {high:.1f}"
    return f"typical distance of a class's coverage from {1 - report.alpha:g}{interval}"


def _how_many_under(report: CoverageMetrics) -> str:
    n_classes = report.n_classes_evaluated
    return f"{report.n_undercovered} of {n_classes} classes are 10 points or more below"


def _usual_sizes(report: CoverageMetrics) -> str:
    sizes, over_classes = report.size_quantiles, report.avg_size_over_classes
    more = "" if np.isnan(over_classes) else f"; mean over classes {over_classes:.2f}"
    return f"classes in a set; median {sizes['50']}, 95% have at most {sizes['95']}{more}"


METRICS: tuple[Metric, ...] = (
    Metric(
        name="marginal_coverage",
        title="coverage",
        meaning="share of rows whose set holds their label",
        unit="share",
        digits=3,
        better="aim",
        shown={"report": -1, "comparison": 7, "comparison table": 4},
        detail=_of_the_rows,
    ),
    Metric(
        name="covgap",
        title="CovGap",
        meaning="mean distance of a class's coverage from {aim}",
        formula="100 · mean over classes of abs(c_y - (1 - alpha))",
        unit="points",
        digits=2,
        better="lower",
        shown={"report": 2, "comparison": 1, "comparison table": 2, "study": 1},
    ),
    Metric(
        name="covgap_noise_floor",
        title="noise floor",
        meaning="CovGap that test noise alone would give",
        formula="what to expect of exactly 1 - alpha everywhere, from the size of the test set",
        unit="points",
        digits=2,
        better="neither",
        shown={"report": 3},
    ),
    Metric(
        name="true_gap",
        title="TrueGap",
        meaning="typical distance of a class's coverage from {aim}, test noise removed",
        formula="root of the mean over classes of an unbiased estimate of (c_y - (1 - alpha))²",
        unit="points",
        digits=2,
        better="lower",
        shown={"report": 1, "comparison": 0, "comparison table": 1, "study": 4},
        detail=_with_interval,
    ),
    Metric(
        name="avg_size",
        title="AvgSize",
        meaning="mean number of classes in a set",
        unit="classes",
        digits=2,
        better="lower",
        shown={"report": 0, "comparison": 2, "comparison table": 0, "study": 2},
        detail=_usual_sizes,
    ),
    Metric(
        name="frac_undercovered",
        title="FracUnderCov",
        meaning="share of classes 10 points or more below {aim}",
        formula="c_y <= 1 - alpha - 0.1",
        unit="share",
        digits=3,
        better="lower",
        shown={"report": 4, "comparison": 3, "study": 3},
        detail=_how_many_under,
    ),
    Metric(
        name="frac_below_half",
        title="FracBelow50",
        meaning="share of classes covered less than half of the time",
        formula="c_y < 1/2",
        unit="share",
        digits=3,
        better="lower",
        shown={"report": 5, "comparison": 4},
    ),
    Metric(
        name="macro_coverage",
        title="MacroCov",
        meaning="mean coverage of a class",
        formula="mean of c_y",
        unit="share",
        digits=3,
        better="aim",
        shown={"report": 7, "comparison": 6},
    ),
    Metric(
        name="undercov_gap",
        title="UnderCovGap",
        meaning="mean shortfall of a class from {aim}",
        formula="100 · mean over classes of max(0, 1 - alpha - c_y)",
        unit="points",
        digits=2,
        better="lower",
        shown={"report": 6, "comparison": 5},
    ),
    Metric(
        name="overcov_gap",
        title="OverCovGap",
        meaning="mean excess of a class over {aim}",
        formula="100 · mean over classes of max(0, c_y - (1 - alpha))",
        unit="points",
        digits=2,
        better="lower",
    ),
    Metric(
        name="empty_share",
        title="empty",
        meaning="share of rows whose set is empty",
        unit="share",
        digits=3,
        better="neither",
        shown={"report": 8, "comparison": 8},
    ),
    Metric(
        name="max_gap",
        title="MaxGap",
        meaning="largest distance of a class's coverage from {aim}",
        formula="100 · largest abs(c_y - (1 - alpha))",
        unit="points",
        digits=2,
        better="lower",
    ),
)


def metric_names() -> list[str]:
    """All metrics, by the names of their attributes."""
    return [metric.name for metric in METRICS]


def shown_in(place: Place) -> list[Metric]:
    """The metrics of a table, in its order."""
    return sorted(
        (metric for metric in METRICS if place in metric.shown),
        key=lambda metric: metric.shown[place],
    )


def find_metric(name: str, place: Place) -> Metric:
    """One of the metrics of a table."""
    known = {metric.name: metric for metric in shown_in(place)}
    if name not in known:
        raise_unknown("metric", name, known)
    return known[name]


def descriptions(
    place: Place, aim: str, report: CoverageMetrics | None = None
) -> list[dict[str, Any]]:
    """What a page needs to know of the metrics it shows, ready for JSON."""
    return [
        {
            "name": metric.name,
            "title": metric.title[0].upper() + metric.title[1:],
            "meaning": metric.say(aim, report),
            "unit": metric.unit,
            "digits": metric.digits,
            "better": metric.better,
        }
        for metric in shown_in(place)
    ]
