"""Names of probabilities, labels and ids in files, frames and batches, and the use of columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Kind
from evencover.classes import checked_names, count_up
from evencover.errors import InputError, listed, warn_caller

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
# Names of the classes and of their probabilities in rows that list some classes.
INDEX_KEYS = ("indices", "index", "class_ids", "class_indices")
CLASS_KEYS = ("labels", "label", "classes", "class", "names", "name", *INDEX_KEYS)
SCORE_KEYS = ("scores", "score", "probabilities", "probability", "probs", "prob")

SAVED_INDEX = "__index_level_0__"

# Unnamed columns, and the names of an index that pandas and Arrow store in a file.
_INDEX = re.compile(r"(Unnamed: \d+(_level_\d+)?)?|__index_level_\d+__|index|level_0")

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
    columns but one. Without ``read_labels`` or ``read_ids``, these stay unread. Columns that are
    named as ``classes`` are classes, whatever their name.
    """

    probabilities: str | None = None
    labels: str | None = None
    ids: str | None = None
    read_labels: bool = True
    read_ids: bool = True
    classes: frozenset[str] = frozenset()
    has_header: bool | None = None  #: whether the first line of a CSV file is one; None: decide


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


def entry_keys(names: Collection[str]) -> tuple[str, str] | None:
    """Return the names of the class and the probability of an entry, if these are among `names`."""
    both = [next((key for key in keys if key in names), None) for keys in (CLASS_KEYS, SCORE_KEYS)]
    return None if both[0] is None or both[1] is None else (both[0], both[1])


# ---- the use of columns --------------------------------------------------------------------------


class ColumnUses(NamedTuple):
    """What the columns or arrays of an input are used for."""

    used: Mapping[str, str] = {}  #: the column, or columns, of each use
    left_out: Mapping[str, str] = {}  #: why other columns are not used
    guessed: tuple[str, ...] = ()  #: columns left out that might be classes


_REASONS: dict[Kind, str] = {"text": "text", "flag": "true or false", "other": "no numbers"}
_REASONS |= dict.fromkeys(("list", "integer list", "text list", "entries"), "a list")
_REASONS["integer"] = "integers"
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

    The columns of a model's classes are classes. Otherwise, columns of floating-point numbers are,
    unless their name is reserved; integers are only if the user names them. Without `named`,
    columns have indices only. `index` is the column known to be the index of a frame.
    """
    names, kinds = [column.name for column in columns], dict(columns)
    if named:
        reject_detections(names, owner)
    model = _columns_of_model(columns, keys)
    label, ids = choose_keys(columns, keys, owner, without=model, named=named)
    others = [i for i in range(len(columns)) if i not in (label, ids)]
    list_column = None if model else _list_column(columns, others, keys, owner)
    class_names, logits, guessed = None, None, tuple[str, ...]()
    reasons: dict[str, str] = {}
    numbers: tuple[int, ...]
    if list_column is not None:
        numbers, logits = (list_column,), names_logits(names[list_column], names)
        reasons = {
            names[i]: _REASONS.get(columns[i].kind, "not the list of numbers")
            for i in others
            if i != list_column
        }
    else:
        for i in others:
            reason = _why_no_class(columns[i], keys, index, owner, named=named)
            if reason is not None and names[i] not in model:
                reasons[names[i]] = reason
        numbers = tuple(i for i in others if names[i] not in reasons)
        _reject_integers(columns, numbers, reasons, index, keys, owner)
        if keys.probabilities is None and not model:
            known = {index} | {name for name in reasons if is_index_name(name) or is_reserved(name)}
            guessed = tuple(
                name
                for name in reasons
                if name != index and (name not in known or kinds[name] == "float")
            )
        if named and not count_up(names[i] for i in numbers):
            texts = [names[i] for i in numbers]
            class_names = checked_names(texts, len(texts), f"The columns of {owner}")
        if reasons and len(numbers) > 1:
            texts = [f"{name!r} ({reason})" for name, reason in reasons.items()]
            hint = ""
            if any(kinds[name] == "float" for name in reasons) and keys.probabilities is None:
                hint = "; if they are classes, use probabilities_key='*' (--probabilities-key)"
            warn_caller(f"Ignored non-class columns of {owner}: {listed(texts, 5)}{hint}.")
    some = ", ".join(names[i] for i in numbers[:4]) + (", ..." if len(numbers) > 4 else "")
    used = {"numbers": some if len(numbers) == 1 else f"{len(numbers)} columns: {some}"}
    used |= {} if label is None else {"labels": names[label]}
    used |= {} if ids is None else {"ids": names[ids]}
    uses = ColumnUses(used, reasons, guessed)
    return Layout(numbers, list_column is not None, class_names, logits, label, ids, uses)


# Tables with one label and one confidence per row, by the columns of their tool.
DETECTIONS = {
    "BirdNET": {"Scientific name", "Confidence"},
    "QIIME 2": {"Feature ID", "Taxon", "Confidence"},
}
_SINTAX = re.compile(r"[a-z]:[^,]+\([0-9.]+\)(,[a-z]:[^,]+\([0-9.]+\))*")


def reject_detections(names: Sequence[str], owner: str) -> None:
    """Raise for tables that have the confidence of one label per row, and no distribution."""
    tools = [tool for tool, columns in DETECTIONS.items() if columns <= set(names)]
    tools += ["SINTAX"] * any(map(_SINTAX.fullmatch, names))
    if tools:
        raise InputError(
            f"{owner} must have probabilities of several classes in each row. Got a table of "
            f"{tools[0]}, which has one label and its confidence; cutoffs for such labels come "
            "from reviewed predictions."
        )


def choose_keys(
    columns: Sequence[Column],
    keys: Keys,
    owner: str,
    *,
    without: Collection[str] = (),
    named: bool = True,
) -> tuple[int | None, int | None]:
    """Return the columns of labels and of ids, by the given or usual names."""
    names = [column.name for column in columns]
    given_label = found_key(names, keys.labels, (), owner, "labels_key")
    given_ids = found_key(names, keys.ids, (), owner, "ids_key")
    known = {*LABEL_KEYS, *ID_KEYS, keys.labels, keys.ids}
    twice = sorted(name for name in {*names} & known if names.count(name) > 1)
    if named and twice:
        raise InputError(f"{owner} must have one column {twice[0]!r}. Got several; rename others.")
    place = {c.name: i for i, c in enumerate(columns) if named and c.name not in without}
    labels = [key for key in LABEL_KEYS if key in place and _may_be_labels(columns[place[key]])]
    ids = [key for key in ID_KEYS if key in place]
    label = place[labels[0]] if labels else None
    label = label if given_label is None else names.index(given_label)
    chosen = place[ids[0]] if ids else None
    return label, chosen if given_ids is None else names.index(given_ids)


def _columns_of_model(columns: Sequence[Column], keys: Keys) -> frozenset[str]:
    """Return the names of the model's classes, if each of them is a column of numbers."""
    numbers = {column.name for column in columns if column.kind in ("float", "integer")}
    is_there = keys.probabilities is None and bool(keys.classes) and keys.classes <= numbers
    return keys.classes if is_there else frozenset()


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


