"""``evencover report``: write an HTML coverage report."""

from __future__ import annotations

from pathlib import Path

from evencover.cli import options
from evencover.data.location import as_location
from evencover.errors import printable
from evencover.output.atomic import reject_existing


def run(
    model: options.ModelFile,
    data: options.TestData,
    /,
    *,
    output: options.Output,
    title: str | None = None,
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
    title
        Title of the report; by default from the data file's name.
    taxonomy
        Also summarize example sets by this hierarchy (.csv, .tsv).
    """
    from evencover.report import require_extra, write_report

    require_extra()
    output = reject_existing(output, force=force, extensions=(".html", ".htm"))
    predictor = options.load_model(model, data)
    source = read.open(data, "reporting", allow_unknown=True)
    title = f"Coverage of {printable(as_location(data).name)}" if title is None else title
    with options.executor(dask) as workers:
        write_report(
            predictor,
            output,
            source,
            groups=read.groups(source),
            executor=workers,
            title=title,
            force=force,
            taxonomy=taxonomy,
            top=top,
        )
    print(f"{output}: open it in a browser")
