"""``evencover evaluate`` and ``report``: measure coverage and set sizes on held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evencover.cli import options
from evencover.cli.console import print_text
from evencover.data.location import as_location
from evencover.errors import printable
from evencover.output.atomic import check_output, write_csv


def evaluate(
    model: options.ModelFile,
    data: options.TestData,
    /,
    *,
    alpha: options.OtherAlpha = None,
    show_all: options.All = False,
    as_json: options.Json = False,
    csv: Path | None = None,
    escape_formulas: options.EscapeFormulas = False,
    force: options.Force = False,
    dask: options.Dask = None,
    read: options.Input = options.READ,
) -> None:
    """Measure overall and per-class coverage and set size.

    Labels that are not among the model's classes count as misses.

    Parameters
    ----------
    csv
        Also write one row per class to this file.
    """
    if csv is not None:
        check_output(csv, [model, data, *read.files], force=force)
    predictor = options.with_alpha(options.load_model(model, data), alpha)
    source = read.open(data, "evaluating", predictor)
    with options.executor(dask) as workers:
        measured = predictor.evaluate(source, executor=workers)
    if csv is not None:
        columns = measured.class_columns()
        rows = zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True)
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        write_csv(csv, records, escape_formulas=escape_formulas)
    if as_json:
        options.print_json(measured.to_dict())
        return
    from evencover.report.verdict import headline

    lines = measured.lines(everything=show_all)
    heading = " ".join(filter(None, [headline(predictor, measured), measured.large_sets]))
    print_text("\n".join([heading, "", *lines, ""]))
    if not show_all:
        print_text("More numbers: --all; one row per class: --csv FILE.")


def report(
    model: options.ModelFile,
    data: options.TestData,
    /,
    *,
    output: options.Output,
    taxonomy: Path | None = None,
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

    check_output(output, [model, data, taxonomy, *read.files], force=force, extensions=options.PAGE)
    require_extra()
    predictor = options.load_model(model, data)
    source = read.open(data, "reporting", predictor)
    title = f"Coverage of {printable(as_location(data).name)}"
    with options.executor(dask) as workers:
        how: Any = {"executor": workers, "title": title, "force": force, "taxonomy": taxonomy}
        write_report(predictor, output, source, **how)
    print(f"{output}: open it in a browser")
