"""Define and run a study: the trials of `compare` over a grid, with results in a folder.

A unit is one data set, one score, and as many methods as one pass takes. Each unit is one file,
written atomically, so an interrupted run continues with the missing units.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import groupby, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import evencover
from evencover.arrays import FloatArray, IntArray
from evencover.comparison.splits import Split, other_rows, random_rows
from evencover.comparison.trials import Outcome, ScoredRows, try_all
from evencover.data.location import as_location, existing_file, expand
from evencover.data.open import as_source
from evencover.data.source import Source
from evencover.errors import InputError, warn_caller
from evencover.evaluation.metrics import metric_names
from evencover.evaluation.report import as_plain
from evencover.output.atomic import read_record, write_csv, write_record
from evencover.output.folders import input_digest, resumable_folder
from evencover.predictors import BasePredictor, make_predictor
from evencover.predictors.fit import Fit
from evencover.quantiles import Alpha, exact_fraction
from evencover.randomness import check_random_state, row_indices
from evencover.scores import Score, make_score
from evencover.sizes import at_once
from evencover.validation import flag, raise_unknown, real_number, whole_number

# Threshold vectors per pass: their ranks fit a cache, and an interruption loses little.
VECTORS_PER_UNIT = at_once(480, 5)
PAPER_N_AVG = (10, 20, 30, 40, 50, 75, 100, 150)
# Parameters that the study sets for every predictor.
DECIDED = ("alpha", "score", "exact", "random_state")
CELL = ("dataset", "simulated", "score", "method", "parameters", "exact", "n_avg", "alpha")

Row = dict[str, Any]


# ---- the grid ------------------------------------------------------------------------------------


class DataSet(NamedTuple):
    """Labeled rows, opened on demand.

    ``name`` is shown in tables; the paper's names select the published numbers. ``identity``
    identifies rows that are not the user's.
    """

    name: str
    open_source: Callable[[], Source]
    identity: str | None = None
    simulated: bool = False

    def digest(self, source: Source) -> str:
        """Identify the rows and labels."""
        if self.identity is not None:
            return self.identity
        labels = hashlib.blake2b(np.asarray(source.labels).tobytes(), digest_size=16)
        return f"{self.name} {input_digest(source)} {labels.hexdigest()}"


def make_dataset(entry: Any, scale: float, folder: Path) -> DataSet:
    """Make a data set from an entry of a grid; paths are relative to `folder`."""
    from evencover.experiments.simulated import SIMULATED, load_simulated

    if isinstance(entry, tuple | list) and len(entry) == 3 and isinstance(entry[0], str):
        return DataSet(entry[0], partial(as_source, *entry[1:]))
    if isinstance(entry, str) and entry == "languages":
        return DataSet(entry, _languages, entry)
    if isinstance(entry, str) and entry in SIMULATED:
        open_source = partial(load_simulated, entry, scale=scale)
        return DataSet(entry, open_source, f"simulated {entry}, scale {scale}", True)
    if not isinstance(entry, str | os.PathLike):
        raise InputError(
            f"'datasets' must be names, paths, or (name, probabilities, labels). Got {entry!r}."
        )
    if not Path(entry).suffix and not (folder / entry).is_dir():
        raise_unknown("data set", str(entry), [*SIMULATED, "languages", "a path"])
    location = as_location(entry)
    location = folder / location if isinstance(location, Path) else location
    found = location if expand(location) else existing_file(location)
    return DataSet(Path(entry).stem, partial(as_source, found))


def _languages() -> Source:
    from evencover.data.bundled import load_languages

    data = load_languages()
    return as_source(data.probabilities, data.labels, class_names=data.class_names.tolist())


class Grid:
    """A validated study.

    Parameters
    ----------
    datasets
        Names of simulated data sets ("imagenet", "cifar-100", "places365", "inaturalist"),
        "languages", paths of files or folders, or (name, probabilities, labels).
    methods, scores
        Names, predictors and scores, or tables with parameters, ``{name = "clustered", gamma =
        0.3}``.
    exact
        Variants: False, True (randomized to cover exactly 1 - alpha), or both.
    n_avg
        Average calibration examples per class: n_avg x K rows are drawn without replacement.
    alpha
        Target miscoverage.
    repetitions, seed
        Number of splits, and random seed.
    gamma, n_clusters
        Lists of values. Methods that take both (CLUSTERED) also run with all combinations, for heat
        maps.
    fixed_test
        Test all sizes on the same rows, those that the largest one leaves, instead of all others.
    scale
        Fraction of the classes of simulated data sets.
    title
        Title of the tables.
    folder
        Base folder of relative paths.

    Examples
    --------
    >>> grid = Grid(datasets=["languages"], methods=["standard", "classwise"], n_avg=[10, 20])
    >>> len(grid.predictors), [score.name for score in grid.scores]
    (2, ['softmax', 'aps', 'raps'])
    """

    def __init__(
        self,
        *,
        datasets: Sequence[Any],
        methods: Sequence[Any] = ("standard", "classwise", "clustered"),
        scores: Sequence[Any] = ("softmax", "aps", "raps"),
        exact: bool | Sequence[bool] = False,
        n_avg: Sequence[int] = PAPER_N_AVG,
        alpha: Alpha = 0.1,
        repetitions: int = 10,
        seed: int = 0,
        gamma: Sequence[float] | None = None,
        n_clusters: Sequence[int] | None = None,
        scale: float = 1.0,
        fixed_test: bool = False,
        title: str = "",
        folder: Path | None = None,
    ) -> None:
        real_number(scale, "scale", "a grid", 0, open_low=True)
        exact_fraction(alpha, owner="a grid")
        self.title = str(title)
        self.repetitions = whole_number(repetitions, "repetitions", "a grid", 1, 255)
        self.seed = check_random_state(seed, "a grid")
        sizes = _entries(n_avg, "n_avg")
        self.fixed_test = flag(fixed_test, "fixed_test", "a grid")
        self.n_avg = [whole_number(n, "n_avg", "a grid", 1, 2**16 - 1) for n in sizes]
        self.datasets = [
            make_dataset(entry, scale, folder or Path()) for entry in _entries(datasets, "datasets")
        ]
        self.scores = [make_score(entry) for entry in _entries(scores, "scores")]
        listed = [exact] if isinstance(exact, bool) else _entries(exact, "exact")
        variants = dict.fromkeys(flag(value, "exact", "a grid") for value in listed)
        clusterings = {"gamma": gamma, "n_clusters": n_clusters}
        self.predictors = [
            replace(predictor, exact=variant, alpha=alpha)
            for entry in _entries(methods, "methods")
            for predictor in _predictors(entry, clusterings)
            for variant in (variants if "exact" in predictor.supports else [False])
        ]
        names: dict[str, list[Any]] = {
            "data sets": [dataset.name for dataset in self.datasets],
            "scores": list(map(repr, self.scores)),
            "methods": list(map(repr, self.predictors)),
        }
        for kind, entries in names.items():
            twice = next((name for name in entries if entries.count(name) > 1), None)
            if twice is not None:
                raise InputError(f"The {kind} of a grid must differ. Got {twice!r} twice.")

    @classmethod
    def from_toml(cls, grid: str | Path) -> Grid:
        """Read a bundled grid by name (see `shipped`), or a TOML file."""
        path, bundled, folder = Path(grid), shipped(), None
        if str(grid) in bundled:
            name, text = f"the grid {str(grid)!r}", bundled[str(grid)]
        elif path.suffix != ".toml" or not path.is_file():
            raise_unknown("grid", str(grid), [*bundled, "the path of a .toml file"])
        else:
            name, text, folder = f"'{path}'", path.read_text(encoding="utf-8"), path.parent
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"Cannot read {name}: it is not TOML ({error}).") from None
        keys = [key for key in inspect.signature(cls).parameters if key != "folder"]
        for key in table:
            if key not in keys:
                raise_unknown(f"key in {name}", key, keys)
        if "datasets" not in table:
            raise InputError(f"{name} must have the key 'datasets'. Got {', '.join(table)}.")
        return cls(**table, folder=folder)

    def identities(self, sources: Sequence[Source]) -> dict[str, str]:
        """Return all settings that determine the numbers, as texts by name."""
        data = [dataset.digest(s) for dataset, s in zip(self.datasets, sources, strict=True)]
        return {
            "data set": repr(data),
            "score": repr(self.scores),
            "method": repr(self.predictors),
            "n_avg": repr(self.n_avg) + (", fixed test rows" if self.fixed_test else ""),
            "number of repetitions": str(self.repetitions),
            "seed": str(self.seed),
            "version": evencover.__version__,
        }


def shipped() -> dict[str, str]:
    """Read the bundled grids: texts by name."""
    grids = files("evencover.experiments").joinpath("grids")
    names = sorted(file.name for file in grids.iterdir() if file.name.endswith(".toml"))
    return {name.removesuffix(".toml"): grids.joinpath(name).read_text("utf-8") for name in names}


def _entries(values: Any, key: str) -> list[Any]:
    if isinstance(values, str | dict) or not isinstance(values, Sequence) or not len(values):
        raise InputError(f"'{key}' of a grid must be a list with entries. Got {values!r} instead.")
    return list(values)


def _predictors(entry: Any, clusterings: dict[str, Any]) -> list[BasePredictor]:
    """Make the predictors of an entry: one and, if it takes them, one of each clustering."""
    table = dict(entry) if isinstance(entry, dict) else {"name": entry}
    name = table.pop("name", None)
    for key in table:
        if key in DECIDED:
            raise InputError(f"The grid sets {key!r} for all methods. Got it for {name!r}.")
    predictor = make_predictor(name).set_params(**table)
    values = {key: _entries(v, key) for key, v in clusterings.items() if v is not None}
    if not values or not clusterings.keys() <= predictor.get_params().keys():
        return [predictor]
    return [
        predictor,
        *(
            replace(predictor, **dict(zip(values, combination, strict=True)))
            for combination in product(*values.values())
        ),
    ]


def _score_name(score: Score) -> str:
    """Return the name of a score, with parameters other than the defaults."""
    return score.name if repr(score) == repr(type(score)()) else repr(score)


def _parameters(predictor: BasePredictor) -> str:
    """Return the parameters of a method other than the defaults, as text."""
    free = {key: v for key, v in predictor.get_params().items() if key not in DECIDED}
    text = repr(type(predictor)(**free))
    return text[text.index("(") + 1 : -1]


# ---- the run -------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """The work of one pass over the rows, and its file."""

    file: str
    dataset: DataSet
    score: Score
    predictors: list[BasePredictor]


def run(
    grid: Grid,
    output: str | Path | None = None,
    *,
    force: bool = False,
    watch: Callable[[Source, str], Source] = lambda source, _: source,
    note: Callable[[str], None] = lambda _: None,
    executor: Any = None,
) -> Results:
    """Compute the missing results of a study, and return all of them.

    Parameters
    ----------
    grid
        The study.
    output
        Folder for the results, or None to return them only. A partial folder of the same study is
        completed, one of another study rejected.
    force
        Replace the results of another study.
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
    if output is None:
        with TemporaryDirectory() as temporary:
            return run(grid, temporary, watch=watch, note=note, executor=executor)
    units, folder = plan(grid), Path(output)
    sources = [dataset.open_source() for dataset in grid.datasets]
    parts = {unit.file: len(unit.predictors) for unit in units}
    with resumable_folder(folder, grid.identities(sources), parts, force=force) as missing:
        if missing:
            (folder / "results.csv").unlink(missing_ok=True)
        for dataset, source in zip(grid.datasets, sources, strict=True):
            todo = [unit for unit in units if unit.dataset is dataset and unit.file in missing]
            if not todo:
                continue
            rows = ScoredRows(
                watch(source, dataset.name),
                grid.scores,
                random_state=grid.seed,
                with_ranks=any("ranks" in predictor.needs for predictor in grid.predictors),
                executor=executor,
            )
            splits = _splits(grid, dataset, rows)
            for unit in todo:
                write_record(folder / unit.file, _compute(grid, unit, rows, splits), indent=None)
                number = 1 + units.index(unit)
                note(f"{dataset.name}, {_score_name(unit.score)}: file {number} of {len(units)}")
        results = Results([_read_unit(folder / unit.file) for unit in units], is_complete=True)
        if not results.records:
            raise InputError(
                "The study has no results: every 'n_avg' takes all rows of its data set or more; "
                "use smaller ones."
            )
        write_csv(folder / "results.csv", results.records)
        return results


