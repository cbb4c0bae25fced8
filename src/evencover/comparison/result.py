"""Hold the results of a comparison: candidates, significant differences, and three to choose from.

Candidates are ranked by their cost in labels (`cost`). It charges for every label that a set lists,
so uninformative sets are expensive; no rule about set sizes is needed on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evencover._types import FloatArray
from evencover._validation import import_pandas
from evencover.comparison.advice import advice
from evencover.evaluation.metrics import Metric, shown_in
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.true_gap import root_and_error, squared_gaps


class Difference(NamedTuple):
    """How much larger a candidate's cost is than the best one's, over the same splits."""

    mean: float
    standard_error: float
    is_clear: bool


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """One method with one score: its report and its cost on each split.

    ``is_confident``: whether it guarantees coverage for one calibration set.
    """

    method: str
    score: str
    reports: tuple[CoverageReport, ...]
    costs: tuple[float, ...]
    is_confident: bool = False

    @property
    def name(self) -> str:
        """How tables and sentences call it."""
        return f"{self.method} with {self.score}"

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.reports)} splits>"

    def values(self, metric: str) -> FloatArray:
        """A metric on each split; "cost" is one, too."""
        if metric == "cost":
            return np.array(self.costs)
        return np.array([getattr(report, metric) for report in self.reports])

    def mean(self, metric: str) -> float:
        """A metric's mean over the splits; the true gap is pooled over them before its root."""
        return self._true_gap()[0] if metric == "true_gap" else float(self.values(metric).mean())

    def standard_error(self, metric: str) -> float:
        """Standard error of the mean over the splits, as in the paper (ddof = 1)."""
        if metric == "true_gap":
            return self._true_gap()[1]
        values = self.values(metric)
        return float(values.std(ddof=1) / np.sqrt(len(values)))

    def _true_gap(self) -> tuple[float, float]:
        squares = np.array([_mean_square(report) for report in self.reports])
        error = float(squares.std(ddof=1) / np.sqrt(len(squares)))
        return root_and_error(float(np.nanmean(squares)), error)


