"""What a comparison found: candidates, how they differ beyond noise, and three to choose from.

Candidates are ranked by their cost in labels (`cost`), which noise cannot fool and which sets that
say nothing cannot win; the true gap and the size of sets stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evencover._types import FloatArray
from evencover._validation import import_pandas
from evencover.comparison.advice import advice
from evencover.evaluation.metrics import Metric, shown_in
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.true_gap import root_and_error, squared_gaps

# Sets that hold more than this share of the classes on average say nothing; of few classes, five.
MOST_OF_THE_CLASSES, OF_FEW_CLASSES = 1 / 3, 5


class Difference(NamedTuple):
    """How much larger a candidate's cost is than the best one's, over the same splits."""

    mean: float
    standard_error: float
    is_clear: bool


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """One method with one score: its report and its cost on each split.

    ``infinite_share`` is the share of classes with an infinite threshold, which are in every set;
    ``is_confident`` says whether it promises coverage for one calibration.
    """

    method: str
    score: str
    reports: tuple[CoverageReport, ...]
    costs: tuple[float, ...]
    infinite_share: float = 0.0
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

    # ---- who may be advised ------------------------------------------------------------------

    def is_informative(self, candidate: Candidate) -> bool:
        """Whether its sets say something: few classes, and limits that are mostly finite."""
        full = max(MOST_OF_THE_CLASSES * self.n_classes, min(OF_FEW_CLASSES, self.n_classes - 1))
        return candidate.mean("avg_size") <= full and candidate.infinite_share <= 0.5

    def covers_too_little(self, candidate: Candidate) -> bool:
        """Whether its coverage over all rows is clearly below 1 - alpha.

        By more than two standard deviations of one split's coverage, its calibration's included.
        """
        variance = self.alpha * (1 - self.alpha) * (1 / self.n_calibration + 1 / self.n_test)
        shortfall = 1 - self.alpha - candidate.mean("marginal_coverage")
        return bool(shortfall > 2 * np.sqrt(variance))

    def promises_enough(self, candidate: Candidate) -> bool:
        """Whether it has a promise for one calibration, if that was asked for."""
        return self.confidence is None or candidate.is_confident

    @property
    def allowed(self) -> list[Candidate]:
        """Those whose sets say something and that meet what was asked for."""
        return [
            candidate
            for candidate in self.candidates
            if self.is_informative(candidate)
            and self.promises_enough(candidate)
            and (self.max_size is None or candidate.mean("avg_size") <= self.max_size)
            and (
                self.min_coverage is None
                or candidate.mean("marginal_coverage") >= self.min_coverage
            )
        ]

    @property
    def _eligible(self) -> list[Candidate]:
        """Those allowed; if there are none, those whose sets say something; else all."""
        informative = [each for each in self.candidates if self.is_informative(each)]
        return self.allowed or informative or list(self.candidates)

    # ---- three points ------------------------------------------------------------------------

    @property
    def pick(self) -> Candidate:
        """The compromise: the lowest cost among those allowed (among others, if none is)."""
        return min(self._eligible, key=lambda each: each.mean("cost"))

    @property
    def best(self) -> Candidate:
        """The same as `pick`."""
        return self.pick

    @property
    def smallest(self) -> Candidate:
        """The smallest sets among those allowed."""
        return min(self._eligible, key=lambda each: each.mean("avg_size"))

    @property
    def most_even(self) -> Candidate:
        """The lowest true gap among those allowed."""
        return min(self._eligible, key=lambda each: each.mean("true_gap"))

    def difference_to_best(self, candidate: Candidate, metric: str = "cost") -> Difference:
        """Paired difference to the pick over the same splits.

        Splits of one data set overlap, so the standard error is corrected for that (Nadeau and
        Bengio 2003). Which candidate is the best is itself a matter of luck, and a table has many
        pairs: a difference is called clear only if it would be so for all pairs at once
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
        """What to use and why, in sentences."""
        return advice(self)

    # ---- ways to read it ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        points = {"pick": self.pick, "best": self.best, "smallest": self.smallest}
        points["most_even"] = self.most_even
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
            **{name: {"method": c.method, "score": c.score} for name, c in points.items()},
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
                "is_informative": self.is_informative(candidate),
                "covers_too_little": self.covers_too_little(candidate),
                "note": self.note(candidate),
            }
            table.append(row)
        return table

    def note(self, candidate: Candidate) -> str:
        """What stands beside it in the table."""
        if not self.is_informative(candidate):
            return "says nothing"
        if self.covers_too_little(candidate):
            return "covers too little"
        if not self.promises_enough(candidate):
            return "no confidence"
        if not self.allowed:
            return ""  # nothing is advised
        names = {"pick": self.pick, "most even": self.most_even, "smallest": self.smallest}
        said = [name for name, point in names.items() if point is candidate]
        if said:
            return ", ".join(said)
        return "" if self.difference_to_best(candidate).is_clear else "not clear"

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
