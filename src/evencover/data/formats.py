"""Formats by the extension of a file. Optional libraries are imported on first use."""

from __future__ import annotations

from evencover.data.arrays import (
    OpenArrays,
    hdf5_arrays,
    npy_arrays,
    npz_arrays,
    safetensors_arrays,
    torch_arrays,
    zarr_arrays,
)
from evencover.data.csv import CsvTable
from evencover.data.location import Location, is_zarr
from evencover.data.records import RecordTable
from evencover.data.tables import ArrowTable, FileTable, ParquetTable
from evencover.data.tools import JsonTable

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
TABLES: dict[str, type[FileTable]] = {
    ".parquet": ParquetTable,
    ".arrow": ArrowTable,
    ".feather": ArrowTable,
    ".csv": CsvTable,
    ".tsv": CsvTable,
    ".jsonl": RecordTable,
    ".ndjson": RecordTable,
    ".json": JsonTable,
}


def table_format(location: Location) -> type[FileTable] | None:
    """Return the format of a table by its extension."""
    return TABLES.get(location.suffix.lower())


def array_format(location: Location) -> OpenArrays | None:
    """Return the format of named arrays by the extension; a zarr store may have any name."""
    found = ARRAYS.get(location.suffix.lower())
    return zarr_arrays if found is None and is_zarr(location) else found
