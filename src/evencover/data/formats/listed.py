"""Read files that list the top classes of each row: tables, JSON lines, timm's CSV and CSR files.

Such files are small, whatever the number of classes, so they are read at once.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, arrow_kind, import_pyarrow, is_list, to_numpy
from evencover.data.columns import (
    ID_KEYS,
    LABEL_KEYS,
    ColumnUses,
    Contents,
    Keys,
    column_from_text,
    found_key,
)
from evencover.data.location import Location, reading
from evencover.data.readers import read_array
from evencover.errors import InputError, one_line
from evencover.topk import TopK

CLASS_KEYS = ("labels", "label", "classes", "class", "indices", "index", "class_ids")
SCORE_KEYS = ("scores", "score", "probabilities", "probability", "probs", "prob")
_BY_RANK = re.compile(r"(index|label|prob|logit)_(\d+)")
SPARSE_KEYS = {"indptr", "indices", "data", "shape", "format"}  # of scipy.sparse.save_npz


class Listed(NamedTuple):
    """Top-k rows as a file has them: entries of all rows, and columns next to them."""

    starts: IntArray
    classes: Any  #: an array of class indices, or an Arrow array of names
    values: Array
    columns: Mapping[str, Any]  #: one value per row
    n_classes: int = 0  #: if the file states it


def open_listed(location: Location, keys: Keys) -> Contents | None:
    """Open a file of top-k rows; None if it is another one."""
    read = _READERS.get(location.suffix.lower())
    if read is None:
        return None
    with reading(location):
        listed = read(location)
        return None if listed is None else _contents(listed, keys, f"'{location}'")


def _contents(listed: Listed, keys: Keys, name: str) -> Contents:
    """Give the classes numbers: their index, or their place among all names, sorted."""
    columns = listed.columns
    label = found_key(columns, keys.labels, LABEL_KEYS, name, "labels_key")
    ids = found_key(columns, keys.ids, ID_KEYS, name, "ids_key")
    labels = to_numpy(columns[label]) if label is not None and keys.read_labels else None
    names, classes, n_classes = None, listed.classes, listed.n_classes
    if not isinstance(classes, np.ndarray):
        names, classes = _numbered(classes)
    n_classes = n_classes or len(names or ()) or int(classes.max(initial=-1)) + 1
    if names is None and labels is not None and labels.dtype.kind in "UO":
        labels = column_from_text([str(label) for label in labels.tolist()])
    try:
        rows = TopK.from_csr(listed.starts, classes, listed.values, n_classes, names)
    except InputError as error:
        raise InputError(str(error).replace("of the top-k rows", f"of {name}")) from None
    used = {"numbers": "listed classes"} | ({} if label is None else {"labels": label})
    return Contents(
        replace(read_array(rows, name=name), is_open=True),
        rows.class_names,
        False,
        labels,
        ids=None if ids is None else to_numpy(columns[ids]),
        columns=ColumnUses(used | ({} if ids is None else {"ids": ids})),
    )


def joined_rows(files: Sequence[Contents], name: str) -> tuple[Any, tuple[str, ...] | None]:
    """Concatenate the rows of several files, whose classes may differ; return the names, too."""
    parts = [file.rows.rows for file in files]
    if len({part.class_names is None for part in parts}) > 1:
        raise InputError(f"All files of '{name}' must name the classes, or none.")
    names = sorted({text for part in parts for text in part.class_names or ()}) or None
    place = {text: number for number, text in enumerate(names or ())}
    n_classes = len(place) or max(part.n_classes for part in parts)
    rows = TopK.concatenate(
        [
            part.renumbered(
                np.arange(part.n_classes)
                if part.class_names is None
                else np.array([place[text] for text in part.class_names], dtype=np.int64),
                n_classes,
                names,
            )
            for part in parts
        ]
    )
    return replace(read_array(rows, name=f"'{name}'"), is_open=True), rows.class_names


# ---- formats -------------------------------------------------------------------------------------


def read_sparse(arrays: Mapping[str, Array], keys: Keys, name: str) -> Contents:
    """Read the arrays of a matrix that `scipy.sparse.save_npz` wrote, and those next to them."""
    kind, (n_rows, n_classes) = str(arrays["format"].item()), arrays["shape"].tolist()
    if kind not in ("csr", "csc"):
        raise InputError(f"{name} must have the format csr or csc. Got {kind!r}.")
    starts, classes, values = (arrays[key] for key in ("indptr", "indices", "data"))
    if kind == "csc":
        from scipy.sparse import csc_array

        try:
            matrix = csc_array((values, classes, starts), shape=(n_rows, n_classes)).tocsr()
        except ValueError as error:
            raise InputError(f"{name} must be a sparse matrix. Got {one_line(error)}.") from error
        starts, classes, values = matrix.indptr, matrix.indices, matrix.data
    if len(starts) != n_rows + 1:
        raise InputError(
            f"'indptr' of {name} must have one entry per row and the end. Got {len(starts)} for "
            f"{n_rows} rows."
        )
    columns = {key: arrays[key] for key in arrays.keys() - SPARSE_KEYS}
    return _contents(Listed(starts, classes, values, columns, n_classes), keys, name)


def _read_arrow(location: Location) -> Listed | None:
    """Read a list of labels and a list of scores, one list of both, or timm's columns by rank."""
    schema, read_table = _open_arrow(location)
    import pyarrow.compute as compute

    lists = [field for field in schema if is_list(field.type)]
    entries = [field.name for field in lists if _is_pair(field.type.value_type)]
    kinds = {field.name: arrow_kind(field.type) for field in lists}
    scores = [name for name, kind in kinds.items() if kind == "list"]
    classes = [name for name, kind in kinds.items() if kind == "text list"]
    classes += [n for n, kind in kinds.items() if kind == "integer list" and n in CLASS_KEYS]
    if len(entries) != 1 and not len(classes) == len(scores) == 1:
        ranked = _ranked_columns(schema.names, location)
        return None if ranked is None else _of_ranks(read_table(), ranked, location)
    table = read_table()
    columns = {n: table.column(n) for n in schema.names if n not in {*entries, *classes, *scores}}
    columns = {n: column for n, column in columns.items() if not column.null_count}
    if entries:
        starts, flat = _flat(table.column(entries[0]), location)
        class_key, score_key = _is_pair(flat.type) or ("", "")
        labels = compute.struct_field(flat, class_key)  # null where the struct is
        values = compute.struct_field(flat, score_key)
    else:
        starts, labels = _flat(table.column(classes[0]), location)
        other, values = _flat(table.column(scores[0]), location)
        if not np.array_equal(starts, other):
            row = int((np.diff(starts) != np.diff(other)).argmax())
            raise InputError(
                f"Every row of '{location}' must have as many classes as scores. Got "
                f"{np.diff(starts)[row]} and {np.diff(other)[row]} in row {row}."
            )
    for part in (labels, values):
        if part.null_count:
            entry = int(to_numpy(part.is_null()).argmax())
            row = int(np.searchsorted(starts, entry, side="right")) - 1
            raise InputError(f"Every entry of '{location}' must be given. Got null in row {row}.")
    if arrow_kind(labels.type) == "integer":
        labels = np.asarray(labels.to_numpy(zero_copy_only=False)).astype(np.int64)
    return Listed(starts, labels, values.to_numpy(zero_copy_only=False), columns)


