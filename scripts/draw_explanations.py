"""Draw the pictures of four explanations: partial pooling, TrueGap, cost and e-values.

python scripts/draw_explanations.py    writes pooling, gaps, cost and evalues in docs/images, each
                                       as _light.svg and _dark.svg
"""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from evidence_output import write_pictures
from matplotlib.ticker import NullLocator, StrMethodFormatter
from scipy.stats import binom, norm

from evencover import ClasswisePredictor, CoverageMonitor, PooledPredictor, StandardPredictor
from evencover.data import load_filetypes
from evencover.plotting import BLUE, GRAY, ORANGE

TARGET = 0.9


def examples_axis(ax: Any, sizes: Any, title: str) -> None:
    """Make the horizontal axis logarithmic, with a few plain numbers."""
    ax.set(xscale="log", xlabel=title)
    ax.set_xticks([size for size in (2, 5, 10, 20, 50, 100, 200) if sizes[0] <= size <= sizes[-1]])
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


# ---- partial pooling -----------------------------------------------------------------------------

N_CLASSES, N_REPEATS = 100, 20
PER_CLASS = (2, 3, 5, 9, 12, 20, 30, 50, 100, 200)
METHODS = {
    "standard": StandardPredictor,
    "classwise": ClasswisePredictor,
    "pooled": PooledPredictor,
}


def pooling() -> dict[str, list[float]]:
    """Return the typical distance of a class from 90%, in points, by method and size.

    The scores of a class are normal with a mean of its own, so coverage is known exactly.
    """
    means = norm.ppf((np.arange(N_CLASSES) + 0.5) / N_CLASSES)
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for size in PER_CLASS:
        labels = np.repeat(np.arange(N_CLASSES), size)
        squares: dict[str, list[Any]] = {name: [] for name in METHODS}
        for seed in range(N_REPEATS):
            scores = means[labels] + np.random.default_rng(seed).normal(size=len(labels))
            for name, method in METHODS.items():
                fitted = method(random_state=seed).fit_scores(scores, labels, N_CLASSES)
                squares[name].append((norm.cdf(fitted.thresholds_ - means) - TARGET) ** 2)
        for name, values in squares.items():
            found[name].append(100 * float(np.sqrt(np.mean(values))))
    return found


def draw_pooling(found: dict[str, list[float]], ink: str) -> Any:
    """Draw one line per method."""
    figure, ax = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    labels = {
        "standard": ("one threshold for all classes", ORANGE, -1, (-4, 5)),
        "classwise": ("each class by itself", GRAY, 3, (6, 4)),
        "pooled": ("partial pooling", BLUE, 4, (-6, -14)),
    }
    for name, (title, color, place, offset) in labels.items():
        ax.plot(PER_CLASS, found[name], color=color, linewidth=2.2 if name == "pooled" else 1.4)
        point = (PER_CLASS[place], found[name][place])
        side = "left" if name == "classwise" else "right"
        ax.annotate(title, point, offset, color=color, textcoords="offset points", ha=side)
    examples_axis(ax, PER_CLASS, "calibration examples of each class")
    ax.set(ylabel="typical distance from 90%, in points", ylim=0)
    return figure


# ---- TrueGap -------------------------------------------------------------------------------------

SPREAD = 0.08
PER_TEST = np.array([5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 100, 130, 160, 200])


def expected_cov_gap(spread: float) -> list[float]:
    """Return the expected CovGap, in points, of classes that are `spread` above or below 90%."""
    gaps = []
    for n in PER_TEST:
        covered = np.arange(n + 1)
        chances = [binom.pmf(covered, n, TARGET + sign * spread) for sign in (-1, 1)]
        gaps.append(100 * float(np.mean(chances, axis=0) @ np.abs(covered / n - TARGET)))
    return gaps


def draw_gaps(ink: str) -> Any:
    """Draw both measures of a perfect and of an uneven method."""
    figure, ax = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    for spread, style, place in ((SPREAD, "-", 2), (0.0, "--", 8)):
        name = f"every class {100 * spread:.0f} points off" if spread else "every class at 90%"
        gaps = expected_cov_gap(spread)
        ax.plot(PER_TEST, gaps, style, color=ORANGE)
        ax.plot(PER_TEST, np.full(len(PER_TEST), 100 * spread), style, color=BLUE)
        point = (PER_TEST[place], gaps[place])
        ax.annotate(f"CovGap, {name}", point, (4, 6), color=ORANGE, textcoords="offset points")
        point = (PER_TEST[8], 100 * spread)
        ax.annotate(f"TrueGap, {name}", point, (4, -14), color=BLUE, textcoords="offset points")
    examples_axis(ax, PER_TEST, "test examples of each class")
    ax.set(ylabel="points", ylim=(-1.2, None))
    return figure


