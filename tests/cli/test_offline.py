"""Nothing is sent or asked for: no network at import or at run time."""

import subprocess
import sys

from cli.running import environment

# Python tells an audit hook of every use of the network before it happens. What was tried is kept,
# too, because a library may take the error for a network that is down, and go on.
GUARD = """
import sys
ASKING = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind", "socket.getaddrinfo",
          "socket.gethostbyname", "urllib.Request", "http.client.connect"}
tried = []
def refuse(event, arguments):
    if event in ASKING:
        tried.append((event, *map(str, arguments)))
        raise OSError("no network here")
sys.addaudithook(refuse)
"""
WALK = """
import contextlib, io
import evencover.experiments, evencover.inference, evencover.serving
from evencover.cli import main
for command in COMMANDS:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main(command.split())
        except SystemExit as stop:
            assert not stop.code, f"{command}: {stop.code}"
print(tried)
"""
COMMANDS = [
    "info",
    "info cal.npz",
    "recommend cal.npz",
    "compare cal.npz --methods standard,pooled --scores softmax --n-splits 2",
    "calibrate cal.npz -o m.safetensors",
    "evaluate m.safetensors test.npz",
    "predict m.safetensors new.npy -o sets.csv",
    "monitor m.safetensors test.npz --state watch.db",
    "update m.safetensors test.npz -o m2.safetensors",
]


def guarded(code, folder):
    return subprocess.run(
        [sys.executable, "-c", GUARD + code],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        timeout=120,
        check=False,
    )


def test_the_commands_ask_nobody(folder):
    done = guarded(f"COMMANDS = {COMMANDS}\n{WALK}", folder)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert (folder / "sets.csv").exists()


def test_the_guard_sees_who_asks(folder):
    asking = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"
    done = guarded(f"{asking}\nprint(len(tried))", folder)
    assert done.stdout == "1\n"
