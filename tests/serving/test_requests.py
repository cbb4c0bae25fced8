"""Requests that declare more than they contain, or contradict themselves: one sentence, at once."""

import json
import shutil
import socket
import subprocess
import threading
import time
import tracemalloc
from http.client import HTTPConnection
from itertools import pairwise
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from serving.service import BEARER, NAMES, K, ids_of

from evencover import InputError, StandardPredictor, save
from evencover.monitoring.state import ModelEntry
from evencover.topk import TopK

for library in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(library)
bodies = pytest.importorskip("evencover.serving.bodies")
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

INFER, JSON = "/v2/models/model/infer", {"content-type": "application/json"}
ROWS = {"name": "probabilities", "shape": [1, K], "datatype": "FP64", "data": [0.2] * K}
IDS = {"name": "ids", "shape": [1], "datatype": "BYTES", "data": ["a"]}
ONE = [[0.2] * K]


def tensors(*inputs, **more):
    return json.dumps({"inputs": inputs, **more})


HOSTILE = {  # what once took 41 seconds, and its relatives
    "shape of ids": tensors(ROWS, IDS | {"shape": [2147483647] * 100_000}),
    "shape of rows": tensors(ROWS | {"shape": [2147483647] * 100_000}),
    "sizes": tensors(ROWS | {"shape": [2147483647, 2147483647]}),
    "rows without numbers": tensors(ROWS | {"shape": [10_000, K]}),
    "many numbers of rows": tensors(ROWS | {"shape": [1] * 1_000_000}),
    "many inputs": tensors(*[ROWS] * 10_000),
    "many outputs": tensors(ROWS, outputs=[{"name": "sizes"}] * 10_000),
    "long shape number": tensors(ROWS | {"shape": [10**30, K]}),
    "600 numbers": tensors(ROWS, IDS | {"shape": [2147483647] * 600}),
}


PARTS = {  # many small parts, which once took 0.3 seconds and 600 MB
    "lists": ("[]," * 1_000_000 + "[]", 413),
    "objects": ("{}," * 1_000_000 + "{}", 413),
    "keys": ("{" + ",".join(f'"{n}":1' for n in range(300_000)) + "}", 422),
    "entries": ("[" + ",".join(['{"label":"ant","score":1}'] * 300_000) + "]", 422),
    "numbers": ("[" + "0," * 3_000_000 + "0]", 422),
    "numbers that are no rows": ("0," * 3_000_000 + "0", 422),
    "numbers after a row": ("[]," + "0," * 3_000_000 + "0", 422),
    "numbers after an object": ("{}," + "0," * 3_000_000 + "0", 413),
}
TEXTS = '"a",' * 2_000_000 + '"a"'  # 4,000,000 of them once stopped others for 0.5 seconds
LISTS = {
    "ids": ("/v1/sets", f'{{"rows": [], "ids": [{TEXTS}]}}'),
    "ids of labels": ("/v1/labels", f'{{"labels": [], "ids": [{TEXTS}]}}'),
    "labels": ("/v1/labels", f'{{"ids": [], "labels": [{TEXTS}]}}'),
    "times": ("/v1/labels", f'{{"ids": [], "labels": [], "time": [{TEXTS}]}}'),
    "ids of tensors": (INFER, tensors(ROWS, IDS | {"data": []}).replace("[]", f"[{TEXTS}]")),
    "parameters": (INFER, tensors(ROWS, parameters={"a": []}).replace("[]", f"[{TEXTS}]")),
}


@pytest.mark.parametrize("name", LISTS)
def test_texts_of_a_body_are_counted_before_they_are_made(client, name):
    path, content = LISTS[name]
    tracemalloc.start()
    try:
        answer = client.post(path, content=content, headers=JSON)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 413
    assert most < 5 * len(content)


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_body_are_counted_before_they_are_made(client, name):
    rows, status = PARTS[name]
    content = f'{{"rows": [{rows}]}}'
    tracemalloc.start()
    try:
        answer = client.post("/v1/sets", content=content, headers=JSON)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == status
    assert len(answer.json()["error"]) < 500
    assert most < 8 * len(content)


