"""How much is worked on at a time; tests make it little (EVENCOVER_SIZES)."""

from __future__ import annotations

import os

_TINY = os.environ.get("EVENCOVER_SIZES", "").split(",")


def at_once(usual: int, tiny: int = 50) -> int:
    """Return a size of blocks, slices or batches, on which no result may depend.

    It is `tiny` with EVENCOVER_SIZES=blocks, so that small data take every path of large ones.
    """
    return tiny if "blocks" in _TINY else usual


def sampled(usual: int, tiny: int = 50) -> int:
    """Return the size of a sample, which a result may depend on.

    It is `tiny` with EVENCOVER_SIZES=samples or EVENCOVER_SIZES=blocks,samples.
    """
    return tiny if "samples" in _TINY else usual
