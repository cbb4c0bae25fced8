"""Run a study: the trials of `compare`, on every data set, score and calibration size of a grid.

A unit is one data set, one score, and as many methods as one pass takes. Each unit is one file,
written atomically, so an interrupted run continues with the missing units.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import evencover
from evencover.comparison.trials import Outcome, ScoredRows, Split, try_all
from evencover.data.source import Source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.report import Tally, or_none
from evencover.experiments.grid import DataSet, Grid, NamedScore, Setting
from evencover.experiments.results import Results, locked
from evencover.output.atomic import write_csv, write_record
from evencover.sizes import at_once

# Threshold vectors per pass: their ranks fit a cache, and an interruption loses little.
VECTORS_PER_UNIT = at_once(480, 5)


class Unit(NamedTuple):
    """The work of one pass over the rows."""

    name: str
    dataset: DataSet
    score: NamedScore
    settings: list[Setting]


def run(
    grid: Grid,
    output: str | Path | None = None,
    *,
    watch: Callable[[Source, str], Source] | None = None,
    note: Callable[[str], None] | None = None,
    executor: Any = None,
) -> Results:
    """Compute the missing results of a study, and return all of them.

    Parameters
    ----------
    grid
        The study.
    output
        Folder for the results; in memory by default. A partial folder of the same study is
        completed, one of another study rejected.
    watch, note
        Show the reading of a source with a title, and messages, to a person who waits.
    executor
        Where to read the rows: None for this process's threads, a `concurrent.futures` executor, or
        a `dask.distributed` client. Results are bit-identical.

    Examples
    --------
    >>> from evencover.experiments import Grid, run
    >>> grid = Grid(datasets=["languages"], scores=["softmax"], n_avg=[10], repetitions=2)
    >>> results = run(grid)
    >>> for row in results.summary():
    ...     print(row["method"], round(row["covgap"], 1), round(row["avg_size"], 1))
    standard 7.8 2.6
    classwise 8.3 161.9
    clustered 7.8 3.0
    """
    folder = None if output is None else Path(output)
    with locked(grid, folder) as parts:
        units = plan(grid)
        missing = [unit for unit in units if unit.name not in parts]
        n_done = len(units) - len(missing)
        if note is not None and n_done and missing:
            note(f"{n_done} of {len(units)} files exist; computing the rest")
        by_dataset = [
            (dataset, dataset.open_source(), list(group))  # open all first, to raise errors early
            for dataset, group in groupby(missing, key=lambda unit: unit.dataset)
        ]
        for dataset, source, group in by_dataset:
            rows = ScoredRows(
                source if watch is None else watch(source, dataset.name),
                [score.score for score in grid.scores],
                random_state=grid.seed,
                with_ranks=any("ranks" in setting.predictor.needs for setting in grid.settings),
                executor=executor,
            )
            splits = _splits(grid, dataset, rows)
            for unit in group:
                part = parts[unit.name] = _compute(grid, unit, rows, splits)
                if folder is not None:
                    write_record(folder / "parts" / f"{unit.name}.json", part, indent=None)
                n_done += 1
                if note is not None:
                    note(f"{dataset.name}, {unit.score.name}: file {n_done} of {len(units)}")
        results = Results(grid.title, [parts[unit.name] for unit in units], True)
        if not results.records:
            raise InputError(
                "The study has no results: every 'n_avg' takes all rows of its data set or more; "
                "use smaller ones."
            )
        if folder is not None:
            write_csv(folder / "results.csv", results.records)
        return results


def plan(grid: Grid) -> list[Unit]:
    """Split the study into units of work."""
    vectors = len(grid.n_avg) * grid.repetitions
    step = max(1, VECTORS_PER_UNIT // vectors)
    return [
        Unit(f"{d:02d}-{s:02d}-{first:04d}", dataset, score, grid.settings[first : first + step])
        for d, dataset in enumerate(grid.datasets)
        for s, score in enumerate(grid.scores)
        for first in range(0, len(grid.settings), step)
    ]


def _splits(grid: Grid, dataset: DataSet, rows: ScoredRows) -> list[Split]:
    """Draw the splits of all calibration sizes; warn about those that leave no test rows."""
    by_size = {n: grid.splits(rows, n) for n in grid.n_avg}
    too_large = [n for n, splits in by_size.items() if not splits]
    if too_large:
        warn_caller(
            f"{dataset.name} has {len(rows.labels)} rows of {rows.n_classes} classes: no test data "
            f"would be left for n_avg = {', '.join(map(str, too_large))}, which is skipped."
        )
    return [split for splits in by_size.values() for split in splits]


def _compute(grid: Grid, unit: Unit, rows: ScoredRows, splits: list[Split]) -> dict[str, Any]:
    """Compute the rows of the table, and counts by class summed over the repetitions."""
    predictors = [
        setting.predictor._with_params(
            score=unit.score.score,
            keep_top=bool(setting.predictor.keep_top),  # by default the paper's sets
        )
        for setting in unit.settings
    ]
    outcomes = try_all(rows, predictors, splits, grid.seed) if splits else []
    records, classes = [], []
    for n_avg, group in groupby(enumerate(splits), key=lambda item: item[1].size):
        numbers = [number for number, _ in group]
        for setting, tried in zip(unit.settings, outcomes, strict=True):
            cell = {
                "dataset": unit.dataset.name,
                "simulated": unit.dataset.simulated,
                "score": unit.score.name,
                "method": setting.name,
                "parameters": setting.parameters,
                "exact": setting.predictor.exact,
                "n_avg": n_avg,
            }
            total = Tally.zeros(rows.n_classes)
            for number in numbers:
                total = total + tried[number].tally
                repetition = {"repetition": splits[number].repetition}
                records.append(cell | repetition | _record(grid, tried[number]))
            alpha = records[-1]["alpha"]
            counts = {"rows": total.rows.tolist(), "covered": total.covered.tolist()}
            classes.append(cell | {"alpha": alpha} | counts)
    names = rows.source.class_names
    return {
        "records": records,
        "classes": classes,
        "class_names": {} if names is None else {unit.dataset.name: list(names)},
    }


def _record(grid: Grid, outcome: Outcome) -> dict[str, Any]:
    """Return the metrics of one trial."""
    report, learned = outcome.report, outcome.predictor._fitted_values()
    return {
        "alpha": report.alpha,
        # As given, or by the paper's rule; 0 if it fell back to STANDARD.
        "gamma": learned.get("gamma"),
        "M": learned.get("M"),
        "sampling": grid.sampling,
        "n_calibration": outcome.predictor.n_calibration_,
        "n_validation": report.n_rows,
        "n_classes": report.n_classes,
        "n_classes_evaluated": report.n_classes_evaluated,
        **{name: or_none(value) for name, value in report.metrics().items()},
        "size_median": report.size_quantiles["50"],
        "cost": outcome.cost,
        "seed": grid.seed,
        "version": evencover.__version__,
    }