def _mean_square(report: CoverageReport) -> float:
    squares = squared_gaps(report.class_covered, report.class_counts, report.alpha)
    return float(np.nanmean(squares)) if (report.class_counts >= 2).any() else np.nan


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    candidates
        One per method and score.
    alpha, n_splits, n_calibration, n_test
        The level, and the number of splits and of rows in each part.
    max_size, min_coverage
        What the advice is restricted to, if anything.
    confidence
        That of the methods that have one, if it was asked for.
    """

    candidates: tuple[Candidate, ...]
    alpha: float
    n_splits: int
    n_calibration: int
    n_test: int
    max_size: float | None = None
    min_coverage: float | None = None
    confidence: float | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return self.candidates[0].reports[0].n_classes

    @property
    def noise_floor(self) -> float:
        """The CovGap that a method with exactly 1 - alpha for every class would show."""
        return self.candidates[0].mean("covgap_noise_floor")

    # ---- eligible candidates -----------------------------------------------------------------

    def costs_too_much(self, candidate: Candidate) -> bool:
        """Whether sets of all K classes, which cost K, would cost no more."""
        return candidate.mean("cost") >= self.n_classes

    def covers_too_little(self, candidate: Candidate) -> bool:
        """Whether its coverage over all rows is significantly below 1 - alpha.

        By more than two standard deviations of one split's coverage, its calibration's included.
        """
        variance = self.alpha * (1 - self.alpha) * (1 / self.n_calibration + 1 / self.n_test)
        shortfall = 1 - self.alpha - candidate.mean("marginal_coverage")
        return bool(shortfall > 2 * np.sqrt(variance))

    def promises_enough(self, candidate: Candidate) -> bool:
        """Whether it guarantees coverage for one calibration set, if that was asked for."""
        return self.confidence is None or candidate.is_confident

    @cached_property
    def allowed(self) -> list[Candidate]:
        """Candidates that cover enough and meet the user's requirements."""
        return [
            candidate
            for candidate in self.candidates
            if not self.covers_too_little(candidate)
            and self.promises_enough(candidate)
            and (self.max_size is None or candidate.mean("avg_size") <= self.max_size)
            and (
                self.min_coverage is None
                or candidate.mean("marginal_coverage") >= self.min_coverage
            )
        ]

    # ---- three points ------------------------------------------------------------------------

    @cached_property
    def best(self) -> Candidate:
        """The lowest cost among those allowed; if there are none, among those that cover enough."""
        covering = [each for each in self.candidates if not self.covers_too_little(each)]
        return min(self.allowed or covering or self.candidates, key=lambda c: c.mean("cost"))

    @property
    def pick(self) -> Candidate | None:
        """The recommended candidate: `best`, or None if none is allowed."""
        return self.best if self.allowed else None

    @property
    def smallest(self) -> Candidate | None:
        """The smallest sets among those allowed that do not cost too much."""
        return min(self._offered, key=lambda each: each.mean("avg_size"), default=None)

    @property
    def most_even(self) -> Candidate | None:
        """The lowest true gap among those allowed that do not cost too much."""
        return min(self._offered, key=lambda each: each.mean("true_gap"), default=None)

    @property
    def _offered(self) -> list[Candidate]:
        """Candidates to name next to the pick."""
        return [c for c in self.allowed if c is self.pick or not self.costs_too_much(c)]

    def difference_to_best(self, candidate: Candidate, metric: str = "cost") -> Difference:
        """Paired difference to `best` over the same splits.

        Splits of one data set overlap, so the standard error is corrected for that (Nadeau and
        Bengio 2003). Which candidate is best is itself subject to sampling noise, and a table has
        many pairs: a difference is called clear only if it is significant for all pairs at once
        (Bonferroni at 5%). So of twenty tables of equally good candidates, at most about one calls
        any of them clearly worse.
        """
        from scipy.special import stdtrit

        differences = candidate.values(metric) - self.best.values(metric)
        mean = float(differences.mean())
        overlap = 1 / self.n_splits + self.n_test / self.n_calibration
        error = float(np.sqrt(overlap * differences.var(ddof=1)))
        n = len(self.candidates)
        limit = float(stdtrit(self.n_splits - 1, 1 - 0.05 / max(1, n * (n - 1))))
        return Difference(mean, error, mean > limit * error and mean > 0)

    def is_on_pareto_front(self, candidate: Candidate) -> bool:
        """Whether no other candidate has both a lower true gap and smaller sets."""
        gap, size = candidate.mean("true_gap"), candidate.mean("avg_size")
        return not any(
            other.mean("true_gap") <= gap
            and other.mean("avg_size") <= size
            and (other.mean("true_gap") < gap or other.mean("avg_size") < size)
            for other in self.candidates
        )

    @property
    def reason(self) -> str:
        """State the recommendation and the reasons, in sentences."""
        return advice(self)

    # ---- ways to read it ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        points = {"pick": self.pick, "smallest": self.smallest, "most_even": self.most_even}
        return {
            "alpha": self.alpha,
            "confidence": self.confidence,
            "n_splits": self.n_splits,
            "n_calibration": self.n_calibration,
            "n_test": self.n_test,
            "noise_floor": self.noise_floor,
            "max_size": self.max_size,
            "min_coverage": self.min_coverage,
            "candidates": self.rows(),
            **{
                name: None if point is None else {"method": point.method, "score": point.score}
                for name, point in points.items()
            },
            "reason": self.reason,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One record per candidate: metrics with standard errors, and how it compares."""
        table = []
        for candidate in self.candidates:
            row: dict[str, Any] = {"method": candidate.method, "score": candidate.score}
            for name in ("cost", *(metric.name for metric in shown_in("comparison"))):
                row[name] = candidate.mean(name)
                row[f"{name}_se"] = candidate.standard_error(name)
            difference = self.difference_to_best(candidate)
            row |= {
                "cost_above_best": difference.mean,
                "cost_above_best_se": difference.standard_error,
                "clearly_above_best": difference.is_clear,
                "on_pareto_front": self.is_on_pareto_front(candidate),
                "costs_too_much": self.costs_too_much(candidate),
                "covers_too_little": self.covers_too_little(candidate),
                "note": self.note(candidate),
            }
            table.append(row)
        return table

    def note(self, candidate: Candidate) -> str:
        """What the table notes about a candidate."""
        if self.covers_too_little(candidate):
            return "covers too little"
        if not self.promises_enough(candidate):
            return "no confidence"
        names = {"pick": self.pick, "most even": self.most_even, "smallest": self.smallest}
        roles = [name for name, point in names.items() if point is candidate]
        if roles:
            return ", ".join(roles)
        if self.costs_too_much(candidate):
            return "costs too much"
        if self.pick is None or self.difference_to_best(candidate).is_clear:
            return ""
        return "tied"

    def to_frame(self) -> Any:
        """`rows` as a pandas data frame."""
        return import_pandas().DataFrame(self.rows())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the true gap against AvgSize with the Pareto front; needs matplotlib."""
        from evencover.plotting import ParetoDisplay

        return ParetoDisplay.from_comparison(self, ax=ax)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Column titles and cells for people."""
        metrics = shown_in("comparison table")
        cells = [
            [
                candidate.method.upper(),
                candidate.score,
                *(_cell(metric, candidate) for metric in metrics),
                f"{candidate.mean('cost'):.1f}",
                self.note(candidate),
            ]
            for candidate in self.candidates
        ]
        return ["method", "score", *(metric.title for metric in metrics), "cost", ""], cells

    def heading(self) -> str:
        """What was done, and how to read it."""
        confident = "" if self.confidence is None else f", confidence = {self.confidence:g}"
        return (
            f"{self.n_splits} splits into {self.n_calibration} calibration and {self.n_test} test "
            f"rows, alpha = {self.alpha:g}{confident}.\n"
            f"Test noise alone gives a CovGap of {self.noise_floor:.1f} here; a lower one is no "
            "better."
        )

    def __str__(self) -> str:
        titles, cells = self.table()
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [titles, *cells]
        ]
        return "\n".join([self.heading(), *lines, self.reason])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        from evencover.comparison.picture import picture

        titles, cells = self.table()
        rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in cells]
        head = "".join(f"<th>{escape(title)}</th>" for title in titles)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return (
            f"<table><caption>{escape(self.heading())}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{picture(self)}<p>{escape(self.reason)}</p>"
        )


def _cell(metric: Metric, candidate: Candidate) -> str:
    return metric.text(candidate.mean(metric.name))
