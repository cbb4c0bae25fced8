"""Prediction sets to files, written as they are made."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evencover._arrow import import_pyarrow
from evencover.errors import InputError
from evencover.output.atomic import atomic_path
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


def write_sets(
    path: str | os.PathLike[str],
    blocks: Iterable[PredictionSets],
    class_names: Sequence[str] | None = None,
    *,
    first_row: int = 0,
) -> int:
    """Write a stream of sets in the format of the path's ending; return the number of rows.

    `first_row` is the place of the first one in the whole input, where formats number rows.
    """
    check_sets_format(path)
    with atomic_path(path) as temporary:
        return WRITERS[Path(path).suffix.lower()](temporary, blocks, class_names, first_row)


def _write_parquet(path: Path, blocks: Iterable[PredictionSets], names: Any, _: int) -> int:
    """Columns ``set`` (class indices) and, if there are names, ``names``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [pa.field("set", pa.large_list(pa.int32()))]
    if names is not None:
        dictionary = pa.array(names, pa.string())
        fields.append(pa.field("names", pa.large_list(pa.string())))
    n_rows = 0
    with pq.ParquetWriter(path, pa.schema(fields)) as writer:
        for sets in blocks:
            columns = [sets.to_arrow()]
            if names is not None:
                flat = dictionary.take(pa.array(sets.indices))
                columns.append(pa.LargeListArray.from_arrays(pa.array(sets.indptr), flat))
            writer.write_batch(pa.record_batch(columns, schema=writer.schema))
            n_rows += len(sets)
    return n_rows


def _write_npz(path: Path, blocks: Iterable[PredictionSets], names: Any, _: int) -> int:
    """Arrays ``indptr``, ``indices``, ``n_classes`` and, if there are names, ``class_names``."""
    sizes, n_classes, total = [np.zeros(1, dtype=np.int64)], 0, 0
    with tempfile.TemporaryFile(dir=path.parent) as indices:  # an archive has one open member
        for sets in blocks:
            sizes.append(sets.sizes)
            n_classes = sets.n_classes
            total += len(sets.indices)
            indices.write(sets.indices.astype("<i4", copy=False).tobytes())
        indices.seek(0)
        indptr = np.cumsum(np.concatenate(sizes))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            with archive.open("indices.npy", "w", force_zip64=True) as member:
                header = {"descr": "<i4", "fortran_order": False, "shape": (total,)}
                np.lib.format.write_array_header_1_0(member, header)
                shutil.copyfileobj(indices, member)
            small = {"indptr": indptr, "n_classes": np.array(n_classes)}
            if names is not None:
                small["class_names"] = np.array(list(names))
            for key, values in small.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
    return len(indptr) - 1


def _write_jsonl(path: Path, blocks: Iterable[PredictionSets], names: Any, first: int) -> int:
    """One object per row: ``row``, ``set`` and, if there are names, ``names``."""
    n_rows = 0
    with path.open("w", encoding="utf-8") as file:
        for sets in blocks:
            for members in sets.to_lists():
                record = {"row": first + n_rows, "set": members}
                if names is not None:
                    record["names"] = [names[index] for index in members]
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                n_rows += 1
    return n_rows


def _write_csv(path: Path, blocks: Iterable[PredictionSets], names: Any, first: int) -> int:
    """One line per row: ``row``, ``size``, ``set`` (separated by spaces), ``names`` (by bars)."""
    n_rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "size", "set", *([] if names is None else ["names"])])
        for sets in blocks:
            for members in sets.to_lists():
                line = [first + n_rows, len(members), " ".join(map(str, members))]
                if names is not None:
                    line.append("|".join(names[index] for index in members))
                writer.writerow(line)
                n_rows += 1
    return n_rows


WRITERS: dict[str, Callable[[Path, Iterable[PredictionSets], Any, int], int]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
}
