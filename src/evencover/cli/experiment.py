"""``evencover experiment``: run the paper's study, and show its tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from evencover.cli.console import WorkBar, note
from evencover.cli.options import Dask, Force, Json, Output, Switch, executor, print_json
from evencover.errors import InputError
from evencover.output.atomic import atomic_path, reject_existing

experiment = App(
    name="experiment",
    help="Run the paper's study on its data or yours.",
    help_format="plaintext",
)

Format = Literal["text", "markdown", "latex", "html"]
EXTENSIONS = {"text": ".txt", "markdown": ".md", "latex": ".tex", "html": ".html"}
ResultsFolder = Annotated[Path, Parameter(help="Folder written by 'experiment run'.")]
Figures = Annotated[
    Path, Parameter(name=["--output", "-o"], help="Folder for the figures; replaces them.")
]
Style = Annotated[str, Parameter(name="--format", help="Format: png, svg or pdf.")]


@experiment.command
def run(grid: str, /, *, output: Output, dask: Dask = None) -> None:
    """Run a grid of data sets, scores, methods and calibration sizes.

    After an interruption, run the same command again to complete the results.

    Parameters
    ----------
    grid
        TOML file, or a bundled grid: paper, small, languages or heatmap.
    output
        Folder for the results.
    """
    from evencover.experiments.grid import Grid
    from evencover.experiments.runner import run as run_grid

    with WorkBar("running") as bar, executor(dask) as workers:
        results = run_grid(Grid.from_toml(grid), output, bar=bar, note=note, executor=workers)
    note(
        f"{len(results.records)} rows in {output / 'results.csv'}; "
        f"see 'evencover experiment table {output}'"
    )


@experiment.command
def table(
    results: ResultsFolder,
    /,
    *,
    style: Annotated[Format, Parameter(name="--format")] = "text",
    n_avg: str | None = None,
    metrics: str | None = None,
    exact: Switch = False,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show the paper's table of a study next to the published numbers.

    The metrics are {study_metrics}.

    Parameters
    ----------
    style
        Format of the table.
    n_avg
        Calibration sizes, separated by commas; by default the paper's.
    metrics
        Metrics, separated by commas; by default the first two.
    exact
        Show the randomized variants.
    output
        Write to this file instead of the terminal.
    """
    from evencover.experiments.results import Results, make_table

    if output is not None:
        reject_existing(output, force=force, extensions=(EXTENSIONS[style],))
    found = Results.load(results)
    if as_json:
        print_json(found.summary())
        return
    sizes = None if n_avg is None else [_size(text) for text in n_avg.split(",")]
    names = None if metrics is None else metrics.split(",")
    text = make_table(found, n_avg=sizes, metrics=names, exact=exact).render(style)
    if output is None:
        print(text)
        return
    with atomic_path(output) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


@experiment.command
def figures(results: ResultsFolder, /, *, output: Figures, style: Style = "png") -> None:
    """Draw the metrics of a study against the calibration size."""
    from evencover.experiments.figures import write_figures
    from evencover.experiments.results import Results

    for path in write_figures(Results.load(results), output, style):
        print(path)


@experiment.command
def heatmap(
    results: ResultsFolder, /, *, output: Figures, style: Style = "png", metric: str | None = None
) -> None:
    """Draw a metric of CLUSTERED for every gamma and M of a grid.

    The metrics are {study_metrics}.

    Parameters
    ----------
    metric
        Metric to draw; by default the first.
    """
    from evencover.evaluation.metrics import shown_in
    from evencover.experiments.figures import write_heatmaps
    from evencover.experiments.results import Results

    chosen = shown_in("study")[0].name if metric is None else metric
    for path in write_heatmaps(Results.load(results), output, style, chosen):
        print(path)


def _size(text: str) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"--n-avg must be integers, separated by commas. Got {text!r}.")
    return int(text)
