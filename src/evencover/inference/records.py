"""Rows of tables as tuples, from any row on: CSV, JSON lines, Parquet, datasets on disk."""

from __future__ import annotations

import csv
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from evencover._arrow import import_pyarrow
from evencover.data.reading import reading
from evencover.errors import InputError

BATCH_ROWS = 256  # of Parquet and Arrow: rows may hold whole pictures


class Records(ABC):
    """A table that is read row by row.

    Attributes
    ----------
    columns
        Their names.
    image_columns
        Those that say of themselves that they hold images.
    class_names
        For columns of numbers that are classes: their names.
    folder
        Where relative paths begin.
    """

    columns: list[str]
    image_columns: Sequence[str] = ()
    class_names: dict[str, list[str]]
    identity: str

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.folder = path, f"'{path}'", path.parent
        self.class_names = {}
        with reading(path):
            self._open()

    @abstractmethod
    def _open(self) -> None:
        """Learn the columns and the identity."""

    @abstractmethod
    def _rows(self, columns: Sequence[str], start: int) -> Iterator[tuple[Any, ...]]:
        """The cells of these columns in every row from `start` on."""

    def read(self, columns: Sequence[str], start: int) -> Iterator[tuple[Any, ...]]:
        """The same; a broken file is one sentence."""
        with reading(self.path):
            yield from self._rows(columns, start)

    def count(self) -> int:
        """The number of rows."""
        return sum(1 for _ in self.read(self.columns[:1], 0))


class CsvRecords(Records):
    """Lines of text, of which the first names the columns."""

    def _open(self) -> None:
        self._delimiter = "\t" if self.path.suffix.lower() == ".tsv" else ","
        self.identity = content_digest(self.path)
        self.columns = next(self._lines(), [])
        if not self.columns:
            raise InputError(f"{self.name} must begin with the names of its columns. Got nothing.")

    def _lines(self) -> Iterator[list[str]]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            yield from (line for line in csv.reader(file, delimiter=self._delimiter) if line)

    def _rows(self, columns: Sequence[str], start: int) -> Iterator[tuple[Any, ...]]:
        places = [self.columns.index(name) for name in columns]
        for row, line in enumerate(islice(self._lines(), start + 1, None), start):
            if len(line) != len(self.columns):
                raise InputError(
                    f"Every line of {self.name} must have {len(self.columns)} columns. "
                    f"Got {len(line)} in row {row}."
                )
            yield tuple(line[place] for place in places)


class JsonRecords(Records):
    """One JSON object per line."""

    def _open(self) -> None:
        self.identity = content_digest(self.path)
        self.columns = list(next(self._objects(), {}))

    def _objects(self) -> Iterator[dict[str, Any]]:
        with self.path.open(encoding="utf-8") as file:
            for row, line in enumerate(each for each in file if each.strip()):
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise InputError(
                        f"Every line of {self.name} must be a JSON object. "
                        f"Got {type(record).__name__} in row {row}."
                    )
                yield record

    def _rows(self, columns: Sequence[str], start: int) -> Iterator[tuple[Any, ...]]:
        for record in islice(self._objects(), start, None):
            yield tuple(record.get(name) for name in columns)


class ArrowRecords(Records):
    """What is made of record batches."""

    @abstractmethod
    def _batches(self, columns: Sequence[str], start: int) -> Iterator[Any]:
        """Small record batches from row `start` on."""

    def _rows(self, columns: Sequence[str], start: int) -> Iterator[tuple[Any, ...]]:
        for batch in self._batches(columns, start):
            for at in range(0, batch.num_rows, BATCH_ROWS):
                few = batch.slice(at, BATCH_ROWS)
                yield from zip(*(few.column(name).to_pylist() for name in columns), strict=True)

    def _learn(self, schema: Any) -> None:
        """What the schema says, and what Hugging Face wrote into it."""
        about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        self._learn_features(schema, about.get("info", {}).get("features") or {})

    def _learn_features(self, schema: Any, features: dict[str, Any]) -> None:
        self.columns = schema.names
        kinds = {name: feature.get("_type") for name, feature in features.items() if feature}
        self.image_columns = [name for name in self.columns if kinds.get(name) == "Image"]
        self.class_names = {
            name: features[name]["names"] for name, kind in kinds.items() if kind == "ClassLabel"
        }


class ParquetRecords(ArrowRecords):
    """A Parquet file, read by row groups."""

    def _open(self) -> None:
        import_pyarrow()
        self.identity = content_digest(self.path)
        with self._file() as file:
            groups = file.metadata
            self._counts = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
            self._learn(file.schema_arrow)

    def _file(self) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.path, memory_map=True)

    def count(self) -> int:
        """The number of rows, which the file says."""
        return sum(self._counts)

    def _batches(self, columns: Sequence[str], start: int) -> Iterator[Any]:
        first = 0
        while first < len(self._counts) and start >= self._counts[first]:
            start -= self._counts[first]
            first += 1
        groups = list(range(first, len(self._counts)))
        with self._file() as file:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(columns)):
                yield batch.slice(start)
                start = max(0, start - batch.num_rows)


class DatasetRecords(ArrowRecords):
    """A Hugging Face dataset that was saved to disk: Arrow streams, and what describes them.

    It is read with pyarrow alone, since its files are Arrow's own.
    """

    def _open(self) -> None:
        pa = import_pyarrow()
        self.folder = self.path
        state = json.loads((self.path / "state.json").read_text("utf-8"))
        info = json.loads((self.path / "dataset_info.json").read_text("utf-8"))
        self._files = [self.path / Path(each["filename"]).name for each in state["_data_files"]]
        sizes = [file.stat().st_size for file in self._files]
        self.identity = repr((state.get("_fingerprint"), sizes))
        with pa.memory_map(str(self._files[0])) as stream:
            self._learn_features(pa.ipc.open_stream(stream).schema, info.get("features") or {})

    def _batches(self, columns: Sequence[str], start: int) -> Iterator[Any]:
        pa = import_pyarrow()
        for file in self._files:
            with pa.memory_map(str(file)) as stream:
                for batch in pa.ipc.open_stream(stream):
                    yield batch.select(list(columns)).slice(start)
                    start = max(0, start - batch.num_rows)


def content_digest(path: Path) -> str:
    """What tells the content of a file from any other."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


TABLES: dict[str, type[Records]] = {
    ".csv": CsvRecords,
    ".tsv": CsvRecords,
    ".jsonl": JsonRecords,
    ".ndjson": JsonRecords,
    ".parquet": ParquetRecords,
}
