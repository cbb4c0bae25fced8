"""Raw inputs, one after the other: what every folder and table looks like to a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

Kind = Literal["images", "texts"]
KINDS: tuple[Kind, ...] = ("images", "texts")


class Example(NamedTuple):
    """One input.

    Attributes
    ----------
    id
        Its path or row, or what a column of ids says.
    value
        Where it is, or what it is: a path, the bytes of a file, or a text.
    label
        The name or index of its class, None if nobody knows.
    """

    id: str | int
    value: Any
    label: str | int | None


class Inputs(ABC):
    """Inputs in a fixed order, read as they are needed.

    Attributes
    ----------
    name
        What messages call them.
    kind
        Whether they are images or texts.
    n_inputs
        How many there are.
    labels
        Every label that occurs, once; None if there are none.
    class_names
        The classes in the order of the data, if that says it.
    identity
        Tells these inputs from others.
    """

    name: str
    kind: Kind
    n_inputs: int
    labels: set[str] | set[int] | None
    class_names: Sequence[str] | None = None
    identity: str

    @abstractmethod
    def examples(self, start: int) -> Iterator[Example]:
        """All inputs from number `start` on; nothing is kept of those that went by."""
