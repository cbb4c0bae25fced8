"""What every classifier is to the run: a kind of input, names, and two steps to logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from evencover.inference.inputs import Kind


class Model(ABC):
    """A trained classifier.

    Attributes
    ----------
    name
        What messages call it.
    identity
        Tells this model from others: from its content where there is a file.
    kind
        Whether it takes images or texts; None if it takes whatever the data hold.
    class_names
        One per output, or None if it does not say.
    batch_size
        How many inputs it takes at once, if that is fixed.
    """

    name: str
    identity: str
    kind: Kind | None = None
    class_names: Sequence[str] | None = None
    batch_size: int | None = None

    @abstractmethod
    def prepare(self, values: list[Any]) -> Any:
        """What the model takes, from images or texts; called by several threads at a time."""

    @abstractmethod
    def logits(self, prepared: Any) -> Any:
        """(n, K) numbers, one row for each of the values that were prepared together."""


def named_classes(id_to_label: Any) -> list[str] | None:
    """Class names from a Hugging Face configuration; None where it only numbers them."""
    if not id_to_label:
        return None
    names = {int(index): str(name) for index, name in id_to_label.items()}
    if set(names) != set(range(len(names))):
        return None
    ordered = [names[index] for index in range(len(names))]
    is_numbered = all(name == f"LABEL_{index}" for index, name in enumerate(ordered))
    return None if is_numbered else ordered
