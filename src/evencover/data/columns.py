"""Names of probabilities, labels and ids in files, frames and batches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

import numpy as np

from evencover.errors import InputError, listed, warn_caller
from evencover.validation import align_classes, unique_keys

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

# Unnamed columns, and the names of an index that pandas and Arrow store in a file.
_NAMELESS = re.compile(r"\s*(Unnamed: \d+(_level_\d+)?)?\s*|__index_level_\d+__")
_INDEX_WORDS = ("index", "level_0")


@dataclass(frozen=True)
class Keys:
    """User-given names of the numbers, labels and ids; None for the usual names.

    With one column per class, ``probabilities`` may be a glob such as ``p_*``. ``allow_unknown``:
    labels may be names that no class has.
    """

    probabilities: str | None = None
    labels: str | None = None
    ids: str | None = None
    allow_unknown: bool = field(default=False, compare=False)

    @property
    def names(self) -> tuple[str | None, str | None, str | None]:
        """Numbers, labels and ids."""
        return self.probabilities, self.labels, self.ids


USUAL = Keys()
LIGHTEVAL = Keys("model_response.logprobs", "doc.gold_index", "doc.id")  # log-likelihoods
FLAT_LIGHTEVAL = Keys(PREDICTIONS_KEY, "gold_index")  # until 0.10


def layout_keys(names: Iterable[str], keys: Keys) -> Keys:
    """Return the given keys, or those of lighteval's details."""
    names = set(names)
    if keys == USUAL and is_flat_lighteval(names):
        return FLAT_LIGHTEVAL
    if keys != USUAL or LIGHTEVAL.probabilities not in names:
        return keys
    numbers, labels, ids = (key if key in names else None for key in LIGHTEVAL.names)
    return Keys(numbers, labels, ids)


def is_flat_lighteval(names: Iterable[str]) -> bool:
    """Return whether a table has the columns of lighteval's details until 0.10."""
    return {"predictions", "gold_index", "choices", "full_prompt"} <= set(names)


def are_samples(names: Iterable[str]) -> bool:
    """Return whether the columns are those of lighteval's details or of lm-eval's samples."""
    names = set(names)
    return bool({"model_response", "resps"} & names) or is_flat_lighteval(names)


def names_logits(key: str, keys: Iterable[str]) -> bool | None:
    """Return whether a name indicates logits; None if unknown."""
    if key in LOGIT_KEYS or key == LIGHTEVAL.probabilities:
        return True
    if key == PREDICTIONS_KEY and (TRAINER_LABELS_KEY in keys or is_flat_lighteval(keys)):
        return True
    return False if key in PROBABILITY_KEYS else None


def matrix_key(arrays: Mapping[str, Any], owner: str, keys: Keys = USUAL) -> str:
    """Find the matrix among named arrays."""
    asked = found_key(arrays, keys.probabilities, (), owner, "probabilities_key")
    if asked is not None:
        return asked
    if "" in arrays:  # a file with one unnamed array
        return ""
    found = [key for key in MATRIX_KEYS if key in arrays]
    if len(found) > 1:
        found = [key for key in found if len(np.shape(arrays[key])) == 2]
    if len(found) != 1:
        held = listed(f"{key} {tuple(np.shape(arrays[key]))}" for key in arrays) or "none"
        raise InputError(
            f"{owner} must have one matrix under {listed(map(repr, MATRIX_KEYS))}. Got the keys "
            f"{held}; choose one with probabilities_key (--probabilities-key)."
        )
    return found[0]


def found_key(
    held: Collection[str], asked: str | None, usual: tuple[str, ...], owner: str, parameter: str
) -> str | None:
    """Return the name asked for, which must exist, or the first of the usual names."""
    if asked is not None and asked not in held:
        raise InputError(
            f"'{parameter}' must be in {owner}. Got {asked!r}; there are {listed(held)}."
        )
    return asked or next((key for key in usual if key in held), None)


def is_index(name: str) -> bool:
    """Return whether a column has the name of a saved index."""
    return name in _INDEX_WORDS or _NAMELESS.fullmatch(name) is not None


def are_numbers(names: Iterable[str]) -> bool:
    """Return whether all class names are integers; integer labels are names then."""
    return all(name.isascii() and name.isdigit() for name in names)


def as_class_names(names: Any, n_classes: int) -> list[str] | None:
    """Return one name per class from a sequence or {index: name}; None stays None."""
    if names is None:
        return None
    aligned = align_classes(names, None, n_classes, "class_names")
    return checked_names(aligned.tolist(), n_classes, "'class_names'")


def checked_names(names: Iterable[object], n_classes: int, owner: str) -> list[str]:
    """Convert class names to text, one per class; raise if UTF-8 cannot encode them."""
    texts = [str(name) for name in names]
    if len(texts) != n_classes:
        raise InputError(f"{owner} must have one name per class. Got {len(texts)} for {n_classes}.")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{owner} must be text. Got {error.object[error.start]!r}.") from None
    return texts


