"""The server as a process: slow and hostile clients, kills, new models under way, OpenAPI."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException

import numpy as np
import pytest
from cli.running import command, environment
from depth import size

from evencover import ClasswisePredictor, CoverageMonitor, StandardPredictor, save

for library in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

K, TOKEN = 4, "open sesame"


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, K, seed=23)


@pytest.fixture
def folder(data, tmp_path):
    save(ClasswisePredictor(score="aps").fit(*data), tmp_path / "model.safetensors")
    return tmp_path


class Server:
    """The command in a process of its own, on a free port of this machine."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.process = subprocess.Popen(
            command("serve", "model.safetensors", "--port", 0, "--state", "watch.json", *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment(EVENCOVER_TOKEN=TOKEN),
        )
        line = self.process.stdout.readline()
        assert line.startswith("evencover: http://127.0.0.1:"), self.process.stderr.read()
        self.port = int(line.rpartition(":")[2])

    def ask(self, method, path, content=None):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
            sent = None if content is None else json.dumps(content)
            connection.request(method, path, sent, headers)
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


@pytest.fixture
def start(folder):
    servers = []

    def begin(*options):
        servers.append(Server(folder, *options))
        return servers[-1]

    yield begin
    for server in servers:
        server.end(signal.SIGKILL)


def labelled(data, start, stop):
    return {
        "rows": data.rows[start:stop].tolist(),
        "labels": data.labels[start:stop].tolist(),
        "ids": [f"row {n}" for n in range(start, stop)],
    }


def test_what_was_acknowledged_survives_a_kill(folder, data, start):
    from evencover import load

    acknowledged = 0
    for first in range(0, 90, 30):
        server = start()
        status, found = server.ask("POST", "/v1/labels", labelled(data, first, first + 30))
        assert (status, found["counted"]) == (200, 30)
        acknowledged += 30
        server.end(signal.SIGKILL)
        saved = CoverageMonitor.load(folder / "watch.json", load(folder / "model.safetensors"))
        assert saved.rows.sum() == acknowledged


def test_a_kill_while_labels_come_in_loses_none_that_was_acknowledged(folder, data, start):
    """Killed at any moment: at most the request that was under way is in doubt."""
    from evencover import load

    rng, model = np.random.default_rng(5), load(folder / "model.safetensors")
    least = 0
    for _ in range(size(short=2, deep=40)):
        server = start()
        before, acknowledged = least, 0
        killer = threading.Timer(rng.uniform(0.02, 0.3), server.process.kill)
        killer.start()
        with suppress(OSError, HTTPException):
            for first in range(0, 400, 2):
                status, found = server.ask("POST", "/v1/labels", labelled(data, first, first + 2))
                assert (status, found["counted"]) == (200, 2)
                acknowledged += 2
        killer.join()
        server.end(signal.SIGKILL)
        if (folder / "watch.json").exists():
            saved = CoverageMonitor.load(folder / "watch.json", model)
            least = int(saved.rows.sum())
        assert before + acknowledged <= least <= before + acknowledged + 2


def test_ctrl_c_ends_it_and_keeps_the_state(folder, data, start):
    server = start()
    server.ask("POST", "/v1/sets", {"rows": data.rows[:5].tolist()})
    errors = server.end(signal.SIGINT)
    assert "Traceback" not in errors
    assert sum(json.loads((folder / "watch.json").read_text())["counts"]["sizes"][1]) == 5


def test_a_new_model_drops_no_request(folder, data, start):
    """Requests without a pause while two models are put in place of the first."""
    server, stop, answers = start("--watch"), threading.Event(), []
    given = {"rows": data.rows[:3].tolist()}

    def ask():
        while not stop.is_set():
            status, found = server.ask("POST", "/v1/sets", given)
            answers.append((status, found.get("model")))

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    try:
        for alpha in (0.2, 0.3):
            before = server.ask("GET", "/healthz")[1]["model"]
            new = StandardPredictor(alpha=alpha).fit(*data)
            save(new, folder / "new.safetensors", force=True)
            os.replace(folder / "new.safetensors", folder / "model.safetensors")
            for _ in range(200):
                if server.ask("GET", "/healthz")[1]["model"] != before:
                    break
                time.sleep(0.05)
    finally:
        stop.set()
        for asker in askers:
            asker.join()
    assert {status for status, _ in answers} == {200}
    assert len({model for _, model in answers}) == 3


