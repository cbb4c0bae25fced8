"""The result of a comparison: the recommendation, alternatives, and exclusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray
from evencover.comparison.trials import CalibrationSize, Outcome
from evencover.evaluation.metrics import shown_in
from evencover.evaluation.report import CoverageReport, or_none
from evencover.evaluation.statistics import root_and_error, squared_gaps, squared_shortfalls
from evencover.validation import import_pandas

MOST_NAMES = 6  # of candidates that a line lists
# Roots of means of squares, which are averaged over the splits before the root.
SQUARES = {"true_gap": squared_gaps, "shortfall": squared_shortfalls}


class Difference(NamedTuple):
    """How much larger a candidate's cost is than the best one's, over the same splits."""

    mean: float
    standard_error: float
    is_significant: bool


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """One method with one score: its report and its cost on each split.

    ``target`` is the coverage that the method targets: of all rows, or the mean over classes
    ("macro_coverage"). ``avg_size_without_floor`` is measured if `compare` was given a floor.
    """

    method: str
    score: str
    reports: tuple[CoverageReport, ...]
    costs: tuple[float, ...]
    target: str = "marginal_coverage"
    avg_size_without_floor: float | None = None

    @classmethod
    def of(
        cls, method: str, score: str, tried: Sequence[Outcome], without_floor: Sequence[Outcome]
    ) -> Candidate:
        """Summarize the outcomes on all splits."""
        plain_sizes = [outcome.report.avg_size for outcome in without_floor]
        return cls(
            method,
            score,
            tuple(outcome.report for outcome in tried),
            tuple(outcome.cost for outcome in tried),
            "marginal_coverage" if tried[0].predictor._targets_average else "macro_coverage",
            float(np.mean(plain_sizes)) if plain_sizes else None,
        )

    @property
    def name(self) -> str:
        """The method and the score, as shown."""
        return f"{self.method} + {self.score}"

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.reports)} splits>"

    def values(self, metric: str) -> FloatArray:
        """Return a metric on each split; "cost" is one, too."""
        if metric == "cost":
            return np.array(self.costs)
        return np.array([getattr(report, metric) for report in self.reports])

    def mean(self, metric: str) -> float:
        """Compute a metric's mean over the splits; that of `SQUARES` before their root."""
        return self._root(metric)[0] if metric in SQUARES else float(self.values(metric).mean())

    def standard_error(self, metric: str) -> float:
        """Compute the standard error of the mean over the splits, as in the paper (ddof = 1)."""
        if metric in SQUARES:
            return self._root(metric)[1]
        return _standard_error(self.values(metric))

    def _root(self, metric: str) -> tuple[float, float]:
        by_split = [
            SQUARES[metric](report.class_covered, report.class_counts, report.alphas)
            for report in self.reports
        ]
        known = [squares[~np.isnan(squares)] for squares in by_split]
        means = np.array([squares.mean() for squares in known if len(squares)])
        if not len(means):  # no class has enough test rows
            return float("nan"), float("nan")
        return root_and_error(float(means.mean()), _standard_error(means))


