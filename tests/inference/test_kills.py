"""Killed at any moment, the same command goes on where it was, and the bytes are the same."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from cli.running import environment, shell, succeeded
from inference.samples import content, write_model, write_texts

SLOW = """
import time
import numpy as np

WEIGHTS = np.random.default_rng(1).normal(size=(10, 4100))

def slow(batch):
    time.sleep(0.004)
    return np.array([[text.count(letter) for letter in "abcdefghij"] for text in batch]) @ WEIGHTS

slow.class_names = ["blue", "green", "grey", "red", *map(str, range(4096))]
"""


@pytest.fixture
def command(tmp_path):
    """The arguments but for the folder; parts of 1023 rows, the last one short."""
    write_texts(tmp_path / "texts.csv", 9000)
    model = write_model(tmp_path, SLOW, "slow_model")
    data = tmp_path / "texts.csv"
    return ["infer", f"{model}:slow", data, "--batch-size", 64, "-o"]


def killed_after(seconds, arguments):
    """Whether the command was killed, rather than done before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evencover", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True


@pytest.mark.deep
def test_killed_at_random_and_finished(tmp_path, command):
    begun = time.monotonic()
    succeeded(shell(*command, tmp_path / "whole"))
    whole_time = time.monotonic() - begun
    expected = content(tmp_path / "whole")
    assert len(expected) >= 4  # the plan and three partitions
    chance = random.Random(3)
    n_kills, run = 0, 0
    while n_kills < 8:
        run += 1
        assert run < 100
        folder = tmp_path / f"run {run}"
        for _ in range(5):  # on a machine that became slow, it might never end
            if not killed_after(chance.uniform(0.3, 1.1) * whole_time, [*command, folder]):
                break
            n_kills += 1
        succeeded(shell(*command, folder))
        assert content(folder) == expected
