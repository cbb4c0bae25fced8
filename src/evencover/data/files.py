"""From a path to a source: the kind of file is known by its ending."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from evencover._validation import Array, InputError
from evencover.data.source import Source

PROBABILITY_KEYS = ("probs", "probabilities", "softmax")
LOGIT_KEY = "logits"
LABEL_KEYS = ("labels", "label")
NAMES_KEY = "class_names"


def open_file(path: str | os.PathLike[str]) -> Source:
    """A source that reads .npy, .npz, .parquet, .arrow and .feather files block by block."""
    path = existing_file(path)
    readers: dict[str, Callable[[Path], Source]] = {
        ".npy": _numpy_array,
        ".npz": _numpy_archive,
        ".parquet": _parquet,
        ".arrow": _arrow,
        ".feather": _arrow,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"Cannot read '{path}': its ending must be one of {', '.join(readers)}. "
            f"Got {path.suffix or 'none'!r} instead."
        )
    return reader(path)


def existing_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file that is there."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"Cannot read '{path}': there is no such file.")
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what libraries say about a broken file into one sentence that names it."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"Cannot read '{path}': the file is truncated or not of the kind its ending says "
            f"({reason})."
        ) from error


def column_from_file(path: str | os.PathLike[str], key: str = "labels") -> Array:
    """One value per row from a file of its own: .npy, .npz (under `key`), or text, one per line."""
    path = existing_file(path)
    with reading(path):
        if path.suffix.lower() == ".npy":
            return np.array(np.lib.format.open_memmap(path, mode="r"))
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                if key not in archive:
                    raise InputError(f"'{path}' must hold {key!r}. Got {archive.files}.")
                return archive[key]
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    values = [line.strip() for line in lines if line.strip()]
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(values)


def _numpy_array(path: Path) -> Source:
    from evencover.data.numpy_files import NpySource

    return NpySource(path)


def _numpy_archive(path: Path) -> Source:
    from evencover.data.numpy_files import NpzSource

    return NpzSource(path)


def _parquet(path: Path) -> Source:
    from evencover.data.arrow import ParquetSource

    return ParquetSource(path)


def _arrow(path: Path) -> Source:
    from evencover.data.arrow import ArrowSource

    return ArrowSource(path)
