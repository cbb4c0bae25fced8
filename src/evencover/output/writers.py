"""Prediction sets to files, written as they are made.

All formats have ``size`` (of the whole set) and ``set`` (the listed class indices), and ``id``,
``names``, ``probabilities`` and ``summary`` (in the words of a taxonomy) where they are known or
wanted.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from evencover._arrow import import_pyarrow
from evencover._types import Array, IntArray
from evencover._validation import plain_array
from evencover.errors import InputError
from evencover.output.atomic import atomic_path
from evencover.output.listing import Listed
from evencover.output.tables import safe_cell
from evencover.sets import PredictionSets


def check_sets_format(path: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, an ending that no writer knows."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise InputError(
            f"Cannot write '{path}': its ending must be one of {', '.join(WRITERS)}. "
            f"Got {suffix or 'none'!r} instead."
        )
    if suffix == ".parquet":
        import_pyarrow()


class _Rows(NamedTuple):
    """What is written beside the sets: class names, row ids, and the place of the first row."""

    names: Sequence[str] | None
    ids: Array | None
    first: int


def write_sets(
    path: str | os.PathLike[str],
    blocks: Iterable[Listed | PredictionSets],
    class_names: Sequence[str] | None = None,
    *,
    ids: Any = None,
    first_row: int = 0,
) -> int:
    """Write a stream of sets in the format of the path's ending; return the number of rows.

    `ids` are those of all rows. `first_row` is the place of the first one in the whole input,
    where formats number rows.
    """
    check_sets_format(path)
    about = _Rows(class_names, None if ids is None else ids_to_write(ids), first_row)
    listed = (Listed.of_sets(b) if isinstance(b, PredictionSets) else b for b in blocks)
    with atomic_path(path) as temporary:
        return WRITERS[Path(path).suffix.lower()](temporary, listed, about)


def ids_to_write(ids: Any) -> Array:
    """Integers as they are, and everything else as text."""
    values = plain_array(ids)
    return values if values.dtype.kind in "iuU" else np.array([str(v) for v in values.tolist()])


def _with_ids(blocks: Iterable[Listed], ids: Array | None) -> Iterator[tuple[Listed, Array | None]]:
    """Each block, and the ids of its rows."""
    start = 0
    for listed in blocks:
        stop = start + len(listed)
        if ids is not None and stop > len(ids):
            raise InputError(f"'ids' must have one entry per row. Got only {len(ids)}.")
        yield listed, None if ids is None else ids[start:stop]
        start = stop


def _write_parquet(path: Path, blocks: Iterable[Listed], about: _Rows) -> int:
    """Columns ``id``, ``size``, ``set`` (class indices), ``names`` and ``probabilities``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    dictionary = None if about.names is None else pa.array(about.names, pa.string())
    n_rows, writer = 0, None
    try:
        for listed, ids in _with_ids(blocks, about.ids):
            columns = {} if ids is None else {"id": pa.array(ids.tolist(), _id_type(ids))}
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
            n_rows += len(listed)
    finally:
        if writer is not None:
            writer.close()
    return n_rows


def _id_type(ids: Array) -> Any:
    import pyarrow as pa

    return pa.string() if ids.dtype.kind == "U" else pa.from_numpy_dtype(ids.dtype)


