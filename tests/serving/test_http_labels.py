"""The service: labels are counted once, and sets never wait for the state."""

import dataclasses
import json
import shutil
import sqlite3
import threading
import time
from contextlib import closing, contextmanager

import numpy as np
import pytest
from monitoring.watching import assert_same_evidence, updated
from serving.service import BEARER, NAMES, TOKEN, K, body, ids_of, labels_of

from evencover import CoverageMonitor, InputError, StandardPredictor, save
from evencover.monitoring import MonitorState, database
from evencover.serving import service as service_module

for library in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(library)
from evencover.serving import http  # noqa: E402  (it needs the extra)

pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")


def post(client, path, content):
    answer = client.post(path, json=content, headers=BEARER)
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(found):
    return found["counted"], found["repeated"], found["waiting"]


def assert_same(fitted, data, state, part=slice(300, 600)):
    """The state knows what a monitor knows that counts these rows itself."""
    found = CoverageMonitor(fitted, state=state).snapshot()
    expected = updated(fitted, data.rows[part], data.labels[part], ids=ids_of(part))
    assert_same_evidence(found, expected)


# Labels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
def test_labels_are_counted_before_and_after_their_rows(client, data, fitted, tmp_path, early):
    if early:
        assert numbers(post(client, "/v1/labels", labels_of(data))) == (0, 0, 300)
        assert client.service.now.monitor.snapshot().waiting == 300
    post(client, "/v1/sets", body(data))
    if not early:
        assert numbers(post(client, "/v1/labels", labels_of(data))) == (300, 0, 0)
    found = client.get("/v1/coverage").json()  # at once, not that of a second ago
    assert (found["rows"], found["waiting"]) == (300, 0)
    assert_same(fitted, data, tmp_path / "watch.db")


def test_labels_may_be_names_and_state_their_time(client, data):
    part = slice(300, 304)
    post(client, "/v1/sets", body(data, part))
    sent = labels_of(data, part) | {"labels": [NAMES[y] for y in data.labels[part]]}
    sent["time"] = ["2026-03-01", "2026-03-01T23:30:00-02:00", "2026-03-01T23:30", "2026-02-28"]
    assert numbers(post(client, "/v1/labels", sent)) == (4, 0, 0)
    periods = client.get("/v1/coverage").json()["periods"]
    assert [(p["period"], p["rows"]) for p in periods] == [
        ("2026-02-28", 1),
        ("2026-03-01", 2),
        ("2026-03-02", 1),
    ]


def test_an_id_that_is_sent_again_counts_once_also_after_a_restart(serve, data):
    client, sent = serve(), labels_of(data, slice(300, 400))
    post(client, "/v1/sets", body(data))
    assert numbers(post(client, "/v1/labels", sent)) == (100, 0, 0)
    sent["labels"][0] = (sent["labels"][0] + 1) % K
    counts = {"counted": 0, "corrected": 1, "repeated": 99, "waiting": 0, "several": 0}
    assert post(serve(), "/v1/labels", sent) == counts


def test_sets_and_labels_need_the_token(serve, data):
    client, unlocked = serve(), serve(token=None, state=None)
    for wrong in ("", TOKEN, "Bearer x"):
        headers = {"authorization": wrong}
        for path in ("/v1/sets", "/v1/labels", "/v2/models/model/infer"):
            assert client.post(path, json=labels_of(data), headers=headers).status_code == 401
    assert client.get("/healthz", headers=headers).status_code == 200
    assert client.get("/v1/coverage").json()["rows"] == 0
    assert unlocked.post("/v1/sets", json=body(data)).status_code == 200
    assert unlocked.post("/v1/labels", json=labels_of(data), headers=BEARER).status_code == 403


@pytest.mark.parametrize(
    "content",
    [
        {"labels": [1]},
        {"ids": ["a"]},
        {"ids": ["a"], "labels": [1, 2]},
        *({"ids": ["a"], "labels": [label]} for label in (1.5, None, [0], K, "ant ")),
        *({"ids": ["a"], "labels": [1], "time": time} for time in (["yesterday"], [])),
    ],
    ids=str,
)
def test_bad_labels_are_rejected_and_nothing_is_counted(client, data, content):
    post(client, "/v1/sets", body(data, slice(300, 301)) | {"ids": ["a"]})
    assert client.post("/v1/labels", json=content).status_code == 422
    found = client.get("/v1/coverage").json()
    assert (found["rows"], found["waiting"]) == (0, 0)


def test_alarms_are_in_the_findings_and_the_metrics(client, data):
    wrong = labels_of(data)
    wrong["labels"] = [(y + 1) % K for y in wrong["labels"]]
    post(client, "/v1/sets", body(data))
    post(client, "/v1/labels", wrong)
    found = client.get("/v1/coverage").json()
    assert found["alarm"] is True
    first = found["classes"][0]
    assert first["since"] == first["periods"][0]["period"]
    figures = client.get("/metrics").text
    for line in (
        'evencover_alarm{test="below_target"} 1.0',
        "evencover_labeled_rows 300.0",
        f"evencover_coverage {found['coverage']}",
        'evencover_set_size_bucket{le="+Inf"} 300.0',
        'evencover_requests_total{path="/v1/labels",status="200"} 1.0',
    ):
        assert line in figures


