"""Names of probabilities, labels and ids in files, frames and batches, and the use of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, Kind, to_numpy
from evencover.errors import InputError, is_visible, listed, warn_caller
from evencover.validation import align_classes, is_integer_text

PROBABILITY_KEYS = (
    *("probs", "probabilities", "softmax", "proba", "predict_proba", "y_proba", "y_prob"),
    *("pred_probs", "prob"),  # cleanlab, timm
)
LOGIT_KEYS = ("logits", "logit")
PREDICTIONS_KEY = "predictions"  # logits of Hugging Face's Trainer, next to "label_ids"
TRAINER_LABELS_KEY = "label_ids"
MATRIX_KEYS = (*PROBABILITY_KEYS, *LOGIT_KEYS, PREDICTIONS_KEY)
LABEL_KEYS = ("labels", "label", TRAINER_LABELS_KEY, "y_true", "y", "targets", "target")
ID_KEYS = ("ids", "id")
NAMES_KEY = "class_names"

SAVED_INDEX = "__index_level_0__"
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?|[-+]?\.[0-9]+")

# Unnamed columns, and the names of an index that pandas and Arrow store in a file.
_INDEX = re.compile(r"\s*(Unnamed: \d+(_level_\d+)?)?\s*|__index_level_\d+__|index|level_0")

# A column is never a class if its name is one of these words, or one of them together with words
# that only describe it, such as latency_ms, image_path, top1_score or rowId. Class columns that are
# numbered, such as score_0, are none of these.
_RESERVED = re.compile(
    "ids?|uid|uuid|guid|idx|labels?|targets?|y|keys?|paths?|files?|filename|filepath|fname|url|uri|"
    "name|split|fold|partition|subset|time|times|date|datetime|timestamp|elapsed|runtime|created|"
    "updated|scores?|weights?|loss|losses|nll|entropy|perplexity|margins?|latency|duration|"
    "confidence|uncertainty|predictions?|predicted|preds?|correct|accuracy|seed|epoch"
)
_DESCRIBING = re.compile(
    r"row|sample|example|item|image|img|picture|text|document|record|user|data|test|train|val|"
    r"validation|model|class|top[0-9]*|max|min|mean|total|log|cross|ce|inference|importance|s|ms|"
    r"us|ns|sec|seconds|p[0-9]+|at|utc|start|end|number|code|value|size|true"
)
# The highest number of a row, next to all numbers.
_HIGHEST = re.compile(r"(max|top1?) (probs?|probability|softmax|logits?)")


@dataclass(frozen=True)
class Keys:
    """User-given names of the numbers, labels and ids; None for the usual names.

    With one column per class, ``probabilities`` may be a glob such as ``p_*``, or ``!loss`` for all
    columns but one. Without ``read_labels``, labels stay unread.
    """

    probabilities: str | None = None
    labels: str | None = None
    ids: str | None = None
    read_labels: bool = True


USUAL = Keys()


def names_logits(key: str, keys: Iterable[str]) -> bool | None:
    """Return whether a name indicates logits; None if unknown."""
    if key in LOGIT_KEYS or (key == PREDICTIONS_KEY and TRAINER_LABELS_KEY in keys):
        return True
    return False if key in PROBABILITY_KEYS else None


def matrix_key(arrays: Mapping[str, Any], owner: str, keys: Keys = USUAL) -> str:
    """Find the matrix among named arrays."""
    asked = found_key(arrays, keys.probabilities, (), owner, "probabilities_key")
    if asked is not None:
        return asked
    if "" in arrays:  # a file with one unnamed array
        return ""
    known = sorted(set(MATRIX_KEYS) & set(arrays), key=MATRIX_KEYS.index)
    if len(known) > 1:
        known = [key for key in known if len(np.shape(arrays[key])) == 2]
    if len(known) != 1:
        held = listed(f"{key} {tuple(np.shape(arrays[key]))}" for key in arrays) or "none"
        raise InputError(
            f"{owner} must have one matrix under {listed(map(repr, MATRIX_KEYS))}. Got the keys "
            f"{held}; choose one with probabilities_key (--probabilities-key)."
        )
    return known[0]


def found_key(
    held: Collection[str], asked: str | None, usual: tuple[str, ...], owner: str, parameter: str
) -> str | None:
    """Return the name asked for, which must exist, or the first of the usual names."""
    if asked is not None and asked not in held:
        raise InputError(
            f"'{parameter}' must be in {owner}. Got {asked!r}; there are {listed(held)}."
        )
    return asked or min(set(usual) & set(held), key=usual.index, default=None)


# ---- class names ---------------------------------------------------------------------------------


def integers_are_names(class_names: Sequence[str] | None) -> bool | None:
    """Return whether integer labels are names of these columns, not their indices.

    They are if all columns are called by integers. It is unclear, which is None, if only some are,
    or if names such as 007 and 7.0 may have been integers.

    >>> integers_are_names(["10", "20"]), integers_are_names(["ant", "1"])
    (True, False)
    >>> [integers_are_names(names) for names in (["ant", "7"], ["001", "002"])]
    [None, None]
    """
    names = class_names or ()
    if names and all(map(is_integer_text, names)):
        return True
    is_unclear = (
        _NUMBER.fullmatch(name) and name != str(column) for column, name in enumerate(names)
    )
    return None if any(is_unclear) else False


def as_class_names(names: Any, n_classes: int) -> tuple[str, ...] | None:
    """Return one name per class from a sequence or {index: name}; None stays None."""
    if names is None:
        return None
    aligned = align_classes(names, None, n_classes, "class_names")
    return checked_names(aligned.tolist(), n_classes, "'class_names'")


def checked_names(names: Iterable[object], n_classes: int, owner: str) -> tuple[str, ...]:
    """Check that there is one name per class, all different, visible, and encodable in UTF-8."""
    names = list(names)
    if len(names) != n_classes:
        raise InputError(f"{owner} must have one name per class. Got {len(names)} for {n_classes}.")
    for column, name in enumerate(names):
        is_missing = name is None or type(name).__name__ in ("NAType", "NaTType") or name != name
        if is_missing or not is_visible(str(name)):
            raise InputError(f"{owner} must name every class. Got {name!r} for class {column}.")
    texts = tuple(str(name) for name in names)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{owner} must be text. Got {error.object[error.start]!r}.") from None
    first: dict[str, int] = {}
    for column, name in enumerate(texts):
        if first.setdefault(name, column) != column:
            raise InputError(
                f"{owner} must be unique. Got {name!r} for the classes {first[name]} and {column}; "
                "rename one of them."
            )
    return texts


def column_from_text(values: list[str]) -> Array:
    """Convert cells to integers if all are integers in plain digits; 007 stays text."""
    if all(map(is_integer_text, values)):
        return np.array([int(value) for value in values], dtype=np.int64)
    return to_numpy(values)


def count_up(names: Iterable[str]) -> bool:
    """Return whether the names are the default 0, 1, 2, ... of a frame."""
    return all(name == str(column) for column, name in enumerate(names))


# ---- the use of columns --------------------------------------------------------------------------


class ColumnUses(NamedTuple):
    """What the columns or arrays of an input are used for."""

    used: Mapping[str, str] = {}  #: the column, or columns, of each use
    left_out: Mapping[str, str] = {}  #: why other columns are not used
    guessed: tuple[str, ...] = ()  #: columns left out that might be classes


@dataclass(frozen=True)
class Contents:
    """What an input contains, as it is stored."""

    rows: Any  #: a matrix, or the reader of one
    class_names: tuple[str, ...] | None = None
    logits: bool | None = None
    labels: Any = None
    labels_are_cells: bool = False  #: whether labels are cells of a file without types
    ids: Array | None = None
    integers_are_names: bool | None = False
    columns: ColumnUses = field(default_factory=ColumnUses)


_REASONS: dict[Kind, str] = {"text": "text", "flag": "true or false", "other": "no numbers"}
_REASONS |= dict.fromkeys(("list", "integer list", "text list"), "a list")
_CLASS_LISTS: tuple[Kind, ...] = ("integer list", "text list")
_REMEDY = "name the columns of the classes with probabilities_key='p_*' (--probabilities-key)"


class Column(NamedTuple):
    """Name and kind of a column."""

    name: str
    kind: Kind


class Layout(NamedTuple):
    """Indices of the columns by use; ``numbers`` is one list column, or one column per class."""

    numbers: tuple[int, ...]
    is_list: bool
    class_names: tuple[str, ...] | None
    logits: bool | None
    label: int | None
    ids: int | None
    columns: ColumnUses


def choose(
    columns: Sequence[Column],
    keys: Keys,
    owner: str,
    *,
    named: bool = True,
    index: str | None = None,
) -> Layout:
    """Assign a use to each column of a table, and warn of those without; messages use `owner`.

    Columns of floating-point numbers are classes, or columns of integers if all are, unless their
    name is reserved. Integers under any other name are ambiguous and rejected. Without `named`,
    columns have indices only. `index` is the column known to be the index of a frame.
    """
    names = [column.name for column in columns]
    given_label = found_key(names, keys.labels, (), owner, "labels_key")
    given_ids = found_key(names, keys.ids, (), owner, "ids_key")
    label = _first_column(columns, LABEL_KEYS, _may_be_labels) if named else None
    label = label if given_label is None else names.index(given_label)
    ids = _first_column(columns, ID_KEYS, _may_be_ids) if named else None
    ids = ids if given_ids is None else names.index(given_ids)
    others = [place for place in range(len(columns)) if place not in (label, ids)]
    list_column = _list_column(columns, others, keys, owner)
    class_names, logits, guessed = None, None, tuple[str, ...]()
    numbers: tuple[int, ...]
    if list_column is not None:
        ranked = {Column(name, kind) for name in ("index", "label") for kind in _CLASS_LISTS}
        if ranked & set(columns):  # timm's inference.py writes such CSV files with --topk
            raise InputError(
                f"{owner} must have the numbers of all classes. Got lists of the top classes next "
                "to their numbers; write all classes (with timm: --topk 0), or a Parquet file."
            )
        numbers, logits = (list_column,), names_logits(names[list_column], names)
        reasons = {
            names[place]: _REASONS.get(columns[place].kind, "not the list of numbers")
            for place in others
            if place != list_column
        }
    else:
        reasons = {}
        for place in others:
            reason = _why_no_class(columns[place], keys, index, owner, named=named)
            if reason is not None:
                reasons[names[place]] = reason
        kinds = dict(columns)
        numbers = _class_columns(columns, [p for p in others if names[p] not in reasons], owner)
        if keys.probabilities is None:
            known = {index} | {name for name in reasons if is_index_name(name) or is_reserved(name)}
            number_kinds = {"float", *(columns[place].kind for place in numbers)}
            guessed = tuple(
                name
                for name in reasons
                if name != index and (name not in known or kinds[name] in number_kinds)
            )
        if named and not count_up(names[place] for place in numbers):
            class_names = checked_names(
                [names[place] for place in numbers], len(numbers), f"The columns of {owner}"
            )
        if reasons and len(numbers) > 1:
            texts = [f"{name!r} ({reason})" for name, reason in reasons.items()]
            warn_caller(f"Ignored non-class columns of {owner}: {listed(texts, 5)}.")
    some = ", ".join(names[place] for place in numbers[:4]) + (", ..." if len(numbers) > 4 else "")
    used = {"numbers": some if len(numbers) == 1 else f"{len(numbers)} columns: {some}"}
    used |= {} if label is None else {"labels": names[label]}
    used |= {} if ids is None else {"ids": names[ids]}
    uses = ColumnUses(used, reasons, guessed)
    return Layout(numbers, list_column is not None, class_names, logits, label, ids, uses)


def is_index_name(name: str) -> bool:
    """Return whether a column has no name, or that of a saved index."""
    return _INDEX.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Return whether a column of this name is never a class.

    >>> [is_reserved(name) for name in ("latency_ms", "imagePath", "ID", "key lime pie", "lossy")]
    [True, True, True, False, False]
    """
    words = re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())
    is_word = [_RESERVED.fullmatch(word) is not None for word in words]
    describes = (_DESCRIBING.fullmatch(word) is not None for word in words)
    is_reserved = any(is_word) and all(map(max, is_word, describes))
    return is_reserved or _HIGHEST.fullmatch(" ".join(words)) is not None


