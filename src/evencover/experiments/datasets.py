"""The data of a study: simulated twins, the bundled languages, files, or arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evencover._validation import InputError, raise_unknown
from evencover.data.location import Location
from evencover.data.opening import as_source
from evencover.data.source import ArraySource, Source

KEYS = ("name", "path", "labels", "logits", "twin", "scale", "random_state")
# A file is known by its size and so many pieces of it: enough to tell files apart, quick to read.
N_PIECES, PIECE = 64, 1 << 16


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows with labels, opened when they are needed.

    Attributes
    ----------
    name
        What tables call it; the paper's names find the published numbers.
    identity
        Tells these rows from others: part of a study's configuration.
    open_source
        Gives the rows.
    simulated
        Whether it is a simulated twin.
    """

    name: str
    identity: str
    open_source: Callable[[], Source]
    simulated: bool = False


def make_dataset(entry: Any, *, scale: float = 1.0, folder: Path | None = None) -> DataSet:
    """A data set from what a grid says of it.

    Parameters
    ----------
    entry
        A `DataSet`; the name of a twin; "languages"; the path of a file or folder; a table with the
        keys path, name, labels and logits, or twin, name, scale and random_state; or a triple
        (name, probabilities, labels).
    scale
        Share of the classes of twins.
    folder
        Where relative paths begin.
    """
    if isinstance(entry, DataSet):
        return entry
    if isinstance(entry, tuple | list) and len(entry) == 3 and isinstance(entry[0], str):
        return _arrays(*entry)
    if isinstance(entry, dict):
        return _from_table(entry, scale, folder)
    if isinstance(entry, str | os.PathLike):
        return _named(str(entry), scale, folder)
    raise InputError(
        "A data set of a grid must be a name, a path, a table, or (name, probabilities, labels). "
        f"Got {type(entry).__name__} instead."
    )


def _named(name: str, scale: float, folder: Path | None) -> DataSet:
    from evencover.data.datasets.twin_parameters import TWINS

    if name in TWINS:
        return _twin(name, name, scale, 0)
    if name == "languages":
        return DataSet("languages", "languages", _languages)
    if not Path(name).suffix and not (folder or Path()).joinpath(name).is_dir():
        raise_unknown("data set", name, [*TWINS, "languages", "the path of a file or folder"])
    return _file(Path(name).stem, name, folder)


def _from_table(table: dict[str, Any], scale: float, folder: Path | None) -> DataSet:
    for key in table:
        if key not in KEYS:
            raise_unknown("key of a data set", key, KEYS)
    if ("path" in table) == ("twin" in table):
        raise InputError(f"A data set must have the key 'path' or 'twin'. Got {table} instead.")
    if "twin" in table:
        from evencover.data.datasets.twin_parameters import TWINS

        if table["twin"] not in TWINS:
            raise_unknown("twin", table["twin"], TWINS)
        name = table.get("name", table["twin"])
        return _twin(name, table["twin"], table.get("scale", scale), table.get("random_state", 0))
    path = str(table["path"])
    name = table.get("name", Path(path).stem)
    return _file(name, path, folder, labels=table.get("labels"), logits=table.get("logits"))


def _twin(name: str, twin_name: str, scale: float, random_state: int) -> DataSet:
    from evencover.data.datasets.twins import twin

    identity = f"twin {twin_name}, scale {scale}, random_state {random_state}"
    return DataSet(
        name, identity, lambda: twin(twin_name, scale=scale, random_state=random_state), True
    )


def _languages() -> Source:
    from evencover.data.datasets.languages import load_languages

    data = load_languages()
    return as_source(data.probabilities, data.labels, class_names=data.class_names.tolist())


def _file(
    name: str, path: str, folder: Path | None, labels: str | None = None, logits: bool | None = None
) -> DataSet:
    from evencover.data.location import as_location, existing_file, expand

    def place(of: str) -> Location:
        location = as_location(of)
        if isinstance(location, Path) and folder is not None:
            location = folder / location
        return location if expand(location) else existing_file(location)

    files = [place(path)] + ([] if labels is None else [place(labels)])

    def open_source() -> Source:
        return as_source(files[0], None if labels is None else files[1], logits=logits)

    each = [part for file in files for part in expand(file) or [file]]
    identity = " ".join(_fingerprint(file) for file in each)
    if len(each) > len(files):  # a folder of many parts
        identity = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
    return DataSet(name, f"{identity}, logits {logits}", open_source)


def _arrays(name: str, probabilities: Any, labels: Any) -> DataSet:
    source = as_source(probabilities, labels)
    if not isinstance(source, ArraySource) or source.labels is None:
        raise InputError("A data set in memory must be arrays of probabilities and labels.")
    rows = source.rows
    digest = hashlib.blake2b(repr(rows.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(rows[:: max(1, len(rows) // N_PIECES)]).tobytes())
    digest.update(np.ascontiguousarray(source.labels).tobytes())
    return DataSet(name, digest.hexdigest(), lambda: source)


def _fingerprint(path: Location) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest = hashlib.blake2b(str(size).encode(), digest_size=16)
        for start in np.linspace(0, max(size - PIECE, 0), N_PIECES).astype(np.int64).tolist():
            file.seek(start)
            digest.update(file.read(PIECE))
    return digest.hexdigest()
