"""The results of a study: parts on disk, one tidy table, and its summary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from evencover._validation import Array, FloatArray, InputError, import_pandas
from evencover.evaluation.metrics import metric_names
from evencover.experiments.grid import Grid
from evencover.output.atomic import atomic_path, remove_leftovers
from evencover.output.locks import only_writer
from evencover.output.records import (
    make_folder,
    read_record,
    refuse_other_things,
    write_record,
)
from evencover.output.tables import write_csv

CELL = ("dataset", "simulated", "score", "method", "parameters", "exact", "n_avg")


class Results:
    """What a study found.

    Attributes
    ----------
    configuration
        What was run.
    records
        The tidy table: one dict per data set, score, method, variant, n_avg and repetition.
    classes
        For each of these, over all repetitions: validation rows and covered ones by class.
    class_names
        By data set, where they are known.
    is_complete
        Whether nothing is missing.
    """

    def __init__(
        self, configuration: dict[str, Any], parts: list[dict[str, Any]], is_complete: bool
    ) -> None:
        self.configuration, self.is_complete = configuration, is_complete
        self.records: list[dict[str, Any]] = [row for part in parts for row in part["records"]]
        self.classes: list[dict[str, Any]] = [row for part in parts for row in part["classes"]]
        self.class_names: dict[str, list[str]] = {}
        for part in parts:
            self.class_names |= part["class_names"] or {}

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Read a folder that `run` made, complete or not."""
        path = Path(folder)
        configuration = _read_configuration(path)
        if configuration is None:
            raise InputError(
                f"'{path}' must be a folder of results. Got none there; make them with "
                "'evencover experiment run'."
            )
        parts = [
            _read_part(file, configuration["digest"]) for file in sorted(path.glob("parts/*.json"))
        ]
        if not any(part["records"] for part in parts):
            raise InputError(f"'{path}' holds no results yet; run the study to its end first.")
        return cls(configuration, parts, (path / "results.csv").exists())

    def summary(self) -> list[dict[str, Any]]:
        """Mean of every metric over the repetitions, and ``..._se``, its standard error.

        With one repetition there is no standard error: None.
        """
        table = []
        for key, group in groupby(self.records, key=lambda row: tuple(row[name] for name in CELL)):
            rows = list(group)
            summary: dict[str, Any] = dict(zip(CELL, key, strict=True))
            summary |= {name: rows[0][name] for name in ("alpha", "n_classes")}
            summary["repetitions"] = len(rows)
            for name in ("gamma", "M"):
                known = [row[name] for row in rows if row[name] is not None]
                summary[name] = float(np.mean(known)) if known else None
            for metric in (*metric_names(), "size_median"):
                values = np.array([row[metric] for row in rows], dtype=np.float64)
                summary[metric] = float(values.mean())
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
                summary[f"{metric}_se"] = None if error is None else float(error)
            table.append(summary)
        return table

    def class_coverage(
        self, dataset: str, score: str, method: str, n_avg: int, *, exact: bool = False
    ) -> FloatArray:
        """Coverage of each class over all repetitions (K,); NaN where it was never validated."""
        wanted: dict[str, Any] = {"dataset": dataset, "score": score, "method": method}
        wanted |= {"n_avg": n_avg, "exact": exact}
        for row in self.classes:
            if all(row[key] == value for key, value in wanted.items()):
                with np.errstate(invalid="ignore"):
                    return np.array(row["covered"]) / np.array(row["rows"])
        raise InputError(f"These results do not hold {wanted}.")

    def to_frame(self) -> Any:
        """The tidy table as a pandas data frame."""
        return import_pandas().DataFrame(self.records)


