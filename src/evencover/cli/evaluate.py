"""``evencover evaluate``: measure coverage and set sizes on held-out data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evencover.cli import options
from evencover.cli.console import print_table, print_text
from evencover.output.atomic import write_csv

if TYPE_CHECKING:
    from evencover.evaluation.report import GroupCoverage


def run(
    model: options.ModelFile,
    data: options.TestData,
    /,
    *,
    alpha: options.OtherAlpha = None,
    top: options.Top = None,
    accept_accuracy: float | None = None,
    show_all: options.All = False,
    as_json: options.Json = False,
    csv: options.Table = None,
    force: options.Force = False,
    dask: options.Dask = None,
    read: options.Input = options.READ,
) -> None:
    """Measure overall and per-class coverage and set size.

    Labels that are not among the model's classes count as misses.

    Parameters
    ----------
    accept_accuracy
        Target accuracy of accepted predictions; by default 0.95 or the model's.
    csv
        Also write one row per class to this file.
    """
    predictor = options.with_alpha(options.load_model(model, data), alpha)
    source = read.open(data, "evaluating", predictor)
    with options.executor(dask) as workers:
        report = predictor.evaluate(
            source, executor=workers, top=top, accept_accuracy=accept_accuracy
        )
    if csv is not None:
        columns = report.class_columns()
        rows = zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True)
        write_csv(csv, [dict(zip(columns, row, strict=True)) for row in rows])
    if as_json:
        options.print_json(report.to_dict())
        return
    from evencover.report.verdict import headline

    print_text("\n".join([headline(predictor, report), "", *report.lines(everything=show_all)]))
    if not show_all:
        print_text("More numbers: --all; one row per class: --csv FILE.")
        return
    table = report.by_calibration_count()
    if report.cluster_of_class is not None:
        table += report.by_cluster()
    titles = ["group", "classes", "examples", "coverage", "mean over classes", "CovGap"]
    least = ["mean over classes", "classes", "CovGap"]
    print_table(titles, [_group_cells(group) for group in table], least=least)


def _group_cells(group: GroupCoverage) -> list[str]:
    numbers = [f"{group.coverage:.1%}", f"{group.mean_class_coverage:.1%}", f"{group.covgap:.1f}"]
    return [group.group, str(group.n_classes), str(group.n_rows), *numbers]
