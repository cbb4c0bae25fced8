"""Write tables, records, and prediction sets as Parquet, npz, JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

import numpy as np

from evencover._kernels.reference import probabilities as probabilities_of
from evencover.arrays import Array, FloatArray, IntArray, import_pyarrow, to_numpy
from evencover.data.source import Block
from evencover.engine.blocks import map_source
from evencover.errors import InputError
from evencover.output.atomic import atomic_path, is_trace
from evencover.predictors.base import BasePredictor
from evencover.predictors.fitting import align_to_calibration
from evencover.predictors.rule import SetRule
from evencover.sets import PredictionSets
from evencover.taxonomy import MOST_PARTS, Taxonomy
from evencover.validation import flag, raise_unknown, whole_number

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def write_csv(path: str | os.PathLike[str], records: Sequence[Mapping[str, Any]]) -> None:
    """Write records with the same keys as CSV, atomically; there must be at least one."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: safe_cell(cell) for name, cell in row.items()} for row in records)


def safe_cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would read as a formula with an apostrophe.

    >>> safe_cell("=1+1"), safe_cell("-0.5"), safe_cell(-0.5)
    ("'=1+1", '-0.5', -0.5)
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    return value if _NUMBER.fullmatch(value) else f"'{value}"


def read_record(
    path: Path, is_valid: Callable[[dict[str, Any]], bool], problem: str
) -> dict[str, Any] | None:
    """Read a record, None if missing; raise InputError with `problem` if it is invalid."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        is_sound = isinstance(content, dict) and is_valid(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_sound = False
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from error
    if not is_sound:
        raise InputError(f"Cannot read '{path}': {problem}.")
    return dict(content)


def write_record(path: Path, content: Any, *, indent: int | None = 1) -> None:
    """Write JSON atomically."""
    with atomic_path(path) as temporary:
        text = json.dumps(content, indent=indent, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def reject_other_files(folder: Path, welcome: str) -> None:
    """Raise InputError for a file at the folder's path, or a folder with other files.

    `welcome` describes, in the message, the folder that would be accepted.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"Cannot write '{folder}': it is a file, not a folder.")
    if folder.is_dir() and not all(is_trace(each.name) for each in folder.iterdir()):
        raise InputError(f"'{folder}' must be a new or empty folder, or {welcome}.")


def make_folder(folder: Path, *, parents: bool = False) -> None:
    """Create the folder, unless it exists."""
    try:
        folder.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise InputError(f"Cannot make folder '{folder}': {error.strerror or error}.") from error


Order = Literal["probability", "index"]
ORDERS = ("probability", "index")
SLICE_ELEMENTS = 1 << 18  # rows of logits are converted in slices


@dataclass(frozen=True)
class Listed:
    """Sets of some rows in the output format."""

    sizes: IntArray  # (n,) sizes of the full sets
    counts: IntArray  # (n,) numbers of listed classes
    classes: Array  # the listed classes, concatenated
    n_classes: int
    probabilities: FloatArray | None = None  # of the listed classes
    summaries: list[str] | None = None  # descriptions by a taxonomy

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of_sets(cls, sets: PredictionSets) -> Listed:
        """List all classes, in the order of the sets."""
        return cls(sets.sizes, sets.sizes, sets.indices, sets.n_classes)

    @classmethod
    def concatenate(cls, parts: Iterable[Listed]) -> Listed:
        """Concatenate the rows of all partitions."""
        parts = list(parts)
        values = [part.probabilities for part in parts if part.probabilities is not None]
        summaries = [text for part in parts for text in part.summaries or ()]
        return cls(
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.classes for part in parts]),
            parts[0].n_classes,
            np.concatenate(values) if values else None,
            summaries if parts[0].summaries is not None else None,
        )


@dataclass(frozen=True)
class Listing:
    """How to list the classes of a set; see `predict_to_folder`."""

    order: Order = "probability"  # ties by class index
    with_probabilities: bool = False
    top: int | None = None
    taxonomy: Taxonomy | None = None
    parts: int = MOST_PARTS

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise_unknown("order", self.order, ORDERS)
        flag(self.with_probabilities, "with_probabilities", "predict")
        if self.top is not None:
            whole_number(self.top, "top", "predict", 1)
        whole_number(self.parts, "parts", "predict", 1)

    def blocks(
        self,
        predictor: BasePredictor,
        probabilities: Any,
        *,
        ids: Any = None,
        groups: Any = None,
        executor: Any = None,
    ) -> Iterator[Listed]:
        """Yield listed sets; parameters are those of `predict_set_blocks`."""
        source = align_to_calibration(predictor, probabilities)
        listed = RuleAndListing(predictor.rule(logits=source.logits, groups=groups), self)
        return map_source(source, ids, listed, Listed.concatenate, executor)


