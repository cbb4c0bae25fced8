"""``evencover experiment``: run the paper's study, and show its tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from evencover.cli.console import note, watch
from evencover.cli.options import Dask, Force, Output, Switch, executor
from evencover.output.atomic import reject_inputs

experiment = App(
    name="experiment", help="Run the paper's study on its data or yours.", help_format="plaintext"
)

Format = Literal["markdown", "latex", "csv"]
ResultsFolder = Annotated[Path, Parameter(help="Folder written by 'experiment run'.")]
Figures = Annotated[Output, Parameter(help="Folder for the figures.")]
Style = Annotated[str, Parameter(name="--format", help="Format: png, svg or pdf.")]


@experiment.command
def run(grid: str, /, *, output: Output, force: Switch = False, dask: Dask = None) -> None:
    """Run a grid of data sets, scores, methods and calibration sizes.

    After an interruption, run the same command again to complete the results.

    Parameters
    ----------
    grid
        TOML file, or a bundled grid: paper, small, languages or heatmap.
    output
        Folder for the results.
    force
        Replace the results of another grid.
    """
    from evencover.experiments.study import Grid, shipped
    from evencover.experiments.study import run as run_grid

    if grid not in shipped():
        reject_inputs(output, [grid])
    study = Grid.from_toml(grid)
    with executor(dask) as workers:
        results = run_grid(study, output, force=force, watch=watch, note=note, executor=workers)
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
    exact: Switch = False,
) -> None:
    """Show the paper's table of a study next to the published numbers.

    Parameters
    ----------
    style
        Format of the table.
    exact
        Show the randomized variants.
    """
    from evencover.experiments.study import Results
    from evencover.experiments.table import make_table

    print(make_table(Results.load(results), style, exact=exact))


@experiment.command
def figures(
    results: ResultsFolder, /, *, output: Figures, style: Style = "png", force: Force = False
) -> None:
    """Draw the metrics of a study against the calibration size.

    If the grid varies gamma and M of CLUSTERED, also draw heat maps of CovGap.
    """
    from evencover.experiments.figures import write_figures
    from evencover.experiments.study import Results

    reject_inputs(output, [results])
    for path in write_figures(Results.load(results), output, style, force=force):
        print(path)