def test_rows_that_are_too_short_take_no_memory():
    """30 kB once made room for 800 MB, between two looks at other requests."""
    model = ModelEntry("0" * 32, 10_000, None, 0.05, 0.02, np.full(10_000, 0.88))
    content = json.dumps({"rows": [[]] * 10_000}).encode()
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="'rows'"):
            bodies.read_rows(content, model, bodies.Limits())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000_000


def test_probabilities_of_a_wide_set_take_little_memory():
    """Each class of a set was once compared with all that its row lists: 10,000 took 2 GB."""
    rows = TopK.from_csr([0, 5000], np.arange(5000)[::-1], np.full(5000, 1 / 5000), 5000)
    tracemalloc.start()
    try:
        found = rows[np.zeros(5000, dtype=int), np.arange(5000)]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found == 1 / 5000).all()
    assert most < 2_000_000


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_request_declares_is_checked_before_it_is_multiplied(client, name):
    begun = time.perf_counter()
    answer = client.post(INFER, content=HOSTILE[name])
    assert time.perf_counter() - begun < 1
    assert answer.status_code == 422
    assert len(answer.json()["error"]) < 500


def test_others_are_answered_while_a_client_sends_hostile_requests(start):
    server, stop = start(), threading.Event()
    assert server.is_up()

    def attack():
        while not stop.is_set():
            for content in HOSTILE.values():
                server.post(INFER, content, "application/json")

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        seconds = []
        for _ in range(30):
            begun = time.perf_counter()
            assert server.is_up()
            seconds.append(time.perf_counter() - begun)
    finally:
        stop.set()
        attacker.join()
    assert np.median(seconds) < 1


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/v1/sets", '{"rows": [[0.2, 0.2, 0.2, 0.2, 0.2]], "rows": [[1, 0, 0, 0, 0]]}'),
        ("/v1/sets", '{"rows": [{"ant": 0.5, "bee": 0.1, "ant": 0.1}]}'),
        ("/v1/sets", '{"rows": [{"ant": 0.5, "bee": 0.1, "\\u0061nt": 0.1}]}'),
        ("/v1/sets", '{"rows": [[{"label": "ant", "score": 0.5, "score": 0.1}]]}'),
        ("/v1/sets", '{"rows": [[1, 0, 0, 0, 0]], "ids": ["a\\u003a"], "ids": ["a"]}'),
        ("/v1/labels", '{"ids": ["a:b"], "labels": [1], "labels": [2]}'),
        ("/v1/labels", '{"ids": ["a"], "ids": ["b"], "labels": [1], "time": ["2026-01-01"]}'),
        (INFER, '{"inputs": [], ' + tensors(ROWS)[1:]),
        (INFER, tensors(ROWS).replace('"shape"', '"shape": [9, 9], "shape"')),
        (INFER, tensors(ROWS, parameters={"x": 1}).replace('"x"', '"x": 2, "x"')),
    ],
)
def test_a_key_that_stands_twice_is_an_error(client, path, content):
    """Parsers keep the last one, or the first."""
    answer = client.post(path, content=content, headers=JSON)
    assert answer.status_code == 422
    assert "twice" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (
            "/v1/sets",
            {
                "rows": ONE,
                "ids": [
                    "12:30",
                ],
            },
        ),
        ("/v1/sets", {"rows": [{NAMES[0]: 1.0}], "ids": [":"]}),
        ("/v1/sets", {"rows": ONE, "ids": None}),
        ("/v1/labels", {"ids": ["a:b"], "labels": ["c:d"], "time": ["2026-01-01T10:30:00Z"]}),
        ("/v1/labels", {"ids": ["a"], "labels": [1], "labels_are": "indices"}),
        (
            INFER,
            {"inputs": [ROWS, IDS | {"data": ["a:b"]}], "id": "x:y", "parameters": {"z:": ":"}},
        ),
    ],
)
def test_colons_in_texts_are_no_keys(client, path, content):
    assert client.post(path, json=content).status_code == 200


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1899-12-31", "x" * 999]
)
def test_times_out_of_range_are_an_error_of_one_sentence(client, moment):
    """The first two once were an OverflowError, status 500, for the whole batch."""
    sent = {"ids": ["a", "b"], "labels": [0, 1], "time": ["2026-01-01", moment]}
    answer = client.post("/v1/labels", json=sent)
    assert answer.status_code == 422
    assert "'time'" in answer.json()["error"]
    assert client.get("/v1/coverage").json()["waiting"] == 0


