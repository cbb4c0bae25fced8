"""``evencover report``: write the page that shows which classes are below the aim."""

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
    force: options.Force = False,
    dask: options.Dask = None,
    read: options.Input = options.READ,
) -> None:
    """Write a page that shows which classes are below the aim, and why: one file, no network.

    Parameters
    ----------
    output
        Where to write the page (.html).
    title
        What the page is called; by default after the data file.
    taxonomy
        Say the sets that are shown in the words of a tree of classes, too: a table (.csv, .tsv)
        whose lines name a class and its groups, narrow to wide.
    """
    from evencover.report import require_extra, write_report

    require_extra()
    output = reject_existing(output, force=force, extensions=(".html", ".htm"))
    predictor = options.load_model(model, data)
    source = read.open(data, "reporting")
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
        )
    print(f"{output}: open it in a browser")
