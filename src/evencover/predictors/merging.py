"""How the results of row blocks, and of parts of the input, become one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from evencover._validation import Array
from evencover.evaluation.confusions import Confusions
from evencover.evaluation.report import Tally


def joined(parts: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Scores, labels and what else there is of consecutive rows."""
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def gathered(parts: Iterable[tuple[Array, ...]], n_rows: int | None) -> tuple[Array, ...]:
    """`joined`, but each part is put in its place when it comes, if the number of rows is known."""
    if n_rows is None:
        return joined(parts)
    columns: tuple[Array, ...] = ()
    start = 0
    for part in parts:
        columns = columns or tuple(np.empty(n_rows, dtype=values.dtype) for values in part)
        stop = start + len(part[0])
        for column, values in zip(columns, part, strict=True):
            column[start:stop] = values[: n_rows - start]  # whoever reads too many says so at last
        start = min(stop, n_rows)
    return columns


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
