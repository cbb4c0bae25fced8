"""Every command and option has help."""

import pytest
from cli.running import succeeded

from evencover.cli import predict, serve
from evencover.cli.options import with_choices


@pytest.mark.parametrize(
    "command", ["calibrate", "predict", "evaluate", "info", "compare", "monitor", "update"]
)
def test_every_command_and_every_option_has_help(run, command):
    text = succeeded(run(command, "--help")).out
    assert f"evencover {command}" in text
    assert "--labels" in text
    assert "None" not in text


def test_without_a_command_there_is_help(run):
    assert "calibrate" in succeeded(run()).out


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (
            predict,
            "a folder (a name without ending), which gets one file for each part of the input",
        ),
        (serve, "GET /v1/coverage, /v1/model, /healthz, /metrics, /openapi.json, and a live page"),
    ],
)
def test_sentences_are_folded_by_the_terminal_alone(run, command, sentence):
    """Not where our source happens to break them."""
    assert sentence in with_choices(command.run.__doc__)
    text = succeeded(run(command.__name__.rpartition(".")[2], "--help")).out
    assert "----------" not in text  # the sections are still found


def test_covering_every_class_is_an_aim(run):
    assert "Prediction sets that aim to cover every class" in succeeded(run("--help")).out