def _bounds(counts: IntArray) -> IntArray:
    """Where each row's classes begin and end, from how many there are."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _write_npz(path: Path, blocks: Iterable[Listed], about: _Rows) -> int:
    """Arrays ``indptr``, ``indices``, ``n_classes``, ``size`` and what else is known.

    That is ``class_names``, ``id``, and ``probabilities``, one for each of the ``indices``.
    """
    sizes, counts, n_classes, has_probabilities = [], [], 0, False
    summaries: list[str] = []
    # An archive has one open member: what is long waits in files of its own.
    with _waiting(path) as indices, _waiting(path) as probabilities:
        for listed, _ in _with_ids(blocks, about.ids):
            sizes.append(listed.sizes)
            counts.append(listed.counts)
            n_classes = listed.n_classes
            summaries += listed.summaries or ()
            indices.write(listed.classes.astype("<i4", copy=False).tobytes())
            if listed.probabilities is not None:
                has_probabilities = True
                probabilities.write(listed.probabilities.astype("<f8", copy=False).tobytes())
        small = {
            "indptr": _bounds(np.concatenate([*counts, np.zeros(0, dtype=np.int64)])),
            "size": np.concatenate([*sizes, np.zeros(0, dtype=np.int64)]),
            "n_classes": np.array(n_classes),
        }
        if about.names is not None:
            small["class_names"] = np.array(list(about.names))
        if about.ids is not None:
            small["id"] = about.ids
        if summaries:
            small["summary"] = np.array(summaries)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            _copy_member(archive, "indices", indices, "<i4")
            if has_probabilities:
                _copy_member(archive, "probabilities", probabilities, "<f8")
            for key, values in small.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
    return len(small["size"])


def _waiting(path: Path) -> IO[bytes]:
    """A file without a name beside the output, gone when it is closed."""
    return tempfile.TemporaryFile(dir=path.parent)


def _copy_member(archive: zipfile.ZipFile, name: str, numbers: IO[bytes], kind: str) -> None:
    """Numbers that wait in a file become an array of the archive."""
    total = numbers.tell() // np.dtype(kind).itemsize
    numbers.seek(0)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": kind, "fortran_order": False, "shape": (total,)}
        np.lib.format.write_array_header_1_0(member, header)
        shutil.copyfileobj(numbers, member)


def _columns(blocks: Iterable[Listed], about: _Rows) -> Iterator[dict[str, Sequence[Any]]]:
    """Of each block ``row``, ``id``, ``size``, ``set``, and what else is known or wanted."""
    row = about.first
    for listed, ids in _with_ids(blocks, about.ids):
        bounds = list(pairwise(_bounds(listed.counts).tolist()))
        classes = listed.classes.tolist()
        columns: dict[str, Sequence[Any]] = {"row": range(row, row + len(listed))}
        if ids is not None:
            columns["id"] = ids.tolist()
        columns |= {"size": listed.sizes.tolist(), "set": [classes[a:b] for a, b in bounds]}
        if about.names is not None:
            names = [about.names[index] for index in classes]
            columns["names"] = [names[a:b] for a, b in bounds]
        if listed.summaries is not None:
            columns["summary"] = listed.summaries
        if listed.probabilities is not None:
            values = [float(f"{value:.6g}") for value in listed.probabilities.tolist()]
            columns["probabilities"] = [values[a:b] for a, b in bounds]
        yield columns
        row += len(listed)


def _write_jsonl(path: Path, blocks: Iterable[Listed], about: _Rows) -> int:
    """One object per row; probabilities have six digits."""
    n_rows, encode = 0, json.JSONEncoder(ensure_ascii=False).encode
    with path.open("w", encoding="utf-8") as file:
        for columns in _columns(blocks, about):
            for row in zip(*columns.values(), strict=True):
                file.write(encode(dict(zip(columns, row, strict=True))) + "\n")
            n_rows += len(columns["row"])
    return n_rows


def _write_csv(path: Path, blocks: Iterable[Listed], about: _Rows) -> int:
    r"""One line per row; names are separated by bars, classes and probabilities by spaces.

    A bar in a name is written as ``\|``, a backslash as two; what a spreadsheet would take for
    a formula begins with an apostrophe.
    """
    if about.names is not None:
        escaped = [name.replace("\\", r"\\").replace("|", r"\|") for name in about.names]
        about = about._replace(names=escaped)
    n_rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, columns in enumerate(_columns(blocks, about)):
            if number == 0:
                writer.writerow(columns)
            cells = (_cells(name, values) for name, values in columns.items())
            writer.writerows(zip(*cells, strict=True))
            n_rows += len(columns["row"])
    return n_rows


def _cells(name: str, values: Sequence[Any]) -> Iterable[Any]:
    if name in ("row", "size"):
        return values
    if name in ("set", "probabilities"):
        return (" ".join(map(str, each)) for each in values)
    return map(safe_cell, map("|".join, values) if name == "names" else values)


WRITERS: dict[str, Callable[[Path, Iterable[Listed], _Rows], int]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
}
