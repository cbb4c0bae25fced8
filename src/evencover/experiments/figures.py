"""Draw a study: metrics by calibration size, heat maps, and undercovered classes."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from evencover.evaluation.metrics import Metric, shown_in
from evencover.experiments.study import Results, coverage_of
from evencover.output.atomic import atomic_path, check_output
from evencover.output.folders import make_folder
from evencover.plotting import BLUE, GRAY, ORANGE, new_axes
from evencover.validation import raise_unknown

# Okabe and Ito's colors, fixed for the paper's methods.
GREEN, PURPLE, SKY, YELLOW = "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
LOOKS = {"standard": (BLUE, "s"), "classwise": (ORANGE, "^"), "clustered": (GREEN, "o")}
OTHER_LOOKS = [(PURPLE, "D"), (SKY, "v"), (YELLOW, "P"), ("#000000", "X"), (GRAY, "*")]
EXTENSIONS = ("png", "svg", "pdf")
N_CLASSES_SHOWN = 12
LEGEND_COLUMN = 2.2  # inches


def write_figures(
    results: Results, folder: str | Path, extension: str = "png", *, force: bool = False
) -> list[Path]:
    """Draw all figures of a study; return their paths.

    There are heat maps of CovGap if the grid varies gamma and M of CLUSTERED.
    """
    if extension not in EXTENSIONS:
        raise_unknown("format", extension, EXTENSIONS)
    figures: dict[str, Any] = {}
    for dataset in dict.fromkeys(row["dataset"] for row in results.records):
        figures[dataset] = draw_curves(results, dataset)
        figures[f"{dataset}-randomized"] = draw_curves(results, dataset, exact=True)
        figures[f"{dataset}-classes"] = draw_classes(results, dataset)
    tuned = [row for row in results.records if _is_tuned(row)]
    for dataset, score in dict.fromkeys((row["dataset"], row["score"]) for row in tuned):
        figures[f"{dataset}-{score}-covgap-heatmap"] = draw_heatmap(results, dataset, score)
    folder = Path(folder)
    make_folder(folder, parents=True)
    drawn = {}
    for name, figure in figures.items():
        if figure is not None:
            file_name = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
            path = folder / f"{file_name}.{extension}"
            drawn[check_output(path, force=force)] = figure
    for path, figure in drawn.items():
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=extension, dpi=110)
    return list(drawn)


def draw_curves(results: Results, dataset: str, *, exact: bool = False) -> Any:
    """Draw the metrics of a study against n_avg for every score, with bands of 1.96 SE.

    Returns a matplotlib figure, or None if the study has no such variants.
    """
    rows = [r for r in results.summary() if r["dataset"] == dataset and r["exact"] == exact]
    rows = [row for row in rows if not _is_tuned(row)]
    if not rows:
        return None
    scores = list(dict.fromkeys(row["score"] for row in rows))
    others, metrics = cycle(OTHER_LOOKS), shown_in("study")
    titles = dict.fromkeys(row["title"] for row in rows)
    looks = {title: LOOKS.get(title.lower()) or next(others) for title in titles}
    size = (3.1 * len(scores) + 0.9, 2.35 * len(metrics) + 0.9)
    figure, grid = _new_figure(len(metrics), len(scores), size, sharex=True)
    for axes, metric in zip(grid, metrics, strict=True):
        means = [row[metric.name] for row in rows]
        is_log = metric.unit == "classes" and max(means) > 10 * min(means)
        axes[0].set_ylabel(f"{metric.title} (log scale)" if is_log else metric.title)
        for ax, score in zip(axes, scores, strict=True):
            of_score = [row for row in rows if row["score"] == score]
            _draw_metric(ax, of_score, metric, looks, is_log=is_log)
    for ax, score in zip(grid[0], scores, strict=True):
        ax.set_title(score)
    for ax in grid[-1]:
        ax.set_xlabel("calibration examples per class")
    handles, labels = grid[0][0].get_legend_handles_labels()
    columns = max(1, min(len(labels), int(size[0] / LEGEND_COLUMN)))
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=columns)
    kind = ", randomized for exact coverage" if exact else ""
    level = f"alpha = {rows[0]['alpha']:g}"
    figure.suptitle(f"{_title(rows[0])}{kind} (mean ± 1.96 SE, {level})")
    return figure


def _draw_metric(
    ax: Any,
    rows: list[dict[str, Any]],
    metric: Metric,
    looks: dict[str, tuple[str, str]],
    *,
    is_log: bool,
) -> None:
    for title, (color, marker) in looks.items():
        curve = [row for row in rows if row["title"] == title]
        n_avg = [row["n_avg"] for row in curve]
        mean = np.array([row[metric.name] for row in curve])
        error = 1.96 * np.array([row[f"{metric.name}_se"] or 0.0 for row in curve])
        low = mean - error
        if is_log:
            low = np.maximum(low, 1e-3 * mean)  # avoids 0 on a log scale
        style = {"marker": marker, "markersize": 4, "linewidth": 1.4, "label": title}
        ax.plot(n_avg, mean, color=color, **style)
        ax.fill_between(n_avg, low, mean + error, color=color, alpha=0.2, linewidth=0)
    if metric.name == "covgap":
        floor = sorted({row["n_avg"]: row["covgap_noise_floor"] for row in rows}.items())
        line = {"color": GRAY, "linestyle": "--", "linewidth": 1}
        ax.plot(*np.array(floor).T, **line, label="noise floor of CovGap")
    if is_log:
        from matplotlib.ticker import LogLocator, ScalarFormatter

        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.yaxis.set_minor_locator(LogLocator(subs=()))
    else:
        ax.set_ylim(bottom=0)
    ax.grid(True, color="#E5E5E5", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def draw_heatmap(results: Results, dataset: str, score: str) -> Any:
    """Draw the CovGap of CLUSTERED for every gamma and M, one panel per n_avg.

    A circle marks the paper's choice of gamma and M, unless it found no clusters: the mean over
    the splits of a run without these parameters.
    """
    from matplotlib.patches import Rectangle

    rows = [r for r in results.summary() if (r["dataset"], r["score"]) == (dataset, score)]
    chosen = {
        row["n_avg"]: (row["M"], row["gamma"])
        for row in rows
        if row["method"] == "clustered" and not row["parameters"] and not row["exact"] and row["M"]
    }
    rows = [row for row in rows if _is_tuned(row) and not row["exact"]]
    sizes = sorted({row["n_avg"] for row in rows})
    gammas, numbers = sorted({row["gamma"] for row in rows}), sorted({row["M"] for row in rows})
    panels = np.full((len(sizes), len(gammas), len(numbers)), np.nan)
    for row in rows:
        cell = sizes.index(row["n_avg"]), gammas.index(row["gamma"]), numbers.index(row["M"])
        panels[cell] = row["covgap"]
    width = (0.48 * len(numbers) + 0.7) * len(sizes) + 1.2
    figure, grid = _new_figure(1, len(sizes), (width, 0.42 * len(gammas) + 1.5), sharey=True)
    low, high = np.nanmin(panels), np.nanmax(panels)
    for ax, n, panel in zip(grid[0], sizes, panels, strict=True):
        shades = {"cmap": "viridis_r", "vmin": low, "vmax": high}
        image = ax.imshow(panel, origin="lower", aspect="auto", **shades)
        for (i, j), value in np.ndenumerate(panel):
            if np.isfinite(value):
                color = "white" if value > (low + high) / 2 else "black"
                ax.text(j, i, f"{value:.1f}", ha="center", va="center", color=color, fontsize=7)
        i, j = np.unravel_index(np.nanargmin(panel), panel.shape)
        frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2)
        ax.add_patch(frame)
        if n in chosen:
            grids = (numbers, gammas)
            center = [
                np.interp(value, known, range(len(known)))
                for value, known in zip(chosen[n], grids, strict=True)
            ]
            look = {"s": 420, "facecolors": "none", "edgecolors": "black", "linewidths": 1.5}
            ax.scatter(*center, **look, label="the paper's choice")
        ax.set_xticks(range(len(numbers)), [f"{number:g}" for number in numbers])
        ax.set_yticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
        ax.set(title=f"n_avg = {n}", xlabel="clusters M")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    grid[0][0].set_ylabel("share for clustering γ")
    figure.colorbar(image, ax=grid[0], label="CovGap", pad=0.01)
    what = f"{rows[0]['method'].upper()} on {_title(rows[0])}, {score}"
    figure.suptitle(f"{what}: CovGap (framed: best, circled: the paper's choice)")
    return figure


def draw_classes(results: Results, dataset: str, method: str = "standard") -> Any:
    """Draw the most under- and overcovered classes of a method, for every score.

    Coverage is over all repetitions at the largest n_avg. Returns a figure, or None if the study
    lacks the method.
    """
    wanted = (dataset, method, False)
    rows = [r for r in results.classes if (r["dataset"], r["method"], r["exact"]) == wanted]
    if not rows:
        return None
    n_avg, alpha = max(row["n_avg"] for row in rows), rows[0]["alpha"]
    rows = [row for row in rows if row["n_avg"] == n_avg]
    names, size = results.class_names.get(dataset), (3.6 * len(rows) + 0.6, 5.6)
    figure, grid = _new_figure(1, len(rows), size)
    for ax, row in zip(grid[0], rows, strict=True):
        coverage, target = coverage_of(row), 1 - alpha
        order = np.argsort(coverage, kind="stable")[: np.isfinite(coverage).sum()]
        n_shown = min(N_CLASSES_SHOWN, len(order) // 2)
        chosen = np.concatenate([order[:n_shown], order[len(order) - n_shown :]])
        heights = np.r_[:n_shown, n_shown + 1 : 2 * n_shown + 1][::-1]
        values = coverage[chosen]
        colors = [ORANGE if value < target else BLUE for value in values]
        ax.hlines(heights, target, values, colors=colors, linewidth=1.6)
        ax.scatter(values, heights, c=colors, s=20)
        labels = [f"class {c}" if names is None else names[c] for c in chosen.tolist()]
        labels = [name if len(name) <= 22 else f"{name[:21]}…" for name in labels]
        ax.set_yticks(heights, labels, fontsize=7)
        ax.axvline(target, color=GRAY, linestyle="--", linewidth=1)
        ax.tick_params(axis="y", length=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
        low = min(0.5, float(values.min()) - 0.03)
        ax.set(title=row["score"], xlabel="coverage of the class", xlim=(low, 1.01))
    figure.suptitle(
        f"{_title(rows[0])}: lowest and highest class coverage of {method.upper()} "
        f"(n_avg = {n_avg})"
    )
    return figure


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
