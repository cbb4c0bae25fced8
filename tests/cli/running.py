"""Run a command in a shell of its own, and say what became of it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import evencover
from evencover.cli import main

K = 6
NAMES = [f"naïve {index}" for index in range(K)]
SOURCE = Path(evencover.__file__).parents[1]


class Result(NamedTuple):
    code: int
    out: str
    err: str


def environment(**more):
    """The package is found in new processes where these tests found it."""
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return kept | {"PYTHONPATH": path} | more


def command(*arguments):
    return [sys.executable, "-m", "evencover", *map(str, arguments)]


def shell(*arguments, stdout=subprocess.PIPE, preexec_fn=None, **more):
    """Run the real thing."""
    done = subprocess.run(
        command(*arguments),
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=preexec_fn,
        env=environment(**more),
        timeout=120,
        check=False,
    )
    return Result(done.returncode, done.stdout or "", done.stderr)


def run_here(capsys, *arguments):
    """Run a command in this process, which is quicker."""
    capsys.readouterr()
    code = 0
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    return Result(code, *capsys.readouterr())


def succeeded(result):
    assert result.code == 0, result.err
    return result


def refused(result):
    """Exit code 2, nothing on stdout, one line on stderr, which is a sentence of ours."""
    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("evencover: ")
    return line


def assert_found(pattern, text):
    assert re.search(pattern, text), f"{pattern!r} is not in\n{text}"


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def sets_in(name):
    return [json.loads(line)["set"] for line in Path(name).read_text("utf-8").splitlines()]