def plan(grid: Grid) -> list[Unit]:
    """Split the study into units of work."""
    step = max(1, VECTORS_PER_UNIT // (len(grid.n_avg) * grid.repetitions))
    return [
        Unit(
            f"part-{d:02d}-{s:02d}-{first:04d}.json",
            dataset,
            score,
            grid.predictors[first : first + step],
        )
        for d, dataset in enumerate(grid.datasets)
        for s, score in enumerate(grid.scores)
        for first in range(0, len(grid.predictors), step)
    ]


def _splits(grid: Grid, dataset: DataSet, rows: ScoredRows) -> list[Split]:
    """Draw the splits of all calibration sizes; warn about those that leave no test rows."""
    n_rows, n_classes = len(rows.labels), rows.n_classes
    too_large = [n for n in grid.n_avg if n * n_classes >= n_rows]
    if too_large:
        warn_caller(
            f"{dataset.name} has {n_rows} rows of {n_classes} classes: no test data "
            f"would be left for n_avg = {', '.join(map(str, too_large))}, which is skipped."
        )
    used = [n for n in grid.n_avg if n not in too_large]
    splits = []
    for n, repetition in product(used, range(grid.repetitions)):
        largest = max(used) if grid.fixed_test else n
        rows_of = partial(sample, n_rows, n_classes, repetition=repetition, seed=grid.seed)
        split = Split.of(n, repetition, rows_of(n, of=largest), n_rows)
        splits.append(split._replace(is_test=other_rows(rows_of(largest), n_rows)))
    return splits


def sample(
    n_rows: int, n_classes: int, n_avg: int, repetition: int, seed: int, of: int | None = None
) -> IntArray:
    """Draw n_avg x K rows without replacement, as in the paper; return them in increasing order.

    They are part of the rows for the size `of`, if it is given.
    """
    # Every calibration size and repetition has its own range of ids, and thus its own order.
    ids = row_indices(0, n_rows) + np.uint64(((of or n_avg) << 48) + (repetition << 32))
    return random_rows(seed, ids, n_avg * n_classes)


def _compute(grid: Grid, unit: Unit, rows: ScoredRows, splits: list[Split]) -> Row:
    """Compute the rows of the table, and counts by class summed over the repetitions."""
    predictors = [
        replace(
            predictor,
            score=unit.score,
            keep_top=predictor.keep_top is True,  # by default the paper's sets
        )
        for predictor in unit.predictors
    ]
    outcomes = try_all(rows, predictors, splits, grid.seed) if splits else [[] for _ in predictors]
    records, classes = [], []
    # By method, then by size: the order does not depend on how the methods are cut into units.
    for predictor, tried in zip(unit.predictors, outcomes, strict=True):
        pairs = zip(splits, tried, strict=True)
        for n_avg, of_size in groupby(pairs, key=lambda pair: pair[0].size):
            cell = {
                "dataset": unit.dataset.name,
                "simulated": unit.dataset.simulated,
                "score": _score_name(unit.score),
                "method": predictor.method,
                "parameters": _parameters(predictor),
                "exact": predictor.exact,
                "n_avg": n_avg,
            }
            n_rows, covered = np.zeros((2, rows.n_classes), dtype=np.int64)
            for split, outcome in of_size:
                n_rows, covered = n_rows + outcome.tally.rows, covered + outcome.tally.covered
                records.append(cell | {"repetition": split.repetition} | _record(grid, outcome))
            counts = {"rows": n_rows.tolist(), "covered": covered.tolist()}
            classes.append(cell | {"alpha": records[-1]["alpha"]} | counts)
    names = rows.source.class_names
    return {
        "title": grid.title,
        "records": records,
        "classes": classes,
        "class_names": {} if names is None else {unit.dataset.name: list(names)},
    }


def _record(grid: Grid, outcome: Outcome) -> Row:
    """Return the metrics of one trial."""
    report, learned = outcome.report, Fit.of(outcome.predictor).fitted_values
    return {
        "alpha": report.alpha,
        # As given, or by the paper's rule; 0 if it fell back to STANDARD.
        "gamma": learned.get("gamma"),
        "M": learned.get("M"),
        "n_calibration": outcome.predictor.n_calibration_,
        "n_validation": report.n_rows,
        "n_classes": report.n_classes,
        "n_classes_evaluated": report.n_classes_evaluated,
        **{name: as_plain(getattr(report, name)) for name in metric_names()},
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

    def __init__(self, units: Sequence[Row], *, is_complete: bool) -> None:
        self.title, self.is_complete = str(units[0]["title"]), is_complete
        self.records: list[Row] = [row for unit in units for row in unit["records"]]
        self.classes: list[Row] = [row for unit in units for row in unit["classes"]]
        self.class_names: dict[str, list[str]] = {}
        for unit in units:
            self.class_names |= unit["class_names"]

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Read a folder that `run` wrote, complete or not."""
        path = Path(folder)
        units = [_read_unit(file) for file in sorted(path.glob("part-*.json"))]
        if not any(unit["records"] for unit in units):
            raise InputError(f"'{path}' must be a folder with results of 'evencover experiment'.")
        return cls(units, is_complete=(path / "results.csv").exists())

    def summary(self) -> list[Row]:
        """Average every metric over the repetitions; ``..._se`` is the standard error, if any.

        ``title`` is the method with parameters other than the defaults.
        """
        table = []
        for key, group in groupby(self.records, key=lambda row: tuple(row[name] for name in CELL)):
            rows = list(group)
            summary: Row = dict(zip(CELL, key, strict=True))
            summary |= {"n_classes": rows[0]["n_classes"], "repetitions": len(rows)}
            parameters = f" ({summary['parameters']})" if summary["parameters"] else ""
            summary["title"] = f"{summary['method'].upper()}{parameters}"
            for name in ("gamma", "M"):
                known = [row[name] for row in rows if row[name] is not None]
                summary[name] = float(np.mean(known)) if known else None
            for metric in (*metric_names(), "size_median", "cost"):
                # A folder of an earlier version lacks the metrics that came later.
                values = np.array([row.get(metric) for row in rows], dtype=np.float64)
                summary[metric] = float(values.mean())
                summary[f"{metric}_se"] = (
                    float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
                )
            table.append(summary)
        return table


def coverage_of(row: Row) -> FloatArray:
    """Compute the coverage of each class (K,) from a row of `Results.classes`."""
    with np.errstate(invalid="ignore"):
        return np.array(row["covered"]) / np.array(row["rows"])


def _read_unit(path: Path) -> Row:
    """Read a finished unit; raise InputError if it is damaged."""
    problem = "it is damaged; delete it and run the study again"
    unit = read_record(path, lambda unit: isinstance(unit["records"], list), problem)
    assert unit is not None
    return unit
