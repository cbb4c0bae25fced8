"""Outputs appear whole or not at all, and what exists is kept unless forced."""

import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from attacks.forked import command
from cli.running import Result, listing, refused, shell


def small_disk():
    """No file of this process may grow beyond 2 kB: write() then fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))


@pytest.mark.parametrize("name", ["sets.parquet", "sets.jsonl", "sets.csv"])
def test_nothing_is_left_when_the_disk_is_full(model, folder, data, name):
    np.save("many.npy", np.tile(data.rows, (20, 1)))
    before = listing(folder)
    arguments = ("predict", model, "many.npy", "-o", name)
    line = refused_on_a_small_disk(arguments, folder)
    assert f"Cannot write '{name}'" in line
    assert "Nothing was written" in line
    assert listing(folder) == before
    (folder / name).write_text("precious")
    refused_on_a_small_disk([*arguments, "--force"], folder)
    assert (folder / name).read_text() == "precious"


def refused_on_a_small_disk(arguments, folder):
    """In a forked child, which has imported everything; the next test takes a real shell."""
    done = command(arguments, folder, before=small_disk)
    return refused(Result(done.code, "", done.said))


def test_no_model_is_left_when_the_disk_is_full(folder):
    before = listing(folder)
    arguments = ("calibrate", "cal.npz", "--method", "classwise", "-o", "m.safetensors")
    line = refused(shell(*arguments, preexec_fn=small_disk))
    assert "Cannot write 'm.safetensors'" in line
    assert listing(folder) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout_is_one_sentence(model):
    with open("/dev/full", "w") as full:
        assert "No space left" in refused(shell("evaluate", model, "test.npz", stdout=full))
