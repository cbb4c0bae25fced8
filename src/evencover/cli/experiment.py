"""``evencover experiment``: run the paper's study, and show its tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from evencover.cli.console import note, watch
from evencover.cli.options import Dask, FolderOutput, Force, Switch, executor
from evencover.cli.outputs import Writes
from evencover.errors import InputError
from evencover.output.atomic import atomic_path, check_output

experiment = App(
    name="experiment",
    help="Run the paper's study on its data or yours.",
    help_format="plaintext",
)

Format = Literal["markdown", "latex", "csv"]
EXTENSIONS = {"markdown": ".md", "latex": ".tex", "csv": ".csv"}
ResultsFolder = Annotated[Path, Parameter(help="Folder written by 'experiment run'.")]
Figures = Annotated[FolderOutput, Parameter(help="Folder for the figures.")]
Style = Annotated[str, Parameter(name="--format", help="Format: png, svg or pdf.")]


@experiment.command
def run(grid: str, /, *, output: FolderOutput, dask: Dask = None) -> None:
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

    with executor(dask) as workers:
        results = run_grid(Grid.from_toml(grid), output, watch=watch, note=note, executor=workers)
    note(
        f"{len(results.records)} rows in {output / 'results.csv'}; "
        f"see 'evencover experiment table {output}'"
    )


@experiment.command
def table(
    results: ResultsFolder,
    /,
    *,
    style: Annotated[Format, Parameter(name="--format")] = "markdown",
    n_avg: str | None = None,
    metrics: str | None = None,
    exact: Switch = False,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"]), Writes()] = None,
    force: Force = False,
) -> None:
    """Show the paper's table of a study next to the published numbers.

    The metrics are {study_metrics}.

    Parameters
    ----------
    style
        Format of the table.
    n_avg
        Calibration sizes, separated by commas; all by default.
    metrics
        Metrics, separated by commas; by default the first two.
    exact
        Show the randomized variants.
    output
        Write to this file instead of the terminal.
    """
    from evencover.experiments.results import Results
    from evencover.experiments.table import make_table

    if output is not None:
        check_output(output, force=force, extensions=(EXTENSIONS[style],))
    study = Results.load(results)
    sizes = None if n_avg is None else [_size(text) for text in n_avg.split(",")]
    names = None if metrics is None else metrics.split(",")
    text = make_table(study, style, n_avg=sizes, metrics=names, exact=exact)
    if output is None:
        print(text)
        return
    with atomic_path(output) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


@experiment.command
def figures(
    results: ResultsFolder, /, *, output: Figures, style: Style = "png", force: Force = False
) -> None:
    """Draw the metrics of a study against the calibration size.

    If the grid varies gamma and M of CLUSTERED, also draw heat maps of CovGap.
    """
    from evencover.experiments.figures import write_figures
    from evencover.experiments.results import Results

    for path in write_figures(Results.load(results), output, style, force=force):
        print(path)


def _size(text: str) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"--n-avg must be integers, separated by commas. Got {text!r}.")
    return int(text)
