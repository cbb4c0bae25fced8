"""Where the chunks of an HDF5 data set are: the library takes their size before it looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evencover.data.formats.hdf5_heaps import MOST_BYTES
from evencover.data.location import Location, size_of


def refuse_chunks_beyond(dataset: Any, location: Location) -> None:
    """Refuse a data set with chunks that end beyond the file, where a file is small."""
    if dataset.chunks is None or not isinstance(location, Path):
        return
    size = size_of(location)
    if size > MOST_BYTES:  # as safe as the library, and not looked at twice
        return

    def check(chunk: Any) -> None:
        if chunk.byte_offset is not None and chunk.byte_offset + chunk.size > size:
            raise ValueError(f"it says that a chunk has {chunk.size:.3g} bytes, and has {size}")

    if hasattr(dataset.id, "chunk_iter"):
        dataset.id.chunk_iter(check)
    else:
        for number in range(dataset.id.get_num_chunks()):
            check(dataset.id.get_chunk_info(number))