def count_up(names: Iterable[str]) -> bool:
    """Return whether the names are the default 0, 1, 2, ... of a frame."""
    return all(name == str(place) for place, name in enumerate(names))


Kind = Literal["float", "integer", "flag", "text", "list", "integer list", "text list", "other"]
LIST_KINDS: dict[Kind, Kind] = {"float": "list", "integer": "integer list", "text": "text list"}

_LEFT_OUT: dict[Kind, str] = {"text": "text", "flag": "true or false", "other": "no numbers"}
_LEFT_OUT |= dict.fromkeys(("list", "integer list", "text list"), "a list")
_BY_RANK = re.compile(r"(index|label)_\d+")
_REMEDY = "name the columns of the classes with probabilities_key='p_*' (--probabilities-key)"


class Column(NamedTuple):
    """Name and kind of a column."""

    name: str
    kind: Kind


@dataclass
class Layout:
    """Indices of the columns by use; ``matrix`` is one list column, or one column per class.

    A saved index counts as ids only if it is unique and not 0, 1, 2, ...
    """

    matrix: list[int]
    class_names: list[str] | None = None
    logits: bool | None = None
    label: int | None = None
    ids: int | None = None
    ids_are_index: bool = False
    left_out: dict[str, str] = field(default_factory=dict)

    def used(self, columns: Sequence[Column]) -> dict[str, str]:
        """Describe the columns by their use."""
        names = [columns[place].name for place in self.matrix]
        some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        found = {"numbers": some if len(names) == 1 else f"{len(names)} columns: {some}"}
        found |= {} if self.label is None else {"labels": columns[self.label].name}
        return found | ({} if self.ids is None else {"ids": columns[self.ids].name})


def choose(
    columns: Sequence[Column],
    keys: Keys,
    owner: str,
    *,
    named: bool = True,
    index: str | None = None,
) -> Layout:
    """Assign a use to each column of a table; messages use `owner`.

    Columns of floating-point numbers are classes, or columns of integers if all are. Text,
    booleans, unnamed columns, and names of labels, ids or an index are not. Integers under any
    other name are ambiguous and rejected. Without `named`, columns have indices only. `index` is
    the column known to be the index of a frame.
    """
    _reject_best_classes_only(columns, owner)
    _reject_flat_lighteval(columns, owner)
    names = [column.name for column in columns]
    given_label = found_key(names, keys.labels, (), owner, "labels_key")
    given_ids = found_key(names, keys.ids, (), owner, "ids_key")
    label = _labels(columns) if named else None
    label = label if given_label is None else names.index(given_label)
    ids = _ids(columns, index) if named else None
    ids = ids if given_ids is None else names.index(given_ids)
    ids_are_index = ids is not None and keys.ids is None and names[ids] not in ID_KEYS
    lists = _lists(columns, keys, owner)
    layout = Layout(lists, label=label, ids=ids, ids_are_index=ids_are_index)
    if lists:
        layout.logits = names_logits(names[lists[0]], names)
        layout.left_out = {
            name: _LEFT_OUT.get(kind, "not the list of numbers")
            for place, (name, kind) in enumerate(columns)
            if place not in (*lists, label, ids)
        }
        return layout
    layout.matrix = _classes(columns, keys, layout, owner, named, index)
    class_names = [names[place] for place in layout.matrix]
    if named and not count_up(class_names):
        unique_keys(owner, [(name, None) for name in class_names])
        layout.class_names = class_names
    return layout


def note_left_out(layout: Layout, owner: str) -> None:
    """Warn about columns that are not used."""
    if len(layout.matrix) > 1 and layout.left_out:
        found = [f"{name!r} ({why})" for name, why in layout.left_out.items()]
        warn_caller(f"Ignored non-class columns of {owner}: {listed(found, 5)}.")


def missing_labels(what: str, owner: str, left_out: Mapping[str, str]) -> InputError:
    """Build the error for data without labels; suggest text columns."""
    texts = [name for name, why in left_out.items() if why == _LEFT_OUT["text"]]
    hint = f", or labels_key={texts[0]!r} (--labels-key {texts[0]})" if texts else ""
    others = f"; other text columns: {listed(texts[1:], 3)}" if texts[1:] else ""
    return InputError(
        f"{what} needs labels. Got none with {owner}; pass 'labels' (--labels){hint}{others}."
    )


def _labels(columns: Sequence[Column]) -> int | None:
    """Find the column of labels; a floating-point column 'y' is a class."""
    names = [column.name for column in columns]
    for key in LABEL_KEYS:
        if key in names:
            kind = columns[names.index(key)].kind
            if not kind.endswith("list") and (kind != "float" or key != "y"):
                return names.index(key)
    return None


