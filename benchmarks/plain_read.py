"""The yardstick: the time that one plain pass over the array takes, however little is computed.

The pass is ``block.max()`` over row blocks of about 16 MB, the size that evencover reads in, on as
many threads as it has. NumPy's float32 maximum is vectorised and releases the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

BLOCK_ELEMENTS = 1 << 22

Result = TypeVar("Result")


def row_blocks(rows: np.ndarray) -> Iterator[slice]:
    """Slices of about 16 MB of float32."""
    step = max(1, BLOCK_ELEMENTS // rows.shape[1])
    return (slice(start, start + step) for start in range(0, len(rows), step))


def on_blocks(
    function: Callable[[slice], Result], rows: np.ndarray, pool: ThreadPoolExecutor | None
) -> list[Result]:
    """``function(slice)`` of each block, in this thread or on the pool's."""
    return list((pool.map if pool else map)(function, row_blocks(rows)))


def plain_read(rows: np.ndarray, pool: ThreadPoolExecutor | None) -> float:
    """The largest number in the array."""
    return max(on_blocks(lambda block: float(rows[block].max()), rows, pool))
