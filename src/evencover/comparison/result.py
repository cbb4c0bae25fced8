"""The result of a comparison: the recommendation, alternatives, and exclusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import FloatArray
from evencover.evaluation.metrics import shown_in
from evencover.evaluation.report import CoverageReport
from evencover.evaluation.statistics import root_and_error, squared_gaps
from evencover.validation import import_pandas

_TOP = ("marginal_coverage", "undercov_gap")  # shown of sets that are cut
_ASKED = ("max_size", "min_coverage", "floor", "top")


MOST_NAMES = 6  # of candidates that a line lists


class Difference(NamedTuple):
    """How much larger a candidate's cost is than the best one's, over the same splits."""

    mean: float
    standard_error: float
    is_significant: bool


@dataclass(frozen=True, eq=False, repr=False)
class Candidate:
    """One method with one score: its report and its cost on each split.

    ``is_confident``: whether it guarantees coverage for one calibration set. ``target`` is the
    coverage that the method targets: of all rows, or the mean over classes ("macro_coverage").
    ``top_reports`` are those of sets cut to their most probable classes, ``plain_reports`` those
    without the floor, where asked for.
    """

    method: str
    score: str
    reports: tuple[CoverageReport, ...]
    costs: tuple[float, ...]
    is_confident: bool = False
    target: str = "marginal_coverage"
    top_reports: tuple[CoverageReport, ...] = ()
    plain_reports: tuple[CoverageReport, ...] = ()

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
        """Compute a metric's mean over the splits; TrueGap is pooled over them before its root."""
        return self._true_gap()[0] if metric == "true_gap" else float(self.values(metric).mean())

    def standard_error(self, metric: str) -> float:
        """Compute the standard error of the mean over the splits, as in the paper (ddof = 1)."""
        if metric == "true_gap":
            return self._true_gap()[1]
        values = self.values(metric)
        return float(values.std(ddof=1) / np.sqrt(len(values)))

    def _true_gap(self) -> tuple[float, float]:
        gaps = [squared_gaps(r.class_covered, r.class_counts, r.alphas) for r in self.reports]
        squares = np.array([np.nan if np.isnan(g).all() else np.nanmean(g) for g in gaps])
        error = float(squares.std(ddof=1) / np.sqrt(len(squares)))
        return root_and_error(float(np.nanmean(squares)), error)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    candidates
        One per method and score.
    alpha, n_splits, n_calibration, n_test
        The level, and the number of splits and of rows in each part.
    max_size, min_coverage
        What the advice is restricted to, if anything.
    floor, top
        The guaranteed coverage of every class, and the number of classes that sets are cut to.
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
    floor: float | None = None
    top: int | None = None
    confidence: float | None = None

    @property
    def target(self) -> str:
        """Target coverage in words: of every class, or each class's own."""
        per_class = self.candidates[0].reports[0].class_alpha is not None
        return "its target" if per_class else f"{1 - self.alpha:.0%}"

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
        if candidate.target == "marginal_coverage":
            test_variance = 1 / self.n_test
        else:  # of a mean over classes, which have as many rows in calibration as in the test
            counts = candidate.reports[0].class_counts[candidate.reports[0].evaluated]
            test_variance = float((1 / counts).sum()) / len(counts) ** 2
        variance = test_variance * (1 + self.n_test / self.n_calibration)
        target = 1 - self.alpha
        if candidate.target != "marginal_coverage":
            target = np.mean([r.class_target[r.evaluated].mean() for r in candidate.reports])
        shortfall = target - candidate.mean(candidate.target)
        return bool(shortfall > 2 * np.sqrt(target * (1 - target) * variance))

    def lacks_confidence(self, candidate: Candidate) -> bool:
        """Whether it lacks a guarantee for one calibration set that was asked for."""
        return self.confidence is not None and not candidate.is_confident

    @cached_property
    def allowed(self) -> list[Candidate]:
        """Candidates that cover enough and meet the user's requirements."""
        most = np.inf if self.max_size is None else self.max_size
        least = 0 if self.min_coverage is None else self.min_coverage
        return [
            each
            for each in self.candidates
            if not (self.covers_too_little(each) or self.lacks_confidence(each))
            and each.mean("avg_size") <= most
            and each.mean("marginal_coverage") >= least
        ]

    # ---- three points ------------------------------------------------------------------------

    @cached_property
    def best(self) -> Candidate:
        """The lowest cost among those allowed; if there are none, among those that cover enough."""
        covering = [each for each in self.candidates if not self.covers_too_little(each)]
        return min(self.allowed or covering or self.candidates, key=lambda c: c.mean("cost"))

    @property
    def recommended(self) -> Candidate | None:
        """The recommended candidate: `best`, or None if none is allowed."""
        return self.best if self.allowed else None

    @property
    def smallest(self) -> Candidate | None:
        """The smallest sets among those allowed that do not cost too much."""
        return min(self._offered, key=lambda each: each.mean("avg_size"), default=None)

    @property
    def most_even(self) -> Candidate | None:
        """The lowest TrueGap among those allowed that do not cost too much."""
        return min(self._offered, key=lambda each: each.mean("true_gap"), default=None)

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
        significantly worse.
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
        """Whether no other candidate has both a lower TrueGap and smaller sets."""
        own = np.array([candidate.mean("true_gap"), candidate.mean("avg_size")])
        others = np.array(
            [[each.mean("true_gap"), each.mean("avg_size")] for each in self.candidates]
        )
        return not ((others <= own).all(axis=1) & (others < own).any(axis=1)).any()

    # ---- the recommendation in words ---------------------------------------------------------

    @property
    def reason(self) -> str:
        """State the recommendation, what it costs, alternatives and exclusions, line by line."""
        chosen = self.recommended
        if chosen is None:
            lines = [f"No candidate has {' and '.join(self._required())}."]
            lines.append(f"Without these requirements: {self.best.name}")
        else:
            lines = [f"Recommended: {chosen.name}"]
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
            "No guarantee for one calibration set": self.lacks_confidence,
            f"Cost no lower than that of all {self.n_classes} classes": self.costs_too_much,
        }.items():
            found = [each for each in self.candidates if applies(each) and each is not chosen]
            if found:
                lines.append(f"{problem}: {_names(found)}.")
        return "\n".join(lines)

    def _about_best(self) -> list[str]:
        """State the cost of `best`, its size and gap, ties, and what a floor and a cut cost."""
        best = self.best
        lines = [
            f"Lowest cost ({best.mean('cost'):.1f} labels per example); average set size "
            f"{best.mean('avg_size'):.1f}.",
            f"Class coverage typically deviates from {self.target} by "
            f"{best.mean('true_gap'):.1f} points.",
        ]
        others = [each for each in self.allowed if each is not best]
        tied = [each for each in others if not self.difference_to_best(each).is_significant]
        if tied:
            lines.append(f"Tied on cost: {_names(tied)}.")
        elif others:
            lines.append("No other candidate is tied on cost.")
        if self.costs_too_much(best):
            lines.append(
                f"Sets of all {self.n_classes} classes cost no more. Add calibration examples or "
                "improve the model."
            )
        if best.plain_reports:
            plain = _mean(best.plain_reports, "avg_size")
            added = best.mean("avg_size") - plain
            lines.append(
                f"The floor of {self.floor:.0%} adds {added:.2f} labels to the average set "
                f"({added / max(plain, 1e-9):+.0%})."
            )
        if best.top_reports:
            coverage, gap = (_mean(best.top_reports, name) for name in _TOP)
            lines.append(
                f"Cut to {self.top} labels, sets cover {coverage:.1%} instead of "
                f"{best.mean('marginal_coverage'):.1%}, with a mean shortfall of {gap:.1f} points "
                "per class. The guarantee does not apply to cut sets."
            )
        return lines

    def _required(self) -> list[str]:
        required = [f"coverage of {100 * (1 - self.alpha):.4g}%"]
        if self.max_size is not None:
            required.append(f"an average set size of at most {self.max_size:g}")
        if self.min_coverage is not None:
            required.append(f"coverage of at least {self.min_coverage:g}")
        if self.confidence is not None:
            required.append("a guarantee for one calibration set")
        return required

    # ---- ways to read it ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        names = ("alpha", "confidence", "n_splits", "n_calibration", "n_test", "noise_floor")
        numbers = {name: getattr(self, name) for name in (*names, *_ASKED)}
        points = {
            "recommended": self.recommended,
            "smallest": self.smallest,
            "most_even": self.most_even,
        }
        named = {
            name: point and {"method": point.method, "score": point.score}
            for name, point in points.items()
        }
        return {**numbers, "candidates": self.rows(), **named, "reason": self.reason}

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per candidate: metrics with standard errors, and how it compares."""
        table = []
        for candidate in self.candidates:
            row: dict[str, Any] = {"method": candidate.method, "score": candidate.score}
            for name in ("cost", *(metric.name for metric in shown_in("comparison"))):
                row[name] = candidate.mean(name)
                row[f"{name}_se"] = candidate.standard_error(name)
            for name in _TOP if candidate.top_reports else ():
                row[f"{name}_top_{self.top}"] = _mean(candidate.top_reports, name)
            if candidate.plain_reports:
                row["avg_size_without_floor"] = _mean(candidate.plain_reports, "avg_size")
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
        if self.lacks_confidence(candidate):
            return "no guarantee"
        points = {
            "recommended": self.recommended,
            "smallest": self.smallest,
            "most even": self.most_even,
        }
        notes = [name for name, point in points.items() if point is candidate]
        if self.costs_too_much(candidate) and not notes:
            return "cost too high"
        is_tied = candidate in self.allowed and candidate is not self.recommended
        if is_tied and not self.difference_to_best(candidate).is_significant:
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
        at_top = [] if self.top is None else [f"top {self.top}"]
        cells = [
            [
                candidate.method.upper(),
                candidate.score,
                *(metric.text(candidate.mean(metric.name)) for metric in metrics),
                *[f"{_mean(candidate.top_reports, 'marginal_coverage'):.3f}" for _ in at_top],
                f"{candidate.mean('cost'):.1f}",
                self.note(candidate),
            ]
            for candidate in self.candidates
        ]
        return [
            "method",
            "score",
            *(metric.title for metric in metrics),
            *at_top,
            "cost",
            "",
        ], cells

    def heading(self) -> str:
        """Describe the splits, and the CovGap that sampling noise alone gives."""
        per_class = self.candidates[0].reports[0].class_alpha is not None
        level = f"mean alpha = {self.alpha:.4g}" if per_class else f"alpha = {self.alpha:.4g}"
        confident = "" if self.confidence is None else f", confidence = {self.confidence:g}"
        return (
            f"{self.n_splits} splits into {self.n_calibration:,} calibration and {self.n_test:,} "
            f"test examples, {level}{confident}.\n"
            f"Sampling noise alone gives a CovGap of {self.noise_floor:.1f}; smaller values are "
            "not meaningful."
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
        titles, cells = self.table()
        head = "".join(f"<th>{escape(title)}</th>" for title in titles)
        rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in cells]
        return (
            f"<table><caption>{escape(self.heading())}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody><tr>{'</tr><tr>'.join(rows)}</tr></tbody></table><pre>{escape(self.reason)}</pre>"
        )


def _mean(reports: Sequence[CoverageReport], metric: str) -> float:
    """Compute a metric's mean over the splits."""
    return float(np.mean([getattr(report, metric) for report in reports]))


def _names(candidates: Sequence[Candidate]) -> str:
    """List candidates, the methods of one score together; those beyond `MOST_NAMES` as a number."""
    by_score: dict[str, list[str]] = {}
    for each in candidates[:MOST_NAMES]:
        by_score.setdefault(each.score, []).append(each.method)
    names = [
        f"{', '.join(methods[:-1])} and {methods[-1]} + {score}"
        if len(methods) > 1
        else f"{methods[0]} + {score}"
        for score, methods in by_score.items()
    ]
    more = len(candidates) - MOST_NAMES
    return "; ".join(names) + (f"; {more} more" if more > 0 else "")