def _numbered(labels: Any) -> tuple[list[str], IntArray]:
    """Return the different labels of an Arrow array, sorted, and the place of each label."""
    coded = labels.cast("string").dictionary_encode()
    names = coded.dictionary.to_pylist()
    place = np.empty(len(names), dtype=np.int64)
    place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return sorted(names), place[coded.indices.to_numpy(zero_copy_only=False)]


def _is_pair(kind: Any) -> tuple[str, str] | None:
    """Return the fields of a struct that are class and score; None if it is no such struct."""
    if not import_pyarrow().types.is_struct(kind):
        return None
    names = [field.name for field in kind]
    found = [next((key for key in keys if key in names), "") for keys in (CLASS_KEYS, SCORE_KEYS)]
    return (found[0], found[1]) if all(found) else None


def _flat(column: Any, location: Location) -> tuple[IntArray, Any]:
    """Return where the entries of each row begin, and the entries."""
    import pyarrow.compute as compute

    column = column.combine_chunks()
    if column.null_count:
        row = int(to_numpy(column.is_null()).argmax())
        raise InputError(f"Every row of '{location}' must have a list. Got null in row {row}.")
    sizes = to_numpy(compute.list_value_length(column)).astype(np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), column.flatten()


def _open_arrow(location: Location) -> tuple[Any, Callable[[], Any]]:
    """Return the schema of a Parquet or Arrow file, and a function that reads all of it."""
    ipc = import_pyarrow().ipc
    import pyarrow.parquet as pq

    is_parquet = location.suffix.lower() == ".parquet"
    with location.open("rb") as file:
        schema = pq.read_schema(file) if is_parquet else ipc.open_file(file).schema

    def read() -> Any:
        with location.open("rb") as file:
            return pq.read_table(file) if is_parquet else ipc.open_file(file).read_all()

    return schema, read


def _read_json_lines(location: Location) -> Listed | None:
    """Read lists of {"label": ..., "score": ...}, alone in their line or within an object."""
    _, first = next(_json_lines(location), (0, None))
    key = _entries_key(first)
    if key is None:
        return None
    sizes, labels, scores = list[int](), list[Any](), list[float]()
    columns: dict[str, list[Any]] = {}
    for row, record in _json_lines(location):
        entries = record if key == "" else record.get(key) if isinstance(record, dict) else None
        if not isinstance(entries, list):
            raise _no_entry(location, row, record)
        for entry in entries:
            label, score = _entry(entry)
            if not isinstance(label, str | int) or not isinstance(score, float | int):
                raise _no_entry(location, row, entry)
            labels.append(label)
            scores.append(float(score))
        sizes.append(len(entries))
        for name, value in record.items() if key else ():
            if name != key and isinstance(value, str | int):
                columns.setdefault(name, []).append(value)
    columns = {name: values for name, values in columns.items() if len(values) == len(sizes)}
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if all(type(label) is int for label in labels):
        return Listed(starts, np.array(labels, dtype=np.int64), np.array(scores), columns)
    return Listed(starts, _texts(labels), np.array(scores), columns)


