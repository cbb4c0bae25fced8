"""Formats by the extension of a file. Optional libraries are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # of typing from Python 3.13 on

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


def format_of(location: Location) -> type[FileTable] | OpenArrays | None:
    """Return the format by the extension: a table, or what opens named arrays.

    A zarr store may have any name.
    """
    suffix = location.suffix.lower()
    found = TABLES.get(suffix) or ARRAYS.get(suffix)
    return zarr_arrays if found is None and is_zarr(location) else found


def is_table(file_format: type[FileTable] | OpenArrays) -> TypeIs[type[FileTable]]:
    """Return whether a format is one of tables, not of named arrays."""
    return isinstance(file_format, type)
