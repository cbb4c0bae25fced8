"""Output of the commands: notes and progress on stderr, tables on stdout."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from evencover.data.source import RawBlock, Source
from evencover.errors import printable

Item = TypeVar("Item")


def note(text: str) -> None:
    """Print a note to stderr; results go to stdout."""
    line = f"note: {printable(text)}"
    print(folded(line, _width()) if sys.stderr.isatty() else line, file=sys.stderr)


def progress(
    items: Iterable[Item],
    what: str,
    total: int | None,
    size: Callable[[Item], int],
    unit: str | None = None,
) -> Generator[Item, None, None]:
    """Pass items on; show a bar with the time left once a second has gone by, on a terminal.

    With a `unit` it also shows how many of them are done per second.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.text import Text

    class Rate(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:.1f} {unit}/s")

    columns = [bars.TextColumn(what), bars.BarColumn(), bars.MofNCompleteColumn()]
    columns += [Rate()] if unit else []
    columns.append(bars.TimeRemainingColumn())
    bar = bars.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    begun = time.monotonic()
    try:
        for item in items:
            yield item
            bar.advance(task, size(item))
            if not bar.live.is_started and time.monotonic() - begun > 1:
                bar.start()
    finally:
        bar.stop()


def watch(source: Source, what: str) -> Source:
    """Show the reading of a source as a progress bar."""

    def counted(blocks: Iterator[RawBlock]) -> Iterator[RawBlock]:
        return progress(blocks, what, source.n_rows, lambda block: len(block.rows))

    return replace(source, watch=counted)


def print_text(text: str) -> None:
    """Print lines, folded at words where a terminal is too narrow; a pipe gets them as they are."""
    width = _terminal_width()
    for line in printable(text).split("\n"):
        print(line if width is None else folded(line, width))


def folded(line: str, width: int) -> str:
    """Fold a line; continuation lines are indented to the last of its columns.

    >>> print(folded("alpha   0.1   the share that may be missed", 32))
    alpha   0.1   the share that may
                  be missed
    """
    gaps = [gap.end() for gap in re.finditer(" {2,}", line[: width // 2])]
    pieces = textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * (gaps[-1] if gaps else 0),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(pieces)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    *,
    least: Sequence[str] = (),
) -> None:
    """Print a table: the first column to the left, numbers to the right, all of it in a pipe.

    A narrow terminal drops columns and prints their names: first those in `least`, in that order,
    then others from the right. Numbers are never truncated.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    width = _terminal_width()
    kept = list(range(len(columns)))
    if width is not None:
        first_out = [list(columns).index(name) for name in least if name in columns]
        by_need = [*first_out, *reversed(range(2, len(columns)))]
        for column in dict.fromkeys(by_need):
            if _least_width(columns, cells, kept) <= width:
                break
            kept.remove(column)
    if title:
        print_text(title)
    text = _table([columns[c] for c in kept], [[row[c] for c in kept] for row in cells], width)
    print(text, end="")
    left_out = [name.replace("\n", "") for c, name in enumerate(columns) if c not in kept]
    if left_out:
        print_text(f"Columns left out for lack of space: {', '.join(left_out)}; --json shows all.")


def _terminal_width() -> int | None:
    """Return the width of the terminal, or None if stdout is none."""
    return _width() if sys.stdout.isatty() else None


def _width() -> int:
    return shutil.get_terminal_size().columns


FOLDED_COLUMN = 20  # the first column, of words, may be made so narrow


def _least_width(
    columns: Sequence[str], cells: Sequence[Sequence[str]], kept: Sequence[int]
) -> int:
    """Return the width of a table of these columns if the first one is folded."""
    widths = []
    for column in kept:
        texts = [*columns[column].split("\n"), *(row[column] for row in cells)]
        widths.append(max(map(len, texts)))
    return min(widths[0], FOLDED_COLUMN) + sum(widths[1:]) + 3 * len(kept)


def _table(columns: Sequence[str], cells: Iterable[Sequence[str]], width: int | None) -> str:
    """Return the table as text, in which no column but the first is folded."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number > 0)
    for row in cells:
        table.add_row(*map(escape, row))
    console = Console(width=10_000 if width is None else max(width, 20))
    with console.capture() as text:
        console.print(table)
    return text.get()
