"""Formats by the extension of a file. Optional libraries are imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from evencover.data.arrays import (
    OpenArrays,
    hdf5_arrays,
    npy_arrays,
    npz_arrays,
    safetensors_arrays,
    torch_arrays,
    zarr_arrays,
)
from evencover.data.columns import Keys
from evencover.data.csv import CsvTable
from evencover.data.location import Identity, Location, is_zarr
from evencover.data.records import RecordTable
from evencover.data.tables import ArrowTable, FileTable, ParquetTable
from evencover.data.tools import records_of_file

ARRAYS: dict[str, OpenArrays] = {
    ".npy": npy_arrays,
    ".npz": npz_arrays,
    ".safetensors": safetensors_arrays,
    ".h5": hdf5_arrays,
    ".hdf5": hdf5_arrays,
    ".zarr": zarr_arrays,
    ".pt": torch_arrays,
    ".pth": torch_arrays,
}
# Open a table; without keys, it need not contain probabilities.
TABLES: dict[str, Callable[[Location, Identity, Keys | None], FileTable]] = {
    ".parquet": ParquetTable.open,
    ".arrow": ArrowTable.open,
    ".feather": ArrowTable.open,
    ".csv": CsvTable.open,
    ".tsv": CsvTable.open,
    ".jsonl": RecordTable.open,
    ".ndjson": RecordTable.open,
    ".json": partial(RecordTable.open, records=records_of_file),
}


def array_format(location: Location) -> OpenArrays | None:
    """Return what opens the named arrays of a file; a zarr store may have any name."""
    known = ARRAYS.get(location.suffix.lower())
    return zarr_arrays if known is None and is_zarr(location) else known
