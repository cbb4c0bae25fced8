"""Read files that list the top classes of each row: tables, JSON lines, timm's CSV and CSR files.

Such files are small, whatever the number of classes, so they are read at once.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from evencover.topk import TopK, concatenate_rows

CLASS_KEYS = ("labels", "label", "classes", "class", "indices", "index", "class_ids")
SCORE_KEYS = ("scores", "score", "probabilities", "probability", "probs", "prob")
_BY_RANK = re.compile(r"(index|label|prob)_(\d+)")
_NUMBER = re.compile(r"\s*[-+]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|inf|nan)\s*", re.I)
SPARSE_KEYS = {"indptr", "indices", "data", "shape", "format"}  # of scipy.sparse.save_npz


class Listed(NamedTuple):
    """Top-k rows as a file has them: entries of all rows, and columns next to them."""

    starts: IntArray
    classes: Any  #: an array of class indices, or names: an Arrow array or a list
    values: Array
    columns: Mapping[str, Any]  #: one value per row
    n_classes: int = 0  #: if the file states it


def open_listed(location: Location, keys: Keys) -> Contents | None:
    """Open a file of top-k rows; None if it is another one."""
    with reading(location):
        listed = _READERS[location.suffix.lower()](location)
        return None if listed is None else _contents(listed, keys, f"'{location}'")


def _contents(listed: Listed, keys: Keys, name: str) -> Contents:
    """Give the classes numbers: their index, or their place among all names, sorted."""
    columns = listed.columns
    label = found_key(columns, keys.labels, LABEL_KEYS, name, "labels_key")
    ids = found_key(columns, keys.ids, ID_KEYS, name, "ids_key")
    labels = to_numpy(columns[label]) if label is not None and keys.read_labels else None
    names, classes = None, listed.classes
    if isinstance(classes, list):
        classes = import_pyarrow().array(map(str, classes), "string")
    if not isinstance(classes, np.ndarray):
        coded = classes.cast("string").dictionary_encode()
        texts, places = np.unique(to_numpy(coded.dictionary), return_inverse=True)
        names, classes = texts.tolist(), places[to_numpy(coded.indices)]
    elif labels is not None and labels.dtype.kind in "UO":
        labels = column_from_text([str(label) for label in labels.tolist()])
    n_classes = listed.n_classes or len(names or ()) or int(classes.max(initial=-1)) + 1
    try:
        rows = TopK.from_csr(listed.starts, classes, listed.values, n_classes, names)
    except InputError as error:
        raise InputError(str(error).replace("of the top-k rows", f"of {name}")) from None
    uses = {"numbers": "listed classes", "labels": label, "ids": ids}
    columns_used = ColumnUses({use: key for use, key in uses.items() if key is not None})
    row_ids = None if ids is None else to_numpy(columns[ids])
    reader = read_array(rows, name=name, is_open=True)
    return Contents(reader, rows.class_names, False, labels, ids=row_ids, columns=columns_used)


def joined_rows(files: Sequence[Contents], name: str) -> tuple[Any, tuple[str, ...] | None]:
    """Concatenate the rows of several files, whose classes may differ; return the names, too."""
    parts = [file.rows.rows for file in files]
    if len({part.class_names is None for part in parts}) > 1:
        raise InputError(f"All files of '{name}' must name the classes, or none.")
    names = sorted({text for part in parts for text in part.class_names or ()}) or None
    place = {text: number for number, text in enumerate(names or ())}
    n_classes = len(place) or max(part.n_classes for part in parts)
    for number, part in enumerate(parts):
        new = [place[text] for text in part.class_names or ()] or range(part.n_classes)
        parts[number] = part.renumbered(np.array(new, dtype=np.int64), n_classes, names)
    rows = concatenate_rows(parts)
    return read_array(rows, name=f"'{name}'", is_open=True), rows.class_names


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
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    with location.open("rb") as file:
        if location.suffix.lower() == ".parquet":
            stored = pq.ParquetFile(file)
            return _of_table(stored.schema_arrow, stored.read, location)
        stored = pa.ipc.open_file(file)
        return _of_table(stored.schema, stored.read_all, location)


def _of_table(schema: Any, read: Callable[[], Any], location: Location) -> Listed | None:
    """Find the lists of a table by their types, or its columns by rank; None if it has neither."""
    kinds = {field.name: arrow_kind(field.type) for field in schema}
    scores = [name for name, kind in kinds.items() if kind == "list"]
    classes = [name for name, kind in kinds.items() if kind == "text list"]
    classes += [n for n, kind in kinds.items() if kind == "integer list" and n in CLASS_KEYS]
    lists = {field.name: field.type.value_type for field in schema if is_list(field.type)}
    is_struct = import_pyarrow().types.is_struct
    structs = {name: [f.name for f in kind] for name, kind in lists.items() if is_struct(kind)}
    entries = [name for name in structs if None not in _entry(dict.fromkeys(structs[name], ""))]
    if len(entries) != 1 and not len(classes) == len(scores) == 1:
        ranked = _ranked_columns(schema.names, location)
        return None if ranked is None else _of_ranks(read(), ranked, location)
    table = read()
    columns = {n: table[n] for n in schema.names if n not in {*entries, *classes, *scores}}
    columns = {n: column for n, column in columns.items() if not column.null_count}
    if entries:
        starts, flat = _flat(table[entries[0]], location)
        parts = flat.flatten()  # null where the struct is
        labels, values = _entry(dict(zip(structs[entries[0]], parts, strict=True)))
    else:
        starts, labels = _flat(table[classes[0]], location)
        other, values = _flat(table[scores[0]], location)
        if not np.array_equal(starts, other):
            row = int((np.diff(starts) != np.diff(other)).argmax())
            raise InputError(
                f"Every row of '{location}' must have as many classes as scores. Got "
                f"{np.diff(starts)[row]} and {np.diff(other)[row]} in row {row}."
            )
    for part in (labels, values):
        _reject_nulls(part, f"Every entry of '{location}' must be given. Got null", starts)
    if arrow_kind(labels.type) == "integer":
        labels = to_numpy(labels).astype(np.int64)
    return Listed(starts, labels, to_numpy(values), columns)


def _entry(entry: Any) -> tuple[Any, Any]:
    """Return class and score of an entry; None for what it lacks."""
    if not isinstance(entry, dict):
        return None, None
    both = [next((entry[k] for k in keys if k in entry), None) for keys in (CLASS_KEYS, SCORE_KEYS)]
    return both[0], both[1]


def _flat(column: Any, location: Location) -> tuple[IntArray, Any]:
    """Return where the entries of each row begin, and the entries."""
    import pyarrow.compute as compute

    column = column.combine_chunks()
    _reject_nulls(column, f"Every row of '{location}' must have a list. Got null")
    sizes = to_numpy(compute.list_value_length(column))
    return np.append(0, np.cumsum(sizes, dtype=np.int64)), column.flatten()


def _reject_nulls(cells: Any, problem: str, starts: IntArray | None = None) -> None:
    """Raise if an Arrow array has a null; `starts` are those of the rows if it has entries."""
    if cells.null_count:
        place = int(to_numpy(cells.is_null()).argmax())
        row = place if starts is None else int(np.searchsorted(starts, place, side="right")) - 1
        raise InputError(f"{problem} in row {row}.")


def _read_json_lines(location: Location) -> Listed | None:
    """Read lists of {"label": ..., "score": ...}, alone in their line or within an object."""
    first = next(_json_lines(location), {})
    entry_of = {key: value[0] for key, value in first.items() if isinstance(value, list) and value}
    key = next((key for key, entry in entry_of.items() if None not in _entry(entry)), None)
    if key is None:
        return None
    sizes, labels, scores = list[int](), list[Any](), list[float]()
    columns: dict[str, list[Any]] = {}
    for row, record in enumerate(_json_lines(location)):
        entries = record.get(key)
        if not isinstance(entries, list):
            raise _no_entry(location, row, record.get("", record))
        for entry in entries:
            label, score = _entry(entry)
            if not isinstance(label, str | int) or not isinstance(score, float | int):
                raise _no_entry(location, row, entry)
            labels.append(label)
            scores.append(float(score))
        sizes.append(len(entries))
        for name, value in record.items():
            if isinstance(value, str | int):
                columns.setdefault(name, []).append(value)
    columns = {name: values for name, values in columns.items() if len(values) == len(sizes)}
    is_index = all(type(label) is int for label in labels)
    classes = np.array(labels, dtype=np.int64) if is_index else labels
    return Listed(np.cumsum([0, *sizes]), classes, np.array(scores), columns)


def _json_lines(location: Location) -> Iterator[dict[str, Any]]:
    """Read one object per line; anything else becomes its field ""."""
    with location.open("rb") as file:
        for record in map(json.loads, (line for line in file if line.strip())):
            yield record if isinstance(record, dict) else {"": record}


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
    pa = import_pyarrow()
    import pyarrow.csv as arrow_csv

    def read(types: dict[str, Any]) -> Any:
        parsing = arrow_csv.ParseOptions(delimiter=separator)
        options = arrow_csv.ConvertOptions(column_types=types, strings_can_be_null=True)
        with location.open("rb") as file:
            return arrow_csv.read_csv(file, parse_options=parsing, convert_options=options)

    text, numbers = dict.fromkeys(names, pa.string()), dict.fromkeys(ranked[1], pa.float64())
    if ranked[0][0].startswith("index"):
        numbers |= dict.fromkeys(ranked[0], pa.int64())
    try:
        return _of_ranks(read(text | numbers), ranked, location)
    except pa.ArrowInvalid:
        for row, cells in enumerate(read(text).select(list(numbers)).to_pylist()):
            for name, cell in cells.items():
                if cell and not _NUMBER.fullmatch(cell):
                    raise InputError(
                        f"'{name}' of '{location}' must be numbers. Got {cell!r} in row {row}."
                    ) from None
        raise


def _ranked_columns(names: Sequence[str], location: Location) -> list[list[str]] | None:
    """Return the columns of the classes and of the numbers, by rank; None if there are none."""
    kinds: dict[str, dict[int, str]] = {}
    for match in filter(None, map(_BY_RANK.fullmatch, names)):
        kinds.setdefault(match[1], {})[int(match[2])] = match[0]
    class_kind = "label" if "label" in kinds else "index"
    if not {class_kind, "prob"} <= kinds.keys():
        return None
    if kinds[class_kind].keys() != kinds["prob"].keys():
        raise InputError(f"'{location}' must have a prob_i for each {class_kind}_i.")
    return [[kinds[kind][rank] for rank in sorted(kinds[kind])] for kind in (class_kind, "prob")]


def _of_ranks(table: Any, ranked: list[list[str]], location: Location) -> Listed:
    """Put columns by rank next to each other."""
    used = [name for names in ranked for name in names]
    for name in used:
        _reject_nulls(table[name], f"'{name}' of '{location}' must have values. Got none")
    cells, numbers = (np.stack([to_numpy(table[n]) for n in names], axis=1) for names in ranked)
    starts = np.arange(len(numbers) + 1) * numbers.shape[1]
    is_index = ranked[0][0].startswith("index")
    classes = cells.astype(np.int64).ravel() if is_index else cells.ravel().tolist()
    others = {name: table[name] for name in table.column_names if name not in used}
    return Listed(starts, classes, numbers.ravel(), others)


_READERS: dict[str, Callable[[Location], Listed | None]] = {
    **dict.fromkeys((".parquet", ".arrow", ".feather"), _read_arrow),
    **dict.fromkeys((".jsonl", ".ndjson"), _read_json_lines),
    **dict.fromkeys((".csv", ".tsv"), _read_csv),
}
