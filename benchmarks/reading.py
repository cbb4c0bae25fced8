"""Compare reading as row blocks with each format's library: ``python -m benchmarks.reading``.

All read the same cached file, taking turns, each in a separate process to avoid reusing memory.
evencover reads the file as checked blocks of NumPy rows with labels; the library reads it whole
into memory, and in pieces, whichever is faster. Neither computes anything.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.harness import (
    CACHE,
    RESULTS,
    describe_machine,
    median_ratio,
    table,
    timed,
    write_results,
)

LIMIT = 1.2  # maximum ratio to the faster plain read
BAR = ("parquet", "zarr")  # formats that must meet it
GROUP_BYTES = 40_000_000
CHUNK_BYTES = 8_000_000

Read = Callable[[Path], object]


def _write_parquet(path: Path, rows: np.ndarray, labels: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if "columns" in path.name:
        columns = {f"class {i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])}
    else:
        flat = pa.array(rows.ravel())
        offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])
        fixed = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
        columns = {
            "probs": fixed if "fixed" in path.name else pa.ListArray.from_arrays(offsets, flat)
        }
    group = max(1, GROUP_BYTES // rows[0].nbytes)
    pq.write_table(pa.table({**columns, "labels": labels}), path, row_group_size=group)


def _parquet_whole(path: Path) -> object:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def _parquet_pieces(path: Path) -> object:
    import pyarrow.parquet as pq

    return sum(batch.num_rows for batch in pq.ParquetFile(path).iter_batches())


def _write_zarr(path: Path, rows: np.ndarray, labels: np.ndarray) -> None:
    import zarr

    group = zarr.open_group(path, mode="w", zarr_format=2 if "2" in path.name else 3)
    chunk = max(1, CHUNK_BYTES // rows[0].nbytes)
    group.create_array("probs", data=rows, chunks=(min(chunk, len(rows)), rows.shape[1]))
    group.create_array("labels", data=labels)


def _zarr_whole(path: Path) -> object:
    import zarr

    group = zarr.open_group(path, mode="r")
    return group["probs"][:], group["labels"][:]


def _zarr_pieces(path: Path) -> object:
    import zarr

    array = zarr.open_group(path, mode="r")["probs"]
    step = array.chunks[0]
    return sum(len(array[start : start + step]) for start in range(0, array.shape[0], step))


def _write_hdf5(path: Path, rows: np.ndarray, labels: np.ndarray) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        chunk = (max(1, min(len(rows), CHUNK_BYTES // rows[0].nbytes)), rows.shape[1])
        file.create_dataset("probs", data=rows, chunks=chunk if "chunks" in path.name else None)
        file["labels"] = labels


def _hdf5_whole(path: Path) -> object:
    import h5py

    with h5py.File(path, "r") as file:
        return file["probs"][:]


def _hdf5_pieces(path: Path) -> object:
    import h5py

    with h5py.File(path, "r") as file:
        array = file["probs"]
        step = array.chunks[0] if array.chunks else max(1, CHUNK_BYTES // (4 * array.shape[1]))
        return sum(len(array[start : start + step]) for start in range(0, len(array), step))


KINDS: dict[str, tuple[Callable[[Path, np.ndarray, np.ndarray], None], Read, Read]] = {
    "parquet": (_write_parquet, _parquet_whole, _parquet_pieces),
    "zarr": (_write_zarr, _zarr_whole, _zarr_pieces),
    "h5": (_write_hdf5, _hdf5_whole, _hdf5_pieces),
}
FILES = ("fixed.parquet", "list.parquet", "columns.parquet", "format3.zarr", "format2.zarr")
FILES += ("chunks.h5", "contiguous.h5")


def _evencover(path: Path) -> object:
    from evencover.data import as_source

    return sum(len(block.rows) for block in as_source(path).blocks())


def measure(n_rows: int, n_classes: int, repeats: int) -> list[dict[str, Any]]:
    """Return one record per file: median seconds of each reader, and the ratio."""
    arrays = data.make(n_rows, n_classes, seed=2)
    rows, labels = np.load(arrays.probabilities), np.load(arrays.labels)
    records = []
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        for name in FILES:
            path = Path(folder, name)
            kind = path.suffix[1:]
            write, whole, pieces = KINDS[kind]
            write(path, rows, labels)
            readers: dict[str, Read] = {"evencover": _evencover, "whole": whole, "pieces": pieces}
            seconds = _take_turns(readers, path, repeats)
            medians = {f"{reader}_seconds": statistics.median(s) for reader, s in seconds.items()}
            plain = min(("whole", "pieces"), key=lambda reader: medians[f"{reader}_seconds"])
            ratio = median_ratio(seconds["evencover"], seconds[plain])
            met = ratio <= LIMIT if kind in BAR else None
            records.append({"file": name, **medians, "faster": plain, "ratio": ratio, "met": met})
            print(f"{name}: {ratio:.2f}", flush=True)
    return records


def _take_turns(readers: dict[str, Read], path: Path, repeats: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
            for name in readers
        }
        for repeat in range(repeats + 1):
            for name, read in readers.items():
                elapsed = processes[name].submit(_seconds, read, path).result()
                if repeat > 0:  # the first loads libraries and fills the cache
                    seconds[name].append(elapsed)
    return seconds


def _seconds(read: Read, path: Path) -> float:
    return timed(lambda: read(path))


def markdown(results: dict[str, Any]) -> str:
    """Format the table, and the machine."""
    m = results["machine"]
    verdict = {True: "yes", False: "**no**", None: "no bar"}
    lines = [
        [
            record["file"],
            *(f"{1e3 * record[f'{who}_seconds']:.0f}" for who in ("evencover", "whole", "pieces")),
            f"{record['ratio']:.2f}",
            verdict[record["met"]],
        ]
        for record in results["files"]
    ]
    head = ["file", "evencover ms", "library, whole ms", "library, in pieces ms"]
    head += ["over the faster", f"at most {LIMIT}"]
    return (
        "# Reading\n\n"
        f"{m['date']}: {m['cpu']}, {m['cores']} cores; load before the run: {m['load_before']}. "
        f"{results['rows']:,} x {results['classes']:,} float32 with labels, medians of "
        f"{results['repeats']}.\n\n{table(head, lines)}\n"
    )


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tiny file: checks the harness")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    n_rows, n_classes, repeats = (2_000, 50, 2) if options.small else (100_000, 500, 15)
    out = options.out or (CACHE / "small" if options.small else RESULTS)
    results = {
        "machine": describe_machine(),
        "rows": n_rows,
        "classes": n_classes,
        "repeats": repeats,
        "files": measure(n_rows, n_classes, repeats),
    }
    write_results(out, "reading", results, markdown(results))


if __name__ == "__main__":
    main()