def _reject_integers(
    columns: Sequence[Column],
    numbers: Sequence[int],
    reasons: Mapping[str, str],
    index: str | None,
    keys: Keys,
    owner: str,
) -> None:
    """Raise if there are no columns of classes, or integers that may be some."""
    integers = [
        name
        for name, reason in reasons.items()
        if reason == _REASONS["integer"] and name != index and name not in keys.classes
    ]
    if integers:
        raise InputError(
            f"Columns of integers must have a stated use in {owner}, because they may be classes, "
            f"labels or an index. Got integers in {listed(map(repr, integers), 5)}; leave them "
            f"out, set labels_key or ids_key (--labels-key, --ids-key), or {_REMEDY}."
        )
    if not numbers:
        names = listed(column.name for column in columns) or "none"
        raise InputError(
            f"{owner} must have a list column of probabilities, or one column of "
            f"probabilities per class. Got the columns {names}; {_REMEDY}."
        )


def missing_labels(what: str, owner: str, left_out: Mapping[str, str]) -> InputError:
    """Build the error for data without labels; suggest text columns."""
    texts = [name for name, why in left_out.items() if why == _REASONS["text"]]
    hint = f", or labels_key={texts[0]!r} (--labels-key {texts[0]})" if texts else ""
    others = f"; other text columns: {listed(texts[1:], 3)}" if texts[1:] else ""
    return InputError(
        f"{what} needs labels. Got none with {owner}; pass 'labels' (--labels){hint}{others}."
    )


def _may_be_labels(column: Column) -> bool:
    return not column.kind.endswith(("list", "entries")) and column != ("y", "float")


def _list_column(
    columns: Sequence[Column], others: list[int], keys: Keys, owner: str
) -> int | None:
    """Find the list column of the numbers, if there is one."""
    lists = [i for i in others if columns[i].kind in ("list", "integer list")]
    chosen = [i for i in lists if columns[i].name == keys.probabilities]
    if keys.probabilities is None:
        known = [i for i in lists if columns[i].name in MATRIX_KEYS]
        floats = [i for i in lists if columns[i].kind == "list"]
        chosen = known or floats or lists
    if len(chosen) > 1:
        names = ", ".join(repr(columns[i].name) for i in chosen)
        raise InputError(
            f"{owner} must have one list column of probabilities. Got {names}; "
            "choose one with probabilities_key (--probabilities-key)."
        )
    return chosen[0] if chosen else None
