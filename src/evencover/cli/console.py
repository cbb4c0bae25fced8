"""Output of the commands: notes and progress on stderr, tables on stdout."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from evencover.data.readers import RawBlock
from evencover.data.source import Source
from evencover.errors import printable
from evencover.text_tables import WIDTH, folded

Item = TypeVar("Item")


def note(text: str) -> None:
    """Print a note to stderr; results go to stdout."""
    line = f"note: {printable(text)}"
    print(folded(line, _width()) if sys.stderr.isatty() else line, file=sys.stderr)


def progress(
    items: Iterable[Item], what: str, total: int | None, size: Callable[[Item], int]
) -> Generator[Item, None, None]:
    """Pass items on; show a bar with the time left once a second has gone by, on a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich import progress as bars
    from rich.console import Console

    columns = [bars.TextColumn(what), bars.BarColumn(), bars.MofNCompleteColumn()]
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
    """Print lines, folded at words to the width of the terminal, or to 80 columns in a pipe."""
    width = _width() if sys.stdout.isatty() else WIDTH
    for line in printable(text).split("\n"):
        print(folded(line, width))


def _width() -> int:
    return shutil.get_terminal_size().columns
