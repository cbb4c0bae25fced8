"""How columns of row blocks, and of parts of the input, become one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from evencover._validation import Array


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
