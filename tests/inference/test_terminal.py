"""On a terminal a bar shows the time left, and Ctrl-C says what is there."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from cli.running import environment, shell, succeeded
from inference.samples import read, write_model, write_texts

SLOW = """
import time
import numpy as np

def slow(batch):
    time.sleep(0.02)
    return np.array([[text.count(letter) for letter in "abcdefghij"] for text in batch])
"""


@pytest.fixture
def command(tmp_path):
    write_texts(tmp_path / "texts.csv", 9000)
    model = write_model(tmp_path, SLOW, "slow_model")
    names = "\n".join(["blue", "green", "grey", "red", *"012345"])
    (tmp_path / "names.txt").write_text(names)
    data, to = tmp_path / "texts.csv", tmp_path / "scores"
    options = ["--batch-size", 64, "--class-names", tmp_path / "names.txt"]
    return ["infer", f"{model}:slow", data, "-o", to, *options]


@pytest.mark.deep
def test_a_bar_with_the_time_left_and_an_interruption(tmp_path, command):
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "evencover", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment(TERM="xterm", COLUMNS="120"),
    )
    os.close(theirs)
    shown, give_up = "", time.monotonic() + 60
    bar = re.compile(r"inferring.*?(\d+)/9000.*?\d:\d\d:\d\d", re.DOTALL)
    interrupted = False
    while time.monotonic() < give_up:
        try:
            more = os.read(ours, 1 << 16)
        except OSError:
            break
        if not more:
            break
        shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", more.decode())
        found = bar.findall(shown)
        if not interrupted and found and int(found[-1]) > 4500:
            process.send_signal(signal.SIGINT)
            interrupted = True
    os.close(ours)
    assert process.wait(timeout=60) == 130
    assert bar.search(shown)
    assert re.search(r"interrupted; 1 of 3 files are in '.*scores'", shown)
    result = succeeded(shell(*command))
    assert "9000 rows of logits in 3 files, 1 of them there already" in result.out
    assert len(read(tmp_path / "scores")) == 9000
