"""Tables of predictions with a class and a score each, as detectors write, and reviews of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray
from evencover.arrow import import_pyarrow, is_list
from evencover.data.columns import ID_KEYS
from evencover.data.csv import CsvTable
from evencover.data.formats import TABLES
from evencover.data.location import Location, as_location, existing_file, expand, reading
from evencover.errors import InputError, listed
from evencover.validation import unique_keys

FORMATS = {**TABLES, ".txt": CsvTable.open}  # the last are selection tables of BirdNET and Raven
# Usual names of columns, in any case, with spaces or underscores.
USUAL_NAMES = {
    "class": ("scientific name", "common name", "label", "class", "species", "taxon"),
    "score": ("confidence", "score", "probability"),
    "right": ("correct", "right", "reviewed", "valid"),
}
ANSWERS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
ANSWERS |= {"1.0": True, "0.0": False}  # of a column that once had gaps


class Detections(NamedTuple):
    """Predictions (n,): the names of their classes, scores, and whether they are right."""

    classes: Array
    scores: FloatArray
    is_right: Array
    table: Any = None  #: the Arrow table with all columns

    @classmethod
    def of(
        cls, classes: Any, scores: Any, answers: Any, rows: Sequence[str] = (), table: Any = None
    ) -> Detections:
        """Check values, given answers such as yes and no, and the names of rows in messages."""
        sizes = len(classes), len(scores), len(answers)
        if len({*sizes, 0}) != 2:
            raise InputError(
                "There must be as many classes as scores and answers, and one at least. Got "
                f"{sizes[0]}, {sizes[1]} and {sizes[2]}."
            )
        numbers, right = np.full(sizes[0], np.nan), list[bool | None]()
        for row, (name, score, answer) in enumerate(zip(classes, scores, answers, strict=True)):
            with suppress(TypeError, ValueError):
                numbers[row] = score
            right.append(ANSWERS.get(str(answer).strip().lower()))
            wrong = ""
            if name is None or name != name or not str(name).strip():
                wrong = "Every prediction must have a class. Got none"
            elif not np.isfinite(numbers[row]):
                wrong = f"Every score must be a finite number. Got {score!r}"
            elif right[-1] is None:
                wrong = f"Every review must be yes or no; leave out others. Got {answer!r}"
            if wrong:
                raise InputError(f"{wrong} in {rows[row] if rows else f'row {row}'}.")
        return cls(np.array(list(map(str, classes)), object), numbers, np.array(right), table)


def read_detections(path: str, *keys: str | None) -> Detections:
    """Read a file, or the files of a folder or a glob.

    `keys` name the columns of classes, of scores and, in reviews, of answers; None stands for the
    usual ones. A row has one prediction, or lists of several. A prediction that was reviewed twice
    must have the same answer, and counts once.
    """
    location = as_location(path)
    tables = {file: _table(file) for file in expand(location) or [location]}
    filled = {file: table for file, table in tables.items() if len(table)} or tables
    table = next(iter(filled.values()))
    for file, other in filled.items():
        if not other.schema.equals(table.schema):
            raise InputError(f"All files of '{path}' must have the same columns, unlike '{file}'.")
    rows = [f"row {i} of '{file}'" for file, table in filled.items() for i in range(len(table))]
    table = import_pyarrow().concat_tables(filled.values())
    names = table.column_names
    columns = [_column(names, *each, path) for each in zip(USUAL_NAMES, keys, strict=False)]
    table, rows = _one_per_row(table, columns, rows)
    classes, scores, *answers = (table[column].to_pylist() for column in columns)
    if not answers:
        return Detections.of(classes, scores, [True] * len(rows), rows, table)
    found = Detections.of(classes, scores, answers[0], rows)
    # The id, class and score distinguish predictions or, without ids, all columns but the answer.
    # With a class and a score only, all are different.
    others = [name for name in names if name not in columns]
    others = [name for name in others if name.lower() in ID_KEYS] or others
    known: dict[str, int] = {}
    for row, cells in enumerate(table.select([*columns[:2], *others]).to_pylist()):
        first = known.setdefault(str(cells if others else row), row)
        if found.is_right[first] != found.is_right[row]:
            raise InputError(
                f"A prediction must have one answer. Got two in {rows[first]} and {rows[row]}; "
                "correct one, or distinguish the predictions by a column 'id'."
            )
    once = list(known.values())
    return Detections(*(values[once] for values in found[:3]))


def _table(location: Location) -> Any:
    """Read a whole table as Arrow; the cells of text files stay text."""
    opened = FORMATS.get(existing_file(location).suffix.lower())
    if opened is None:
        raise InputError(f"Cannot read '{location}': its extension must be {listed(FORMATS)}.")
    with reading(location) as identity:
        table = opened(location, identity, None)
        names = list(unique_keys(f"'{location}'", list(table.columns)))
        columns = (c.tolist() if isinstance(c, np.ndarray) else c for c in table.read(names))
        found = import_pyarrow().table(dict(zip(names, columns, strict=True)))
    # BirdNET writes one such row if it detects nothing in a recording.
    is_class = import_module("pyarrow.compute").field("Species Code") != "nocall"
    return found.filter(is_class) if "Species Code" in names else found


def _one_per_row(table: Any, columns: Sequence[str], rows: list[str]) -> tuple[Any, list[str]]:
    """Give each prediction a row of its own, if rows list several."""
    lists = [name for name in columns if is_list(table[name].type)]
    if not lists:
        return table, rows
    lengths = [[len(cell or ()) for cell in table[name].to_pylist()] for name in lists]
    for row, of_row in zip(rows, zip(*lengths, strict=True), strict=True):
        if len(set(of_row)) > 1:
            raise InputError(f"Lists of a row must be equally long. Got {listed(of_row)} in {row}.")
    at = np.repeat(np.arange(len(rows)), lengths[0])
    found = table.take(at)
    for name in lists:
        cells = import_module("pyarrow.compute").list_flatten(table[name])
        found = found.set_column(found.column_names.index(name), name, cells)
    return found, [rows[row] for row in at]


def _column(names: list[str], use: str, asked: str | None, path: str) -> str:
    """Return the column of a use: the one asked for, or the only one with a usual name."""
    plain = {name: name.lower().replace("_", " ") for name in names}
    found = [name for usual in USUAL_NAMES[use] for name in names if plain[name] == usual]
    if [plain[name] for name in found] == ["scientific name", "common name"]:
        found = found[:1]
    if asked is not None:
        found = [asked] * (asked in names)
    if len(found) != 1:
        raise InputError(
            f"'{path}' must have one column for '{use}', such as {USUAL_NAMES[use][0]!r}. Got "
            f"{listed(found or names) or 'one without a name'}; name it with --{use}-key."
        )
    return found[0]
