"""The model's classes and the data's labels, matched by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from evencover.errors import InputError, warn_caller
from evencover.inference.inputs import Inputs
from evencover.inference.models.base import Model


@dataclass(frozen=True)
class Classes:
    """What the outputs of a model are called, and which of them each label means.

    Attributes
    ----------
    n_classes
        The number of outputs.
    names
        One per output, or None.
    index_of
        From each label of the data to its output.
    """

    n_classes: int
    names: list[str] | None
    index_of: dict[str | int, int]


def match_classes(
    model: Model, inputs: Inputs, n_classes: int, given: Sequence[str] | None = None
) -> Classes:
    """Match labels with outputs; what does not fit is refused with the names.

    Names are `given`, or the model's own. If nobody names the outputs and the data have just as
    many classes, these are taken in their order, as tools do that train on folders.
    """
    names = _names(model, n_classes, given)
    found = inputs.labels
    if names is None and found is not None and not _are_indices(found):
        names = _names_of_data(model, inputs, n_classes)
    place = {name: index for index, name in enumerate(names or ())}
    if found is None:
        return Classes(n_classes, names, {})
    if all(str(label) in place for label in found):
        return Classes(n_classes, names, {label: place[str(label)] for label in found})
    if _are_indices(found):
        wrong = sorted(int(label) for label in found if not 0 <= int(label) < n_classes)
        if wrong:
            raise InputError(
                f"Every label of {inputs.name} must be between 0 and {n_classes - 1}, because the "
                f"model {model.name} has {n_classes} classes. Got {_few(wrong)}."
            )
        return Classes(n_classes, names, {label: int(label) for label in found})
    raise _unknown(sorted(str(each) for each in found if str(each) not in place), model, names)


def _names(model: Model, n_classes: int, given: Sequence[str] | None) -> list[str] | None:
    owner = f"The model {model.name}" if given is None else "class_names (--class-names)"
    names = model.class_names if given is None else given
    if names is None:
        return None
    names = [str(name) for name in names]
    if len(names) != n_classes:
        raise InputError(
            f"{owner} must name every class once. Got {len(names)} names for a model that returns "
            f"{n_classes} numbers."
        )
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise InputError(f"{owner} must name every class once. Got {twice!r} twice.")
    return names


def _names_of_data(model: Model, inputs: Inputs, n_classes: int) -> list[str]:
    known = list(inputs.class_names or sorted(map(str, inputs.labels or ())))
    if len(known) != n_classes:
        raise InputError(
            f"The model {model.name} names no classes and returns {n_classes} numbers, but "
            f"{inputs.name} has {len(known)} classes ({_few(known)}); give the names of the "
            "model's classes in its order with class_names (--class-names)."
        )
    warn_caller(
        f"The model {model.name} names no classes: its outputs are taken for the {n_classes} "
        f"classes of {inputs.name} in their order ({_few(known)})."
    )
    return known


def _unknown(unknown: list[str], model: Model, names: list[str] | None) -> InputError:
    known = names or []
    close = difflib.get_close_matches(unknown[0], known, n=1)
    hint = f"did you mean {close[0]!r}" if close else f"its classes are {_few(known)}"
    many = len(unknown) > 1
    return InputError(
        f"Every label must be a class of the model {model.name}. Got {_few(unknown)}, which it "
        f"does not know; {hint}{'?' if close and not many else '.'}"
    )


def _are_indices(labels: set[str] | set[int]) -> bool:
    """Whether all labels are whole numbers, which count the outputs; in text they are digits."""
    return all(isinstance(each, int) or (each.isascii() and each.isdigit()) for each in labels)


def _few(names: Sequence[str | int]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" * (len(names) > 5))
