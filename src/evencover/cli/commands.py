"""The application with all its commands."""

from __future__ import annotations

from typing import Any

from evencover.cli import (
    calibrate,
    compare,
    evaluate,
    export,
    infer,
    info,
    monitor,
    predict,
    recommend,
    report,
    serve,
    update,
)
from evencover.cli.experiment import experiment, heatmap, table
from evencover.cli.options import app as app

COMMANDS: tuple[Any, ...] = (
    *(infer, calibrate, predict, evaluate, report, info, recommend, compare),
    *(monitor, update, export, serve),
)
for command in COMMANDS:
    app.command(command.run, name=command.__name__.rpartition(".")[2])
app.command(experiment)
app.register_install_completion_command(
    help="Have bash, zsh or fish complete commands and options; asks nothing, changes its rc file."
)
app.suppress_keyboard_interrupt = False  # `main` says what became of the output


def name_choices() -> None:
    """Put the names of all methods into the help, which imports much."""
    from evencover.cli.options import with_choices

    for run in (*(command.run for command in COMMANDS), table, heatmap):
        run.__doc__ = with_choices(run.__doc__ or "")
