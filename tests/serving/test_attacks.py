"""Hostile requests: little memory and time for each, and others are still answered."""

import json
import os
import socket
import sys
import time
from contextlib import suppress

import pytest
from serving.service import BEARER, K

for library in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(library)
pytestmark = [
    pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

from evencover.serving import http  # noqa: E402
from evencover.serving.bodies import JSON  # noqa: E402


def one_long_id():
    return json.dumps({"rows": [[0.2] * K] * 9000, "ids": ["x" * 400_000, *["y"] * 8999]}).encode()


def duplicate_keys():
    return ("{" + ",".join(f'"a{n}":1' for n in range(100_000)) + ',"a99999":1}').encode()


def test_requests_that_would_take_much_memory_take_little(start):
    """NumPy would pad every id to the longest; 292 MB once fitted in the head of one request."""
    server = start()
    server.ask("POST", "/v1/sets", {"rows": [[0.2] * K] * 10})
    server.ask("GET", "/v1/coverage")
    for hostile in (one_long_id, duplicate_keys):
        content = hostile()
        assert len(content) < 8_000_000
        before, begun = server.memory(), time.monotonic()
        status, found = server.post("/v1/sets", content, JSON)
        assert status in (400, 413, 422), (hostile, found)
        assert time.monotonic() - begun < 5, hostile
        assert server.memory() - before < 50, hostile
    before, answer = server.memory(), b""
    address = ("127.0.0.1", server.port)
    with suppress(ConnectionError), socket.create_connection(address, timeout=5) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        for n in range(60):
            connection.sendall(b"x%d: " % n + b"y" * 1_000_000 + b"\r\n")
        answer = connection.recv(100)
    assert not answer or b" 400 " in answer
    assert server.memory() - before < 20
    assert server.is_up()


@pytest.mark.deep
def test_connections_that_do_not_read_are_closed(start):
    """A client that asks and never reads once kept its connection for ever."""
    server = start("--timeout", "3")

    def n_open():
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    assert server.is_up()
    before, held = n_open(), []
    for _ in range(20):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /v1/coverage HTTP/1.1\r\nHost: a\r\n\r\n" * 1500)
        held.append(connection)
    assert server.is_up()
    assert n_open() >= before + 15
    for _ in range(300):
        if n_open() <= before + 1:
            break
        time.sleep(0.1)
    assert n_open() <= before + 1
    for connection in held:
        connection.close()


def test_a_failing_task_in_the_background_is_shown_and_tried_again(serve, monkeypatch):
    """One PermissionError once ended it, and nothing showed that."""
    monkeypatch.setattr(http, "RELOAD_SECONDS", 0.02)
    client = serve(watch=True)
    reload = client.service.reload

    def fail():
        raise PermissionError("no access to the model")

    def wait(status):
        for _ in range(500):
            found = client.get("/healthz").json()
            if found["status"] == status:
                return found
            time.sleep(0.01)
        raise AssertionError(found)

    assert wait("ok")["problem"] is None
    client.service.reload = fail
    assert "no access" in wait("degraded")["problem"]
    assert client.post("/v1/sets", json={"rows": [[0.2] * K]}, headers=BEARER).status_code == 200
    client.service.reload = reload
    wait("ok")
