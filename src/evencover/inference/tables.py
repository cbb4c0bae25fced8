"""Tables with a column of paths or texts, and perhaps one of labels and one of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evencover.data.names import ID_KEYS, LABEL_KEYS
from evencover.errors import InputError
from evencover.inference.inputs import Example, Inputs, Kind
from evencover.inference.records import Records

# The names under which tables keep inputs, the likeliest first.
INPUT_KEYS: dict[Kind, tuple[str, ...]] = {
    "images": (
        *("image", "img", "image_path", "path", "file", "filename", "file_name", "filepath"),
        *("images", "file_path"),
    ),
    "texts": ("text", "texts", "sentence", "content", "utterance", "query", "document", "review"),
}


@dataclass(frozen=True)
class Columns:
    """The names that a user says hold the inputs, labels and ids; None: the usual ones."""

    inputs: str | None = None
    labels: str | None = None
    ids: str | None = None


class TableInputs(Inputs):
    """The rows of a table.

    Parameters
    ----------
    records
        What reads the rows.
    kind
        Whether the inputs are images or texts; None goes by the name of their column.
    columns
        Which columns to take.
    """

    def __init__(self, records: Records, kind: Kind | None, columns: Columns) -> None:
        self.records, self.name = records, records.name
        self.kind, self._input = self._find_input(kind, columns.inputs)
        self._label = self._find(columns.labels, LABEL_KEYS, "labels_key (--labels-key)")
        self._ids = self._find(columns.ids, ID_KEYS, "ids_key (--ids-key)")
        if self._label == self._input:
            self._label = None
        self.class_names = records.class_names.get(self._label or "")
        self.labels, self.n_inputs = self._scan()
        if not self.n_inputs:
            raise InputError(f"There must be at least one input. Got none in {self.name}.")
        about = (records.identity, self.kind, self._input, self._label, self._ids)
        self.identity = hashlib.blake2b(repr(about).encode(), digest_size=16).hexdigest()

    def _find(self, key: str | None, usual: Sequence[str], parameter: str) -> str | None:
        names = self.records.columns
        if key is None:
            return next((each for each in usual if each in names), None)
        if key not in names:
            raise InputError(
                f"{parameter} must be a column of {self.name}. Got {key!r}; "
                f"there are {_few(names)}."
            )
        return key

    def _find_input(self, kind: Kind | None, key: str | None) -> tuple[Kind, str]:
        names, pictures = self.records.columns, self.records.image_columns
        if key is not None:
            found = self._find(key, (), "input_key (--input-key)")
            assert found is not None
            is_picture = found in pictures or found in INPUT_KEYS["images"]
            return kind or ("images" if is_picture else "texts"), found
        for each in (kind,) if kind else INPUT_KEYS:
            of_kind = (*pictures, *INPUT_KEYS[each]) if each == "images" else INPUT_KEYS[each]
            place = next((name for name in of_kind if name in names), None)
            if place is not None:
                return each, place
        what = {"images": "paths of images", "texts": "texts"}.get(kind or "", "paths or texts")
        usual = [name for each in (kind, *INPUT_KEYS) if each for name in INPUT_KEYS[each][:3]]
        raise InputError(
            f"{self.name} must have a column of {what}, such as "
            f"{', '.join(map(repr, dict.fromkeys(usual)))}. Got {_few(names)}; say which it is "
            "with input_key (--input-key)."
        )

    def _scan(self) -> tuple[set[Any] | None, int]:
        """Every label once, and the number of rows."""
        if self._label is None:
            return None, self.records.count()
        found: set[Any] = set()
        n_rows = 0
        for row, (label,) in enumerate(self.records.read([self._label], 0)):
            if label is None or label == "":
                raise InputError(
                    f"Every row of {self.name} must have a label. Got none in row {row}."
                )
            found.add(self._name(label))
            n_rows += 1
        return found, n_rows

    def _name(self, label: Any) -> Any:
        """A label by name where the table knows the names of its numbers."""
        names = self.class_names
        if names is not None and isinstance(label, int):
            if not 0 <= label < len(names):
                raise InputError(
                    f"Every label of {self.name} must be one of its {len(names)} classes. "
                    f"Got {label}."
                )
            return names[label]
        return label if isinstance(label, int) else str(label)

    def examples(self, start: int) -> Iterator[Example]:
        """Rows from `start` on; an image without an id of its own is known by its path."""
        wanted = [name for name in (self._input, self._label, self._ids) if name is not None]
        for row, values in enumerate(self.records.read(wanted, start), start):
            cells = dict(zip(wanted, values, strict=True))
            value = cells[self._input]
            is_path = self.kind == "images" and isinstance(value, str)
            own = (value if is_path else row) if self._ids is None else cells[self._ids]
            if own is None:
                raise InputError(
                    f"Every row of {self.name} must have an id. Got none in row {row}."
                )
            label = None if self._label is None else self._name(cells[self._label])
            yield Example(own, self._located(value) if is_path else value, label)

    def _located(self, path: str) -> Path:
        """A path from the table's folder on, unless it is a whole one."""
        return self.records.folder / path


def _few(names: Sequence[str]) -> str:
    return f"the columns {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