@pytest.mark.parametrize("ids", [["", "b"], [" ", "b"], ["a", "a"], ["a", 1]], ids=str)
def test_ids_that_stand_for_no_row_or_several_are_an_error(client, ids):
    rows = [[0.2] * K, [0.6, 0.1, 0.1, 0.1, 0.1]]
    answer = client.post("/v1/sets", json={"rows": rows, "ids": ids})
    assert answer.status_code == 422
    assert "ids" in answer.json()["error"]


def test_rows_of_pipelines_are_rows_by_class(client):
    """Hugging Face's pipelines return a list of labels with their scores for each text."""
    rows = [{"bee": 0.6, "ant": 0.3}, {"fly": 0.9}]
    listed = [[{"label": name, "score": p} for name, p in row.items()] for row in rows]
    first, second = (
        client.post("/v1/sets", json={"rows": each, "ids": ["a", "b"]}).json()
        for each in (rows, listed)
    )
    assert first["sets"] == second["sets"]
    twice = [[*listed[0], {"label": "ant", "score": 0.1}]]
    assert client.post("/v1/sets", json={"rows": twice}).status_code == 422


def test_members_and_starts_are_the_sets(client, data, fitted):
    rows = data.rows[300:]
    tensor = ROWS | {"shape": list(rows.shape), "data": rows.ravel().tolist()}
    outputs = [{"name": name} for name in ("members", "starts")]
    answer = client.post(INFER, json={"inputs": [tensor], "outputs": outputs}).json()
    members, starts = (output["data"] for output in answer["outputs"])
    sets = [members[a:b] for a, b in pairwise(starts)]
    assert sets == fitted.predict_set(rows).to_lists()
    assert [output["shape"] for output in answer["outputs"]] == [[len(members)], [301]]


# Bodies that are too large ------------------------------------------------------------------------


def test_common_clients_see_that_a_body_is_too_large(start):
    """They send all of it before they read, and once saw a connection reset."""
    server, content = start("--max-body", "1000000"), b" " * 31_000_000
    url = f"http://127.0.0.1:{server.port}/v1/sets"
    with pytest.raises(HTTPError) as error:
        urlopen(Request(url, content, {**BEARER, **JSON}), timeout=20)
    assert error.value.code == 413
    assert "1000000 bytes" in json.loads(error.value.read())["error"]
    connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
    parts = (content[:1_000_000] for _ in range(31))
    connection.request("POST", "/v1/sets", parts, {**BEARER, **JSON}, encode_chunked=True)
    assert connection.getresponse().status == 413
    requests = pytest.importorskip("requests")
    assert requests.post(url, content, headers={**BEARER, **JSON}, timeout=20).status_code == 413


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_sees_that_a_body_is_too_large(start, tmp_path):
    server, file = start("--max-body", "1000000"), tmp_path / "large"
    file.write_bytes(b" " * 31_000_000)
    url = f"http://127.0.0.1:{server.port}/v1/sets"
    token = f"Authorization: {BEARER['authorization']}"
    command = ["curl", "-s", "-m", "20", "-H", token, "-H", "Content-Type: application/json"]
    done = subprocess.run([*command, "--data-binary", f"@{file}", url], capture_output=True)
    assert b"1000000 bytes" in done.stdout


def test_a_client_that_expects_an_answer_first_sends_nothing(start):
    server = start("--max-body", "1000")
    head = f"POST /v1/sets HTTP/1.1\r\nHost: a\r\nAuthorization: {BEARER['authorization']}\r\n"
    head += "Content-Length: 31000000\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


