"""Names of probabilities, labels and ids in files, frames and batches, and the use of columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from evencover.arrow import Kind
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
INDEX_NAME = re.compile(r"(Unnamed: \d+(_level_\d+)?)?|__index_level_\d+__|index|level_0")

# A column is never a class if its name is one of these words, or one of them together with words
# that only describe it, such as latency_ms, image_path, top1_score or rowId. Class columns that are
# numbered, such as score_0, are none of these.
_WORD = (
    "ids?|uid|uuid|guid|idx|labels?|targets?|y|keys?|paths?|files?|filename|filepath|fname|url|uri|"
    "name|split|fold|partition|subset|time|times|date|datetime|timestamp|elapsed|runtime|created|"
    "updated|scores?|weights?|loss|losses|nll|entropy|perplexity|margins?|latency|duration|"
    "confidence|uncertainty|predictions?|predicted|preds?|correct|accuracy|seed|epoch"
)
_DESCRIBING = (
    "row|sample|example|item|image|img|picture|text|document|record|user|data|test|train|val|"
    "validation|model|class|top[0-9]*|max|min|mean|total|log|cross|ce|inference|importance|s|ms|"
    "us|ns|sec|seconds|p[0-9]+|at|utc|start|end|number|code|value|size|true"
)
_HIGHEST = "(max|top1?) (probs?|probability|softmax|logits?)"  # of a row, next to all numbers
_RESERVED = re.compile(f"(({_DESCRIBING}) )*({_WORD})( ({_WORD}|{_DESCRIBING}))*|{_HIGHEST}")


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


def matrix_key(
    arrays: Mapping[str, Any], owner: str, keys: Keys = USUAL
) -> tuple[str, bool | None]:
    """Find the matrix among named arrays, and whether its name stands for logits."""
    asked = found_key(arrays, keys.probabilities, (), owner, "probabilities_key")
    known = sorted({*MATRIX_KEYS, ""} & set(arrays), key=("", *MATRIX_KEYS).index)
    if asked is not None or "" in arrays:  # the latter is a file with one unnamed array
        known = [asked or ""]
    elif len(known) > 1:
        known = [key for key in known if len(np.shape(arrays[key])) == 2]
    if len(known) != 1:
        held = listed(f"{key} {tuple(np.shape(arrays[key]))}" for key in arrays) or "none"
        raise InputError(
            f"{owner} must have one matrix under {listed(map(repr, MATRIX_KEYS))}. Got the keys "
            f"{held}; choose one with probabilities_key (--probabilities-key)."
        )
    return known[0], names_logits(known[0], arrays)


def found_key(
    held: Collection[str], asked: str | None, usual: Sequence[str], owner: str, parameter: str
) -> str | None:
    """Return the name asked for, which must exist, or the first of the usual names."""
    if asked is not None and asked not in held:
        raise InputError(
            f"'{parameter}' must be in {owner}. Got {asked!r}; there are {listed(held)}."
        )
    return asked or min(set(usual) & set(held), key=usual.index, default=None)


@lru_cache(maxsize=64)
def entry_keys(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the names of the class and the probability of an entry, if these are among `names`."""
    classes, scores = (next(filter(names.__contains__, k), None) for k in (CLASS_KEYS, SCORE_KEYS))
    return None if classes is None or scores is None else (classes, scores)


# ---- the use of columns --------------------------------------------------------------------------


class ColumnUses(NamedTuple):
    """What the columns or arrays of an input are used for."""

    used: Mapping[str, str] = {}  #: the column, or columns, of each use
    left_out: Mapping[str, str] = {}  #: why other columns are not used
    guessed: tuple[str, ...] = ()  #: columns left out that might be classes