def _ids(columns: Sequence[Column], index: str | None) -> int | None:
    """Find the column of ids; a floating-point column 'id' is a class."""
    keys = [*ID_KEYS, index or SAVED_INDEX]
    if "__index_level_1__" in [name for name, _ in columns]:  # a multi-level index
        keys.pop()
    for key in keys:
        for place, (name, kind) in enumerate(columns):
            if name == key and kind in ("integer", "text"):
                return place
    return None


def _lists(columns: Sequence[Column], keys: Keys, owner: str) -> list[int]:
    """Find the list column, if there is one."""
    places = [place for place, c in enumerate(columns) if c.kind in ("list", "integer list")]
    chosen = [place for place in places if columns[place].name == keys.probabilities]
    if keys.probabilities is None:
        known = [place for place in places if columns[place].name in MATRIX_KEYS]
        floats = [place for place in places if columns[place].kind == "list"]
        chosen = known or floats or places
    if len(chosen) > 1:
        found = ", ".join(repr(columns[place].name) for place in chosen)
        raise InputError(
            f"{owner} must have one list column of probabilities. Got {found}; "
            "choose one with probabilities_key (--probabilities-key)."
        )
    return chosen


def _classes(
    columns: Sequence[Column],
    keys: Keys,
    layout: Layout,
    owner: str,
    named: bool,
    index: str | None,
) -> list[int]:
    """Find the columns of the classes; record the others in the layout."""
    floats: list[int] = []
    integers: list[int] = []
    for place, (name, kind) in enumerate(columns):
        if place in (layout.label, layout.ids):
            continue
        if keys.probabilities is not None:
            if not fnmatchcase(name, keys.probabilities):
                layout.left_out[name] = "not asked for"
            elif kind in ("float", "integer"):
                floats.append(place)
            else:
                raise InputError(f"'probabilities_key' must name numbers. Got {name!r}.")
        elif kind in _LEFT_OUT:
            layout.left_out[name] = "an index" if is_index(name) else _LEFT_OUT[kind]
        elif named and (name == index or _NAMELESS.fullmatch(name)):
            layout.left_out[name] = "an index"
        elif kind == "float":
            floats.append(place)
        elif named and is_index(name):
            layout.left_out[name] = "an index"
        elif named and name in (*LABEL_KEYS, *ID_KEYS):
            layout.left_out[name] = "more labels or ids"
        else:
            integers.append(place)
    if floats and integers:
        found = listed((repr(columns[place].name) for place in integers), 5)
        raise InputError(
            f"Every class of {owner} must have floating-point numbers if any has. Got integers in "
            f"{found}: an index or a label; leave it out, set labels_key or ids_key (--labels-key, "
            f"--ids-key), or {_REMEDY}."
        )
    if not floats and not integers:
        names = listed(column.name for column in columns) or "none"
        raise InputError(
            f"{owner} must have a list column of probabilities, or one column of "
            f"probabilities per class. Got the columns {names}; {_REMEDY}."
        )
    return floats or integers


def _reject_best_classes_only(columns: Sequence[Column], owner: str) -> None:
    """Reject files that timm's inference.py writes with --topk: columns by rank, not by class."""
    ranks = [
        name
        for name, kind in columns
        if (name in ("index", "label") and kind in ("integer list", "text list"))
        or (_BY_RANK.fullmatch(name) and kind in ("integer", "text"))
    ]
    if ranks and any(kind in ("float", "list") for _, kind in columns):
        raise by_rank(owner, f"{ranks[0]!r} next to the numbers")
    numbers = [name for name, kind in columns if kind in ("float", "list", "integer list")]
    if len(numbers) == 1 and Column(numbers[0], "float") in columns and numbers[0] in MATRIX_KEYS:
        raise by_rank(owner, f"one number per row in {numbers[0]!r}")


def _reject_flat_lighteval(columns: Sequence[Column], owner: str) -> None:
    """Reject lighteval's details until 0.10, unless each answer is one token."""
    kinds = dict(columns)
    if is_flat_lighteval(kinds) and kinds[PREDICTIONS_KEY] != "list":
        found = "text" if kinds[PREDICTIONS_KEY] == "text" else "pairs"
        raise InputError(
            f"{owner} must have one log-likelihood per choice. Got {found} in 'predictions', as "
            "lighteval until 0.10 wrote its details; write them with lighteval 0.11 or newer."
        )


def by_rank(owner: str, found: str) -> InputError:
    """Build the error for rows with the top classes in order of rank."""
    return InputError(
        f"{owner} must have the numbers of all classes, in the order of the classes. Got {found}: "
        "the top classes of each row, sorted by rank; write all of them (with timm: --topk 0)."
    )
