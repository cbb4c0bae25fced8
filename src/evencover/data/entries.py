"""Read rows that list their top classes, in all spellings, as `TopK`.

Such inputs are small, whatever the number of classes, so they are read at once. The classes are
names or indices, never ranks in a sorted list: a model matches them by name or by index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.arrow import import_pyarrow
from evencover.classes import checked_names, integers_if_all
from evencover.data.columns import (
    CLASS_KEYS,
    INDEX_KEYS,
    NAMES_KEY,
    SCORE_KEYS,
    Column,
    ColumnUses,
    Keys,
    choose,
    choose_keys,
    entry_keys,
)
from evencover.data.readers import read_array
from evencover.data.records import plain
from evencover.data.source import Contents, Labels
from evencover.data.tables import Table, struct_names
from evencover.errors import InputError, listed
from evencover.topk import TopK, row_of

_BY_RANK = re.compile(r"(index|label|prob)_(\d+)")


def of_table(table: Table, keys: Keys) -> Contents:
    """Read a table: lists of top classes, a list column of numbers, or one column per class."""
    lists = find_lists(table.columns, keys, table.name)
    if lists is not None:
        used = {*lists.classes, *lists.scores}
        others = [column for column in table.columns if column.name not in used]
        label, ids = choose_keys(others, keys, table.name)
        uses = {"numbers": "listed classes", "labels": label, "ids": ids}
        left_out = {name: kind for name, kind in others if name not in (label, ids)}
        columns = ColumnUses({use: key for use, key in uses.items() if key is not None}, left_out)
    else:
        layout = choose(table.columns, keys, table.name, named=table.has_names, index=table.index)
        label, ids, columns = layout.label, layout.ids, layout.columns
    about: dict[str, Any] = {"columns": columns}
    if label is not None and keys.read_labels:
        about["labels"] = Labels(table.column(label))
    if ids is not None and keys.read_ids:
        about["ids"] = table.read([ids])[0]
    if lists is not None:
        return contents_of(_read_lists(table, lists), table.name, **about)
    reader, names = table.rows(layout.numbers, is_list=layout.is_list), layout.class_names
    if reader.n_rows and reader.n_classes < 2:
        raise InputError(f"{table.name} must have at least 2 classes. Got {reader.n_classes}.")
    if layout.is_list and table.class_names is not None and reader.n_classes:
        stored = json.loads(table.class_names)
        names = checked_names(stored, reader.n_classes, f"{NAMES_KEY} in {table.name}")
    are_numbered = table.has_names and not layout.is_list and names is None
    return Contents(
        reader=reader,
        class_names=names,
        integers_may_be_names=are_numbered,
        logits=layout.logits,
        **about,
    )


class Entries(NamedTuple):
    """The entries of all rows, one after the other."""

    starts: IntArray  #: (N + 1,) where those of each row begin, and the end
    classes: Array  #: class indices, or names as objects
    values: Array  #: probabilities
    are_indices: bool = True  #: whether integers are certainly indices, not names


class Lists(NamedTuple):
    """The columns in which a table lists classes and probabilities."""

    classes: tuple[str, ...]  #: one column of lists, or one column per rank
    scores: tuple[str, ...]  #: the same one if its lists have pairs


def find_lists(columns: Sequence[Column], keys: Keys, owner: str) -> Lists | None:
    """Find the lists of a table by the kinds of its columns, or its columns by rank."""
    by_kind: dict[str, list[str]] = {"entries": [], "list": [], "text list": [], "integer list": []}
    for name, kind in columns:
        if kind in by_kind:
            by_kind[kind].append(name)
    pairs, scores, texts, integers = by_kind.values()
    classes = texts or list(filter(CLASS_KEYS.__contains__, integers))
    if len(scores) > 1:
        scores = list(filter(SCORE_KEYS.__contains__, scores))
    if len(classes) > 1:
        classes = list(filter(CLASS_KEYS.__contains__, classes))
    several = max(pairs, classes if scores else [], scores if classes else [], key=len)
    if len(several) > 1 or (pairs and classes and scores):
        raise InputError(
            f"{owner} must have one list of classes with probabilities in each row. Got "
            f"{listed(map(repr, [*several, *(pairs if several is not pairs else ())]))}; leave out "
            "all others."
        )
    if keys.probabilities is not None and keys.probabilities not in (*pairs, *scores):
        return None
    if pairs:
        return Lists((pairs[0],), (pairs[0],))
    if len(classes) == len(scores) == 1:
        return Lists((classes[0],), (scores[0],))
    ranked = list(filter(None, map(_BY_RANK.fullmatch, dict(columns))))
    return _by_rank(ranked, owner) if ranked else None


def _by_rank(names: Iterable[re.Match[str]], owner: str) -> Lists | None:
    """Return the columns label_0, prob_0, ... of timm; None if some kind is missing."""
    kinds: dict[str, dict[int, str]] = {}
    for match in names:
        kinds.setdefault(match[1], {})[int(match[2])] = match[0]
    class_kind = "label" if "label" in kinds else "index"
    if not {class_kind, "prob"} <= kinds.keys():
        return None
    if kinds[class_kind].keys() != kinds["prob"].keys():
        raise InputError(f"{owner} must have a prob_i for each {class_kind}_i.")
    ranks = sorted(kinds["prob"])
    return Lists(*(tuple(kinds[kind][rank] for rank in ranks) for kind in (class_kind, "prob")))


def contents_of(
    entries: Entries,
    owner: str,
    n_classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
    **about: Any,
) -> Contents:
    """Make top-k rows of entries, and number classes that are names.

    `n_classes` and `class_names` are those that the input states, and `about` are other fields.
    """
    is_open, classes = n_classes is None, entries.classes
    if classes.dtype.kind in "OUT":
        is_blank = classes == ""
        if is_blank.any():
            row = row_of(entries.starts, int(is_blank.argmax()))
            raise InputError(f"Every entry of {owner} must name its class. Got none in row {row}.")
        names = classes.tolist()
        class_names = checked_names(sorted({*names}), len({*names}), f"The classes of {owner}")
        n_classes, index = len(class_names), dict(zip(class_names, count(), strict=False))
        classes = np.array(list(map(index.__getitem__, names)), dtype=np.int64)
    elif n_classes is None:
        n_classes = int(classes.max(initial=1)) + 1
    rows = TopK.from_csr(entries.starts, classes, entries.values, n_classes, owner=owner)
    return Contents(
        reader=read_array(rows, name=owner),
        class_names=class_names,
        is_open=is_open,
        integers_may_be_names=class_names is None and not entries.are_indices,
        logits=False,
        **about,
    )


# ---- lists ---------------------------------------------------------------------------------------


def _read_lists(table: Table, lists: Lists) -> Entries:
    """Read the columns of lists, or those by rank."""
    if len(lists.classes) > 1 or _BY_RANK.fullmatch(lists.classes[0]):
        return _read_ranks(table, lists)
    if not table.has_types and dict(table.columns)[lists.scores[0]] != "entries":
        raise InputError(
            f"{table.name} must have one cell for each of the top classes (label_0, prob_0, ...), "
            "because lists of names in one cell cannot be read with certainty. Got lists in "
            f"{lists.classes[0]!r}; write separate columns, a Parquet or a JSON file, or all "
            "classes (with timm: --topk 0)."
        )
    names = list(dict.fromkeys((*lists.classes, *lists.scores)))
    columns = table.read(names)
    if type(columns[0]).__module__.startswith("pyarrow"):
        return _of_arrow(columns, lists, table.name)
    return _of_lists([column.tolist() for column in columns], lists, table.name)


def _of_lists(columns: Sequence[Sequence[Any]], lists: Lists, owner: str) -> Entries:
    """Concatenate lists in memory, after a look at every entry."""
    key, entries, starts = lists.classes[0], list[tuple[Any, Any]](), [0]
    for row, parts in enumerate(zip(columns[0], columns[-1], strict=True)):
        for part in parts:
            if not isinstance(part, list | tuple | np.ndarray):
                raise _no_entry(owner, row, part)
        classes, scores = (x.tolist() if isinstance(x, np.ndarray) else x for x in parts)
        if lists.classes == lists.scores:
            for entry in classes:
                keys = entry_keys(tuple(entry)) if isinstance(entry, dict | Mapping) else None
                if keys is None:
                    raise _no_entry(owner, row, entry)
                key, score = keys
                entries.append((entry[key], entry[score]))
        else:
            _reject_lengths(len(classes), len(scores), row, owner)
            entries += zip(classes, scores, strict=True)
        starts.append(len(entries))
    labels, scores = map(plain, zip(*entries, strict=True)) if entries else ((), ())
    label_type = int if not labels or type(labels[0]) is int else str
    is_right = {label_type}.issuperset(map(type, labels))
    if not (is_right and {int, float}.issuperset(map(type, scores))):
        for number, (label, score) in enumerate(zip(labels, scores, strict=True)):
            if type(label) is not label_type or type(score) not in (int, float):
                wrong = score if type(label) is label_type else label
                raise _no_entry(owner, row_of(starts, number), wrong)
    try:
        indices = np.array(labels, dtype=np.int64 if label_type is int else object)
    except OverflowError:
        raise InputError(
            f"Class indices of {owner} must be below 2^63. Got a larger one."
        ) from None
    return Entries(np.array(starts), indices, np.array(scores, np.float64), key in INDEX_KEYS)


def _no_entry(owner: str, row: int, found: Any) -> InputError:
    return InputError(
        f"Every row of {owner} must be a list of labels with scores, such as "
        f'[{{"label": "cat", "score": 0.9}}], with labels of one type. Got {str(found)[:60]} in '
        f"row {row}."
    )


def _reject_lengths(n_classes: int, n_scores: int, row: int, owner: str) -> None:
    if n_classes != n_scores:
        raise InputError(
            f"Every row of {owner} must have as many classes as scores. Got {n_classes} and "
            f"{n_scores} in row {row}."
        )


def _of_arrow(columns: Sequence[Any], lists: Lists, owner: str) -> Entries:
    """Take lists of a table apart without a copy of the entries."""
    starts, flat = _lists_of(columns[0], owner)
    key = lists.classes[0]
    if lists.classes == lists.scores:
        names = struct_names(flat.type)
        keys = entry_keys(tuple(names))
        assert keys is not None
        parts = dict(zip(names, flat.flatten(), strict=True))  # null where the struct is
        key, labels, values = keys[0], parts[keys[0]], parts[keys[1]]
    else:
        labels = flat
        other, values = _lists_of(columns[1], owner)
        if not np.array_equal(starts, other):
            row = int((np.diff(starts) != np.diff(other)).argmax())
            _reject_lengths(int(np.diff(starts)[row]), int(np.diff(other)[row]), row, owner)
    for part in (labels, values):
        _reject_nulls(part, f"Every entry of {owner} must be given. Got null", starts)
    return Entries(starts, _classes(labels), to_numpy(values), key in INDEX_KEYS)


def _classes(labels: Any) -> Array:
    """Return an Arrow array of integers as indices, and of anything else as names."""
    pa = import_pyarrow()
    if pa.types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    if pa.types.is_integer(labels.type):
        return to_numpy(labels).astype(np.int64)
    return to_numpy(labels.cast("string")).astype(object)


def _lists_of(column: Any, owner: str) -> tuple[IntArray, Any]:
    """Return where the entries of each row begin, and the entries."""
    import pyarrow.compute as compute

    column = column.combine_chunks()
    _reject_nulls(column, f"Every row of {owner} must have a list. Got null")
    sizes = to_numpy(compute.list_value_length(column))
    return np.append(0, np.cumsum(sizes, dtype=np.int64)), column.flatten()


def _reject_nulls(cells: Any, problem: str, starts: IntArray | None = None) -> None:
    """Raise if an Arrow array has a null; `starts` are those of the rows if it has entries."""
    if cells.null_count:
        entry = int(to_numpy(cells.is_null()).argmax())
        row = entry if starts is None else row_of(starts, entry)
        raise InputError(f"{problem} in row {row}.")


def _read_ranks(table: Table, lists: Lists) -> Entries:
    """Put columns by rank next to each other."""
    k, is_index = len(lists.classes), lists.classes[0].startswith("index")
    columns = list(map(to_numpy, table.read(lists.classes)))
    blocks = table.rows(lists.scores, is_list=False).row_blocks()
    values = np.concatenate([block.rows for block in blocks] or [np.zeros((0, k))])
    if is_index and not table.has_types:
        columns = [integers_if_all(column.tolist()) for column in columns]
    for name, column in zip(lists.classes, columns, strict=True):
        if is_index and column.dtype.kind not in "iu":
            raise InputError(f"{name!r} of {table.name} must have class indices. Got other cells.")
    classes = np.stack(columns, axis=1)
    if classes.dtype.kind not in "iu":
        classes = classes.astype(object)
    starts = np.arange(len(values) + 1) * k
    return Entries(starts, classes.ravel(), values.ravel(), is_index)


# ---- several files -------------------------------------------------------------------------------


def joined_files(files: Sequence[Contents], name: str) -> list[Contents]:
    """Return files of top-k rows with the same classes, which each may list some of."""
    if len({file.class_names is None for file in files}) > 1:
        raise InputError(f"All files of '{name}' must name the classes, or none.")
    texts = {text for file in files for text in file.class_names or ()}
    names = tuple(sorted(texts)) or None
    index = {text: number for number, text in enumerate(names or ())}
    n_classes = len(index) or max(file.reader.n_classes for file in files)
    joined = []
    for file in files:
        rows: TopK = file.reader.rows  # type: ignore[attr-defined]
        new = [index[text] for text in file.class_names or ()] or range(rows.n_classes)
        rows = rows.renumbered(np.array(new, dtype=np.int64), n_classes)
        reader = read_array(rows, name=file.reader.name)
        joined.append(replace(file, reader=reader, class_names=names))
    return joined