# Rows and labels ----------------------------------------------------------------------------------


def test_index_labels_belong_to_the_model_that_served_the_row(serve, data, model, tmp_path):
    """After a reload with another order of classes, coverage was once reported as 0.0."""
    client, part = serve(), slice(300, 600)
    content = {"rows": data.rows[part].tolist(), "ids": ids_of(part)}
    sets = client.post("/v1/sets", json=content).json()["sets"]
    covered = [y in members for y, members in zip(data.labels[part].tolist(), sets, strict=True)]
    first = client.service.now.monitor
    turned = np.roll(data.rows[:300], 1, axis=1), (data.labels[:300] + 1) % K
    other = StandardPredictor().fit(*turned, class_names=[NAMES[-1], *NAMES[:-1]])
    save(other, model, force=True)
    assert client.service.reload()
    sent = {"ids": ids_of(part), "labels": data.labels[part].tolist()}
    assert client.post("/v1/labels", json=sent).json()["counted"] == 300
    assert first.snapshot().totals == (300, sum(covered))


def test_an_id_that_is_served_again_with_another_row_is_another_row(client):
    """The first set was once paired with the last label."""
    rows = [[1.0, 0, 0, 0, 0], [0, 0, 0, 0, 1.0]]
    for y, row in zip((0, 4), rows, strict=True):
        for _ in range(2):  # a client tries again
            assert client.post("/v1/sets", json={"rows": [row], "ids": ["a"]}).status_code == 200
        sent = {"ids": ["a"], "labels": [y]}
        assert client.post("/v1/labels", json=sent).json() == {
            **{"counted": 1, "corrected": 0, "repeated": 0, "waiting": 0},
            "several": int(y == 4),
        }
    found = client.get("/v1/coverage").json()
    assert (found["rows"], found["coverage"]) == (2, 1.0)


@pytest.mark.parametrize("labels", [[0], [1], ["1"], [3, 0]], ids=str)
def test_integer_labels_are_accepted_by_the_model_alone(serve, data, tmp_path, labels):
    """They were once rejected, or not, by the other labels of the request."""
    names = [str(y + 1) for y in range(K)]
    rows, indices = data.rows[:300], data.labels[:300]
    fitted = StandardPredictor().fit(rows, indices, class_names=names, labels_are="indices")
    save(fitted, tmp_path / "numbers.safetensors")
    client = serve(tmp_path / "numbers.safetensors")
    sent = {"ids": [f"row {n}" for n in range(len(labels))], "labels": labels}
    is_text = isinstance(labels[0], str)
    answer = client.post("/v1/labels", json=sent)
    assert answer.status_code == (200 if is_text else 422)
    assert is_text or "labels_are" in answer.json()["error"]
    assert client.post("/v1/labels", json=sent | {"labels_are": "names"}).status_code == 200


def test_recent_coverage_is_shown_next_to_that_of_all_labels(client, data, fitted):
    """Drift after a long good history once read as "nothing significant"."""
    sets = fitted.predict_set(data.rows[300:], ids=ids_of(slice(300, 600)))
    part = {"rows": data.rows[300:].tolist(), "ids": ids_of(slice(300, 600))}
    client.post("/v1/sets", json=part)
    labels = [members[0] for members in sets.to_lists()]
    labels[200:] = [(y + 1) % K for y in labels[200:]]
    time = ["2026-01-01"] * 200 + ["2026-01-02"] * 100
    sent = {"ids": part["ids"], "labels": labels, "time": time}
    assert client.post("/v1/labels", json=sent).json()["counted"] == 300
    recent = client.get("/v1/coverage").json()["recent"]
    assert recent["latest_period"]["period"] == "2026-01-02"
    low, high = recent["latest_period"]["interval"]
    assert low < recent["latest_period"]["coverage"] < high < recent["all"]["interval"][0]
    assert recent["message"].startswith("NOTE")
    line = 'evencover_recent_coverage{of="latest_period",value="coverage"} '
    assert f"{line}{recent['latest_period']['coverage']}" in client.get("/metrics").text
