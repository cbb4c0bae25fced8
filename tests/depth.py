"""How much the tests do: a short form in ``make test``, the full one in ``make test-deep``."""

import os

import pytest

IS_DEEP = os.environ.get("EVENCOVER_TESTS") == "deep"
usual_sizes_only = pytest.mark.skipif(
    bool(os.environ.get("EVENCOVER_SIZES")), reason="is a statement about data, not about blocks"
)


def size(short: int, deep: int) -> int:
    """How many repetitions, rows, levels or kills: in the short form and in the full one."""
    return deep if IS_DEEP else short


def examples(short: int) -> int:
    """How many examples hypothesis tries: five times as many in the full form."""
    return size(short, 5 * short)
