"""matplotlib displays of reports and comparisons, in scikit-learn's Display pattern.

Each display has a ``from_...`` constructor and draws with `plot`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError, needs
from evencover.quantiles import GroupedScores, conformal_ranks
from evencover.validation import whole_number

# Okabe and Ito's colors, which color-blind readers can distinguish.
BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#8C8C8C"


def new_axes(ax: Any) -> Any:
    """Return the given axes, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise needs("Plots", "matplotlib", "plot") from None
    return plt.subplots(layout="constrained")[1]


@dataclass(eq=False)
class _Display:
    ax_: Any = field(default=None, init=False, repr=False)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw on the given axes, or on those of a new figure."""
        self.ax_ = new_axes(ax)
        self._draw(self.ax_)
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError

    @property
    def figure_(self) -> Any:
        """The figure that holds the axes, once plotted."""
        return self.ax_.figure


def _target(report: Any) -> float | FloatArray:
    """Return the target coverage, or that of each class with test rows."""
    if report.class_alpha is None:
        return float(1 - report.alpha)
    targets: FloatArray = report.class_target[report.evaluated]
    return targets


def _draw_target(ax: Any, x: IntArray, target: float | FloatArray) -> None:
    """Draw one dashed line, or a tick for each class at its own target."""
    if isinstance(target, float):
        ax.axhline(target, color=GRAY, linestyle="--", label=f"target {target:g}")
    else:
        ax.plot(x, target, "_", color=GRAY, label="target of the class")


@dataclass(eq=False)
class ClassCoverageDisplay(_Display):
    """Coverage of each class with its 95% interval; ``target`` is one number, or one per class."""

    coverage: FloatArray
    interval: FloatArray
    likely_below: Array
    target: float | FloatArray

    @classmethod
    def from_report(cls, report: Any, *, ax: Any = None) -> Self:
        """Draw the classes of a `CoverageReport` that have test rows."""
        known = report.evaluated
        return cls(
            report.class_coverage[known],
            report.class_coverage_interval[known],
            report.likely_below[known],
            _target(report),
        ).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        """Draw classes, largest shortfall first; those likely below their target stand out."""
        order = np.argsort(self.coverage - self.target, kind="stable")
        x = np.arange(len(order))
        low, high = self.interval[order].T
        likely_below = self.likely_below[order]
        for chosen, color, label in (
            (~likely_below, BLUE, "class"),
            (likely_below, ORANGE, "class likely below target"),
        ):
            if chosen.any():
                ax.vlines(x[chosen], low[chosen], high[chosen], color=color, alpha=0.25)
                ax.plot(x[chosen], self.coverage[order][chosen], ".", color=color, label=label)
        _draw_target(ax, x, self.target if isinstance(self.target, float) else self.target[order])
        ax.set(xlabel="classes, largest shortfall first", ylabel="coverage", ylim=(0, 1.02))
        ax.legend(loc="lower right")


@dataclass(eq=False)
class CoverageByCountDisplay(_Display):
    """Coverage of each class against its number of calibration examples, with its target."""

    counts: IntArray
    coverage: FloatArray
    target: float | FloatArray

    @classmethod
    def from_report(cls, report: Any, *, ax: Any = None) -> Self:
        """Draw a report that knows the calibration counts, such as that of `predictor.evaluate`."""
        if report.calibration_counts is None:
            raise InputError("'calibration_counts' are not known; pass them to evaluate.")
        known = report.evaluated
        return cls(
            report.calibration_counts[known], report.class_coverage[known], _target(report)
        ).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        ax.plot(self.counts, self.coverage, "o", color=BLUE, alpha=0.4, markersize=4)
        _draw_target(ax, self.counts, self.target)
        ax.set(xlabel="calibration examples of the class", ylabel="coverage", ylim=(0, 1.02))
        ax.set_xscale("symlog")
        least, most = self.counts.min(), self.counts.max()
        steps = (1, 2, 5) if most <= 1000 * max(least, 1) else (1,)
        ticks = [0, *(step * 10**power for power in range(10) for step in steps)]
        ax.set_xticks([tick for tick in ticks if least <= tick <= most], minor=False)
        ax.minorticks_off()
        ax.xaxis.set_major_formatter("{x:,.0f}")


@dataclass(eq=False)
class ParetoDisplay(_Display):
    """Shortfall against average set size of each candidate of a comparison."""

    names: list[str]
    shortfall: FloatArray
    avg_size: FloatArray
    on_front: Array

    @classmethod
    def from_comparison(cls, comparison: Any, *, ax: Any = None) -> Self:
        """Draw the `Comparison` that `compare` returns."""
        candidates = comparison.candidates
        return cls(
            [candidate.name for candidate in candidates],
            np.array([candidate.mean("shortfall") for candidate in candidates]),
            np.array([candidate.mean("avg_size") for candidate in candidates]),
            np.array([comparison.is_on_pareto_front(candidate) for candidate in candidates]),
        ).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        front = np.flatnonzero(self.on_front)
        front = front[np.argsort(self.avg_size[front])]
        ax.plot(self.avg_size[front], self.shortfall[front], "-", color=ORANGE, alpha=0.6)
        ax.plot(self.avg_size, self.shortfall, "o", color=BLUE)
        near: Any = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": "small"}
        for name, size, gap in zip(self.names, self.avg_size, self.shortfall, strict=True):
            ax.annotate(name, (size, gap), **near)
        ax.set(xlabel="labels per set (log scale)", ylabel="typical shortfall in points")
        ax.set_xscale("log")


@dataclass(eq=False)
class SetSizeDisplay(_Display):
    """Fraction of examples by set size."""

    size_counts: IntArray

    @classmethod
    def from_report(cls, report: Any, *, ax: Any = None) -> Self:
        """Draw the sizes of a `CoverageReport`."""
        return cls(report.size_counts).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        """Draw bars up to the largest size that occurs, at most 50 of them."""
        largest = int(np.flatnonzero(self.size_counts)[-1])
        width = max(1, -(-(largest + 1) // 50))
        starts = np.arange(0, largest + 1, width)
        shares = np.add.reduceat(self.size_counts[: largest + 1], starts) / self.size_counts.sum()
        ax.bar(starts, shares, width=0.9 * width, align="edge", color=BLUE)
        ax.set(xlabel="classes in the set", ylabel="fraction of examples")


@dataclass(eq=False)
class ScoreDistributionDisplay(_Display):
    """Calibration scores of one class against those of all classes, or of its cluster."""

    own: FloatArray
    others: FloatArray
    threshold: float
    name: str
    others_name: str

    @classmethod
    def from_scores(
        cls, predictor: Any, scores: Any, labels: Any, index: int, *, ax: Any = None
    ) -> Self:
        """Draw class `index` of a calibrated predictor, given the calibration scores (N,)."""
        scores, labels = np.asarray(scores), np.asarray(labels)
        index = whole_number(index, "index", cls.__name__, 0, predictor.n_classes_ - 1)
        alone = np.full(predictor.n_classes_, -1)
        clusters = np.asarray(getattr(predictor, "cluster_of_class_", alone))
        in_cluster = clusters[index] >= 0
        mates = clusters[labels] == clusters[index] if in_cluster else np.ones(len(labels), bool)
        names = predictor.class_names_
        return cls(
            np.sort(scores[labels == index]),
            np.sort(scores[mates]),
            float(predictor.thresholds_[index]),
            f"class {index}" if names is None else str(names[index]),
            f"cluster {clusters[index]}" if in_cluster else "all classes",
        ).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        """Draw both empirical distribution functions, and the threshold."""
        for values, color, label in (
            (self.others, GRAY, self.others_name),
            (self.own, BLUE, self.name),
        ):
            if len(values):
                ax.ecdf(values, color=color, label=f"{label} ({len(values)} examples)")
        if np.isfinite(self.threshold):
            ax.axvline(self.threshold, color=ORANGE, label="threshold")
        ax.set(xlabel="score", ylabel="cumulative fraction")
        ax.legend()


@dataclass(eq=False)
class EmbeddingDisplay(_Display):
    """Classes by the lowest and the highest of the score quantiles that make clusters (K, 2)."""

    embedding: FloatArray
    cluster_of_class: IntArray

    @classmethod
    def from_scores(cls, predictor: Any, scores: Any, labels: Any, *, ax: Any = None) -> Self:
        """Draw the classes of a clustered predictor, given the calibration scores (N,)."""
        clusters = getattr(predictor, "cluster_of_class_", None)
        if clusters is None:
            raise InputError("Only a clustered predictor has clusters to draw.")
        groups = GroupedScores.sort(np.asarray(scores), np.asarray(labels), predictor.n_classes_)
        levels = sorted((Fraction(1, 2), Fraction(9, 10), 1 - predictor.fit_.alpha.typical))
        ranks = [conformal_ranks(groups.counts, 1 - level) for level in (levels[0], levels[-1])]
        return cls(groups.at_ranks(np.stack(ranks)).T, clusters).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        """Draw clusters, the null cluster in gray; classes with too few rows are left out."""
        known = np.isfinite(self.embedding).all(axis=1)
        lowest, highest = self.embedding.T
        null = known & (self.cluster_of_class < 0)
        ax.plot(lowest[null], highest[null], "x", color=GRAY, label="null cluster")
        member = known & (self.cluster_of_class >= 0)
        dots = ax.scatter(
            lowest[member], highest[member], c=self.cluster_of_class[member], cmap="viridis", s=16
        )
        if member.any():
            self.figure_.colorbar(dots, ax=ax, label="cluster, easiest first")
        ax.set(xlabel="median score", ylabel="score quantile at 1 - alpha or 0.9")


@dataclass(eq=False)
class ThresholdsDisplay(_Display):
    """The threshold of each class against its number of calibration examples."""

    thresholds: FloatArray
    counts: IntArray

    @classmethod
    def from_predictor(cls, predictor: Any, *, ax: Any = None) -> Self:
        """Draw the thresholds of a calibrated predictor."""
        return cls(predictor.thresholds_, predictor.class_counts_).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        """Draw one point per class; infinite thresholds are marked at the top."""
        finite = np.isfinite(self.thresholds)
        ax.plot(
            self.counts[finite], self.thresholds[finite], "o", color=BLUE, alpha=0.4, markersize=4
        )
        n_infinite = int((~finite).sum())
        if n_infinite:
            top = self.thresholds[finite].max() if finite.any() else 1.0
            label = f"always included ({n_infinite} classes)"
            at_top = np.full(n_infinite, top * 1.05)
            ax.plot(self.counts[~finite], at_top, "^", color=ORANGE, label=label)
            ax.legend()
        ax.set(xlabel="calibration examples of the class", ylabel="threshold")
        ax.set_xscale("symlog")
