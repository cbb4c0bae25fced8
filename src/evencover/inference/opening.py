"""From a path to inputs: what kind of data it is."""

from __future__ import annotations

import os
from pathlib import Path

from evencover.errors import InputError
from evencover.inference.folders import FolderInputs
from evencover.inference.inputs import Inputs, Kind
from evencover.inference.records import TABLES, DatasetRecords
from evencover.inference.tables import Columns, TableInputs


def open_inputs(path: str | os.PathLike[str], kind: Kind | None, columns: Columns) -> Inputs:
    """The inputs of a folder of classes, a table, or a Hugging Face dataset on disk."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"Cannot read '{path}': there is no such file or folder.")
    if path.is_dir():
        if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
            return TableInputs(DatasetRecords(path), kind, columns)
        if (path / "dataset_dict.json").is_file():
            splits = sorted(each.parent.name for each in path.glob("*/state.json"))
            raise InputError(
                f"'{path}' holds several splits; choose one of them: "
                f"{', '.join(str(path / each) for each in splits)}."
            )
        return FolderInputs(path, kind)
    records = TABLES.get(path.suffix.lower())
    if records is None:
        raise InputError(
            f"Cannot read '{path}': inputs come in a folder with one sub-folder per class, in a "
            f"table ({', '.join(TABLES)}) or in a Hugging Face dataset on disk. "
            f"Got the ending {path.suffix or 'none'!r}."
        )
    return TableInputs(records(path), kind, columns)