def _standard_error(values: FloatArray) -> float:
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The result of `compare` at one calibration size, and at ``smaller`` ones if there are any.

    Attributes
    ----------
    candidates
        One per method and score.
    alpha, n_splits
        The level, and the number of splits.
    n_calibration, n_test
        The number of rows in each part of a split.
    calibration_size
        What was asked for: examples of each class, or a fraction of all rows.
    max_size
        The largest average set size that may be recommended, if any.
    confidence
        The probability of the guarantee, if it was asked for.
    smaller
        Comparisons at smaller calibration sizes, ascending: the learning curve.
    """

    candidates: tuple[Candidate, ...]
    alpha: float
    n_splits: int
    n_calibration: int
    n_test: int
    calibration_size: CalibrationSize = 0.5
    max_size: float | None = None
    confidence: float | None = None
    smaller: tuple[Comparison, ...] = ()

    @property
    def by_size(self) -> tuple[Comparison, ...]:
        """The comparisons at all calibration sizes, ascending."""
        return (*self.smaller, self)

    @property
    def target(self) -> str:
        """Target coverage in words: of every class, or each class's own."""
        return "its target" if self._is_per_class else f"{1 - self.alpha:.0%}"

    @property
    def _is_per_class(self) -> bool:
        return self.candidates[0].reports[0].class_alpha is not None

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
        """Whether the coverage that it targets is significantly below 1 - alpha.

        By more than two standard deviations of one split's coverage, its calibration's included.
        """
        target, test_variance = 1 - self.alpha, 1 / self.n_test
        if candidate.target != "marginal_coverage":
            # Of a mean over classes, which have as many rows in calibration as in the test.
            counts = candidate.reports[0].class_counts[candidate.reports[0].evaluated]
            test_variance = float((1 / counts).sum()) / len(counts) ** 2
            means = [r.class_target[r.evaluated].mean() for r in candidate.reports]
            target = float(np.mean(means))
        variance = test_variance * (1 + self.n_test / self.n_calibration)
        shortfall = target - candidate.mean(candidate.target)
        return bool(shortfall > 2 * np.sqrt(target * (1 - target) * variance))

    @cached_property
    def allowed(self) -> list[Candidate]:
        """Candidates that cover enough and are small enough."""
        most = np.inf if self.max_size is None else self.max_size
        return [candidate for candidate in self._covering if candidate.mean("avg_size") <= most]

    @cached_property
    def _covering(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if not self.covers_too_little(candidate)]

    # ---- three points ------------------------------------------------------------------------

    @cached_property
    def best(self) -> Candidate:
        """The lowest cost among those allowed; if there are none, among those that cover enough."""
        choice = self.allowed or self._covering or self.candidates
        return min(choice, key=lambda candidate: candidate.mean("cost"))

    @property
    def recommended(self) -> Candidate | None:
        """The recommended candidate: `best`, or None if none is allowed."""
        return self.best if self.allowed else None

    @property
    def smallest(self) -> Candidate | None:
        """The smallest sets among those allowed that do not cost too much."""
        return min(self._offered, key=lambda candidate: candidate.mean("avg_size"), default=None)

    @property
    def most_even(self) -> Candidate | None:
        """The lowest TrueGap among those allowed that do not cost too much."""
        return min(self._offered, key=lambda candidate: candidate.mean("true_gap"), default=None)

    @property
    def _offered(self) -> list[Candidate]:
        """Candidates to name next to the recommended one."""
        return [c for c in self.allowed if c is self.recommended or not self.costs_too_much(c)]

    def difference_to_best(self, candidate: Candidate, metric: str = "cost") -> Difference:
        """Compute the paired difference to `best` over the same splits.

        Splits of one data set overlap, so the standard error is corrected for that (Nadeau and
        Bengio 2003). Which candidate is best is itself subject to sampling noise, and a table has
        many pairs: a difference is significant only if it is so for all pairs at once (Bonferroni
        at 5%). So of twenty tables of equally good candidates, at most about one calls any of them
        significantly worse. With one split, none is significant.
        """
        from scipy.special import stdtrit

        differences = candidate.values(metric) - self.best.values(metric)
        mean = float(differences.mean())
        if self.n_splits < 2:
            return Difference(mean, float("nan"), False)
        overlap = 1 / self.n_splits + self.n_test / self.n_calibration
        error = float(np.sqrt(overlap * differences.var(ddof=1)))
        n = len(self.candidates)
        limit = float(stdtrit(self.n_splits - 1, 1 - 0.05 / max(1, n * (n - 1))))
        return Difference(mean, error, mean > limit * error and mean > 0)

    def is_on_pareto_front(self, candidate: Candidate) -> bool:
        """Whether no other candidate has both a lower TrueGap and smaller sets."""
        points = np.array([[c.mean("true_gap"), c.mean("avg_size")] for c in self.candidates])
        point = np.array([candidate.mean("true_gap"), candidate.mean("avg_size")])
        return not ((points <= point).all(axis=1) & (points < point).any(axis=1)).any()

    # ---- the recommendation in words ---------------------------------------------------------

    @property
    def reason(self) -> str:
        """State the recommendation, what it costs, alternatives and exclusions, line by line."""
        chosen = self.recommended
        lines = [f"Recommended: {self.best.name}"]
        if chosen is None:
            required = f"coverage of {100 * (1 - self.alpha):.4g}%"
            if self.max_size is not None:
                required += f" and an average set size of at most {self.max_size:g}"
            lines = [f"No candidate has {required}.", f"Without these: {self.best.name}"]
        lines += [f"  {line}" for line in self._about_best()]
        for title, other in (("Smaller sets:", self.smallest), ("More even:   ", self.most_even)):
            if chosen is not None and other is not None and other is not chosen:
                size = other.mean("avg_size") - chosen.mean("avg_size")
                gap = other.mean("true_gap") - chosen.mean("true_gap")
                lines.append(
                    f"{title} {other.name} ({abs(size):.1f} {'more' if size >= 0 else 'fewer'} "
                    f"classes, {abs(gap):.1f} points {'more' if gap > 0 else 'less'} deviation)"
                )
        for problem, applies in {
            f"Coverage significantly below {self.target}": self.covers_too_little,
            f"Cost no lower than that of all {self.n_classes} classes": self.costs_too_much,
        }.items():
            excluded = [
                candidate
                for candidate in self.candidates
                if applies(candidate) and candidate is not chosen
            ]
            if excluded:
                lines.append(f"{problem}: {_names(excluded)}.")
        return "\n".join(lines)

    def _about_best(self) -> list[str]:
        """State the cost of `best`, its size and gap, ties, and what a floor costs."""
        best = self.best
        lines = [
            f"Lowest cost ({best.mean('cost'):.1f} labels per example); average set size "
            f"{best.mean('avg_size'):.1f}.",
            f"Class coverage typically deviates from {self.target} by "
            f"{best.mean('true_gap'):.1f} points.",
        ]
        others = [candidate for candidate in self.allowed if candidate is not best]
        tied = [
            candidate
            for candidate in others
            if not self.difference_to_best(candidate).is_significant
        ]
        if tied:
            lines.append(f"Tied on cost: {_names(tied)}.")
        elif others:
            lines.append("No other candidate is tied on cost.")
        if self.costs_too_much(best):
            lines.append(
                f"Sets of all {self.n_classes} classes cost no more. Add calibration examples or "
                "improve the model."
            )
        if best.avg_size_without_floor is not None:
            added = best.mean("avg_size") - best.avg_size_without_floor
            lines.append(
                f"The floor adds {added:.2f} labels to the average set "
                f"({added / max(best.avg_size_without_floor, 1e-9):+.0%})."
            )
        return lines

    # ---- ways to read it ---------------------------------------------------------------------

    @property
    def _points(self) -> dict[str, Candidate | None]:
        points = (self.recommended, self.smallest, self.most_even)
        return dict(zip(("recommended", "smallest", "most_even"), points, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        names = ("alpha", "n_splits", "n_calibration", "n_test", "noise_floor")
        asked = ("max_size", "confidence")
        points = {
            name: point and {"method": point.method, "score": point.score}
            for name, point in self._points.items()
        }
        numbers = {name: getattr(self, name) for name in (*names, *asked)}
        curve = {"learning_curve": self.rows()} if self.smaller else {}
        return {**numbers, "candidates": self._rows(), **points, "reason": self.reason, **curve}

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per calibration size and candidate.

        It has all metrics with standard errors, and how the candidate compares with the best one.
        """
        return [row for result in self.by_size for row in result._rows()]

    def _rows(self) -> list[dict[str, Any]]:
        metrics = ("cost", *(metric.name for metric in shown_in("comparison")))
        table = []
        for candidate in self.candidates:
            row: dict[str, Any] = {"method": candidate.method, "score": candidate.score}
            row["n_calibration"] = self.n_calibration
            for name in metrics:
                row[name] = or_none(candidate.mean(name))
                row[f"{name}_se"] = or_none(candidate.standard_error(name))
            if candidate.avg_size_without_floor is not None:
                row["avg_size_without_floor"] = candidate.avg_size_without_floor
            difference = self.difference_to_best(candidate)
            row |= {
                "cost_above_best": difference.mean,
                "cost_above_best_se": difference.standard_error,
                "significantly_above_best": difference.is_significant,
                "on_pareto_front": self.is_on_pareto_front(candidate),
                "costs_too_much": self.costs_too_much(candidate),
                "covers_too_little": self.covers_too_little(candidate),
                "note": self.note(candidate),
            }
            table.append(row)
        return table

    def note(self, candidate: Candidate) -> str:
        """Return the roles of a candidate, or why it is excluded."""
        if self.covers_too_little(candidate):
            return "coverage too low"
        notes = [
            name.replace("_", " ") for name, point in self._points.items() if point is candidate
        ]
        if self.costs_too_much(candidate) and not notes:
            return "cost too high"
        is_other = candidate in self.allowed and candidate is not self.recommended
        if is_other and not self.difference_to_best(candidate).is_significant:
            notes.append("tied")
        return ", ".join(notes)

    def to_frame(self) -> Any:
        """Return `rows` as a pandas data frame."""
        return import_pandas().DataFrame(self.rows())

    def plot(self, *, ax: Any = None) -> Any:
        """Draw TrueGap against AvgSize with the Pareto front; needs matplotlib."""
        from evencover.plotting import ParetoDisplay

        return ParetoDisplay.from_comparison(self, ax=ax)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return column titles and cells for people."""
        metrics = shown_in("comparison table")
        cells = [
            [
                candidate.method.upper(),
                candidate.score,
                *(metric.text(candidate.mean(metric.name)) for metric in metrics),
                f"{candidate.mean('cost'):.1f}",
                self.note(candidate),
            ]
            for candidate in self.candidates
        ]
        return ["method", "score", *(metric.title for metric in metrics), "cost", ""], cells

    def curve_table(self) -> tuple[list[str], list[list[str]]]:
        """Return AvgSize and TrueGap of every candidate at every calibration size."""
        titles = ["AvgSize, TrueGap with", "", *(result.size_text for result in self.by_size)]
        cells = [
            [
                candidates[0].method.upper(),
                candidates[0].score,
                *(f"{c.mean('avg_size'):.2f}, {c.mean('true_gap'):.2f}" for c in candidates),
            ]
            for candidates in zip(*(result.candidates for result in self.by_size), strict=True)
        ]
        return titles, cells

    @property
    def size_text(self) -> str:
        """The calibration size in words."""
        if isinstance(self.calibration_size, int):
            return f"{self.calibration_size} per class"
        return f"{self.n_calibration:,} examples"

    def heading(self) -> str:
        """Describe the splits, and the CovGap that sampling noise alone gives."""
        level = f"{'mean ' if self._is_per_class else ''}alpha = {self.alpha:.4g}"
        level += "" if self.confidence is None else f", confidence = {self.confidence:g}"
        return (
            f"{self.n_splits} splits into {self.n_calibration:,} calibration and {self.n_test:,} "
            f"test examples, {level}.\n"
            f"Sampling noise alone gives a CovGap of {self.noise_floor:.1f}; smaller values are "
            "not meaningful."
        )

    def __str__(self) -> str:
        curve = [_aligned(*self.curve_table())] if self.smaller else []
        return "\n".join([self.heading(), _aligned(*self.table()), self.reason, *curve])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        curve = _html_table("By calibration size", *self.curve_table()) if self.smaller else ""
        table = _html_table(self.heading(), *self.table())
        return f"{table}<pre>{escape(self.reason)}</pre>{curve}"


def _aligned(titles: list[str], cells: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [titles, *cells]
    )
    return "\n".join(lines)


def _html_table(caption: str, titles: list[str], cells: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in cells]
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody><tr>{'</tr><tr>'.join(rows)}</tr></tbody></table>"
    )


def _names(candidates: Sequence[Candidate]) -> str:
    """List candidates, the methods of one score together; those beyond `MOST_NAMES` as a number."""
    by_score: dict[str, list[str]] = {}
    for candidate in candidates[:MOST_NAMES]:
        by_score.setdefault(candidate.score, []).append(candidate.method)
    names = [
        f"{', '.join(methods[:-1])} and {methods[-1]} + {score}"
        if len(methods) > 1
        else f"{methods[0]} + {score}"
        for score, methods in by_score.items()
    ]
    more = len(candidates) - MOST_NAMES
    return "; ".join(names) + (f"; {more} more" if more > 0 else "")