@dataclass(frozen=True)
class RuleAndListing:
    """Convert a block of rows and their ids to listed sets, here or on a worker."""

    rule: SetRule
    listing: Listing

    def __call__(self, block: Block, ids: Array | None = None) -> Listed:
        """Predict the sets of the block and list them."""
        sets, tree = self.rule.sets(block, ids), self.listing.taxonomy
        summaries = None if tree is None else tree.describe_sets(sets, self.listing.parts)
        return replace(self._listed(block, sets), summaries=summaries)

    def _listed(self, block: Block, sets: PredictionSets) -> Listed:
        listing = self.listing
        if (listing.order, listing.with_probabilities, listing.top) == ("probability", False, None):
            return Listed.of_sets(sets)
        sizes, classes = sets.sizes, sets.indices
        rows = np.repeat(np.arange(len(sizes)), sizes)
        counts = sizes if listing.top is None else np.minimum(sizes, listing.top)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        is_listed = place < counts[rows]
        rows, classes = rows[is_listed], classes[is_listed]
        if listing.order == "index":
            classes = classes[np.lexsort((classes, rows))]
        wanted = listing.with_probabilities
        values = self._probabilities(block.rows, rows, classes) if wanted else None
        return Listed(sizes, counts, classes, sets.n_classes, values)

    def _probabilities(self, numbers: Array, rows: IntArray, classes: Array) -> FloatArray:
        """Return the probabilities of these classes in these ascending rows."""
        scoring = self.rule.scoring
        if not scoring.logits:
            return numbers[rows, classes].astype(np.float64)
        values = np.empty(len(rows))
        step = max(1, SLICE_ELEMENTS // numbers.shape[1])
        for start in range(0, len(numbers), step):
            own = slice(*np.searchsorted(rows, [start, start + step]))
            p = probabilities_of(numbers[start : start + step], **scoring.options)
            values[own] = p[rows[own] - start, classes[own]]
        return values


def check_sets_format(path: str | os.PathLike[str]) -> None:
    """Raise InputError, before any work, for an unknown extension."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise InputError(f"The extension of '{path}' must be one of {', '.join(WRITERS)}.")
    if suffix == ".parquet":
        import_pyarrow()


# Listed sets, the index of the first row, and the ids of the rows.
_Numbered = tuple[Listed, int, Array | None]
Names = Sequence[str] | None


def write_sets(
    path: str | os.PathLike[str],
    blocks: Iterable[Listed | PredictionSets],
    class_names: Sequence[str] | None = None,
    *,
    ids: Any = None,
    first_row: int = 0,
) -> int:
    """Write a stream of sets in the format of the path's extension; return the number of rows.

    `ids` are those of all rows; `first_row` is the index of the first row in the whole input.
    """
    check_sets_format(path)
    own = None if ids is None else ids_to_write(ids)
    stop = 0

    def numbered() -> Iterator[_Numbered]:
        nonlocal stop
        for block in blocks:
            listed = Listed.of_sets(block) if isinstance(block, PredictionSets) else block
            start, stop = stop, stop + len(listed)
            if own is not None and stop > len(own):
                raise InputError(f"'ids' must have one entry per row. Got only {len(own)}.")
            yield listed, first_row + start, None if own is None else own[start:stop]

    with atomic_path(path) as temporary:
        WRITERS[Path(path).suffix.lower()](temporary, numbered(), class_names)
    return stop


def ids_to_write(ids: Any) -> Array:
    """Keep integers; convert everything else to text."""
    values = to_numpy(ids)
    return values if values.dtype.kind in "iuU" else np.array([str(v) for v in values.tolist()])


def _write_parquet(path: Path, blocks: Iterable[_Numbered], names: Names) -> None:
    """Write columns ``id``, ``size``, ``set`` (class indices), ``names``, ``probabilities``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    dictionary = None if names is None else pa.array(names, pa.string())
    writer = None
    try:
        for listed, _, ids in blocks:
            columns = {} if ids is None else {"id": pa.array(ids)}
            columns["size"] = pa.array(listed.sizes, pa.int32())
            ends = pa.array(_bounds(listed.counts))
            flat = {"set": pa.array(listed.classes, pa.int32())}
            if dictionary is not None:
                flat["names"] = dictionary.take(flat["set"])
            if listed.probabilities is not None:
                flat["probabilities"] = pa.array(listed.probabilities)
            for name, values in flat.items():
                columns[name] = pa.LargeListArray.from_arrays(ends, values)
            if listed.summaries is not None:
                columns["summary"] = pa.array(listed.summaries, pa.string())
            batch = pa.record_batch(columns)
            writer = writer or pq.ParquetWriter(path, batch.schema)
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()


def _bounds(counts: IntArray) -> IntArray:
    """Return row boundaries of the classes."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _write_npz(path: Path, blocks: Iterable[_Numbered], names: Names) -> None:
    """Write ``indptr``, ``indices``, ``n_classes``, ``size``, and optional arrays.

    These are ``class_names``, ``id``, ``summary``, and ``probabilities`` of the ``indices``.
    """
    nothing = np.zeros(0, dtype=np.int64)
    sizes, counts, ids = [nothing], [nothing], []
    n_classes, has_probabilities, summaries = 0, False, list[str]()
    folder = path.parent
    # An archive has one open member, so long arrays are buffered in separate files.
    with TemporaryFile(dir=folder) as indices, TemporaryFile(dir=folder) as probabilities:
        for listed, _, own in blocks:
            sizes.append(listed.sizes)
            counts.append(listed.counts)
            ids += [] if own is None else [own]
            n_classes = listed.n_classes
            summaries += listed.summaries or ()
            indices.write(listed.classes.astype("<i4", copy=False).tobytes())
            if listed.probabilities is not None:
                has_probabilities = True
                probabilities.write(listed.probabilities.astype("<f8", copy=False).tobytes())
        small = {
            "indptr": _bounds(np.concatenate(counts)),
            "size": np.concatenate(sizes),
            "n_classes": np.array(n_classes),
            **({} if names is None else {"class_names": np.array(list(names))}),
            **({"id": np.concatenate(ids)} if ids else {}),
            **({"summary": np.array(summaries)} if summaries else {}),
        }
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            _copy_member(archive, "indices", indices, "<i4")
            if has_probabilities:
                _copy_member(archive, "probabilities", probabilities, "<f8")
            for key, values in small.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)


def _copy_member(archive: zipfile.ZipFile, name: str, numbers: IO[bytes], kind: str) -> None:
    """Copy numbers from a file into an array of the archive."""
    total = numbers.tell() // np.dtype(kind).itemsize
    numbers.seek(0)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": kind, "fortran_order": False, "shape": (total,)}
        np.lib.format.write_array_header_1_0(member, header)
        shutil.copyfileobj(numbers, member)


def _columns(blocks: Iterable[_Numbered], class_names: Names) -> Iterator[dict[str, Sequence[Any]]]:
    """Yield ``row``, ``id``, ``size``, ``set``, and optional columns of each block."""
    for listed, row, ids in blocks:
        bounds = list(pairwise(_bounds(listed.counts).tolist()))
        classes = listed.classes.tolist()
        columns: dict[str, Sequence[Any]] = {"row": range(row, row + len(listed))}
        if ids is not None:
            columns["id"] = ids.tolist()
        columns |= {"size": listed.sizes.tolist(), "set": [classes[a:b] for a, b in bounds]}
        if class_names is not None:
            names = [class_names[index] for index in classes]
            columns["names"] = [names[a:b] for a, b in bounds]
        if listed.summaries is not None:
            columns["summary"] = listed.summaries
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


def _write_csv(path: Path, blocks: Iterable[_Numbered], names: Names) -> None:
    r"""Write one line per row; bars separate names, spaces classes and probabilities.

    Bars and backslashes in names are escaped by a backslash; an apostrophe precedes text that a
    spreadsheet would read as a formula.
    """
    if names is not None:
        names = [name.replace("\\", r"\\").replace("|", r"\|") for name in names]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, columns in enumerate(_columns(blocks, names)):
            if number == 0:
                writer.writerow(columns)
            cells = (_cells(name, values) for name, values in columns.items())
            writer.writerows(zip(*cells, strict=True))


def _cells(name: str, values: Sequence[Any]) -> Iterable[Any]:
    if name in ("row", "size"):
        return values
    if name in ("set", "probabilities"):
        return (" ".join(map(str, each)) for each in values)
    return map(safe_cell, map("|".join, values) if name == "names" else values)


WRITERS: dict[str, Callable[[Path, Iterable[_Numbered], Names], None]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
}
