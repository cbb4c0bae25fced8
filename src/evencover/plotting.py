"""matplotlib displays of reports, in scikit-learn's Display pattern: ``from_report`` draws one."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from evencover.arrays import FloatArray, IntArray
from evencover.errors import InputError, needs

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


class _Display:
    """A drawing of a `CoverageReport`; ``ax_`` are the axes it was drawn on."""

    ax_: Any = None

    def __init__(self, report: Any) -> None:
        self.report = report

    @classmethod
    def from_report(cls, report: Any, *, ax: Any = None) -> Self:
        """Draw a report, on the given axes or on those of a new figure."""
        return cls(report).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw on the given axes, or on those of a new figure."""
        self.ax_ = new_axes(ax)
        self._draw(self.ax_)
        return self

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError


def _draw_target(ax: Any, x: IntArray, target: FloatArray) -> None:
    """Draw one dashed line, or a tick for each class at its own target."""
    if np.ptp(target) == 0:
        ax.axhline(target[0], color=GRAY, linestyle="--", label=f"target {target[0]:g}")
    else:
        ax.plot(x, target, "_", color=GRAY, label="target of the class")


class ClassCoverageDisplay(_Display):
    """Coverage of each class with its 95% interval, and its target."""

    def _draw(self, ax: Any) -> None:
        """Draw classes, largest shortfall first; those likely below their target stand out."""
        report, tested = self.report, np.flatnonzero(self.report.evaluated)
        excess = report.class_coverage[tested] - report.class_target[tested]
        order = tested[np.argsort(excess, kind="stable")]
        x, coverage = np.arange(len(order)), report.class_coverage[order]
        low, high = report.class_coverage_interval[order].T
        likely_below = report.likely_below[order]
        for chosen, color, label in (
            (~likely_below, BLUE, "class"),
            (likely_below, ORANGE, "class likely below target"),
        ):
            if chosen.any():
                ax.vlines(x[chosen], low[chosen], high[chosen], color=color, alpha=0.25)
                ax.plot(x[chosen], coverage[chosen], ".", color=color, label=label)
        _draw_target(ax, x, report.class_target[order])
        ax.set(xlabel="classes, largest shortfall first", ylabel="coverage", ylim=(0, 1.02))
        ax.legend(loc="lower right")


class CoverageByCountDisplay(_Display):
    """Coverage of each class against its number of calibration examples, with its target."""

    def _draw(self, ax: Any) -> None:
        """Draw a report that knows the calibration counts, such as that of `predictor.evaluate`."""
        report, tested = self.report, self.report.evaluated
        if report.calibration_counts is None:
            raise InputError(
                "The report has no calibration counts; use that of predictor.evaluate."
            )
        counts = report.calibration_counts[tested]
        ax.plot(counts, report.class_coverage[tested], "o", color=BLUE, alpha=0.4, markersize=4)
        _draw_target(ax, counts, report.class_target[tested])
        ax.set(xlabel="calibration examples of the class", ylabel="coverage", ylim=(0, 1.02))
        ax.set_xscale("symlog")
        least, most = counts.min(), counts.max()
        steps = (1, 2, 5) if most <= 1000 * max(least, 1) else (1,)
        ticks = [0, *(step * 10**power for power in range(10) for step in steps)]
        ax.set_xticks([tick for tick in ticks if least <= tick <= most], minor=False)
        ax.minorticks_off()
        ax.xaxis.set_major_formatter("{x:,.0f}")


class SetSizeDisplay(_Display):
    """Fraction of examples by set size."""

    def _draw(self, ax: Any) -> None:
        """Draw bars up to the largest size that occurs, at most 50 of them."""
        counts = self.report.size_counts
        largest = int(np.flatnonzero(counts)[-1])
        width = max(1, -(-(largest + 1) // 50))
        starts = np.arange(0, largest + 1, width)
        shares = np.add.reduceat(counts[: largest + 1], starts) / counts.sum()
        ax.bar(starts, shares, width=0.9 * width, align="edge", color=BLUE)
        ax.set(xlabel="classes in the set", ylabel="fraction of examples")
