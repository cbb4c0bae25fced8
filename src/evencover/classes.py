"""Classes of a model: their names or just their number, and what labels and values stand for.

Identity comes from a name, or from an integer where classes have no names; it never comes from the
order of sorting, and where a number may be either, the user states which.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, Literal
from unicodedata import category, normalize

import numpy as np

from evencover.arrays import Array, IntArray, to_numpy
from evencover.errors import InputError, listed
from evencover.validation import unique_keys

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
MISSING = ("", "None", "nan", "<NA>", "NaT")  # missing values as text
INDICES, NAMES = "indices", "names"  # what labels are
NAME_THEM = "name the classes by index with class_names= (--class-names)"


@dataclass(frozen=True)
class Classes:
    """The classes of a model or an input: one name per class, or only their number.

    >>> Classes(2, ("ant", "bee")).label_indices(["bee", "ant", "bee"]).tolist()
    [1, 0, 1]
    """

    n: int
    names: tuple[str, ...] | None = None

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The index of each class by its name, or by its decimal text if classes have no names."""
        names = map(str, range(self.n)) if self.names is None else self.names
        return dict(zip(names, count(), strict=False))

    @cached_property
    def most_colons(self) -> int:
        """The most colons in a name."""
        return max((name.count(":") for name in self.names or ()), default=0)

    @cached_property
    def number_name(self) -> str | None:
        """The first name that is a number, but not that of its own index; None if there is none."""
        for index, name in enumerate(self.names or ()):
            if _NUMBER.fullmatch(name) and name != str(index):
                return name
        return None

    def match(self, names: Sequence[str], owner: str, *, all_of_them: bool = True) -> IntArray:
        """Return the index here of each of these names, the classes of `owner`.

        Names match exactly. `all_of_them` must be here and there; otherwise, `names` may lack some.
        """
        if self.index.keys() >= set(names) and (not all_of_them or len(names) == self.n):
            return np.array(list(map(self.index.__getitem__, names)), dtype=np.int64)
        unknown = [name for name in names if name not in self.index]
        missing = [name for name in self.index if name not in set(names)] if all_of_them else []
        problems = [f"no {listed(map(repr, missing), 3)}"] * bool(missing)
        problems += [f"the unknown {listed(map(repr, unknown), 3)}"] * bool(unknown)
        remedy = "rename them, or declare classes that calibration never saw with 'evencover "
        remedy += "calibrate --class-names'"
        if self.names is None:
            remedy = f"these classes have no names, so {NAME_THEM}"
        similar = self.similar(unknown[0]) if unknown else None
        if similar is not None:
            remedy = f"{unknown[0]!r} differs from {similar!r} only in white space or Unicode form"
        raise InputError(
            f"The classes of {owner} must be {'' if all_of_them else 'among '}the {self.n} of the "
            f"model, by {'index' if self.names is None else 'name'}. Got {' and '.join(problems)}; "
            f"{remedy}."
        )

    def similar(self, name: str) -> str | None:
        """Return the class whose name differs only in white space or Unicode form, if any."""
        folded = _visible(name)
        return next((known for known in self.index if _visible(known) == folded), None)

    def label_indices(
        self,
        labels: Any,
        n_rows: int | None = None,
        owner: str = "'labels'",
        row_name: Callable[[int], str] = "row {}".format,
        *,
        labels_are: str | None = None,
        allow_unknown: bool = False,
        groups: Sequence[str] = (),
    ) -> IntArray:
        """Return labels as class indices: the one rule for all labels.

        Text is a name if the classes have names. Integers, and decimal text for classes without
        names, are indices. If some class has a number as its name, other than its own index, the
        user must state what integers are: `labels_are` is "indices" or "names". Messages use
        `owner`, and `row_name` to describe a row. With `allow_unknown`, names that are not among
        the classes become `n`; numbers, missing labels and names that look like a class do not.
        Those of `groups` of classes become `n` + 1 and on.
        """
        values = to_numpy(labels, owner)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise InputError(f"{owner} must have one dimension. Got the shape {values.shape}.")
        if n_rows is not None and len(values) != n_rows:
            raise InputError(
                f"{owner} must have one entry per row. Got {len(values)} labels for {n_rows} rows."
            )
        types = set(map(type, values.tolist())) if values.dtype.kind == "O" else set()
        if labels_are is None and types >= {int, str}:
            row = next(row for row, label in enumerate(values.tolist()) if type(label) is int)
            raise InputError(
                f"{owner} must be all text or all integers. Got {values[row]!r} in "
                f"{row_name(row)} among text; state what they are with labels_are='indices' or "
                "'names' (--labels-are)."
            )
        if self.are_names(values, owner, labels_are):
            known = self.index
            if groups:
                known = {**{name: self.n + 1 + k for k, name in enumerate(groups)}, **known}
            return self._of_names(values.tolist(), known, row_name, allow_unknown=allow_unknown)
        if values.dtype.kind not in "iu" and are_text(values):
            values = self._of_decimals(values.tolist(), owner, row_name)
        if values.dtype.kind not in "iu" and values.size:
            raise InputError(
                f"{owner} must be integers (class indices 0 to {self.n - 1}). "
                f"Got the type {values.dtype} instead; missing labels are not allowed."
            )
        if len(values) and (values.min() < 0 or values.max() >= self.n):
            row = int(((values < 0) | (values >= self.n)).argmax())
            raise InputError(
                f"'labels' that are class indices must be between 0 and {self.n - 1}, because "
                f"there are {self.n} classes. Got {values[row]} in {row_name(row)}."
            )
        return values.astype(np.int64, copy=False)

    def are_names(self, labels: Array, owner: str, labels_are: str | None = None) -> bool:
        """Return whether labels are names of these classes, not indices."""
        if labels_are not in (None, INDICES, NAMES):
            raise InputError(
                f"'labels_are' (--labels-are) must be 'indices' or 'names'. Got {labels_are!r}."
            )
        if labels_are is not None:
            if labels_are == NAMES and self.names is None:
                raise InputError(f"{owner} cannot be names of classes without names; {NAME_THEM}.")
            return labels_are == NAMES
        if self.names is not None and labels.dtype.kind in "iu" and self.number_name is not None:
            raise InputError(
                f"{owner} that are integers may be indices or names, because the class "
                f"{self.number_name!r} has a number as its name. State which with labels_are="
                "'indices' or 'names' (--labels-are)."
            )
        return self.names is not None and are_text(labels)

    def _of_names(
        self,
        labels: list[Any],
        index: Mapping[str, int],
        row_name: Callable[[int], str],
        *,
        allow_unknown: bool,
    ) -> IntArray:
        n = self.n
        indices = []
        for row, label in enumerate(labels):
            is_text = isinstance(label, str)
            is_integer = isinstance(label, int) and not isinstance(label, bool)
            indices.append(index.get(str(label), n) if is_text or is_integer else n)
            is_name = is_text and label.strip() not in MISSING
            if indices[row] == n and not (allow_unknown and is_name):
                raise self.unknown_label(label, row_name(row))
        if n in indices:  # most likely mistyped, if it looks like a known one
            known = {_visible(name, "NFC") for name in index} - {""}
            for label in sorted({str(label) for label in labels} - index.keys()):
                if _visible(label, "NFC") in known:
                    raise self.unknown_label(label, row_name(list(map(str, labels)).index(label)))
        return np.array(indices, dtype=np.int64)

    def _of_decimals(
        self, labels: list[Any], owner: str, row_name: Callable[[int], str]
    ) -> IntArray:
        """Return text that must be indices: classes have no names, or the user states it."""
        for row, label in enumerate(labels):
            if not is_integer_text(str(label)):
                raise InputError(
                    f"{owner} must be integers (class indices 0 to {self.n - 1})"
                    f"{', because the classes have no names' if self.names is None else ''}. "
                    f"Got {str(label)!r} in {row_name(row)}"
                    f"{'; to use names, ' + NAME_THEM if self.names is None else ''}."
                )
        return np.array([int(label) for label in labels], dtype=np.int64)

    def unknown_label(self, label: object, row_name: str) -> InputError:
        """Build the error for a label that is not among the names."""
        text = str(label)
        similar, close = self.similar(text), difflib.get_close_matches(text, list(self.index), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        if similar is not None:
            hint = f"; it differs from {similar!r} only in white space or Unicode form."
        if text.strip() in MISSING:
            hint = "; missing labels are not allowed."
        return InputError(
            f"Every label must be one of the {self.n} class names. Got {text!r} in {row_name}{hint}"
        )


def _visible(name: str, form: Literal["NFC", "NFKC"] = "NFKC") -> str:
    """Return a name without what the eye does not see: surrounding space and Unicode form."""
    folded = normalize(form, name)
    return "".join(each for each in folded if category(each) != "Cf").strip()


def are_text(labels: Array) -> bool:
    """Return whether labels are text."""
    if labels.dtype.kind == "O":
        return not {str, np.str_}.isdisjoint(map(type, labels.tolist()))
    return labels.size > 0 and labels.dtype.kind in "UT"


def is_integer_text(text: str) -> bool:
    """Return whether text is an integer in plain digits.

    >>> [is_integer_text(text) for text in ("7", "007", "7.0", "٧")]
    [True, False, False, False]
    """
    return _INTEGER.fullmatch(text) is not None


def integers_if_all(texts: list[str]) -> Array:
    """Convert cells of a file without types to integers if all are plain ones; 007 stays text."""
    if all(map(_INTEGER.fullmatch, texts)):
        return np.array(list(map(int, texts)), dtype=np.int64)
    return np.array(texts, dtype=object)


# ---- names ---------------------------------------------------------------------------------------


def as_class_names(names: Any, n_classes: int) -> tuple[str, ...] | None:
    """Return one name per class from a sequence or {index: name}; None stays None."""
    if names is None:
        return None
    aligned = align_classes(names, None, n_classes, "class_names")
    return checked_names(aligned.tolist(), n_classes, "'class_names'")


def checked_names(names: Iterable[object], n_classes: int, owner: str) -> tuple[str, ...]:
    """Check that there is one name per class, all different, and encodable in UTF-8.

    White space is a name, as it is in models that read characters.
    """
    names = list(names)
    if len(names) != n_classes:
        raise InputError(f"{owner} must have one name per class. Got {len(names)} for {n_classes}.")
    texts, missing, first = tuple(map(str, names)), list[str](), dict[str, int]()
    for index, name in enumerate(names):
        is_null = name is None or type(name).__name__ in ("NAType", "NaTType")
        if is_null or name == "" or name != name:
            missing.append(f"{name!r} for class {index}")
        if first.setdefault(texts[index], index) != index and not missing:
            raise InputError(
                f"{owner} must be unique. Got {name!r} for the classes {first[texts[index]]} and "
                f"{index}; rename one of them."
            )
    if missing:
        raise InputError(f"{owner} must name every class. Got {listed(missing, 5)}.")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{owner} must be text. Got {error.object[error.start]!r}.") from None
    return texts


def count_up(names: Iterable[str]) -> bool:
    """Return whether the names are the default 0, 1, 2, ... of a frame."""
    names = list(names)
    return names == list(map(str, range(len(names))))


# ---- values of classes ---------------------------------------------------------------------------


def as_written(values: Array) -> Array:
    """Return short floats as the decimals that were written: 0.1 in float32 is 0.1.

    >>> as_written(np.array([0.1, 0.01], dtype=np.float32)).tolist()
    [0.1, 0.01]
    """
    is_short = values.dtype.kind == "f" and values.dtype.itemsize < 8
    return values.astype(str).astype(np.float64) if is_short else values


def _as_written(value: Any) -> Any:
    return float(str(value)) if type(value) in (np.float16, np.float32) else value


def by_class(values: Any, name: str) -> dict[str, Any] | None:
    """Return {class: value} if the values name their classes; None for a vector.

    Mappings, pandas Series and lists of pairs name their classes. A Series with a RangeIndex is a
    vector.
    """
    pairs: Any = None
    if isinstance(values, Mapping):
        pairs = values.items()
    elif hasattr(values, "iloc"):
        index = values.index
        is_default = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
        if not is_default:
            pairs = zip(index.tolist(), as_written(to_numpy(values)).tolist(), strict=True)
    elif isinstance(values, list | tuple) and len(values):
        is_pair = [isinstance(each, list | tuple) and len(each) == 2 for each in values]
        pairs = values if all(is_pair) and all(isinstance(v[0], str) for v in values) else None
    if pairs is None:
        return None
    return unique_keys(f"'{name}'", [(str(key), value) for key, value in pairs])


def align_classes(
    values: Any,
    class_names: Sequence[str] | None,
    n_classes: int,
    name: str,
    *,
    default: str | None = None,
) -> Array:
    """Return one value per class (K,), in the order of the classes.

    Values that name their classes (see `by_class`) are aligned by class name, or by class index for
    classes without names. The value under the key `default` is that of all classes not named.

    >>> align_classes({"bee": 1, "ant": 3}, ["ant", "bee"], 2, "prevalence").tolist()
    [3, 1]
    """
    known = by_class(values, name)
    if known is None:
        vector = as_written(to_numpy(values))
        if vector.shape != (n_classes,):
            size = len(vector) if vector.ndim == 1 else f"shape {vector.shape}"
            raise InputError(
                f"'{name}' must have one entry per class. Got {size} for {n_classes} classes."
            )
        return vector
    names = [str(each) for each in (range(n_classes) if class_names is None else class_names)]
    has_default = default in known and default not in names
    rest = dict.fromkeys(names, known.pop(str(default))) if has_default else {}
    missing = [] if rest else [each for each in names if each not in known]
    unknown = sorted(known.keys() - set(names))
    if missing or unknown or len(set(names)) < n_classes:
        found = [f"none for {len(missing)} of them ({listed(missing, 3)})"] * bool(missing)
        found += [f"{len(unknown)} unknown ({listed(unknown, 3)})"] * bool(unknown)
        kind = "index, because they have no names" if class_names is None else "name"
        raise InputError(
            f"'{name}' must have one entry for each of the {n_classes} classes, by {kind}. "
            f"Got {' and '.join(found) or 'classes that share a name'}."
        )
    values_of = rest | known
    return to_numpy([_as_written(values_of[each]) for each in names])
