"""A service as a process, and what it is asked in the tests."""

import json
import signal
import subprocess
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path

from cli.running import command, environment

K, NAMES, TOKEN = 5, ["ant", "bee", "wasp", "fly", "naïve"], "open sesame"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def body(data, part=slice(300, 600), ids=True):
    """The body of a request for sets."""
    content = {"rows": data.rows[part].tolist()}
    return content | ({"ids": ids_of(part)} if ids else {})


def ids_of(part):
    return [f"row {n}" for n in range(*part.indices(600))]


def labels_of(data, part=slice(300, 600)):
    """The body of a request with the labels of these rows."""
    return {"ids": ids_of(part), "labels": data.labels[part].tolist()}


class Server:
    """The command in a process of its own, on a free port of this machine."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.process = subprocess.Popen(
            command("serve", "model.safetensors", "--port", 0, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment(EVENCOVER_TOKEN=TOKEN),
        )

    @cached_property
    def port(self):
        """The port; the first look waits until the server is up, so that several start at once."""
        line = self.process.stdout.readline()
        assert line.startswith("evencover: http://127.0.0.1:"), self.process.stderr.read()
        return int(line.rpartition(":")[2])

    def ask(self, method, path, content=None):
        """Send JSON; return the status and the answer."""
        sent = None if content is None else json.dumps(content)
        return self._request(method, path, sent, "application/json")

    def post(self, path, content, content_type):
        """Send bytes; return the status and the answer."""
        return self._request("POST", path, content, content_type)

    def _request(self, method, path, content, content_type):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            headers = {"content-type": content_type, **BEARER}
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def is_up(self):
        return self.ask("GET", "/healthz")[0] == 200

    def end(self, with_signal=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        _, errors = self.process.communicate(timeout=20)
        return errors

    def memory(self):
        """The most memory that it ever had, in MB (Linux)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
