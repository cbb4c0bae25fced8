"""``evencover report``: write an HTML coverage report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from evencover.cli import options
from evencover.cli.outputs import Writes
from evencover.data.location import as_location
from evencover.errors import printable


def run(
    model: options.ModelFile,
    data: options.TestData,
    /,
    *,
    output: Annotated[options.Output, Writes((".html", ".htm"))],
    taxonomy: Path | None = None,
    top: options.Top = None,
    force: options.Force = False,
    dask: options.Dask = None,
    read: options.Input = options.READ,
) -> None:
    """Write an HTML coverage report.

    The report is one file that loads nothing from the network.

    Parameters
    ----------
    output
        Report to write (.html).
    taxonomy
        Also summarize example sets by this hierarchy (.csv, .tsv).
    """
    from evencover.report import require_extra, write_report

    require_extra()
    predictor = options.load_model(model, data)
    source = read.open(data, "reporting", predictor)
    title = f"Coverage of {printable(as_location(data).name)}"
    with options.executor(dask) as workers:
        write_report(
            predictor,
            output,
            source,
            executor=workers,
            title=title,
            force=force,
            taxonomy=taxonomy,
            top=top,
        )
    print(f"{output}: open it in a browser")