_AN_INDEX, _A_RESERVED_NAME = "an index", "a reserved name"
_REASONS: dict[Kind, str] = {
    **{"integer": "integers", "text": "text", "flag": "true or false", "other": "no numbers"},
    **dict.fromkeys(("list", "integer list", "text list", "entries"), "a list"),
}
_REMEDY = "name the columns of the classes with probabilities_key='p_*' (--probabilities-key)"


class Column(NamedTuple):
    """Name and kind of a column."""

    name: str
    kind: Kind


class Layout(NamedTuple):
    """Columns by use; ``numbers`` is one list column, or one column per class."""

    numbers: list[str]
    is_list: bool
    class_names: tuple[str, ...] | None
    logits: bool | None
    label: str | None
    ids: str | None
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
    kinds = dict(columns)
    reject_detections(kinds, owner)
    is_of_model = keys.probabilities is None and bool(keys.classes)
    is_of_model = is_of_model and {*map(kinds.get, keys.classes)} <= {"float", "integer"}
    classes = keys.classes if is_of_model else frozenset[str]()
    label, ids = choose_keys(columns, keys, owner, without=classes)
    others = [column for column in columns if column.name not in (label, ids)]
    list_column = None if is_of_model else _list_column(others, keys, owner)
    numbers, left_out, guessed = list[str](), dict[str, str](), list[str]()
    for name, kind in others:
        if list_column is not None:
            reason = "" if name == list_column else _REASONS.get(kind, "not the list of numbers")
        else:
            reason = "" if name in classes else _reason(name, kind, keys, index, owner)
        if not reason:
            numbers.append(name)
            continue
        left_out[name] = reason
        is_certain = reason in (_AN_INDEX, _A_RESERVED_NAME) and (kind != "float" or name == index)
        if list_column is keys.probabilities is None and not is_of_model and not is_certain:
            guessed.append(name)
    integers = [name for name, reason in left_out.items() if reason == _REASONS["integer"]]
    if list_column is None and not keys.classes.issuperset(integers):
        raise InputError(
            f"Columns of integers must have a stated use in {owner}, because they may be classes, "
            f"labels or an index. Got integers in {listed(map(repr, integers), 5)}; leave them "
            f"out, set labels_key or ids_key (--labels-key, --ids-key), or {_REMEDY}."
        )
    if len(numbers) < 1 + (list_column is None):
        raise InputError(
            f"{owner} must have a list column of probabilities, or one column of probabilities for "
            f"each of at least 2 classes. Got the columns {listed(kinds) or 'none'}; {_REMEDY}."
        )
    class_names = None
    if list_column is None and named and not count_up(numbers):
        class_names = checked_names(numbers, len(numbers), f"The columns of {owner}")
    if left_out and list_column is None and len(numbers) > 1:
        texts = [f"{name!r} ({reason})" for name, reason in left_out.items()]
        hint = "; if they are classes, use probabilities_key='*' (--probabilities-key)"
        is_hint = keys.probabilities is None and "float" in map(kinds.get, left_out)
        what = f"Ignored non-class columns of {owner}: {listed(texts, 5)}"
        warn_caller(f"{what}{hint if is_hint else ''}.")
    some = ", ".join(numbers[:4]) + (", ..." if len(numbers) > 4 else "")
    used = {"numbers": some if len(numbers) == 1 else f"{len(numbers)} columns: {some}"}
    used |= ({} if label is None else {"labels": label}) | ({} if ids is None else {"ids": ids})
    uses = ColumnUses(used, left_out, tuple(guessed))
    logits = None if list_column is None else names_logits(list_column, kinds)
    return Layout(numbers, list_column is not None, class_names, logits, label, ids, uses)


