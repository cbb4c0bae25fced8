"""Check rows, labels, values per class and parameters; raise InputError with a fix."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.errors import InputError, listed
from evencover.rounding import judge_sums, rounded_off, rounding_steps
from evencover.topk import TopK, is_sparse

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
MISSING = ("", "None", "nan", "<NA>", "NaT")  # missing values as text
LARGEST = np.finfo(np.float64).max.item()
FLOAT_TYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))
BFLOAT16 = np.dtype("V2")  # as files store it: NumPy's placeholder for an unknown type


def are_probabilities(rows: Array) -> bool:
    """Check whether the first rows (n, K), at most 16, all pass as probabilities.

    A few logits can pass by chance. Fewer than 8 numbers must therefore sum to 1 within 1e-6, and a
    single row of two classes is never enough.
    """
    some = rows[:16]
    # Two numbers identify most logits in 0.2 us; all of them take 2 us.
    if some.size < 3 or not (0 <= some[0, 0] <= 1 and 0 <= some[-1, -1] <= 1):
        return False
    if not (some.min() >= 0 and some.max() <= 1):
        return False
    off = np.abs(some.sum(axis=1, dtype=np.float64) - 1)
    return bool((off <= 1e-6).all() if some.size < 8 else judge_sums(off, some)[0].all())


def parse_json(text: bytes | str, owner: str) -> Any:
    """Parse JSON from `owner`; raise InputError if an object has the same key twice."""
    return json.loads(text, object_pairs_hook=partial(unique_keys, owner))


def unique_keys(owner: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary of the pairs; raise InputError if two have the same key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InputError(f"Every name in {owner} must be unique. Got {twice!r} twice.")
    return found


def are_json_numbers(values: Iterable[Any]) -> bool:
    """Check that all values from JSON are numbers; booleans are not."""
    return {int, float}.issuperset(map(type, values))


def matrix_shape(shape: Sequence[int], name: str) -> tuple[int, int]:
    """Check that a shape is (N, K), K >= 2."""
    if len(shape) != 2:
        raise InputError(
            f"{name} must be a matrix with one row per example and one column per class. "
            f"Got an array of shape {tuple(shape)} instead."
        )
    if shape[1] < 2:
        raise InputError(
            f"{name} must have at least 2 classes (columns). Got {shape[1]} instead; "
            "for a binary model give the probabilities of both classes."
        )
    return int(shape[0]), int(shape[1])


def score_rows(values: Any, name: str = "probabilities") -> Any:
    """Check that `values` is a real (n, K) matrix, K >= 2, and return it as floating-point rows.

    Top-k rows stay as they are, and sparse matrices become such rows.
    """
    if isinstance(values, TopK):
        return values
    if not isinstance(values, np.ndarray) and is_sparse(values):
        return TopK.from_sparse(values)
    rows = to_numpy(values, f"'{name}'")
    matrix_shape(rows.shape, f"'{name}'")
    if rows.dtype in FLOAT_TYPES:
        return rows
    if rows.dtype.name == "bfloat16":  # of JAX and TensorFlow, through ml_dtypes
        return rows.astype(np.float32)
    if rows.dtype == BFLOAT16:
        return (np.ascontiguousarray(rows).view("<u2").astype(np.uint32) << 16).view(np.float32)
    if rows.dtype.newbyteorder("=") in FLOAT_TYPES:
        return rows.astype(rows.dtype.newbyteorder("="))
    if rows.dtype.kind in "biuf":  # "f" is long double here
        return rows.astype(np.float64)
    raise InputError(f"'{name}' must contain real numbers. Got the type {rows.dtype} instead.")


def class_labels(
    values: Any,
    n_classes: int,
    n_rows: int | None,
    name: str = "'labels'",
    row_name: Callable[[int], str] = "row {}".format,
) -> IntArray:
    """Check that `values` are class indices 0..K-1, one per row, and return them as int64.

    Messages use `name`, and `row_name` to describe a row.
    """
    labels = to_numpy(values, name)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"{name} must have one dimension. Got the shape {labels.shape}.")
    if n_rows is not None and len(labels) != n_rows:
        raise InputError(
            f"{name} must have one entry per row. Got {len(labels)} labels for {n_rows} rows."
        )
    if labels.dtype.kind not in "iu" and labels.size:
        raise InputError(
            f"{name} must be integers (class indices 0 to {n_classes - 1}). "
            f"Got the type {labels.dtype} instead; missing labels are not allowed."
        )
    if len(labels) and (labels.min() < 0 or labels.max() >= n_classes):
        row = int(((labels < 0) | (labels >= n_classes)).argmax())
        raise InputError(
            f"'labels' must be between 0 and {n_classes - 1}, because there are {n_classes} "
            f"classes. Got {labels[row]} in {row_name(row)}."
        )
    return labels.astype(np.int64, copy=False)


def is_integer_text(text: str) -> bool:
    """Return whether text is an integer in plain digits.

    >>> [is_integer_text(text) for text in ("7", "007", "7.0", "٧")]
    [True, False, False, False]
    """
    return _INTEGER.fullmatch(text) is not None


def labels_are_names(
    labels: Any, class_names: Sequence[str] | None, numbers_are_names: bool = False
) -> bool:
    """Return whether labels are class names, not class indices: text is, and perhaps numbers."""
    values = to_numpy(labels, "'labels'")
    if values.dtype.kind in "iu":
        return numbers_are_names and class_names is not None
    if values.dtype.kind == "O":
        return any(isinstance(label, str) for label in values.ravel().tolist())
    return values.size > 0 and values.dtype.kind in "UT"


def label_indices(
    labels: Any,
    class_names: Sequence[str] | None,
    n_classes: int,
    n_rows: int | None = None,
    name: str = "'labels'",
    row_name: Callable[[int], str] = "row {}".format,
    *,
    numbers_are_names: bool = False,
    allow_unknown: bool = False,
) -> IntArray:
    """Return labels, class indices or class names, as class indices.

    Messages use `name`, and `row_name` to describe a row. With `numbers_are_names`, integer labels
    are class names. With `allow_unknown`, text that is not among the classes becomes `n_classes`;
    numbers, which may be indices, and missing labels do not.

    >>> label_indices(["bee", "ant"], ["ant", "bee"], 2).tolist()
    [1, 0]
    """
    values = to_numpy(labels, name)
    if not labels_are_names(values, class_names, numbers_are_names):
        return class_labels(values, n_classes, n_rows, name, row_name)
    allow_unknown = allow_unknown and values.dtype.kind in "UOT"  # numbers may count other classes
    given = values.ravel().tolist()
    if class_names is None:
        row = next((row for row, label in enumerate(given) if not is_integer_text(str(label))), 0)
        raise InputError(
            f"{name} must be integers (class indices 0 to {n_classes - 1}), because the classes "
            f"have no names. Got {str(given[row])!r} in {row_name(row)}; to use names, give the "
            "data class names: 'class_names' in the file, a named column per class, or "
            "class_names= in Python."
        )
    index_of_name = {class_name: index for index, class_name in enumerate(class_names)}
    indices = [
        index_of_name.get(str(label), n_classes) if isinstance(label, str | int) else n_classes
        for label in given
    ]
    for row, label in enumerate(given) if n_classes in indices else ():
        is_name = isinstance(label, str) and label.strip() not in MISSING
        if indices[row] == n_classes and not (allow_unknown and is_name):
            raise unknown_label(str(label), row_name(row), class_names)
    found = np.array(indices, dtype=np.int64).reshape(values.shape)
    return class_labels(found, n_classes + allow_unknown, n_rows, name, row_name)


def unknown_label(label: str, row_name: str, class_names: Sequence[str]) -> InputError:
    """Build the error for a label that is not among the classes."""
    close = difflib.get_close_matches(label, list(class_names), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    hint = "; missing labels are not allowed." if label.strip() in MISSING else hint
    return InputError(
        f"Every label must be one of the {len(class_names)} class names. "
        f"Got {label!r} in {row_name}{hint}"
    )


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


_LOGITS_HINT = "if these are logits, use from_logits=True (--logits on the command line)."
MOST_TOP_CLASSES = 20  # of a row that has numbers for its top classes only


def raise_bad_row(row: Array, index: int, *, logits: bool, place: str | None = None) -> NoReturn:
    """Raise for a row that a kernel rejected, with the cause; `place` names it and its file."""
    where = place or f"row {index}"
    if isinstance(row, TopK):
        raise _bad_listed(row, where)
    values, is_missing = row.astype(np.float64), np.isnan(row)
    rule = "'probabilities' must be numbers between 0 and 1."
    rule = "'logits' must be finite numbers." if logits else rule
    if logits or not np.isfinite(values).all():
        column = int((is_missing if is_missing.any() else ~np.isfinite(values)).argmax())
        kind, cause = "an infinite value", "." if logits else f"; {_LOGITS_HINT}"
        if is_missing.any():
            kind, cause = "NaN", ": a missing value; fill it in, or leave the row out."
        raise InputError(f"{rule} Got {kind} in {where}, class {column}{cause}")
    worst, total = int(values.argmin()), float(values.sum())
    cause = _cause_of_sum(row, values)
    if values[worst] < 0:
        raise InputError(f"{rule} Got {values[worst]:.6g} in {where}, class {worst}; {cause}")
    raise InputError(
        f"Every row of 'probabilities' must sum to 1. {'R' + where[1:]} sums to {total:.6g}, "
        f"which is off by {abs(total - 1):.3g}; {cause}"
    )


def _bad_listed(row: TopK, where: str) -> InputError:
    """Build the error for a row of listed classes that a kernel rejected."""
    if not row.size:
        return InputError(f"A top-k row must list at least one class. Got none in {where}.")
    classes, counts = np.unique(row.classes, return_counts=True)
    if (counts > 1).any():
        twice = classes[counts.argmax()]
        return InputError(
            f"A top-k row must list each class once. Got class {twice} twice in {where}."
        )
    is_bad = ~((row.values >= 0) & (row.values <= 1))
    if is_bad.any():
        worst = int(is_bad.argmax())
        return InputError(
            "The numbers of a top-k row must be probabilities between 0 and 1. Got "
            f"{row.values[worst]:g} in {where}, class {row.classes[worst]}; turn logits into "
            "probabilities by a softmax over all classes, and log probabilities by exp."
        )
    return InputError(
        "The probabilities of a top-k row must sum to at most 1. Got "
        f"{row.values.sum(dtype=np.float64):.6g} in {where}; use a softmax over all classes."
    )


def _cause_of_sum(row: Array, values: FloatArray) -> str:
    """Explain why numbers are no probabilities, as far as one row shows."""
    total, n_zeros = float(values.sum()), int((values == 0).sum())
    if values.min() >= 0 and abs(total - 100) <= 1:
        return "these are percentages; divide them by 100."
    if values.min() < 0 or values.max() > 1:
        return _LOGITS_HINT
    n_numbers = len(values) - n_zeros
    if total < 1 and n_numbers <= MOST_TOP_CLASSES and n_zeros > n_numbers:
        return (
            f"it has {n_numbers} numbers and {n_zeros} zeros, so these are the top classes only; "
            "write the probabilities of all classes."
        )
    step, most = (float(found[0]) for found in (rounding_steps(row[None]), rounded_off(row[None])))
    if step and abs(total - 1) < 0.5:
        return (
            f"numbers rounded to steps of {step:.2g} explain at most {most:.2g}; write more "
            "digits, of all classes."
        )
    return (
        "a softmax over all classes sums to 1; sigmoids, or the numbers of some of the classes, "
        "do not."
    )


def _check(is_valid: bool, value: Any, name: str, owner: str, rule: str) -> None:
    if not is_valid:
        raise InputError(f"The '{name}' parameter of {owner} must be {rule}. Got {value!r}.")


def whole_number(value: Any, name: str, owner: str, low: int, high: int | None = None) -> int:
    """Check an integer parameter against its range."""
    span = f"of at least {low}" if high is None else f"from {low} to {high}"
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    is_valid = is_whole and low <= value <= (2**63 - 1 if high is None else high)
    _check(is_valid, value, name, owner, f"an integer {span}")
    return int(value)


def real_number(
    value: Any,
    name: str,
    owner: str,
    low: float,
    high: float | None = None,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Check a finite real parameter against its range."""
    is_real = isinstance(value, int | float | np.integer | np.floating)
    is_valid = is_real and not isinstance(value, bool)
    # Reject NaN, and integers that overflow a float.
    is_valid = is_valid and bool(abs(value) <= LARGEST and value >= low)
    is_valid = is_valid and not (open_low and value == low)
    rule = f"a finite number {'above' if open_low else 'of at least'} {low:g}"
    if high is not None:
        is_valid = is_valid and bool(value < high if open_high else value <= high)
        rule += f" and {'below' if open_high else 'at most'} {high:g}"
    _check(is_valid, value, name, owner, rule)
    return float(value)


