"""How the counts of row blocks, and of parts of the input, become one."""

from __future__ import annotations

from collections.abc import Iterable

from evencover.evaluation.confusions import Confusions
from evencover.evaluation.tally import Tally


def total(parts: Iterable[tuple[Tally, Confusions]]) -> tuple[Tally, Confusions]:
    """The counts of all parts together; memory does not grow with their number."""
    tally: Tally | None = None
    confusions: list[Confusions] = []
    for part, confused in parts:
        tally = part if tally is None else tally + part
        confusions.append(confused)
        if len(confusions) == 256:
            confusions = [Confusions.total(confusions)]
    assert tally is not None
    return tally, Confusions.total(confusions)


def most_confused(counts: tuple[Tally, Confusions]) -> tuple[Tally, Confusions]:
    """What a report shows: a few confusions of each class, so O(K) numbers in all."""
    tally, confusions = counts
    return tally, confusions.most_frequent()