def _json_lines(location: Location) -> Iterator[tuple[int, Any]]:
    with location.open("rb") as file:
        lines = (line for line in file if line.strip())
        yield from enumerate(map(json.loads, lines))


def _entry(entry: Any) -> tuple[Any, Any]:
    """Return class and score of an entry; None for what it lacks."""
    if not isinstance(entry, dict):
        return None, None
    both = [next((entry[k] for k in keys if k in entry), None) for keys in (CLASS_KEYS, SCORE_KEYS)]
    return both[0], both[1]


def _entries_key(record: Any) -> str | None:
    """Return the key of the entries in a line, "" if it is their list; None if it has none."""
    pairs = record.items() if isinstance(record, dict) else [("", record)]
    for key, value in pairs:
        if isinstance(value, list) and value and None not in _entry(value[0]):
            return str(key)
    return None


def _no_entry(location: Location, row: int, found: Any) -> InputError:
    return InputError(
        f"Every row of '{location}' must be a list of labels with scores, such as "
        f'[{{"label": "cat", "score": 0.9}}]. Got {json.dumps(found)[:60]} in row {row}.'
    )


def _read_csv(location: Location) -> Listed | None:
    """Read the columns label_0, prob_0, ... of timm."""
    separator = "\t" if location.suffix.lower() == ".tsv" else ","
    with location.open("rb") as file:
        header = file.readline().decode("utf-8-sig")
    names = next(csv.reader([header], delimiter=separator), [])
    ranked = _ranked_columns(names, location)
    if ranked is None:
        return None
    import pyarrow.csv as arrow_csv

    pa = import_pyarrow()
    numbers = dict.fromkeys(ranked[1], pa.float64())
    if ranked[0][0].startswith("index"):
        numbers |= dict.fromkeys(ranked[0], pa.int64())

    def read(numbers: dict[str, Any]) -> Any:
        types = dict.fromkeys(names, pa.string()) | numbers
        options = arrow_csv.ConvertOptions(column_types=types, strings_can_be_null=True)
        parsing = arrow_csv.ParseOptions(delimiter=separator)
        with location.open("rb") as file:
            return arrow_csv.read_csv(file, parse_options=parsing, convert_options=options)

    try:
        table = read(numbers)
    except pa.ArrowInvalid:
        _reject_text(read({}), list(numbers), location)
        raise
    return _of_ranks(table, ranked, location)


def _reject_text(table: Any, columns: Sequence[str], location: Location) -> None:
    """Raise for the first cell of columns of numbers that is not a number."""
    rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    for row, cells in enumerate(rows):
        for name, cell in zip(columns, cells, strict=True):
            try:
                float(cell or 0)
            except ValueError:
                raise InputError(
                    f"'{name}' of '{location}' must be numbers. Got {cell!r} in row {row}."
                ) from None


def _ranked_columns(names: Sequence[str], location: Location) -> list[list[str]] | None:
    """Return the columns of the classes and of the numbers, by rank; None if there are none."""
    kinds: dict[str, dict[int, str]] = {}
    for name in names:
        match = _BY_RANK.fullmatch(name)
        if match is not None:
            kinds.setdefault(match[1], {})[int(match[2])] = name
    class_kind = next((kind for kind in ("label", "index") if kind in kinds), None)
    if class_kind is None or "prob" not in kinds:
        return None
    if kinds[class_kind].keys() != kinds["prob"].keys():
        raise InputError(f"'{location}' must have a prob_i for each {class_kind}_i.")
    return [[kinds[kind][rank] for rank in sorted(kinds[kind])] for kind in (class_kind, "prob")]


def _texts(labels: Iterable[Any]) -> Any:
    return import_pyarrow().array(map(str, labels), "string")


def _of_ranks(table: Any, ranked: list[list[str]], location: Location) -> Listed:
    """Put columns by rank next to each other."""

    def column(name: str) -> Array:
        cells = table.column(name)
        if cells.null_count:
            row = int(to_numpy(cells.is_null()).argmax())
            raise InputError(f"'{name}' of '{location}' must have values. Got none in row {row}.")
        return np.asarray(cells.to_numpy(zero_copy_only=False))

    cells, numbers = (np.stack([column(name) for name in names], axis=1) for names in ranked)
    starts = np.arange(len(numbers) + 1) * numbers.shape[1]
    used = {name for names in ranked for name in names}
    others = {name: table.column(name) for name in table.column_names if name not in used}
    is_index = ranked[0][0].startswith("index")
    classes = cells.astype(np.int64).ravel() if is_index else _texts(cells.ravel().tolist())
    return Listed(starts, classes, numbers.ravel(), others)


_READERS: dict[str, Callable[[Location], Listed | None]] = {
    ".parquet": _read_arrow,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".csv": _read_csv,
    ".tsv": _read_csv,
}
