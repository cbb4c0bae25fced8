"""Run a command; turn bad input and signals into one line on stderr and an exit code.

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
from importlib import import_module
from typing import TYPE_CHECKING, Any

from evencover.errors import EvencoverWarning, InputError, MismatchWarning, one_line

if TYPE_CHECKING:
    from cyclopts import App

# Commands by module; a function is called like its command, or `run`.
COMMANDS = {
    **{"infer": "infer", "calibrate": "models", "predict": "predict"},
    **{"evaluate": "evaluate", "report": "evaluate", "info": "info"},
    **{"recommend": "compare", "compare": "compare"},
    "cutoffs": "cutoffs",
    **{"monitor": "monitor", "update": "models", "export": "models", "serve": "serve"},
}
MAX_MESSAGE = 1000  # characters; names in a file can be of any length
MIN_WIDTH, MAX_WIDTH = 20, 1000  # columns; rich folds forever where no letter fits


def make_app() -> App:
    """Return the application with all its commands."""
    from cyclopts import App

    from evencover import __version__
    from evencover.cli.experiment import experiment

    app = App(
        name="evencover",
        help="Conformal prediction sets with even coverage across classes.",
        version=f"evencover {__version__}",
        help_format="plaintext",
    )
    for name, home in COMMANDS.items():
        module = import_module(f"evencover.cli.{home}")
        app.command(getattr(module, name, None) or module.run, name=name)
    app.command(experiment)
    app.register_install_completion_command(
        help="Install completion for bash, zsh or fish; changes its rc file."
    )
    app.suppress_keyboard_interrupt = False  # `main` reports what became of the output
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run a command; bad input is one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if sys.stdout is None:  # it was closed from the start
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # a name may have letters that the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with suppress(KeyError, ValueError):
        width = max(MIN_WIDTH, int(os.environ["COLUMNS"]) or 80)
        os.environ["COLUMNS"] = str(min(width, MAX_WIDTH))
    try:
        with _handling(signal.SIGTERM, signal.SIG_DFL, _terminate):
            _run(arguments)
    except KeyboardInterrupt as stop:
        left = str(stop) or "nothing was written"  # a command may describe what it leaves
        code, word = (143, "terminated") if isinstance(stop, _Terminated) else (130, "interrupted")
        _exit(code, f"{word}; {left}")
    except BrokenPipeError:  # the reader of our output went away
        _discard_stdout()
        sys.exit(141)
    except SystemExit as stop:  # the same, met by rich, which prints help and tables
        if isinstance(stop.__context__, BrokenPipeError):
            sys.exit(141)
        raise
    except MemoryError:
        _exit(2, "There is not enough memory. Nothing was written; try EVENCOVER_THREADS=1.")
    except (InputError, OSError) as error:
        if isinstance(error, OSError):  # perhaps stdout itself is full
            _discard_stdout()
        _exit(2, one_line(error, MAX_MESSAGE))


def _run(arguments: list[str]) -> None:
    # While modules are imported Ctrl-C just ends it: Python may lose an exception there.
    with _handling(signal.SIGINT, signal.default_int_handler, _leave):
        from cyclopts import CycloptsError

        from evencover.cli.console import note
        from evencover.cli.options import fill_in_choices

        app = make_app()
        if {"--help", "-h"} & set(arguments):
            fill_in_choices(app)
    shown: set[str] = set()

    def show_warning(message: Any, category: Any, *details: Any) -> None:
        if issubclass(category, EvencoverWarning) and str(message) not in shown:
            shown.add(str(message))
            note(str(message))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", EvencoverWarning)
            warnings.simplefilter("error", MismatchWarning)
            warnings.showwarning = show_warning  # type: ignore[assignment]
            command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
            command(*bound.args, **bound.kwargs)
            sys.stdout.flush()
    except (CycloptsError, MismatchWarning) as error:
        _exit(2, one_line(error, MAX_MESSAGE))


def _exit(code: int, message: str) -> None:
    print(f"evencover: {message}", file=sys.stderr)
    sys.exit(code)


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


def _discard_stdout() -> None:
    """Let Python flush what is left at exit without complaining again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