def _why_no_class(
    column: Column, keys: Keys, index: str | None, owner: str, *, named: bool
) -> str | None:
    """Return why a column is not a class; None if it is one."""
    name, kind = column
    if keys.probabilities is not None:
        if not _matches(name, keys.probabilities):
            return "not asked for"
        if kind not in ("float", "integer"):
            raise InputError(f"'probabilities_key' must name numbers. Got {name!r} in {owner}.")
        return None
    if named and (name == index or is_index_name(name)):
        return "an index"
    if named and is_reserved(name):
        return "a reserved name"
    return _REASONS.get(kind)


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("!"):
        return not fnmatchcase(name, pattern[1:])
    return fnmatchcase(name, pattern)


def _class_columns(columns: Sequence[Column], numeric: list[int], owner: str) -> tuple[int, ...]:
    """Return the columns of the classes; reject integers among floating-point numbers."""
    integers = [place for place in numeric if columns[place].kind == "integer"]
    if not numeric:
        names = listed(column.name for column in columns) or "none"
        raise InputError(
            f"{owner} must have a list column of probabilities, or one column of "
            f"probabilities per class. Got the columns {names}; {_REMEDY}."
        )
    if 0 < len(integers) < len(numeric):
        names = listed((repr(columns[place].name) for place in integers), 5)
        raise InputError(
            f"Every class of {owner} must have floating-point numbers if any has. Got integers in "
            f"{names}: an index or a label; leave it out, set labels_key or ids_key (--labels-key, "
            f"--ids-key), or {_REMEDY}."
        )
    return tuple(numeric)


