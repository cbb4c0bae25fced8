"""``evencover evaluate``: measure coverage and set sizes on held-out rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evencover.cli import options
from evencover.cli.console import print_table, print_text

if TYPE_CHECKING:
    from evencover.evaluation.report import GroupCoverage


def run(
    model: options.ModelFile,
    data: options.TestData,
    /,
    *,
    as_json: options.Json = False,
    dask: options.Dask = None,
    read: options.Input = options.READ,
) -> None:
    """Measure coverage, of every class and on average, and set sizes on held-out rows."""
    predictor = options.load_model(model, data)
    source = read.open(data, "evaluating")
    with options.executor(dask) as workers:
        report = predictor.evaluate(source, groups=read.groups(source), executor=workers)
    if as_json:
        options.print_json(report.to_dict())
        return
    print_text(str(report))
    groups = report.by_calibration_count()
    if report.cluster_of_class is not None:
        groups += report.by_cluster()
    titles = ["classes", "how many", "test rows", "coverage", "mean of classes", "CovGap"]
    least = ["mean of classes", "how many", "CovGap"]
    print_table(titles, [_group_cells(group) for group in groups], least=least)


def _group_cells(group: GroupCoverage) -> list[str]:
    numbers = [f"{group.coverage:.3f}", f"{group.mean_class_coverage:.3f}", f"{group.covgap:.2f}"]
    return [group.group, str(group.n_classes), str(group.n_rows), *numbers]
