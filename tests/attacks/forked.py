"""Commands in a child that is forked from here, warm: quick to start, and anybody may kill it."""

import contextlib
import io
import os
import signal
import sys
import time
import traceback
import warnings
from typing import NamedTuple

MOST_SECONDS = 60


class Ended(NamedTuple):
    """How a child ended: its code (minus the signal), what it said, and how long it took."""

    code: int
    said: str
    seconds: float


def command(arguments, folder, *, before=None, kill=None):
    """Run a command in a folder; `kill` is (signal, seconds); `before` is called in the child."""
    with open(folder / "said.txt", "w+b") as said:
        begun = time.monotonic()
        with warnings.catch_warnings():  # of threads, which the child does not use
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _be_child(arguments, folder, said.fileno(), before)
        if kill is not None:
            time.sleep(kill[1])
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, kill[0])
        _, status = os.waitpid(child, 0)
        said.seek(0)
        text = said.read().decode(errors="replace")
    (folder / "said.txt").unlink()
    code = os.waitstatus_to_exitcode(status)
    assert code != -signal.SIGALRM, f"it took more than {MOST_SECONDS} s: {text}"
    return Ended(code, text, time.monotonic() - begun)


def warm(arguments, folder):
    """Run a command in this process once: children that are forked later need not import it all.

    Not for pages: the JavaScript engine that they are made with does not survive a fork.
    """
    handler, here = signal.getsignal(signal.SIGTERM), os.getcwd()
    quiet = io.StringIO()
    try:
        os.chdir(folder)
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            from evencover.cli import main

            main([str(each) for each in arguments])
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(quiet.getvalue()) from stop
    finally:
        os.chdir(here)
        signal.signal(signal.SIGTERM, handler)


def _be_child(arguments, folder, output, before):
    """Never returns."""
    code = 99
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.alarm(MOST_SECONDS)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        if before is not None:
            before()
        from evencover.cli import main

        main([str(each) for each in arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
