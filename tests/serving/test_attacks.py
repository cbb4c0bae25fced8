"""Hostile requests: little memory and time for each, and others are still answered."""

import json
import os
import socket
import sys
import time
from contextlib import closing
from http.client import HTTPConnection

import numpy as np
import pytest
from depth import size
from serving.service import BEARER, K, body

from evencover import InputError

for library in ("starlette", "uvicorn", "prometheus_client", "httpx", "pyarrow"):
    pytest.importorskip(library)
pytestmark = [
    pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

import pyarrow as pa  # noqa: E402

from evencover.serving import http  # noqa: E402
from evencover.serving.requests import (  # noqa: E402
    ARROW,
    JSON,
    Limits,
    RequestError,
    read_rows,
)


def stream(table, compression=None):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def matrix(n_rows):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.full(n_rows * K, 1 / K, np.float32)), K)


def nulls():
    return stream(pa.table({"x": pa.nulls(300_000_000)}))


def nulls_as_ids():
    return stream(pa.table({"ids": pa.nulls(300_000_000)}))


def runs():
    ends = pa.array([2**31 - 1], pa.int32())
    return stream(pa.table({"ids": pa.RunEndEncodedArray.from_arrays(ends, pa.array(["a"]))}))


def empty_lists():
    kind = pa.list_(pa.float32(), 0)
    rows = pa.Array.from_buffers(kind, 2**31 - 1, [None], children=[pa.array([], pa.float32())])
    return stream(pa.table({"rows": rows}))


def many_rows_compressed():
    return stream(pa.table({"rows": matrix(10_000_000)}), "zstd")


