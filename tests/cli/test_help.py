"""Every command and option has help: short, in one line, and with the names to choose from."""

import pytest
from cli.running import succeeded

from evencover.cli.main import make_app
from evencover.cli.options import fill_in_choices
from evencover.predictors import PREDICTORS
from evencover.scores import SCORES

MOST_WORDS = 11
LONGEST_SUMMARY = 80  # characters


def commands(app, of=""):
    """Return every command by name, those of groups of commands too."""
    found = {}
    for name in app:
        if not name.startswith("-"):
            found |= {of + name: app[name], **commands(app[name], f"{of}{name} ")}
    return found


@pytest.fixture(scope="module")
def app():
    app = make_app()
    fill_in_choices(app)
    return app


@pytest.mark.parametrize("name", commands(make_app()))
def test_summaries_are_one_line_and_options_under_twelve_words(app, name):
    command = commands(app)[name]
    summary = command.help.strip().split("\n\n")[0]
    assert "\n" not in summary
    assert summary.endswith(".")
    assert len(summary) <= LONGEST_SUMMARY
    if command.default_command is None:
        return
    arguments = command.assemble_argument_collection(parse_docstring=True)
    assert len(arguments) > 0
    for argument in arguments:
        if argument.children:  # a group of options
            continue
        text = argument.parameter.help
        assert text, argument.name
        assert len(text.split()) <= MOST_WORDS, f"{argument.name}: {text}"
        assert text.endswith("."), f"{argument.name}: {text}"


@pytest.mark.parametrize("command", ["calibrate", "compare"])
def test_methods_and_scores_are_listed_one_per_line(run, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")  # none is folded
    lines = succeeded(run(command, "--help")).out.splitlines()
    for name in [*PREDICTORS, *SCORES]:
        (line,) = [line for line in lines if line.startswith(f"    {name} ")]
        assert {**PREDICTORS, **SCORES}[name].summary in line


def test_input_options_are_in_a_group_of_their_own(run):
    text = succeeded(run("monitor", "--help")).out
    own, _, shared = text.partition("─ Input ─")
    assert "--labels-key" in shared
    assert "--labels-key" not in own
    assert "None" not in text


def test_help_ends_on_a_terminal_without_width(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert "Usage" in succeeded(run("evaluate", "--help")).out


def test_options_do_not_multiply():
    """An option is a promise; a rare need is a parameter in Python."""
    arguments = [
        argument
        for command in commands(make_app()).values()
        if command.default_command is not None
        for argument in command.assemble_argument_collection()
        if argument.names[0].startswith("-")
    ]
    assert len(arguments) <= 185
