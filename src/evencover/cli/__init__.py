"""The commands: read, call the library, print. Results on stdout, notes on stderr.

This module imports only what error messages need, so that Ctrl-C is handled from the start.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from evencover.errors import EvencoverWarning, InputError, one_line

MOST_LETTERS = 1000  # of a message; names in a file can be of any length


def main(arguments: list[str] | None = None) -> None:
    """Run a command; bad input is one line on stderr and exit code 2."""
    given = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:  # it was closed from the start
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # a name may have letters that the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _handling(signal.SIGTERM, signal.SIG_DFL, _terminate):
            _run(given)
    except _Terminated as stop:
        print(f"evencover: terminated; {_what_is_left(given, stop)}", file=sys.stderr)
        sys.exit(143)
    except KeyboardInterrupt as stop:
        print(f"evencover: interrupted; {_what_is_left(given, stop)}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away
        _discard_stdout()
        sys.exit(141)
    except SystemExit as stop:  # the same, met by rich, which prints help and tables
        if isinstance(stop.__context__, BrokenPipeError):
            sys.exit(141)
        raise
    except MemoryError:
        print(
            "evencover: There is not enough memory. Nothing was written; give it more, or fewer "
            "threads (EVENCOVER_THREADS=1).",
            file=sys.stderr,
        )
        sys.exit(2)
    except (InputError, OSError) as error:
        _say(error)
        if isinstance(error, OSError):  # perhaps stdout itself is full
            _discard_stdout()
        sys.exit(2)


def _run(arguments: list[str]) -> None:
    # While modules are imported Ctrl-C just ends it: Python may lose an exception there.
    with _handling(signal.SIGINT, signal.default_int_handler, _leave):
        import cyclopts

        from evencover.cli.commands import app, name_choices
        from evencover.cli.console import note

    _explain_lost_maps()
    shown: set[str] = set()

    def show_warning(message: Any, category: Any, *details: Any) -> None:
        if issubclass(category, EvencoverWarning) and str(message) not in shown:
            shown.add(str(message))
            note(str(message))

    if {"--help", "-h"} & set(arguments):
        name_choices()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", EvencoverWarning)
            warnings.showwarning = show_warning  # type: ignore[assignment]
            app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
            sys.stdout.flush()
    except cyclopts.CycloptsError as error:
        _say(error)
        sys.exit(2)


def _explain_lost_maps() -> None:
    """Print a message where the system ends a process because a mapped file was cut short."""
    with suppress(ImportError):  # only the C++ kernels can
        from evencover._kernels._native import say_when_a_map_is_lost

        say_when_a_map_is_lost(
            "evencover: A file was cut short while it was read; nothing was written. Run the "
            "command again when the file is whole.\n"
        )


class _Terminated(KeyboardInterrupt):
    """SIGTERM: clean up as after Ctrl-C, and exit with another code."""


def _terminate(*_: object) -> None:
    raise _Terminated


def _leave(*_: object) -> None:
    os.write(2, b"evencover: interrupted; nothing was written\n")
    os._exit(130)


@contextmanager
def _handling(number: signal.Signals, usual: Any, handler: Callable[..., None]) -> Iterator[None]:
    """Handle a signal, unless the caller of `main` does already."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(number) is not usual:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, usual)


def _say(error: Exception) -> None:
    print(f"evencover: {one_line(error, MOST_LETTERS)}", file=sys.stderr)


def _what_is_left(arguments: list[str], stop: KeyboardInterrupt) -> str:
    """Describe what an interrupted command leaves behind; the command may do so itself."""
    if arguments[:1] == ["experiment"]:
        return "what was finished is kept, and the same command goes on from there"
    return str(stop) or "nothing was written"


def _discard_stdout() -> None:
    """Let Python flush what is left at exit without complaining again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
