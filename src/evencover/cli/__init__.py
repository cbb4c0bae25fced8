"""The commands, thin: read, call the library, show. Results on stdout, notes on stderr.

Nothing is imported here but what a sentence needs, so that an interruption is one from the start.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from evencover.errors import EvencoverWarning, InputError, one_line

MOST_LETTERS = 1000  # of a message; names in a file can be of any length


def main(arguments: list[str] | None = None) -> None:
    """Run a command; bad input is one sentence on stderr and exit code 2."""
    given = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:  # it was closed from the start
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # a name may have letters that the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _ending_on_request():
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
        _say(
            InputError(
                "There is not enough memory. Nothing was written; give it more, or fewer threads "
                "(EVENCOVER_THREADS=1)."
            )
        )
        sys.exit(2)
    except (InputError, OSError) as error:
        _say(error)
        if isinstance(error, OSError):  # perhaps stdout itself is full
            _discard_stdout()
        sys.exit(2)


def _run(arguments: list[str]) -> None:
    with _leaving_at_once():
        import cyclopts

        from evencover.cli.commands import app, name_choices
        from evencover.cli.console import note

    _say_when_a_file_is_cut()
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


def _say_when_a_file_is_cut() -> None:
    """The system ends whoever reads on where a mapped file was cut short: say why."""
    with suppress(ImportError):  # without the C++ kernels it ends without a word
        from evencover._kernels._native import say_when_a_map_is_lost

        say_when_a_map_is_lost(
            "evencover: A file was cut short while it was read; nothing was written. Run the "
            "command again when the file is whole.\n"
        )


class _Terminated(KeyboardInterrupt):
    """Somebody sent SIGTERM: what is half-written is taken away, as after Ctrl-C."""


def _ending_on_request() -> AbstractContextManager[None]:
    """SIGTERM ends the command like Ctrl-C, with another code."""

    def stop(*_: object) -> None:
        raise _Terminated

    return _answering(signal.SIGTERM, signal.SIG_DFL, stop)


def _leaving_at_once() -> AbstractContextManager[None]:
    """While modules are imported Ctrl-C just ends it: Python may lose an exception there."""

    def leave(*_: object) -> None:
        os.write(2, b"evencover: interrupted; nothing was written\n")
        os._exit(130)

    return _answering(signal.SIGINT, signal.default_int_handler, leave)


@contextmanager
def _answering(number: signal.Signals, usual: Any, handler: Callable[..., None]) -> Iterator[None]:
    """Answer a signal in another way than usual, unless somebody else does already."""
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
    """What an interrupted command leaves behind, which it may say itself."""
    if arguments[:1] == ["experiment"]:
        return "what was finished is kept, and the same command goes on from there"
    return str(stop) or "nothing was written"


def _discard_stdout() -> None:
    """Let Python flush what is left at exit without complaining again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
