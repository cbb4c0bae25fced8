"""Run a study: score true labels once per data set, then evaluate all sizes in one pass.

A unit is one data set, one score, and as many cells as one pass takes. Each unit is one file,
written atomically, so an interrupted run continues with the missing units.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import evencover
from evencover.comparison.trials import ScoredRows, Trial, fit_all, other_rows
from evencover.data.source import Source
from evencover.errors import EvencoverWarning
from evencover.evaluation.report import CoverageReport, Tally
from evencover.experiments.grid import Cell, DataSet, Grid, NamedScore, sample, sample_balanced
from evencover.experiments.results import Results, Store
from evencover.predictors import BasePredictor

# Threshold vectors per pass: their ranks fit a cache, and an interruption loses little.
VECTORS_PER_UNIT = 480


@dataclass(frozen=True, eq=False)
class Unit:
    """The work of one pass over the rows."""

    name: str
    dataset: DataSet
    score: NamedScore
    cells: list[Cell]


def run(
    grid: Grid,
    output: str | Path | None = None,
    *,
    bar: Any = None,
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
    bar, note
        Show progress: as a bar (`console.WorkBar`), and as messages.
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
    with Store.opened(grid, None if output is None else Path(output)) as store:
        units = plan(grid)
        missing = [unit for unit in units if unit.name not in store.parts]
        n_done = len(units) - len(missing)
        if note is not None and n_done and missing:
            note(f"{n_done} of {len(units)} files exist; computing the rest")
        sources = _open_sources(missing, bar)
        for dataset, group in groupby(missing, key=lambda unit: unit.dataset):
            rows = ScoredRows(
                sources.pop(dataset.name),
                [each.score for each in grid.scores],
                random_state=grid.seed,
                with_ranks=any("ranks" in each.predictor.needs for each in grid.methods),
                executor=executor,
            )
            for unit in group:
                store.write(unit.name, _compute(grid, unit, rows))
                n_done += 1
                if note is not None:
                    note(f"{dataset.name}, {unit.score.name}: file {n_done} of {len(units)}")
        return store.assemble([unit.name for unit in units])


def plan(grid: Grid) -> list[Unit]:
    """Split the study into units of work, in the order of the results."""
    groups = [list(cells) for _, cells in groupby(grid.cells, key=lambda cell: cell[:2])]
    chunks: list[list[Cell]] = [[]]
    for group in groups:  # variants of a method share a fit
        if chunks[-1] and (len(chunks[-1]) + len(group)) * grid.repetitions > VECTORS_PER_UNIT:
            chunks.append([])
        chunks[-1] += group
    return [
        Unit(f"{d:02d}-{s:02d}-{c:04d}", dataset, score, cells)
        for d, dataset in enumerate(grid.datasets)
        for s, score in enumerate(grid.scores)
        for c, cells in enumerate(chunks)
    ]


def _open_sources(units: list[Unit], bar: Any) -> dict[str, Source]:
    """Open all data sets first, to raise errors early."""
    sources, n_numbers = {}, 0
    for dataset, group in groupby(units, key=lambda unit: unit.dataset):
        source = dataset.open_source()
        n_numbers += (1 + len(list(group))) * (source.n_rows or 0) * source.n_classes
        sources[dataset.name] = source if bar is None else bar.watch(source)
    if bar is not None:
        bar.expect(n_numbers)
    return sources


def _compute(grid: Grid, unit: Unit, rows: ScoredRows) -> dict[str, Any]:
    """Compute the rows of the table, and counts by class summed over the repetitions."""
    trials = _trials(grid, unit, rows)
    tallies = iter(rows.tally([trial for _, _, trial in trials]) if trials else [])
    records, classes = [], []
    for cell, group in groupby(trials, key=lambda item: item[0]):
        place = {
            "dataset": unit.dataset.name,
            "simulated": unit.dataset.simulated,
            "score": unit.score.name,
            "method": cell.method.name,
            "parameters": cell.method.parameters,
            "exact": cell.exact,
            "n_avg": cell.n_avg,
        }
        total = Tally.zeros(rows.source.n_classes)
        for _, repetition, trial in group:
            tally = next(tallies)
            total = total + tally
            record = _record(grid, trial.predictor, tally)
            records.append(place | {"repetition": repetition} | record)
        counts = {"rows": total.rows.tolist(), "covered": total.covered.tolist()}
        classes.append(place | counts)
    names = rows.source.class_names
    return {
        "records": records,
        "classes": classes,
        "class_names": None if names is None else {unit.dataset.name: list(names)},
    }


def _trials(grid: Grid, unit: Unit, rows: ScoredRows) -> list[tuple[Cell, int, Trial]]:
    """Calibrate every cell that leaves test rows, in every repetition."""
    n_rows, n_classes = len(rows.labels), rows.source.n_classes
    sizes = sorted({cell.n_avg for cell in unit.cells})
    too_large = [n for n in sizes if grid.sampling == "random" and n * n_classes >= n_rows]
    if too_large:
        warnings.warn(
            f"{unit.dataset.name} has {n_rows} rows of {n_classes} classes: no test data "
            f"would be left for n_avg = {', '.join(map(str, too_large))}, which is skipped.",
            EvencoverWarning,
            stacklevel=2,
        )

    def calibrate(job: tuple[int, int]) -> list[tuple[Cell, int, Trial]]:
        n_avg, repetition = job
        if grid.sampling == "balanced":
            calibration = sample_balanced(rows.labels, n_avg, repetition, grid.seed)
        else:
            calibration = sample(rows.labels, n_classes, n_avg, repetition, grid.seed)
        is_test, score = other_rows(calibration, n_rows), unit.score.score
        trials: list[tuple[Cell, int, Trial]] = []
        own = (cell for cell in unit.cells if cell.n_avg == n_avg)
        for method, variants in groupby(own, key=lambda cell: cell.method):
            fitted: BasePredictor | None = None
            for cell in variants:  # a randomized variant may share a fit
                fitted = None if fitted is None else fitted.refit_exact(cell.exact)
                if fitted is None:
                    fitted = method.predictor.with_params(
                        alpha=grid.alpha,
                        score=score,
                        exact=cell.exact,
                        random_state=(grid.seed + repetition) % 2**64,
                    )
                    rows.calibrate(fitted, score, calibration)
                trials.append((cell, repetition, Trial(score, fitted, is_test)))
        return trials

    jobs = [(n, each) for n in sizes if n not in too_large for each in range(grid.repetitions)]
    done = [trial for part in fit_all(calibrate, jobs) for trial in part]
    place = {id(cell): number for number, cell in enumerate(unit.cells)}
    return sorted(done, key=lambda item: (place[id(item[0])], item[1]))


def _record(grid: Grid, fitted: BasePredictor, tally: Tally) -> dict[str, Any]:
    """Return the metrics of one trial."""
    report, learned = CoverageReport.from_tally(tally, grid.alpha), fitted.fitted_values()
    return {
        "alpha": report.alpha,
        # As given, or by the paper's rule; 0 if it fell back to STANDARD.
        "gamma": learned.get("gamma"),
        "M": learned.get("M"),
        "sampling": grid.sampling,
        "n_calibration": fitted.n_calibration_,
        "n_validation": report.n_rows,
        "n_classes": report.n_classes,
        "n_classes_evaluated": report.n_classes_evaluated,
        **report.metrics(),
        "size_median": report.size_quantiles["50"],
        "seed": grid.seed,
        "version": evencover.__version__,
    }