def test_slow_and_silent_clients_do_not_stop_it(data, start):
    server = start("--timeout", "1", "--max-requests", "20")
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    for each in slow[:4]:
        each.sendall(b"POST /v1/sets HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    for each in slow[4:]:
        each.sendall(b"POST /v1/se")
    assert server.ask("POST", "/v1/sets", {"rows": data.rows[:2].tolist()})[0] == 200
    slow[0].settimeout(10)
    assert b"408" in slow[0].recv(1000)
    for each in slow:
        each.close()
    assert server.is_up()


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nx",
        b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        b"GET /%ff%00/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000,
    ],
    ids=lambda content: content[:24].decode("ascii", "replace"),
)
def test_hostile_bytes_do_not_stop_it(start, content):
    server = start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        try:
            connection.sendall(content)
            connection.settimeout(2)
            first = connection.recv(100)
        except (TimeoutError, ConnectionError):
            first = b""
    assert b" 500 " not in first
    assert server.is_up()
    assert server.ask("GET", "/v1/coverage")[1]["rows"] == 0


def test_eight_connections_get_no_error(data, start):
    server, n_each = start(), size(short=20, deep=300)
    given = {"rows": data.rows[:1].tolist()}

    def ask_often(_):
        return [server.ask("POST", "/v1/sets", given)[0] for _ in range(n_each)]

    with ThreadPoolExecutor(8) as pool:
        found = [status for each in pool.map(ask_often, range(8)) for status in each]
    assert found == [200] * (8 * n_each)


def evencover(folder, *arguments):
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=folder, env=environment()
    )


def test_its_state_is_shown_but_not_written_by_others(folder, data, start):
    server = start()
    server.ask("POST", "/v1/labels", labelled(data, 0, 30))
    np.savez(folder / "more.npz", probs=data.rows[30:60], labels=data.labels[30:60])
    monitor = ("monitor", "model.safetensors", "--state", "watch.json", "--quiet-alarms")
    assert "30 labelled rows" in evencover(folder, *monitor).stdout
    refused = evencover(folder, *monitor[:2], "more.npz", *monitor[2:])
    assert refused.returncode == 2
    assert "Another process" in refused.stderr
    second = evencover(folder, "serve", "model.safetensors", "--port", "0", *monitor[2:4])
    assert second.returncode == 2
    assert "Another process" in second.stderr
    server.end()
    assert evencover(folder, *monitor[:2], "more.npz", *monitor[2:]).returncode == 0
    assert not list(folder.glob(".watch*"))


def test_states_of_services_merge_once(folder, data, start):
    """On the next day they have grown: what they had before must not count again."""
    server = start()
    server.ask("POST", "/v1/labels", labelled(data, 0, 30))
    merge = ("monitor", "model.safetensors", "--quiet-alarms", "--merge", "watch.json", "--state")
    assert "30 labelled rows" in evencover(folder, *merge, "day 1.json").stdout
    server.ask("POST", "/v1/labels", labelled(data, 30, 40))
    again = evencover(folder, *merge, "day 1.json")
    assert again.returncode == 2
    assert "Merge all states into a new --state" in again.stderr
    assert "40 labelled rows" in evencover(folder, *merge, "day 2.json").stdout


def test_a_port_that_is_taken_is_one_sentence(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = evencover(folder, "serve", "model.safetensors", "--port", port)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "Cannot listen at 127.0.0.1" in line


@pytest.mark.deep
@pytest.mark.parametrize("token", ["", TOKEN])
def test_the_description_holds_for_whatever_is_sent(folder, data, start, token):
    """Schemathesis: valid and invalid requests made from the OpenAPI description."""
    pytest.importorskip("schemathesis")
    server = start()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"http://127.0.0.1:{server.port}/openapi.json",
            *("--checks", "not_a_server_error,status_code_conformance,content_type_conformance"),
            *("--checks", "response_schema_conformance"),
            *("--max-examples", "200", "--seed", "1", "--workers", "1"),
            *("--header", f"Authorization: Bearer {token or 'wrong'}"),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "Selected: 7/7" in done.stdout, done.stdout
    assert server.is_up()
    counted = server.ask("GET", "/v1/coverage")[1]["rows"]
    assert not counted or token  # with it, a row of probabilities may be made by chance
