"""Results of a study: one tidy table, and its folder with one file per unit of work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from evencover.arrays import FloatArray
from evencover.errors import InputError
from evencover.evaluation.metrics import metric_names
from evencover.experiments.grid import Grid
from evencover.output.atomic import only_writer, read_record, remove_leftovers, write_record
from evencover.output.folders import make_folder, reject_other_files
from evencover.validation import import_pandas

CELL = ("dataset", "simulated", "score", "method", "parameters", "exact", "n_avg", "alpha")

Part = dict[str, Any]  # the results of one unit of work


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

    def class_coverage(
        self, dataset: str, score: str, method: str, n_avg: int, *, exact: bool = False
    ) -> FloatArray:
        """Return the coverage of each class over all repetitions (K,); NaN without test rows."""
        wanted: dict[str, Any] = {"dataset": dataset, "score": score, "method": method}
        wanted |= {"n_avg": n_avg, "exact": exact}
        for row in self.classes:
            if all(row[key] == value for key, value in wanted.items()):
                return coverage_of(row)
        raise InputError(f"These results do not include {wanted}.")

    def to_frame(self) -> Any:
        """Return the tidy table as a pandas data frame."""
        return import_pandas().DataFrame(self.records)


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