def flag(value: Any, name: str, owner: str) -> bool:
    """Check a parameter that is True or False."""
    _check(isinstance(value, bool | np.bool_), value, name, owner, "True or False")
    return bool(value)


# Checks the value of a parameter, given its name and its owner's; raises InputError.
Check = Callable[[Any, str, str], Any]


def unless(values: tuple[Any, ...], check: Check) -> Check:
    """Extend a check to accept these values."""

    def checked(value: Any, name: str, owner: str) -> None:
        if isinstance(value, str | float | None) and value in values:
            return
        try:
            check(value, name, owner)
        except InputError as error:
            others = " or ".join(map(repr, values))
            raise InputError(str(error).replace(". Got", f", or {others}. Got", 1)) from None

    return checked


OPEN_SHARE: Check = partial(real_number, low=0, high=1, open_low=True, open_high=True)


def one_of(*known: str) -> Check:
    """Make a check for a parameter that takes one of some names."""

    def checked(value: Any, name: str, owner: str) -> None:
        if value not in known:
            raise_unknown(f"value of the parameter '{name}' of {owner}:", value, known)

    return checked


def raise_unknown(kind: str, value: Any, known: Iterable[str]) -> NoReturn:
    """Raise for an unknown name, and suggest a known one."""
    known = list(known)
    close = difflib.get_close_matches(str(value).lower(), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise InputError(f"Unknown {kind} {value!r}. Choose one of {', '.join(known)}{hint}")


def import_pandas() -> Any:
    """Import pandas for `to_pandas`, or raise with install instructions."""
    try:
        import pandas
    except ImportError:
        raise InputError("to_pandas needs pandas; install it with 'pip install pandas'.") from None
    return pandas
