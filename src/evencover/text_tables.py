"""Tables as aligned text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(
    titles: Sequence[str], cells: Sequence[Sequence[str]], left: Collection[int] = ()
) -> str:
    r"""Align a table: the first column and those in `left` to the left, numbers to the right.

    A title may have several lines.

    >>> print(aligned(["method", "labels\nper set"], [["standard", "2.7"], ["pooled", "13.8"]]))
               labels
    method    per set
    standard      2.7
    pooled       13.8
    """
    split = [title.split("\n") for title in titles]
    height = max(map(len, split))
    heads = [list(row) for row in zip(*([""] * (height - len(t)) + t for t in split), strict=True)]
    rows = [*heads, *cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if number == 0 or number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)
