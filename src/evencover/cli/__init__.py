"""The commands, thin: read, call the library, show. Results on stdout, notes on stderr."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import cyclopts

from evencover._validation import EvencoverWarning, InputError
from evencover.cli import calibrate, compare, evaluate, info, predict, recommend, report
from evencover.cli.console import note
from evencover.cli.experiment import experiment
from evencover.cli.shared import app

COMMANDS: tuple[Any, ...] = (calibrate, predict, evaluate, report, info, recommend, compare)
for command in COMMANDS:
    app.command(command.run, name=command.__name__.rpartition(".")[2])
app.command(experiment)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; bad input is one sentence on stderr and exit code 2."""
    shown: set[str] = set()

    def show_warning(message: Any, category: Any, *details: Any) -> None:
        if issubclass(category, EvencoverWarning) and str(message) not in shown:
            shown.add(str(message))
            note(str(message))

    given = sys.argv[1:] if arguments is None else arguments
    if {"--help", "-h"} & set(given):
        _name_choices()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", EvencoverWarning)
            warnings.showwarning = show_warning  # type: ignore[assignment]
            app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output went away
        _discard_stdout()
        sys.exit(141)
    except (InputError, cyclopts.CycloptsError, OSError) as error:
        print(f"evencover: {' '.join(str(error).split())}", file=sys.stderr)
        if isinstance(error, OSError):  # perhaps stdout itself is full
            _discard_stdout()
        sys.exit(2)


def _name_choices() -> None:
    """Only a reader of the help needs the names of all methods, for which much is imported."""
    from evencover.cli.choices import with_choices

    for command in COMMANDS:
        command.run.__doc__ = with_choices(command.run.__doc__)


def _discard_stdout() -> None:
    """Let Python flush what is left at exit without complaining again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