# ---- cost ----------------------------------------------------------------------------------------


def cost_of_a_class(name: str = "txt") -> tuple[Any, Any, Any]:
    """Return coverage of a file type, the share of sets with it, and the penalty for misses.

    They are listed by threshold: one for each file of the type, in the order of its score.
    """
    rows, labels, names, _ = load_filetypes()
    index = list(names).index(name)
    scores = 1 - rows[:, index].astype(np.float64)
    own = np.sort(scores[labels == index])
    share = np.searchsorted(np.sort(scores), own, side="right") / len(scores)
    coverage = np.arange(1, len(own) + 1) / len(own)
    excess = np.maximum(share - share[:, None], 0).mean(axis=1)
    return 100 * coverage, 100 * share, 100 * excess / (1 - TARGET)


def draw_cost(coverage: Any, share: Any, penalty: Any, ink: str) -> Any:
    """Draw both parts of the cost, and their sum."""
    figure, ax = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    lines = {
        "labels in sets": (share, GRAY, 0.6, (0, 9)),
        "penalty for misses": (penalty, ORANGE, 0.51, (4, -48)),
        "cost": (share + penalty, BLUE, 0.75, (0, 6)),
    }
    for title, (values, color, place, offset) in lines.items():
        ax.plot(coverage, values, color=color, linewidth=2.2 if title == "cost" else 1.4)
        point = np.searchsorted(coverage, 100 * place)
        ax.annotate(
            title, (coverage[point], values[point]), offset, color=color, textcoords="offset points"
        )
    ax.axvline(100 * TARGET, color=ink, linewidth=0.8, linestyle="--")
    ax.set(xlabel="coverage of the class, %", ylabel="labels per 100 sets", xlim=(50, 100.5))
    ax.set_ylim(0, 2 * (share + penalty)[coverage >= 50].min())
    return figure


# ---- e-values ------------------------------------------------------------------------------------

STEP, BEFORE, AFTER = 5, 200, 200


def evidence() -> tuple[Any, Any]:
    """Return the number of labels and the e-value of a class whose coverage falls to 70%."""
    rows = np.array([[0.9, 0.1], [0.1, 0.9]])  # the second one misses a label of class 0
    predictor = StandardPredictor(alpha=0.1).fit(np.repeat(rows, 50, axis=0), [0] * 50 + [1] * 50)
    monitor = CoverageMonitor(predictor)
    rng = np.random.default_rng(3)
    values = [1.0]
    for start in range(0, BEFORE + AFTER, STEP):
        missed = rng.random(STEP) > (0.92 if start < BEFORE else 0.7)
        monitor.update(rows[missed.astype(int)], np.zeros(STEP, dtype=int))
        values.append(float(monitor.snapshot().e_values[0]))
    return np.arange(0, BEFORE + AFTER + 1, STEP), np.array(values)


def draw_evidence(labels: Any, values: Any, ink: str) -> Any:
    """Draw the e-value with the levels of an alarm."""
    figure, ax = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    ax.plot(labels, values, color=BLUE)
    ax.axvline(BEFORE, color=GRAY, linewidth=0.8)
    ax.annotate("coverage falls to 70%", (BEFORE, 0.12), (4, 0), textcoords="offset points")
    ax.annotate("coverage 92%", (BEFORE, 0.12), (-4, 0), textcoords="offset points", ha="right")
    for level, title in ((20, "alarm, one class"), (10_000, "alarm, first of 500 classes")):
        ax.axhline(level, color=ORANGE, linewidth=0.8, linestyle="--")
        ax.annotate(title, (0, level), (0, 3), color=ORANGE, textcoords="offset points")
    ax.set(yscale="log", xlabel="labels of the class", ylabel="e-value", ylim=(0.07, None))
    return figure


def main() -> None:
    """Compute once, draw both themes."""
    warnings.simplefilter("ignore")
    distances = pooling()
    write_pictures("pooling", lambda ink: draw_pooling(distances, ink))
    write_pictures("gaps", draw_gaps)
    parts = cost_of_a_class()
    write_pictures("cost", lambda ink: draw_cost(*parts, ink))
    stream = evidence()
    write_pictures("evalues", lambda ink: draw_evidence(*stream, ink))


if __name__ == "__main__":
    main()