def missing_labels(what: str, owner: str, left_out: Mapping[str, str]) -> InputError:
    """Build the error for data without labels; suggest text columns."""
    texts = [name for name, why in left_out.items() if why == _REASONS["text"]]
    hint = f", or labels_key={texts[0]!r} (--labels-key {texts[0]})" if texts else ""
    others = f"; other text columns: {listed(texts[1:], 3)}" if texts[1:] else ""
    return InputError(
        f"{what} needs labels. Got none with {owner}; pass 'labels' (--labels){hint}{others}."
    )


def _first_column(
    columns: Sequence[Column], keys: Sequence[str], is_suitable: Callable[[Column], bool]
) -> int | None:
    """Return the suitable column with the first of the usual names."""
    suitable = {column.name: place for place, column in enumerate(columns) if is_suitable(column)}
    return next((suitable[key] for key in keys if key in suitable), None)


def _may_be_labels(column: Column) -> bool:
    return not column.kind.endswith("list") and column != ("y", "float")


def _may_be_ids(column: Column) -> bool:
    return column.kind in ("integer", "text")


def _list_column(
    columns: Sequence[Column], others: list[int], keys: Keys, owner: str
) -> int | None:
    """Find the list column of the numbers, if there is one."""
    lists = [place for place in others if columns[place].kind in ("list", "integer list")]
    chosen = [place for place in lists if columns[place].name == keys.probabilities]
    if keys.probabilities is None:
        known = [place for place in lists if columns[place].name in MATRIX_KEYS]
        floats = [place for place in lists if columns[place].kind == "list"]
        chosen = known or floats or lists
    if len(chosen) > 1:
        names = ", ".join(repr(columns[place].name) for place in chosen)
        raise InputError(
            f"{owner} must have one list column of probabilities. Got {names}; "
            "choose one with probabilities_key (--probabilities-key)."
        )
    return chosen[0] if chosen else None
