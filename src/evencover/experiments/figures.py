"""Draw a study: metrics by calibration size, heat maps, and undercovered classes."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from evencover.arrays import FloatArray
from evencover.errors import InputError
from evencover.evaluation.metrics import find_metric, shown_in
from evencover.experiments.results import Results, coverage_of, method_title
from evencover.output.atomic import atomic_path
from evencover.output.writers import make_folder
from evencover.plotting import BLUE, GRAY, ORANGE, new_axes
from evencover.validation import raise_unknown

# Okabe and Ito's colors, fixed for the paper's methods.
GREEN, PURPLE, SKY, YELLOW = "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
LOOKS = {"standard": (BLUE, "s"), "classwise": (ORANGE, "^"), "clustered": (GREEN, "o")}
OTHER_LOOKS = [(PURPLE, "D"), (SKY, "v"), (YELLOW, "P"), ("#000000", "X"), (GRAY, "*")]
EXTENSIONS = ("png", "svg", "pdf")
N_CLASSES_SHOWN = 12


def write_figures(results: Results, folder: str | Path, extension: str = "png") -> list[Path]:
    """Draw all figures of a study except heat maps; return their paths."""
    figures: dict[str, Any] = {}
    for dataset in dict.fromkeys(row["dataset"] for row in results.records):
        for exact in (False, True):
            name = f"{dataset}-randomized" if exact else dataset
            figures[name] = draw_curves(results, dataset, exact=exact)
        figures[f"{dataset}-classes"] = draw_classes(results, dataset)
    return _write(figures, folder, extension)


def write_heatmaps(
    results: Results, folder: str | Path, extension: str = "png", metric: str = "covgap"
) -> list[Path]:
    """Draw one heat map per data set and score; return their paths."""
    pairs = dict.fromkeys((row["dataset"], row["score"]) for row in results.records)
    figures = {
        f"{dataset}-{score}-{metric}-heatmap": draw_heatmap(results, dataset, score, metric)
        for dataset, score in pairs
    }
    return _write(figures, folder, extension)


def draw_curves(results: Results, dataset: str, *, exact: bool = False) -> Any:
    """Draw the metrics of a study against n_avg for every score, with bands of 1.96 SE.

    Returns a matplotlib figure, or None if the study has no such variants.
    """
    rows = [r for r in results.summary() if r["dataset"] == dataset and r["exact"] == exact]
    rows = [row for row in rows if not _is_tuned(row)]
    if not rows:
        return None
    scores = list(dict.fromkeys(row["score"] for row in rows))
    methods, others = dict.fromkeys(map(method_title, rows)), cycle(OTHER_LOOKS)
    looks = {name: LOOKS.get(name.lower()) or next(others) for name in methods}
    metrics = shown_in("study")
    size = (3.1 * len(scores) + 0.9, 2.35 * len(metrics) + 0.9)
    figure, grid = _new_figure(len(metrics), len(scores), size, sharex=True)
    for i, metric in enumerate(metrics):
        for j, score in enumerate(scores):
            ax = grid[i][j]
            for method, (color, marker) in looks.items():
                own = [row for row in rows if row["score"] == score and method_title(row) == method]
                n_avg = [row["n_avg"] for row in own]
                mean = np.array([row[metric.name] for row in own])
                error = 1.96 * np.array([row[f"{metric.name}_se"] or 0.0 for row in own])
                low = mean - error
                if metric.unit == "classes":
                    low = np.maximum(low, 1e-3 * mean)  # avoids 0 on a log scale
                curve = {"marker": marker, "markersize": 4, "linewidth": 1.4, "label": method}
                ax.plot(n_avg, mean, color=color, **curve)
                ax.fill_between(n_avg, low, mean + error, color=color, alpha=0.2, linewidth=0)
            if metric.name == "covgap":
                floor = {r["n_avg"]: r["covgap_noise_floor"] for r in rows if r["score"] == score}
                line = {"color": GRAY, "linestyle": "--", "linewidth": 1}
                ax.plot(*np.array(sorted(floor.items())).T, **line, label="noise floor of CovGap")
            if metric.unit == "classes":
                _use_log_scale(ax)
            else:
                ax.set_ylim(bottom=0)
            ax.grid(True, color="#E5E5E5", linewidth=0.7)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
            ax.set(title="" if i else score, ylabel="" if j else metric.title)
            if i == len(metrics) - 1:
                ax.set_xlabel("calibration rows per class")
    handles, labels = grid[0][0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": min(len(labels), 5)}
    figure.legend(handles, labels, frameon=False, **place)
    kind = ", randomized for exact coverage" if exact else ""
    figure.suptitle(f"{_title(rows[0])}{kind} (mean ± 1.96 SE, alpha = {rows[0]['alpha']:g})")
    return figure


def _use_log_scale(ax: Any) -> None:
    from matplotlib.ticker import LogLocator, ScalarFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.yaxis.set_minor_locator(LogLocator(subs=()))


def draw_heatmap(results: Results, dataset: str, score: str, metric: str = "covgap") -> Any:
    """Draw a metric of CLUSTERED for every gamma and M, one panel per n_avg."""
    shown = find_metric(metric, "study")
    rows = [
        row
        for row in results.summary()
        if row["dataset"] == dataset and row["score"] == score and _is_tuned(row)
    ]
    if not rows:
        raise InputError(
            f"The results for {dataset} have no gamma x M grid to draw; run a grid with the keys "
            "'gamma' and 'n_clusters', such as 'heatmap'."
        )
    rows = [row for row in rows if not row["exact"]] or rows
    sizes = sorted({row["n_avg"] for row in rows})
    gammas, numbers = sorted({row["gamma"] for row in rows}), sorted({row["M"] for row in rows})
    panels = np.full((len(sizes), len(gammas), len(numbers)), np.nan)
    for row in rows:
        place = sizes.index(row["n_avg"]), gammas.index(row["gamma"]), numbers.index(row["M"])
        panels[place] = row[metric]
    width = 0.48 * len(numbers) + 0.7
    size = (width * len(sizes) + 1.2, 0.42 * len(gammas) + 1.5)
    figure, grid = _new_figure(1, len(sizes), size, sharey=True)
    from matplotlib.patches import Rectangle

    low, high = np.nanmin(panels), np.nanmax(panels)
    for ax, n, panel in zip(grid[0], sizes, panels, strict=True):
        shades = {"cmap": "viridis_r", "vmin": low, "vmax": high}
        image = ax.imshow(panel, origin="lower", aspect="auto", **shades)
        for (i, j), value in np.ndenumerate(panel):
            if np.isfinite(value):
                text = f"{value:.{2 if shown.unit == 'share' else 1}f}"
                color = "white" if value > (low + high) / 2 else "black"
                ax.text(j, i, text, ha="center", va="center", color=color, fontsize=7)
        loss = shown.loss(panel, rows[0]["alpha"])
        i, j = np.unravel_index(np.nanargmin(loss), loss.shape)
        frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2)
        ax.add_patch(frame)
        ax.set_xticks(range(len(numbers)), [f"{number:g}" for number in numbers])
        ax.set_yticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
        ax.set(title=f"n_avg = {n}", xlabel="clusters M")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    grid[0][0].set_ylabel("share for clustering γ")
    figure.colorbar(image, ax=grid[0], label=shown.title, pad=0.01)
    method = rows[0]["method"].upper()
    figure.suptitle(f"{method} on {_title(rows[0])}, {score}: {shown.title} (framed: best)")
    return figure


def draw_classes(results: Results, dataset: str, method: str = "standard") -> Any:
    """Draw the most under- and overcovered classes of a method, for every score.

    Coverage is over all repetitions at the largest n_avg. The lower panel shows its distribution
    over all classes. Returns a figure, or None if the study lacks the method.
    """
    rows = [
        row
        for row in results.classes
        if (row["dataset"], row["method"], row["exact"]) == (dataset, method, False)
    ]
    if not rows:
        return None
    n_avg = max(row["n_avg"] for row in rows)
    rows = [row for row in rows if row["n_avg"] == n_avg]
    target = 1 - results.records[0]["alpha"]
    names = results.class_names.get(dataset)
    size = (3.6 * len(rows) + 0.6, 0.2 * 2 * N_CLASSES_SHOWN + 3.2)
    figure, grid = _new_figure(2, len(rows), size, height_ratios=[2.6, 1])
    for j, row in enumerate(rows):
        coverage = coverage_of(row)
        _draw_extremes(grid[0][j], coverage, target, names, row["score"])
        _draw_spread(grid[1][j], coverage, target)
    grid[1][0].set_ylabel("classes")
    figure.suptitle(
        f"{_title(rows[0])}: lowest and highest class coverage of {method.upper()} "
        f"(n_avg = {n_avg})"
    )
    return figure


def _draw_extremes(
    ax: Any, coverage: FloatArray, target: float, names: list[str] | None, title: str
) -> None:
    order = np.argsort(coverage, kind="stable")
    order = order[np.isfinite(coverage[order])]
    shown = min(N_CLASSES_SHOWN, len(order) // 2)
    chosen = np.concatenate([order[:shown], order[len(order) - shown :]])
    place = np.concatenate([np.arange(shown), np.arange(shown) + shown + 1])[::-1]
    below = coverage[chosen] < target
    for mask, color in ((below, ORANGE), (~below, BLUE)):
        ax.hlines(place[mask], target, coverage[chosen][mask], color=color, linewidth=1.6)
        ax.plot(coverage[chosen][mask], place[mask], "o", color=color, markersize=4.5)
    labels = [f"class {c}" if names is None else names[c] for c in chosen.tolist()]
    labels = [name if len(name) <= 22 else f"{name[:21]}…" for name in labels]
    ax.set_yticks(place, labels, fontsize=7)
    ax.axvline(target, color=GRAY, linestyle="--", linewidth=1)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set(title=title, xlim=(min(0.5, float(coverage[chosen].min()) - 0.03), 1.01))


def _draw_spread(ax: Any, coverage: FloatArray, target: float) -> None:
    known = coverage[np.isfinite(coverage)]
    low, step = min(0.5, float(known.min()) - 0.03), 0.0125
    first, last = np.floor((low - target) / step), np.ceil((1.0 - target) / step)
    edges = target + step * np.arange(first, last + 1)
    counts, _ = np.histogram(known, edges)
    middle = (edges[1:] + edges[:-1]) / 2
    colors = [ORANGE if center < target else BLUE for center in middle]
    ax.bar(middle, counts, width=0.9 * np.diff(edges), color=colors)
    ax.axvline(target, color=GRAY, linestyle="--", linewidth=1)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="coverage of the class", xlim=(low, 1.01))


def _title(row: dict[str, Any]) -> str:
    return row["dataset"] + (", simulated" if row["simulated"] else "")


def _is_tuned(row: dict[str, Any]) -> bool:
    """Return whether the row belongs to a gamma x M grid."""
    return "gamma=" in row["parameters"] and "n_clusters=" in row["parameters"]


def _new_figure(
    n_rows: int, n_columns: int, size: tuple[float, float], **options: Any
) -> tuple[Any, Any]:
    """Create a figure outside pyplot, which would keep it in memory."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        new_axes(None)  # raises with install instructions
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def _write(figures: dict[str, Any], folder: str | Path, extension: str) -> list[Path]:
    if extension not in EXTENSIONS:
        raise_unknown("format", extension, EXTENSIONS)
    folder = Path(folder)
    make_folder(folder, parents=True)
    paths = []
    for name, figure in figures.items():
        if figure is not None:
            file_name = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
            paths.append(folder / f"{file_name}.{extension}")
            with atomic_path(paths[-1]) as temporary:
                figure.savefig(temporary, format=extension, dpi=110)
    return paths
