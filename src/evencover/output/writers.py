"""List prediction sets, and write them as Parquet, JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.arrow import import_pyarrow
from evencover.data.source import Block
from evencover.data.tools import with_sets
from evencover.engine.blocks import map_source
from evencover.errors import InputError
from evencover.ids import id_values
from evencover.output.atomic import atomic_path, safe_cell
from evencover.predictors.base import BasePredictor
from evencover.predictors.fit import Fit
from evencover.predictors.rule import SetRule
from evencover.sets import PredictionSets
from evencover.taxonomy import Taxonomy
from evencover.validation import flag, whole_number


@dataclass(frozen=True)
class ListedSets:
    """Sets of some rows in the output format."""

    sizes: IntArray  # (n,) sizes of the full sets
    sets: PredictionSets  # the listed classes
    probabilities: FloatArray | None = None  # of the listed classes
    summaries: list[str] | None = None  # descriptions by a taxonomy

    @classmethod
    def concatenate(cls, parts: Iterable[ListedSets]) -> ListedSets:
        """Concatenate the rows of all partitions."""
        parts = list(parts)
        values = [part.probabilities for part in parts if part.probabilities is not None]
        summaries = [text for part in parts for text in part.summaries or ()]
        return cls(
            np.concatenate([part.sizes for part in parts]),
            PredictionSets.concatenate(part.sets for part in parts),
            np.concatenate(values) if values else None,
            summaries if parts[0].summaries is not None else None,
        )


@dataclass(frozen=True)
class Listing:
    """How to list the classes of a set; see `predict_to_folder`."""

    with_probabilities: bool = False
    top: int | None = None
    taxonomy: Taxonomy | None = None

    def __post_init__(self) -> None:
        flag(self.with_probabilities, "with_probabilities", "predict")
        if self.top is not None:
            whole_number(self.top, "top", "predict", 1)

    def blocks(
        self, predictor: BasePredictor, probabilities: Any, *, ids: Any = None, executor: Any = None
    ) -> Iterator[ListedSets]:
        """Yield listed sets; parameters are those of `predict_set_blocks`."""
        source = Fit.of(predictor).open(probabilities, ids=ids, read_labels=False)
        list_block = partial(self.list_block, predictor.rule(logits=source.logits))
        return map_source(source, list_block, ListedSets.concatenate, executor)

    def list_block(self, rule: SetRule, block: Block) -> ListedSets:
        """Predict the sets of a block and list them, here or on a worker."""
        whole = rule.sets(block)
        summaries = None if self.taxonomy is None else self.taxonomy.describe_sets(whole)
        sets = whole if self.top is None else whole.top(self.top)
        values = None
        if self.with_probabilities:
            rows = np.repeat(np.arange(len(sets)), sets.sizes)
            values = rule.scoring.probabilities(block.rows, rows, sets.indices)
        return ListedSets(whole.sizes, sets, values, summaries)


def check_sets_format(path: str | os.PathLike[str]) -> None:
    """Raise InputError, before any work, for an unknown extension."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise InputError(f"The extension of '{path}' must be one of {', '.join(WRITERS)}.")
    if suffix == ".parquet":
        import_pyarrow()


# Listed sets, the index of the first row, and the ids of the rows.
_Numbered = tuple[ListedSets, int, Array | None]
Names = Sequence[str] | None


def write_sets(
    path: str | os.PathLike[str],
    blocks: Iterable[ListedSets | PredictionSets],
    class_names: Sequence[str] | None = None,
    *,
    ids: Any = None,
    escape_formulas: bool = False,
) -> int:
    """Write a stream of sets in the format of the path's extension; return the number of rows.

    `ids` are those of all rows. With `escape_formulas`, text in CSV is safe to open in a
    spreadsheet.
    """
    check_sets_format(path)
    row_ids, stop = None if ids is None else id_values(ids), 0

    def numbered() -> Iterator[_Numbered]:
        nonlocal stop
        for block in blocks:
            listed = block if isinstance(block, ListedSets) else ListedSets(block.sizes, block)
            start, stop = stop, stop + len(listed.sizes)
            if row_ids is not None and stop > len(row_ids):
                raise InputError(f"'ids' must have one entry per row. Got only {len(row_ids)}.")
            yield listed, start, None if row_ids is None else row_ids[start:stop]

    with atomic_path(path) as temporary:
        write = WRITERS[Path(path).suffix.lower()]
        if escape_formulas and write is _write_csv:
            write = partial(_write_csv, as_cell=safe_cell)
        write(temporary, numbered(), class_names)
    return stop


