"""What the commands show on a terminal: notes and progress on stderr, tables on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from evencover.data.source import Block, Source

Item = TypeVar("Item")


def note(text: str) -> None:
    """Say something about the work; results go to stdout."""
    print(f"note: {text}", file=sys.stderr)


def progress(
    items: Iterable[Item], what: str, total: int | None, size: Callable[[Item], int]
) -> Iterator[Item]:
    """Pass items on; show a bar with the time left once a second has gone by, on a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
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


class WorkBar:
    """One bar, with the time left, over several readings of several sources; on a terminal."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
            speed_estimate_period=600,
        )
        self._task = self._bar.add_task(what, total=0)

    def __enter__(self) -> WorkBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def expect(self, n_numbers: int) -> None:
        """So much work is to come: rows x classes, over all readings."""
        self._bar.update(self._task, total=n_numbers)

    def watch(self, source: Source) -> Source:
        """Count what is read of a source."""

        def counted(blocks: Iterator[Block]) -> Iterator[Block]:
            for block in blocks:
                yield block
                self._bar.advance(self._task, block.rows.size)

        source.watch = counted
        return source


def watch(source: Source, what: str) -> Source:
    """Show the reading of a source as a progress bar."""
    n_rows = source.n_rows
    source.watch = lambda blocks: progress(blocks, what, n_rows, lambda block: len(block.rows))
    return source


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table: the first column to the left, numbers to the right, all of it in a pipe."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number > 0)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    # Never cut a number: a pipe has no width, and a narrow terminal may break the line.
    console = Console()
    console.width = max(console.width, 120) if sys.stdout.isatty() else 200
    console.print(table)