class Store:
    """Where the parts of a running study are kept: a folder, or memory."""

    def __init__(self, grid: Grid, folder: Path | None) -> None:
        self.folder, self.digest = folder, grid.digest
        self.configuration = grid.configuration | {"digest": grid.digest}
        self._parts: dict[str, dict[str, Any]] = {}

    @classmethod
    @contextmanager
    def opened(cls, grid: Grid, folder: Path | None) -> Iterator[Store]:
        """Hold the folder while it is written to."""
        store = cls(grid, folder)
        if folder is None:
            yield store
            return
        if _read_configuration(folder) is None:
            refuse_other_things(folder, "a folder of results")
            make_folder(folder, parents=True)
        with only_writer(folder):
            store._begin(folder)
            yield store

    def _begin(self, folder: Path) -> None:
        known = _read_configuration(folder)
        if known is None:
            write_record(folder / "configuration.json", self.configuration, indent=None)
        elif known["digest"] != self.digest:
            raise InputError(
                f"'{folder}' holds results of another configuration ({_difference(known, self)}); "
                "choose another folder."
            )
        for name in ("parts", "scores"):
            make_folder(folder / name)
        for name in ("", "parts", "scores"):  # what a kill left half-written
            remove_leftovers(folder / name)

    # ---- parts -------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether a unit is done, and its part is as it was written."""
        if self.folder is None:
            return name in self._parts
        return _read_content(self._part(name)) is not None

    def write(self, name: str, part: dict[str, Any]) -> None:
        """Keep the results of a unit, whole or not at all."""
        if self.folder is None:
            self._parts[name] = part
        else:
            content = {"configuration": self.digest} | part
            content["checksum"] = _checksum(content)
            write_record(self._part(name), content, indent=None)

    def _part(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / "parts" / f"{name}.json"

    # ---- true-label scores, which every unit of a data set needs -----------------------------

    def known_scores(self, dataset: str) -> dict[str, Array] | None:
        """The arrays that an earlier run kept; None if there are none."""
        if self.folder is None or not self._scores(dataset).exists():
            return None
        try:
            with self._scores(dataset).open("rb") as file:  # NumPy would leave a bad one open
                return dict(np.load(file, allow_pickle=False))
        except (ValueError, OSError, EOFError, KeyError, BadZipFile):
            return None  # damaged: they are computed again

    def keep_scores(self, dataset: str, arrays: dict[str, Array]) -> None:
        """Keep them for the next run."""
        if self.folder is None:
            return
        path = self._scores(dataset)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def _scores(self, dataset: str) -> Path:
        assert self.folder is not None
        names = [name for name, _, _ in self.configuration["datasets"]]
        return self.folder / "scores" / f"{names.index(dataset):02d}.npz"

    # ---- the end -----------------------------------------------------------------------------

    def assemble(self, names: list[str]) -> Results:
        """All parts together; in a folder also as one table, in CSV and Parquet."""
        if self.folder is None:
            return Results(self.configuration, [self._parts[name] for name in names], True)
        parts = [_read_part(self._part(name), self.digest) for name in names]
        results = Results(self.configuration, parts, True)
        if not results.records:
            raise InputError(
                "The study has no results: every n_avg asks for all rows of its data set or more; "
                "use smaller ones."
            )
        _write_parquet(self.folder / "results.parquet", results.records)
        write_csv(self.folder / "results.csv", results.records)
        return results


def _difference(known: dict[str, Any], store: Store) -> str:
    names = [
        key
        for key, value in store.configuration.items()
        if key not in ("digest", "title") and known.get(key) != value
    ]
    return f"its {' and '.join(names)} differ{'s' if len(names) == 1 else ''}"


def _read_configuration(folder: Path) -> dict[str, Any] | None:
    return read_record(
        folder / "configuration.json",
        lambda configuration: bool(configuration["digest"]),
        "it is not the configuration of a study",
    )


def _read_part(path: Path, digest: str) -> dict[str, Any]:
    part = _read_content(path)
    if part is None:
        raise InputError(f"Cannot read '{path}': it is damaged; run the study again.")
    if part.get("configuration") != digest:
        raise InputError(
            f"'{path}' belongs to another configuration than its folder; remove it and run again."
        )
    return part


def _read_content(path: Path) -> dict[str, Any] | None:
    """What a part holds; None if it is not there, or not as it was written."""
    try:
        part = read_record(path, lambda part: isinstance(part["records"], list), "")
    except InputError:
        return None
    if part is None or part.pop("checksum", None) not in (None, _checksum(part)):
        return None  # parts of 0.1.0 have no checksum
    return part


def _checksum(part: dict[str, Any]) -> str:
    text = json.dumps(part, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _write_parquet(path: Path, records: list[dict[str, Any]]) -> None:
    """The same table in Parquet, where pyarrow is installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return
    columns = {name: [row[name] for row in records] for name in records[0]}
    # All missing would be a column of no type.
    kinds = {"gamma": pa.float64(), "M": pa.int64(), "seed": pa.uint64()}
    table = pa.table(
        {name: pa.array(values, type=kinds.get(name)) for name, values in columns.items()}
    )
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)
