"""Every command and option has help."""

import pytest
from cli.running import succeeded


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
