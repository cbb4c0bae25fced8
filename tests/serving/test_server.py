"""The server as a process: slow and hostile clients, kills, new models under way, OpenAPI."""

import json
import os
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from http.client import HTTPConnection

import pytest
from serving.service import BEARER, TOKEN

from evencover import StandardPredictor, save
from evencover.monitoring import MonitorState

for library in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")


def test_ctrl_c_ends_it_and_keeps_the_state(folder, data, start):
    server = start()
    server.ask("POST", "/v1/sets", {"rows": data.rows[:5].tolist(), "ids": list(range(5))})
    errors = server.end(signal.SIGINT)
    assert "Traceback" not in errors
    with MonitorState(folder / "watch.db").reading() as run:
        assert run("SELECT COUNT(*) AS rows FROM served") == [(5,)]


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
    server = start("--timeout", "1")
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    head = f"POST /v1/sets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n"
    for each in slow[:4]:
        each.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    for each in slow[4:]:
        each.sendall(b"POST /v1/se")
    assert server.ask("POST", "/v1/sets", {"rows": data.rows[:2].tolist()})[0] == 200
    slow[0].settimeout(10)
    assert b"408" in slow[0].recv(1000)
    for each in slow:
        each.close()
    assert server.is_up()


HOSTILE = (
    b"\x00" * 1000,
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nx",
    b"POST /v1/labels HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    b"GET /%ff%00/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000,
)


def test_hostile_bytes_do_not_stop_it(start):
    server = start()
    for content in HOSTILE:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            try:
                connection.sendall(content)
                connection.settimeout(0.5)
                first = connection.recv(100)
            except (TimeoutError, ConnectionError):
                first = b""
        assert b" 500 " not in first, content[:30]
        assert server.is_up(), content[:30]
    assert server.ask("GET", "/v1/coverage")[1]["rows"] == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--port", value) for value in ("-1", "65536")),
        *(("--timeout", value) for value in ("0", "nan", "inf", "1e9")),
        *((f"--max-{name}", "0") for name in ("body", "rows", "connections")),
    ],
)
def test_limits_are_checked(folder, capsys, option, value):
    from evencover.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["serve", str(folder / "model.safetensors"), f"{option}={value}"])
    assert stop.value.code == 2
    assert option[:6] in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_sentence(folder, capsys):
    from evencover.cli import main

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit, match="2"):
        main(["serve", f"{folder}/model.safetensors", "--port", str(taken.getsockname()[1])])
    (line,) = capsys.readouterr().err.splitlines()
    assert "Cannot listen at 127.0.0.1" in line


def test_heads_that_do_not_arrive_do_not_keep_a_server_busy(start, data):
    """60 connections of 9 bytes once kept a server of 50 busy for as long as they wanted."""
    server = start("--timeout", "1", "--max-connections", "50")

    def status():
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
            connection.request("GET", "/healthz")
            return connection.getresponse().status

    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
    for each in slow:
        each.sendall(b"POST /v1/")
    begun = time.monotonic()
    assert status() == 503
    while status() == 503:
        assert time.monotonic() - begun < 20
        for each in slow:
            with suppress(OSError):  # closed
                each.send(b"x", socket.MSG_NOSIGNAL)  # a byte more gains no time
        time.sleep(0.1)
    assert status() == 200
    for each in slow:
        each.close()


@pytest.mark.deep
def test_many_requests_take_no_more_memory(start, data):
    """50,000 rows of one connection, every tenth with its label, and a look now and then."""
    server, headers = start(), {"content-type": "application/json", **BEARER}
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:

        def ask(method, path, content=None):
            connection.request(method, path, content and json.dumps(content), headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            return json.loads(answer.read())

        for n in range(50_000):
            if n == 10_000:
                before = server.memory()
            row = {"rows": [data.rows[n % 600].tolist()], "ids": [f"row {n}"]}
            assert ask("POST", "/v1/sets", row)["sizes"]
            if n % 10 == 0:
                known = {"ids": row["ids"], "labels": [int(data.labels[n % 600])]}
                assert ask("POST", "/v1/labels", known)["counted"] == 1
            if n % 1000 == 0:
                ask("GET", "/v1/coverage")
    assert server.memory() - before < 8
