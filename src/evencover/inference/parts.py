"""One part of a score file: the outputs for a range of inputs, as Parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover._arrow import import_pyarrow
from evencover._types import Array
from evencover.data.names import NAMES_KEY
from evencover.data.reading import reading
from evencover.errors import InputError
from evencover.output.atomic import atomic_path

UNREADABLE_KEY, MODEL_KEY = "unreadable", "model"


class Skipped(NamedTuple):
    """An input without a row, and why."""

    id: str | int
    reason: str


@dataclass
class PartContent:
    """What has been computed of a part so far."""

    rows: list[Array]
    labels: list[int]
    ids: list[str | int]
    skipped: list[Skipped]

    @classmethod
    def empty(cls) -> PartContent:
        """Nothing yet."""
        return cls([], [], [], [])


@dataclass(frozen=True)
class PartFormat:
    """What all parts have in common.

    Attributes
    ----------
    column
        "logits" or "probs".
    n_classes, dtype
        Of the rows.
    has_labels
        Whether there is a column of labels.
    ids_are_text
        Whether ids are paths or names, not numbers.
    class_names, model
        Metadata.
    """

    column: str
    n_classes: int
    dtype: np.dtype[Any]
    has_labels: bool
    ids_are_text: bool
    class_names: Sequence[str] | None
    model: dict[str, str]

    def write(self, path: Path, part: PartContent) -> None:
        """Write the part, whole or not at all; the same content gives the same bytes."""
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        flat = np.concatenate([rows.ravel() for rows in part.rows]) if part.rows else np.zeros(0)
        columns = {
            "id": self._ids(part.ids),
            self.column: pa.FixedSizeListArray.from_arrays(
                pa.array(flat.astype(self.dtype, copy=False)), self.n_classes
            ),
        }
        if self.has_labels:
            columns["label"] = pa.array(part.labels, pa.int32())
        table = pa.table(columns).replace_schema_metadata(self._metadata(part))
        with atomic_path(path) as temporary:
            # Numbers without a pattern: neither a dictionary nor compression makes them smaller.
            pq.write_table(table, temporary, use_dictionary=False, compression="none")

    def _ids(self, ids: list[str | int]) -> Any:
        pa = import_pyarrow()
        if self.ids_are_text:
            return pa.array([str(each) for each in ids], pa.string())
        other = next((each for each in ids if not isinstance(each, int)), None)
        if other is not None:
            raise InputError(f"Ids must be all numbers or all text. Got {other!r} among numbers.")
        return pa.array(ids, pa.int64())

    def _metadata(self, part: PartContent) -> dict[str, str]:
        about = {MODEL_KEY: json.dumps(self.model, ensure_ascii=False)}
        if self.class_names is not None:
            about[NAMES_KEY] = json.dumps(list(self.class_names), ensure_ascii=False)
        if part.skipped:
            about[UNREADABLE_KEY] = json.dumps(part.skipped, ensure_ascii=False)
        return about


def read_account(path: Path) -> tuple[int, list[Skipped]]:
    """How many rows a part has, and which inputs it lacks."""
    import pyarrow.parquet as pq

    with reading(path), pq.ParquetFile(path) as file:
        known = (file.schema_arrow.metadata or {}).get(UNREADABLE_KEY.encode(), b"[]")
        return file.metadata.num_rows, [Skipped(*each) for each in json.loads(known)]
