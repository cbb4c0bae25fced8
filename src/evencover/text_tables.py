"""Text for terminals: aligned tables and folded lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Sequence

WIDTH = 80  # of text that is not printed on a terminal
NO_BREAK = "\N{NO-BREAK SPACE}"  # keeps words on one line; shown as a space


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


def folded(line: str, width: int = WIDTH) -> str:
    """Fold a line; continuation lines are indented to the last of its columns.

    >>> print(folded("alpha   0.1   the share that may be missed", 32))
    alpha   0.1   the share that may
                  be missed
    """
    gaps = [gap.end() for gap in re.finditer(" {2,}", line[: width // 2])]
    indent = " " * (gaps[-1] if gaps else 0)
    lines = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(NO_BREAK, " ")
