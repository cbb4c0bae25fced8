"""Run a study, the trials of `compare` over a grid, and keep its results in a folder.

A unit is one data set, one score, and as many methods as one pass takes. Each unit is one file,
written atomically, so an interrupted run continues with the missing units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evencover
from evencover.arrays import FloatArray
from evencover.comparison.trials import Outcome, ScoredRows, Split, try_all
from evencover.data.source import Source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.metrics import metric_names
from evencover.evaluation.report import or_none
from evencover.experiments.grid import DataSet, Grid, NamedScore, Setting
from evencover.output.atomic import (
    only_writer,
    read_record,
    remove_leftovers,
    write_csv,
    write_record,
)
from evencover.output.folders import make_folder, reject_other_files
from evencover.sizes import at_once

# Threshold vectors per pass: their ranks fit a cache, and an interruption loses little.
VECTORS_PER_UNIT = at_once(480, 5)
CELL = ("dataset", "simulated", "score", "method", "parameters", "exact", "n_avg", "alpha")

Part = dict[str, Any]  # the results of one unit of work


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
            keep_top=setting.predictor.keep_top is True,  # by default the paper's sets
        )
        for setting in unit.settings
    ]
    outcomes = try_all(rows, predictors, splits, grid.seed) if splits else [[] for _ in predictors]
    records, classes = [], []
    by_size = [
        (n_avg, list(group)) for n_avg, group in groupby(splits, key=lambda split: split.size)
    ]
    # By method, then by size: the order does not depend on how the methods are cut into units.
    for setting, tried in zip(unit.settings, outcomes, strict=True):
        remaining = iter(tried)
        for n_avg, of_size in by_size:
            cell = {
                "dataset": unit.dataset.name,
                "simulated": unit.dataset.simulated,
                "score": unit.score.name,
                "method": setting.name,
                "parameters": setting.parameters,
                "exact": setting.predictor.exact,
                "n_avg": n_avg,
            }
            n_rows, covered = np.zeros((2, rows.n_classes), dtype=np.int64)
            for split in of_size:
                outcome = next(remaining)
                n_rows, covered = n_rows + outcome.tally.rows, covered + outcome.tally.covered
                records.append(cell | {"repetition": split.repetition} | _record(grid, outcome))
            counts = {"rows": n_rows.tolist(), "covered": covered.tolist()}
            classes.append(cell | {"alpha": records[-1]["alpha"]} | counts)
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


# ---- results ------------------------------------------------------------------------------------


class Results:
    """Results of a study.

    Attributes
    ----------
    title
        Title of its tables.
    records
        The tidy table: one dict per data set, score, method, variant, n_avg and repetition.
    classes
        Per entry, over all repetitions: test rows and covered rows by class.
    class_names
        By data set, if known.
    is_complete
        Whether all results are present.
    """

    def __init__(self, title: str, parts: list[Part], is_complete: bool) -> None:
        self.title, self.is_complete = title, is_complete
        self.records: list[dict[str, Any]] = [row for part in parts for row in part["records"]]
        self.classes: list[dict[str, Any]] = [row for part in parts for row in part["classes"]]
        self.class_names: dict[str, list[str]] = {}
        for part in parts:
            self.class_names |= part["class_names"]

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Read a folder that `run` wrote, complete or not."""
        path = Path(folder)
        configuration = _read_configuration(path)
        if configuration is None:
            raise InputError(f"'{path}' must be a folder of 'evencover experiment run'.")
        parts = list(_read_parts(path).values())
        if not any(part["records"] for part in parts):
            raise InputError(f"'{path}' has no results yet; run the study to its end first.")
        return cls(configuration["title"], parts, (path / "results.csv").exists())

    def summary(self) -> list[dict[str, Any]]:
        """Average every metric over the repetitions; ``..._se`` is the standard error, if any.

        ``title`` is the method with parameters other than the defaults, and alpha if it varies.
        """
        table, varies = [], len({row["alpha"] for row in self.records}) > 1
        for key, group in groupby(self.records, key=lambda row: tuple(row[name] for name in CELL)):
            rows = list(group)
            summary: dict[str, Any] = dict(zip(CELL, key, strict=True))
            summary |= {"n_classes": rows[0]["n_classes"], "repetitions": len(rows)}
            parameters = f" ({summary['parameters']})" if summary["parameters"] else ""
            level = f", alpha = {summary['alpha']:g}" if varies else ""
            summary["title"] = f"{summary['method'].upper()}{parameters}{level}"
            for name in ("gamma", "M"):
                known = [row[name] for row in rows if row[name] is not None]
                summary[name] = float(np.mean(known)) if known else None
            for metric in (*metric_names(), "size_median", "cost"):
                values = np.array([row[metric] for row in rows], dtype=np.float64)
                summary[metric] = float(values.mean())
                summary[f"{metric}_se"] = (
                    float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
                )
            table.append(summary)
        return table


def coverage_of(row: dict[str, Any]) -> FloatArray:
    """Compute the coverage of each class (K,) from a row of `Results.classes`."""
    with np.errstate(invalid="ignore"):
        return np.array(row["covered"]) / np.array(row["rows"])


@contextmanager
def locked(grid: Grid, folder: Path | None) -> Iterator[dict[str, Part]]:
    """Lock a study's folder for writing, and yield its finished units; none without a folder."""
    if folder is None:
        yield {}
        return
    if _read_configuration(folder) is None:
        reject_other_files(folder, "a folder of results")
        make_folder(folder, parents=True)
    with only_writer(folder):
        before, configuration = _read_configuration(folder), grid.configuration
        if before is None:
            write_record(folder / "configuration.json", configuration, indent=None)
        elif before["digest"] != configuration["digest"]:
            changed = [key for key in configuration if before.get(key) != configuration[key]]
            raise InputError(
                f"'{folder}' has results of another configuration, which differs in "
                f"{' and '.join(key for key in changed if key not in ('digest', 'title'))}; "
                "choose another folder."
            )
        make_folder(folder / "parts")
        for name in ("", "parts"):  # leftovers of an interruption
            remove_leftovers(folder / name)
        yield _read_parts(folder)


def _read_configuration(folder: Path) -> dict[str, Any] | None:
    return read_record(
        folder / "configuration.json",
        lambda configuration: bool(configuration["digest"]),
        "it is not the configuration of a study",
    )


def _read_parts(folder: Path) -> dict[str, Part]:
    """Read the finished units, by name; raise InputError for a damaged one."""
    parts = {}
    for file in sorted(folder.glob("parts/*.json")):
        problem = "it is damaged; delete it and run the study again"
        part = read_record(file, lambda part: isinstance(part["records"], list), problem)
        assert part is not None
        parts[file.stem] = part
    return parts