def choose_keys(
    columns: Sequence[Column], keys: Keys, owner: str, *, without: Collection[str] = ()
) -> tuple[str | None, str | None]:
    """Return the columns of labels and of ids, by the given or usual names."""
    kinds, known = dict[str, Kind](), {*LABEL_KEYS, *ID_KEYS, keys.labels, keys.ids}
    for name, kind in columns:
        if name in kinds and name in known:
            raise InputError(f"{owner} must have one column {name!r}. Got several; rename others.")
        kinds[name] = kind
    label = found_key(kinds, keys.labels, (), owner, "labels_key")
    if label is None:
        for key in LABEL_KEYS:
            kind = "list" if key in without else kinds.get(key, "list")
            if not kind.endswith(("list", "entries")) and (key, kind) != ("y", "float"):
                label = key
                break
    usual = sorted({*ID_KEYS} - {*without}, key=ID_KEYS.index)
    return label, found_key(kinds, keys.ids, usual, owner, "ids_key")


# Tables with one label and one confidence per row, by the columns of their tool.
DETECTIONS = {
    "BirdNET": {"common name", "confidence"},
    "QIIME 2": {"feature id", "taxon", "confidence"},
}
_SINTAX = re.compile(r"[a-z]:[^,]+\([0-9.]+\)(,[a-z]:[^,]+\([0-9.]+\))*")


def reject_detections(names: Collection[str], owner: str) -> None:
    """Raise for tables that have the confidence of one label per row, and no distribution."""
    tools = ["SINTAX"] * any(map(_SINTAX.fullmatch, names))
    for tool, columns in DETECTIONS.items():
        tools += [tool] * columns.issubset(map(str.lower, names))
    if tools:
        raise InputError(
            f"{owner} must have probabilities of several classes in each row. Got a table of "
            f"{tools[0]}, which has one label and its confidence; 'evencover cutoffs' finds the "
            "confidence from which on to believe it."
        )


def is_reserved(name: str) -> bool:
    """Return whether a column of this name is never a class.

    >>> [is_reserved(name) for name in ("latency_ms", "imagePath", "ID", "key lime pie", "lossy")]
    [True, True, True, False, False]
    """
    words = re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())
    return _RESERVED.fullmatch(" ".join(words)) is not None


def _reason(name: str, kind: Kind, keys: Keys, index: str | None, owner: str) -> str:
    """Return why a column is no class, or nothing if it is one."""
    pattern = keys.probabilities
    if pattern is not None:
        if fnmatchcase(name, pattern.removeprefix("!")) == pattern.startswith("!"):
            return "not asked for"
        if kind not in ("float", "integer"):
            raise InputError(f"'probabilities_key' must name numbers. Got {name!r} in {owner}.")
        return ""
    if name == index or INDEX_NAME.fullmatch(name):
        return _AN_INDEX
    return _A_RESERVED_NAME if is_reserved(name) else _REASONS.get(kind, "")


def missing_labels(what: str, owner: str, left_out: Mapping[str, str]) -> InputError:
    """Build the error for data without labels; suggest text columns."""
    texts = [name for name, why in left_out.items() if why == _REASONS["text"]]
    hint = f", or labels_key={texts[0]!r} (--labels-key {texts[0]})" if texts else ""
    others = f"; other text columns: {listed(texts[1:], 3)}" if texts[1:] else ""
    return InputError(
        f"{what} needs labels. Got none with {owner}; pass 'labels' (--labels){hint}{others}."
    )


def _list_column(columns: Sequence[Column], keys: Keys, owner: str) -> str | None:
    """Find the list column of the numbers, if there is one."""
    found: dict[str, list[str]] = {"asked": [], "known": [], "list": [], "integer list": []}
    for name, kind in columns:
        if kind in found:
            found["known" if name in MATRIX_KEYS else kind].append(name)
            found["asked"] += [name] * (name == keys.probabilities)
    chosen = found.pop("asked")
    if keys.probabilities is None:
        chosen = next(filter(None, found.values()), [])
    if len(chosen) > 1:
        raise InputError(
            f"{owner} must have one list column of probabilities. Got "
            f"{', '.join(map(repr, chosen))}; choose one with probabilities_key "
            "(--probabilities-key)."
        )
    return chosen[0] if chosen else None