def compressed_by_metadata():
    """As version 4 of the format could state it: each buffer begins with its length."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array([2**33] * K), K)
    batch = pa.record_batch({"rows": rows})
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, {"ARROW:experimental_compression": "zstd"})
    return bytes(sink.getvalue())


def long_texts_compressed():
    texts = pa.array(["x" * 200_000_000, *["y"] * 99], pa.large_string())
    return stream(pa.table({"rows": matrix(100), "ids": texts}), "zstd")


def repeated_dictionary():
    places = pa.array(np.zeros(9000, np.int32))
    ids = pa.DictionaryArray.from_arrays(places, pa.array(["x" * 1_000_000]))
    return stream(pa.table({"rows": matrix(9000), "ids": ids}))


def repeated_views():
    text = b"x" * 1_000_000
    views = np.zeros((9000, 4), "<i4")
    views[:, 0] = len(text)
    views[:, 1] = np.frombuffer(text[:4], "<i4")
    ids = pa.Array.from_buffers(
        pa.string_view(), 9000, [None, pa.py_buffer(views.tobytes()), pa.py_buffer(text)]
    )
    return stream(pa.table({"rows": matrix(9000), "ids": ids}))


def one_long_id():
    return json.dumps({"rows": [[0.2] * K] * 9000, "ids": ["x" * 400_000, *["y"] * 8999]}).encode()


def duplicate_keys():
    return ("{" + ",".join(f'"a{n}":1' for n in range(100_000)) + ',"a99999":1}').encode()


HOSTILE = [
    nulls,
    nulls_as_ids,
    runs,
    empty_lists,
    many_rows_compressed,
    compressed_by_metadata,
    long_texts_compressed,
    repeated_dictionary,
    repeated_views,
    one_long_id,
    duplicate_keys,
]


def test_small_bodies_that_stand_for_large_ones_cost_little(start):
    """224 bytes once took 4.2 GB and a minute, in which nobody else was answered."""
    server = start()
    assert len(nulls()) == 224
    server.post("/v1/sets", stream(pa.table({"rows": matrix(10)})), ARROW)  # imports pyarrow
    for hostile in HOSTILE:
        content = hostile()
        assert len(content) < 8_000_000
        before, begun = server.memory(), time.monotonic()
        status, found = server.post("/v1/sets", content, JSON if content[:1] == b"{" else ARROW)
        assert status in (400, 413, 422), (hostile, found)
        assert time.monotonic() - begun < 5, hostile
        assert server.memory() - before < 50, hostile
    assert server.is_up()


def arrow_bodies(n_rows=50):
    """Streams of all kinds that are read."""
    lists = [[1 / K] * K] * n_rows
    numbers = (matrix(n_rows), pa.array(lists), pa.array(lists, pa.large_list(pa.float32())))
    texts = ["a text that is not short"] * n_rows
    kinds = (pa.string(), pa.large_string(), pa.string_view())
    for rows in numbers:
        for ids in (pa.array(range(n_rows)), *(pa.array(texts, kind) for kind in kinds)):
            for compression in (None, "lz4", "zstd"):
                yield stream(pa.table({"rows": rows, "ids": ids}), compression)


def test_compression_is_not_hidden_in_metadata():
    """pyarrow would take 8 GB for it."""
    with pytest.raises(InputError, match="metadata"):
        read_rows(compressed_by_metadata(), ARROW, Limits(), with_labels=False)


def test_damaged_arrow_bodies_are_read_or_rejected():
    """pyarrow crashes if it is handed another message as a schema."""
    bodies = [*arrow_bodies()]
    for content in bodies:
        assert len(read_rows(content, ARROW, Limits(), with_labels=False)) == 50
    alone = pa.record_batch({"rows": matrix(1)}).serialize().to_pybytes()
    with pytest.raises(RequestError):
        read_rows(alone, ARROW, Limits(), with_labels=False)
    rng = np.random.default_rng(0)
    n_read = n_rejected = 0
    for _ in range(size(short=3000, deep=300_000)):
        damaged = bytearray(bodies[rng.integers(len(bodies))])
        for place in rng.integers(0, len(damaged), rng.integers(1, 6)):
            damaged[place] = rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))])
        try:
            assert len(read_rows(bytes(damaged), ARROW, Limits(), with_labels=False)) <= 10_000
            n_read += 1
        except InputError:
            n_rejected += 1
    assert min(n_read, n_rejected) > 100


def test_compressed_bodies_and_views_of_texts_are_read(client, data, fitted):
    ids = [f"a long name of row {n}" for n in range(300)]
    rows = pa.FixedSizeListArray.from_arrays(pa.array(data.rows[300:].ravel()), K)
    expected = fitted.predict_set(data.rows[300:], ids=ids).to_lists()
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        table = pa.table({"rows": rows, "ids": pa.array(ids, kind)})
        for compression in (None, "lz4", "zstd"):
            content, headers = stream(table, compression), {"content-type": ARROW}
            answer = client.post("/v1/sets", content=content, headers=headers)
            assert answer.json()["sets"] == expected


def test_polars_can_send_rows(client, data, fitted):
    import io

    polars = pytest.importorskip("polars")
    ids = [f"row {n}" for n in range(300)]
    schema = {"rows": polars.Array(polars.Float64, K), "ids": polars.String}
    sink = io.BytesIO()
    polars.DataFrame({"rows": data.rows[300:].tolist(), "ids": ids}, schema).write_ipc_stream(sink)
    headers = {"content-type": ARROW}
    answer = client.post("/v1/sets", content=sink.getvalue(), headers=headers)
    assert answer.json()["sets"] == fitted.predict_set(data.rows[300:], ids=ids).to_lists()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_limits_of_rows_values_and_unpacked_bytes(compression):
    one = stream(pa.table({"rows": matrix(10), "ids": list(range(10))}), compression)
    n_bytes = 10 * (4 * K + 8)
    read_rows(one, ARROW, Limits(n_bytes, 10, 10 * K), with_labels=False)
    for limits in (Limits(n_bytes - 1), Limits(rows=9), Limits(values=10 * K - 1)):
        with pytest.raises(RequestError) as error:
            read_rows(one, ARROW, limits, with_labels=False)
        assert error.value.status == 413


def test_request_heads_are_limited(start):
    """292 MB once fitted in the head of one request."""
    server = start()
    server.ask("GET", "/v1/coverage")
    before = server.memory()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
            for n in range(60):
                connection.sendall(b"x%d: " % n + b"y" * 1_000_000 + b"\r\n")
            answer = connection.recv(100)
        except ConnectionError:
            answer = b""
    assert not answer or b" 400 " in answer
    assert server.memory() - before < 20
    assert server.is_up()


def test_connections_that_do_not_read_are_closed(start):
    """A client that asks and never reads once kept its connection for ever."""
    server = start("--timeout", "1")

    def n_open():
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    assert server.is_up()
    before, held = n_open(), []
    for _ in range(20):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 1500)
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


def test_requests_beyond_the_limit_are_told_to_try_again(start, data):
    server = start("--timeout", "3", "--max-requests", "2")
    given = {"rows": data.rows[:2].tolist()}
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for each in slow:
        each.sendall(b"POST /v1/sets HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    while server.ask("POST", "/v1/sets", given)[0] == 200:
        time.sleep(0.05)  # until both have arrived
    assert server.ask("POST", "/v1/sets", given)[0] == 503
    assert server.is_up()  # what has no body is answered meanwhile
    for each in slow:
        each.close()
    time.sleep(0.5)
    assert server.ask("POST", "/v1/sets", given)[0] == 200


def test_connections_beyond_the_limit_are_told_to_try_again(start):
    server = start("--max-connections", "5")
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 503
    for each in held:
        each.close()
    time.sleep(0.5)
    assert server.is_up()


def test_encoded_bodies_are_rejected(client, data):
    headers = {"content-encoding": "gzip"}
    assert client.post("/v1/sets", json=body(data), headers=headers).status_code == 415


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
