"""The service: labels are counted once, and files survive restarts and new models."""

import json
import shutil
import threading

import pytest
from serving.service import BEARER, NAMES, TOKEN, K, body

from evencover import CoverageMonitor, InputError, StandardPredictor, load, save

for library in ("starlette", "uvicorn", "prometheus_client", "httpx", "pyarrow"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

from evencover.serving.http import Limits, read_rows  # noqa: E402


def signed(saved, expected):
    """Whether a service's state is what was expected, and the service's name."""
    (name,) = saved.counts.inputs
    expected.counts.inputs = frozenset([name])
    return name.startswith("service ") and saved == expected


# Labels -----------------------------------------------------------------------------------------


def test_labels_are_counted_and_saved_before_the_answer(client, data, fitted, tmp_path):
    given = body(data, labels=True)
    assert client.get("/v1/coverage").json()["rows"] == 0
    answer = client.post("/v1/labels", json=given, headers=BEARER)
    assert answer.json()["counted"] == 300
    saved = CoverageMonitor.load(tmp_path / "watch.json", fitted)
    expected = CoverageMonitor(fitted)
    expected.update(data.rows[300:], data.labels[300:], ids=given["ids"])
    assert signed(saved, expected)
    found = client.get("/v1/coverage").json()  # at once, not that of a second ago
    assert found["rows"] == 300
    assert found["coverage"] == expected.covered.sum() / 300
    by_name = body(data, slice(300, 310)) | {
        "labels": [NAMES[y] for y in data.labels[300:310]],
        "ids": list(range(10)),
    }
    assert client.post("/v1/labels", json=by_name, headers=BEARER).json()["counted"] == 10


def test_a_request_that_is_sent_again_counts_once(client, data):
    given = body(data, slice(300, 400), labels=True)
    assert client.post("/v1/labels", json=given, headers=BEARER).json()["counted"] == 100
    again = client.post("/v1/labels", json=given, headers=BEARER).json()
    assert (again["counted"], again["repeated"]) == (0, 100)
    more = body(data, slice(350, 450), labels=True)
    found = client.post("/v1/labels", json=more, headers=BEARER).json()
    assert (found["counted"], found["repeated"]) == (50, 50)


def test_labels_need_the_token(serve, data):
    given = body(data, labels=True)
    client = serve()
    for headers in ({}, {"authorization": TOKEN}, {"authorization": "Bearer x"}):
        assert client.post("/v1/labels", json=given, headers=headers).status_code == 401
    locked = serve(token=None, state=None)
    assert locked.post("/v1/labels", json=given, headers=BEARER).status_code == 403
    assert client.get("/v1/coverage").json()["rows"] == 0


def test_alarms_are_on_every_page(client, data):
    wrong = body(data, labels=True)
    wrong["labels"] = [(y + 1) % K for y in wrong["labels"]]
    client.post("/v1/labels", json=wrong, headers=BEARER)
    assert client.get("/v1/coverage").json()["alarm"] is True
    assert "ALARM" in client.get("/").text
    figures = client.get("/metrics").text
    assert 'evencover_alarm{question="promise"} 1.0' in figures
    assert "evencover_labelled_rows 300.0" in figures
    assert 'evencover_requests_total{path="/v1/labels",status="200"} 1.0' in figures


def test_sets_feed_drift_and_the_state_is_saved_in_the_end(serve, data, fitted, tmp_path):
    client = serve()
    client.post("/v1/sets", json=body(data))
    client.service.save()
    assert CoverageMonitor.load(tmp_path / "watch.json", fitted).counts.sizes[1].sum() == 300


# Files ------------------------------------------------------------------------------------------


def test_a_service_goes_on_where_it_was(serve, data, tmp_path):
    serve().post("/v1/labels", json=body(data, labels=True), headers=BEARER)
    again = serve()
    assert again.get("/v1/coverage").json()["rows"] == 300


def test_labels_that_cannot_be_written_are_not_counted_and_can_be_sent_again(serve, data, tmp_path):
    folder = tmp_path / "states"
    folder.mkdir()
    client = serve(state=folder / "watch.json")
    shutil.rmtree(folder)
    sent = body(data, labels=True)
    answer = client.post("/v1/labels", json=sent, headers=BEARER)
    assert answer.status_code == 503
    assert "Cannot write" in answer.json()["error"]
    assert client.get("/v1/coverage").json()["rows"] == 0
    folder.mkdir()
    assert client.post("/v1/labels", json=sent, headers=BEARER).json()["counted"] == 300


def test_sets_are_answered_while_a_state_is_written(client, data, monkeypatch):
    """A disk may be slow; small requests are answered on the one thread that hears them all."""
    writing, go_on = threading.Event(), threading.Event()
    save_state = CoverageMonitor.save

    def slowly(monitor, path):
        writing.set()
        assert go_on.wait(20)
        save_state(monitor, path)

    monkeypatch.setattr(CoverageMonitor, "save", slowly)
    content = json.dumps(body(data, labels=True)).encode()
    given = read_rows(content, "application/json", Limits(), with_labels=True)
    sender = threading.Thread(target=client.service.labels, args=(given,))
    sender.start()
    assert writing.wait(20)
    sets, _ = client.service.sets(given)
    go_on.set()
    sender.join()
    assert len(sets) == 300
    assert client.get("/v1/coverage").json()["rows"] == 300
    assert client.service.now.monitor.counts.sizes[1].sum() == 300


def test_a_new_model_is_taken_up_and_starts_a_new_state(serve, data, fitted, model, tmp_path):
    client = serve()
    client.post("/v1/labels", json=body(data, labels=True), headers=BEARER)
    old = client.get("/healthz").json()["model"]
    assert client.service.reload() is False
    other = StandardPredictor().fit(data.rows[:300], data.labels[:300], class_names=NAMES)
    save(other, tmp_path / "new.safetensors")
    shutil.move(tmp_path / "new.safetensors", model)
    assert client.service.reload() is True
    assert client.get("/healthz").json()["model"] != old
    assert client.get("/v1/coverage").json()["rows"] == 0
    sets = client.post("/v1/sets", json=body(data)).json()["sizes"]
    assert sets == other.predict_set(data.rows[300:], ids=body(data)["ids"]).sizes.tolist()
    kept = CoverageMonitor.load(tmp_path / f"watch.{old[:8]}.json", fitted)
    assert kept.rows.sum() == 300
    model.write_bytes(model.read_bytes()[:100])
    with pytest.raises(InputError):
        client.service.reload()
    assert client.post("/v1/sets", json=body(data)).json()["sizes"] == sets


def test_a_model_that_was_replaced_meanwhile_starts_a_new_state(serve, data, model, tmp_path):
    client = serve()
    client.post("/v1/labels", json=body(data, labels=True), headers=BEARER)
    old = client.get("/healthz").json()["model"]
    other = StandardPredictor().fit(data.rows[:300], data.labels[:300], class_names=NAMES)
    save(other, model, force=True)
    again = serve()
    assert again.get("/v1/coverage").json()["rows"] == 0
    assert (tmp_path / f"watch.{old[:8]}.json").exists()


@pytest.mark.parametrize("restart", [False, True])
def test_a_model_that_comes_back_goes_on_with_its_state(serve, data, model, tmp_path, restart):
    first, client = model.read_bytes(), serve()
    other = StandardPredictor().fit(data.rows[:300], data.labels[:300])
    for content in (None, first):  # another model, and back
        sent = body(data, slice(300, 400) if content is None else slice(400, 450), labels=True)
        client.post("/v1/labels", json=sent, headers=BEARER)
        if content is None:
            save(other, model, force=True)
        else:
            model.write_bytes(content)
        if restart:
            client = serve()
        else:
            assert client.service.reload()
    assert client.get("/v1/coverage").json()["rows"] == 100
    states = {path.name for path in tmp_path.glob("watch*.json")}
    assert len(states) == 2  # no row is in two of them
    client.post("/v1/labels", json=body(data, slice(500, 520), labels=True), headers=BEARER)
    saved = CoverageMonitor.load(tmp_path / "watch.json", load(model))
    assert saved.rows.sum() == 120


def test_labels_that_come_while_a_model_is_replaced_are_kept(serve, data, fitted, model, tmp_path):
    """They were counted with the old model: its state has them when they are acknowledged."""
    service = serve().service
    old, count = service.now, service._counted

    def slowly(*given):
        found = count(*given)
        save(StandardPredictor().fit(data.rows[:300], data.labels[:300]), model, force=True)
        assert service.reload()
        return found

    service._counted = slowly
    content = json.dumps(body(data, labels=True)).encode()
    given = read_rows(content, "application/json", Limits(), with_labels=True)
    assert service.labels(given)["counted"] == 300
    kept = CoverageMonitor.load(tmp_path / f"watch.{old.monitor.model[:8]}.json", fitted)
    assert kept.rows.sum() == 300
    assert CoverageMonitor.load(tmp_path / "watch.json", load(model)).rows.sum() == 0


def test_many_at_once_are_all_counted(client, data, fitted, tmp_path):
    def send(start):
        for n in range(start, start + 50, 10):
            given = body(data, slice(n, n + 10), labels=True)
            assert client.service.labels(_rows(given))["counted"] == 10

    def _rows(given):
        content = json.dumps(given).encode()
        return read_rows(content, "application/json", Limits(), with_labels=True)

    threads = [threading.Thread(target=send, args=(start,)) for start in range(300, 600, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    saved = CoverageMonitor.load(tmp_path / "watch.json", load(tmp_path / "model.safetensors"))
    expected = CoverageMonitor(fitted)
    expected.update(data.rows[300:], data.labels[300:], ids=body(data)["ids"])
    assert signed(saved, expected)