def write_predictions(
    path: str | os.PathLike[str], document: Any, blocks: Iterable[ListedSets], names: Sequence[str]
) -> int:
    """Write the JSON of SpeciesNet again, with the set of each prediction; return how many."""
    rows: list[dict[str, Any]] = []
    for listed in blocks:
        lists = listed.sets.to_lists()
        accepted = listed.sets.accepted.tolist()
        columns: dict[str, Sequence[Any]] = {
            "prediction_set": [[names[y] for y in row] for row in lists],
            "accepted": accepted,
            **listed.sets.answer_columns(),
        }
        values = zip(*columns.values(), strict=True)
        rows += [dict(zip(columns, row, strict=True)) for row in values]
    text = json.dumps(with_sets(document, rows), ensure_ascii=False, indent=1)
    with atomic_path(path) as temporary:
        # A file name may have bytes that are no character; JSON and Python escape them alike.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    return len(rows)


def _write_parquet(path: Path, blocks: Iterable[_Numbered], names: Names) -> None:
    """Write ``id``, ``size``, ``accepted``, ``set`` (indices), ``names``, ``probabilities``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    dictionary = None if names is None else pa.array(names, pa.string())
    writer = None
    try:
        for listed, _, ids in blocks:
            columns = {} if ids is None else {"id": pa.array(ids)}
            columns["size"] = pa.array(listed.sizes, pa.int32())
            columns["accepted"] = pa.array(listed.sets.accepted)
            ends = pa.array(listed.sets.indptr, pa.int64())
            flat = {"set": pa.array(listed.sets.indices, pa.int32())}
            if dictionary is not None:
                flat["names"] = dictionary.take(flat["set"])
            if listed.probabilities is not None:
                flat["probabilities"] = pa.array(listed.probabilities)
            for name, values in flat.items():
                columns[name] = pa.LargeListArray.from_arrays(ends, values)
            if listed.summaries is not None:
                columns["summary"] = pa.array(listed.summaries, pa.string())
            for name, column in listed.sets.answer_columns().items():
                kind = pa.float64() if name == "answer_probability" else pa.string()
                columns[name] = pa.array(column, kind)
            batch = pa.record_batch(columns)
            writer = writer or pq.ParquetWriter(path, batch.schema)
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()


def _columns(blocks: Iterable[_Numbered], class_names: Names) -> Iterator[dict[str, Sequence[Any]]]:
    """Yield the columns of each block, from ``row`` to ``probabilities``, as far as there are."""
    for listed, row, ids in blocks:
        bounds = list(pairwise(listed.sets.indptr.tolist()))
        columns: dict[str, Sequence[Any]] = {"row": range(row, row + len(bounds))}
        if ids is not None:
            columns["id"] = ids.tolist()
        columns |= {"size": listed.sizes.tolist(), "accepted": listed.sets.accepted.tolist()}
        columns["set"] = listed.sets.to_lists()
        if class_names is not None:
            names = [class_names[index] for index in listed.sets.indices.tolist()]
            columns["names"] = [names[a:b] for a, b in bounds]
        if listed.summaries is not None:
            columns["summary"] = listed.summaries
        columns |= listed.sets.answer_columns()
        if listed.probabilities is not None:
            values = [float(f"{value:.6g}") for value in listed.probabilities.tolist()]
            columns["probabilities"] = [values[a:b] for a, b in bounds]
        yield columns


def _write_jsonl(path: Path, blocks: Iterable[_Numbered], names: Names) -> None:
    """Write one object per row; probabilities have six digits."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    with path.open("w", encoding="utf-8") as file:
        for columns in _columns(blocks, names):
            for row in zip(*columns.values(), strict=True):
                file.write(encode(dict(zip(columns, row, strict=True))) + "\n")


def _write_csv(
    path: Path,
    blocks: Iterable[_Numbered],
    names: Names,
    as_cell: Callable[[Any], Any] = lambda text: text,
) -> None:
    r"""Write one line per row; bars separate names, spaces classes and probabilities.

    Bars and backslashes in names are escaped by a backslash.
    """
    if names is not None:
        names = [name.replace("\\", r"\\").replace("|", r"\|") for name in names]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, columns in enumerate(_columns(blocks, names)):
            if number == 0:
                writer.writerow(columns)
            cells = (_cells(name, values, as_cell) for name, values in columns.items())
            writer.writerows(zip(*cells, strict=True))


def _cells(name: str, values: Sequence[Any], as_cell: Callable[[Any], Any]) -> Iterable[Any]:
    if name in ("row", "size"):
        return values
    if name == "answer_probability":
        return ("" if value is None else f"{value:.6g}" for value in values)
    if name.startswith("answer"):
        return ("" if value is None else as_cell(value) for value in values)
    if name == "accepted":
        return ("true" if value else "false" for value in values)
    if name in ("set", "probabilities"):
        return (" ".join(map(str, numbers)) for numbers in values)
    return map(as_cell, map("|".join, values) if name == "names" else values)


WRITERS: dict[str, Callable[[Path, Iterable[_Numbered], Names], None]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
}
