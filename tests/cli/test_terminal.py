"""A narrow terminal, a reader that goes away, Ctrl-C at any time, and completion."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cli.running import command, environment

from evencover.cli import main


def test_results_and_notes_are_folded_on_a_terminal(model, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    main(["evaluate", model, "cal.npz", "--all"])
    out, err = capsys.readouterr()
    assert err.startswith("note: These 300 rows")
    assert 50 < max(map(len, f"{out}\n{err}".splitlines())) <= 60


# Readers that go away ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "model.safetensors", "test.npz"),
        pytest.param(("calibrate", "--help"), marks=pytest.mark.deep),  # which rich prints
    ],
    ids=" ".join,
)
def test_a_reader_that_goes_away_is_no_error(model, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            command(*arguments), stdout=closed, stderr=subprocess.PIPE, env=environment()
        )
    assert (done.returncode, done.stderr) == (141, b"")


# Ctrl-C -----------------------------------------------------------------------------------------

INTERRUPTED = "evencover: interrupted; nothing was written\n"


def default_interrupt():
    """A shell that runs the tests in the background has told its children to ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Imported by `main`, and by the command itself.
@pytest.mark.parametrize(
    "module", ["numpy", pytest.param("evencover.persistence", marks=pytest.mark.deep)]
)
def test_ctrl_c_during_imports(tmp_path, module):
    program = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from evencover.cli import main
main(["info", "none.npz"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=default_interrupt,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", INTERRUPTED)


def interrupt_when(is_time, arguments):
    """Run a command and press Ctrl-C once it is time."""
    process = subprocess.Popen(
        command(*arguments),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_interrupt,
    )
    while not is_time() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=60)[1], process.returncode


def test_ctrl_c_tells_what_a_folder_holds(model, tmp_path):
    (tmp_path / "many").mkdir()
    with np.load("test.npz") as file:
        rows = np.tile(file["probs"], (300, 1))
    for number in range(6):
        np.save(tmp_path / "many" / f"{number}.npy", rows)
    first = tmp_path / "sets" / "part-00000.parquet"
    arguments = ("predict", model, "many", "-o", "sets")
    said, code = interrupt_when(first.exists, arguments)
    assert code == 130
    found = re.fullmatch(
        r"evencover: interrupted; (\d+) of (\d+) files are in '.*sets'; the same command .*\n",
        said,
    )
    assert found, said
    n_there, n_files = map(int, found.groups())
    assert n_there == len(list((tmp_path / "sets").glob("part-*"))) < n_files
    assert n_files >= 6  # more if partitions are tiny


# Completion -------------------------------------------------------------------------------------


def test_completion_is_installed_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    main(["--install-completion", "--shell", "bash", "-o", str(tmp_path / "completion")])
    text = (tmp_path / "completion").read_text("utf-8")
    assert "calibrate" in text
    assert "with-probabilities" in text