# States -----------------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """A state that another process writes to, for as long as the context."""
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(service_module, "RETRY_SECONDS", 0.05)

    @contextmanager
    def lock():
        with closing(sqlite3.connect(tmp_path / "watch.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    return lock


def wait_until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(condition)


def test_sets_do_not_wait_for_the_database_and_are_recorded_later(serve, data, fitted, locked):
    """Another process with an open transaction once stopped them for as long as it took."""
    client, known = serve(), labels_of(data)
    with locked():
        begun = time.monotonic()
        for n in range(300, 600, 10):
            batch = body(data, slice(n, n + 10))
            sets = fitted.predict_set(data.rows[n : n + 10], ids=batch["ids"])
            assert post(client, "/v1/sets", batch)["sets"] == sets.to_lists()
        assert time.monotonic() - begun < 5
        wait_until(lambda: client.get("/healthz").json()["status"] == "degraded")
        assert client.get("/healthz").json()["queued_rows"] == 300
        assert "evencover_queued_rows 300.0" in client.get("/metrics").text
        assert client.post("/v1/labels", json=known).status_code == 503
    wait_until(lambda: client.get("/healthz").json()["queued_rows"] == 0)
    assert numbers(post(client, "/v1/labels", known)) == (300, 0, 0)
    assert client.get("/healthz").json()["dropped_rows"] == 0


def test_a_full_queue_drops_rows_and_counts_them(serve, data, locked, monkeypatch):
    monkeypatch.setattr(service_module, "QUEUE_BYTES", 60_000)  # two requests, not three
    client = serve()
    with locked():
        for _ in range(3):
            assert client.post("/v1/sets", json=body(data)).status_code == 200
        health = client.get("/healthz").json()
        assert health["status"] == "degraded"
        assert (health["queued_rows"], health["dropped_rows"]) == (600, 300)
        assert f"evencover_dropped_rows {health['dropped_rows']}.0" in client.get("/metrics").text
    wait_until(lambda: client.get("/healthz").json()["queued_rows"] == 0)
    assert post(client, "/v1/sets", body(data))["sizes"]
    wait_until(lambda: client.get("/healthz").json()["status"] == "ok")


def test_a_state_that_does_not_answer_is_no_endless_wait(serve, data, monkeypatch):
    monkeypatch.setattr(http, "STATE_SECONDS", 0.1)
    monkeypatch.setattr(http, "SCRAPE_SECONDS", 0.1)
    client, goes_on = serve(), threading.Event()
    monkeypatch.setattr(client.service, "snapshot", lambda: goes_on.wait(20))
    monkeypatch.setattr(MonitorState, "label", lambda *_: goes_on.wait(20))
    assert client.get("/v1/coverage").status_code == 503
    assert client.post("/v1/labels", json=labels_of(data)).status_code == 503
    assert client.get("/metrics").status_code == 200
    assert client.post("/v1/sets", json=body(data)).status_code == 200
    goes_on.set()


def test_rows_that_wait_are_made_small(serve, data, locked, monkeypatch):
    """Of many, only what is to be written is kept, not the probabilities."""
    monkeypatch.setattr(service_module, "QUEUE_BYTES", 150_000)
    client = serve()
    with locked():
        for _ in range(5):
            assert client.post("/v1/sets", json=body(data)).status_code == 200
        for served in client.service.writer._served:
            assert not any(isinstance(column, np.ndarray) and column.ndim > 1 for column in served)
        health = client.get("/healthz").json()
        assert (health["queued_rows"], health["dropped_rows"]) == (1500, 0)
    wait_until(lambda: client.get("/healthz").json()["queued_rows"] == 0)
    assert numbers(post(client, "/v1/labels", labels_of(data))) == (300, 0, 0)


def test_a_full_queue_takes_no_labels(serve, data, monkeypatch):
    """Labels that a slow database does not take once filled the memory."""
    monkeypatch.setattr(service_module, "QUEUE_BYTES", 50_000)
    client, goes_on, record = serve(), threading.Event(), MonitorState.record
    monkeypatch.setattr(MonitorState, "record", lambda *a: goes_on.wait(20) and record(*a))
    post(client, "/v1/sets", body(data))
    known = labels_of(data)
    begun = time.monotonic()
    assert client.post("/v1/labels", json=known).status_code == 503
    assert client.get("/healthz").json()["status"] == "degraded"
    assert time.monotonic() - begun < 5
    goes_on.set()
    for _ in range(3):  # what was stored leaves the queue
        client.service.writer.flush(10)
        assert sum(numbers(post(client, "/v1/labels", known))) == 300


def test_rows_that_cannot_be_written_do_not_stop_others(serve, data, monkeypatch):
    monkeypatch.setattr(service_module, "RETRY_SECONDS", 0.01)
    client, errors = serve(), iter([database.StateError("no database"), ValueError("no row")])

    def fail(*_):
        raise next(errors)

    with monkeypatch.context() as patched:
        patched.setattr(MonitorState, "record", fail)
        post(client, "/v1/sets", body(data, slice(300, 400)))
        wait_until(lambda: client.get("/healthz").json()["dropped_rows"] == 100)
    part = slice(400, 600)
    assert numbers(post(client, "/v1/labels", labels_of(data, part))) == (0, 0, 200)
    post(client, "/v1/sets", body(data, part))
    assert numbers(post(client, "/v1/labels", labels_of(data, part))) == (0, 200, 0)


def test_a_label_is_counted_for_the_model_of_its_request(serve, data, model, monkeypatch):
    """A reload between two reads of the current model once mixed two of them."""
    client = serve()
    reads, now = [], client.service.now
    other = dataclasses.replace(now, monitor=None)

    class Changing(type(client.service)):
        @property
        def now(self):
            reads.append(1)
            return now if len(reads) == 1 else other

    del client.service.__dict__["now"]
    client.service.__class__ = Changing
    for path in ("/v1/sets", "/v2/models/model/infer"):
        reads.clear()
        rows = data.rows[300:301]
        tensor = {"name": "probabilities", "shape": [1, K], "datatype": "FP64"}
        sent = {"inputs": [tensor | {"data": rows.ravel().tolist()}]}
        post(client, path, {"rows": rows.tolist()} if path == "/v1/sets" else sent)
        assert len(reads) == 1
    reads.clear()
    assert numbers(post(client, "/v1/labels", labels_of(data))) == (0, 0, 300)
    assert len(reads) == 1


def test_no_rows_give_no_sets_and_no_labels_none(client):
    assert post(client, "/v1/sets", {"rows": []})["sets"] == []
    assert post(client, "/v1/sets", {"rows": [], "ids": []})["sizes"] == []
    assert numbers(post(client, "/v1/labels", {"ids": [], "labels": []})) == (0, 0, 0)
    tensor = {"name": "probabilities", "shape": [0, K], "datatype": "FP64", "data": []}
    found = post(client, "/v2/models/model/infer", {"inputs": [tensor]})
    shapes = {output["name"]: output["shape"] for output in found["outputs"]}
    assert shapes == {
        "sizes": [0],
        "members": [0],
        "starts": [1],
        "classes": [0, K],
        "accepted": [0],
        "answers": [0],
    }


def test_answers_are_limited(serve, data):
    """15 MB in once gave 266 MB out."""
    client = serve(state=None, body=3000)
    rows = np.eye(K, dtype=int)[np.arange(250) % K]
    tensor = {"name": "probabilities", "shape": [250, K], "datatype": "FP32"}
    head = {"inputs": [tensor | {"data": rows.ravel().tolist()}]}
    for outputs, status in (([], 413), ([{"name": "sizes"}], 200)):
        sent = json.dumps(head | {"outputs": outputs}, separators=(",", ":"))
        answer = client.post("/v2/models/model/infer", content=sent)
        assert answer.status_code == status, answer.text
    client.service.now.__dict__["name_bytes"] = np.full(K, 1000)  # long names
    answer = client.post("/v1/sets", json={"rows": rows[:30].tolist()})
    assert answer.status_code == 413
    assert "fewer rows" in answer.json()["error"]


def test_a_new_model_starts_its_own_counts_and_labels_find_the_model_that_served(
    serve, data, fitted, model, tmp_path
):
    client = serve()
    post(client, "/v1/sets", body(data, slice(300, 400)))
    old = client.get("/healthz").json()["model"]
    assert client.service.reload() is False
    other = StandardPredictor().fit(data.rows[:300], data.labels[:300], class_names=NAMES)
    save(other, tmp_path / "new.safetensors")
    shutil.move(tmp_path / "new.safetensors", model)
    assert client.service.reload() is True
    assert client.get("/healthz").json()["model"] != old
    sets = client.post("/v1/sets", json=body(data, slice(400, 600))).json()["sizes"]
    assert sets == other.predict_set(data.rows[400:], ids=body(data)["ids"][100:]).sizes.tolist()
    known = labels_of(data)
    assert numbers(post(client, "/v1/labels", known)) == (300, 0, 0)
    assert client.get("/v1/coverage").json()["rows"] == 200
    assert_same(fitted, data, tmp_path / "watch.db", slice(300, 400))
    assert_same(other, data, tmp_path / "watch.db", slice(400, 600))
    model.write_bytes(model.read_bytes()[:100])
    with pytest.raises(InputError):
        client.service.reload()
    assert client.post("/v1/sets", json=body(data)).status_code == 200
