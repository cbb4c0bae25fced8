"""The service: labels are counted once, by id alone or with rows, and states survive restarts."""

import json
import shutil
import sqlite3
import threading

import numpy as np
import pytest
from serving.service import BEARER, NAMES, TOKEN, K, body

from evencover import CoverageMonitor, InputError, StandardPredictor, save
from evencover.monitoring import Store, store

for library in ("starlette", "uvicorn", "prometheus_client", "httpx", "pyarrow"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")


def post(client, path, content):
    answer = client.post(path, json=content, headers=BEARER)
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(found):
    return found["counted"], found["repeated"], found["waiting"]


def expected(fitted, data, part=slice(300, 600)):
    ids = [f"row {n}" for n in range(*part.indices(600))]
    return CoverageMonitor(fitted).update(data.rows[part], data.labels[part], ids=ids)


def same(found, wanted):
    for name in ("rows", "covered"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    np.testing.assert_allclose(found.log_e_values(), wanted.log_e_values())
    np.testing.assert_allclose(found.shift_log_e_values(), wanted.shift_log_e_values())
    return True


# Labels -----------------------------------------------------------------------------------------


def test_labels_are_counted_by_id_alone_as_they_are_with_their_rows(serve, data, fitted, tmp_path):
    by_id, with_rows = serve(), serve(state=tmp_path / "other.db")
    post(by_id, "/v1/sets", body(data))
    known = {name: body(data, labels=True)[name] for name in ("ids", "labels")}
    assert numbers(post(by_id, "/v1/labels", known)) == (300, 0, 0)
    assert numbers(post(with_rows, "/v1/labels", body(data, labels=True))) == (300, 0, 0)
    for name in ("watch.db", "other.db"):
        assert same(CoverageMonitor(fitted, store=tmp_path / name), expected(fitted, data))
    found = by_id.get("/v1/coverage").json()  # at once, not that of a second ago
    assert found["rows"] == 300
    assert found["coverage"] == expected(fitted, data).covered.sum() / 300


def test_labels_may_be_names_and_state_their_time(client, data):
    post(client, "/v1/sets", body(data, slice(300, 304)))
    sent = {"ids": body(data, slice(300, 304))["ids"], "time": ["2026-03-01"] * 3}
    sent["labels"] = [NAMES[y] for y in data.labels[300:304]]
    assert client.post("/v1/labels", json=sent, headers=BEARER).status_code == 422
    sent["time"] = ["2026-03-01", "2026-03-01T23:30:00-02:00", "2026-03-01T23:30", "2026-02-28"]
    assert numbers(post(client, "/v1/labels", sent)) == (4, 0, 0)
    periods = client.get("/v1/coverage").json()["periods"]
    assert [(p["period"], p["rows"]) for p in periods] == [
        ("2026-02-28", 1),
        ("2026-03-01", 2),
        ("2026-03-02", 1),
    ]


def test_a_label_that_comes_before_its_row_waits_for_it(client, data, fitted, tmp_path):
    known = {name: body(data, labels=True)[name] for name in ("ids", "labels")}
    assert numbers(post(client, "/v1/labels", known)) == (0, 0, 300)
    assert numbers(post(client, "/v1/labels", known)) == (0, 0, 300)
    assert client.service.store.waiting() == 300
    post(client, "/v1/sets", body(data))
    found = client.get("/v1/coverage").json()
    assert (found["rows"], found["waiting"]) == (300, 0)
    assert same(CoverageMonitor(fitted, store=tmp_path / "watch.db"), expected(fitted, data))


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_an_id_that_is_sent_again_counts_once(serve, data, with_rows, restart):
    client = serve()
    post(client, "/v1/sets", body(data))

    def sent(part):
        content = body(data, part, labels=True)
        return content if with_rows else {n: content[n] for n in ("ids", "labels")}

    assert numbers(post(client, "/v1/labels", sent(slice(300, 400)))) == (100, 0, 0)
    client = serve() if restart else client
    assert numbers(post(client, "/v1/labels", sent(slice(300, 400)))) == (0, 100, 0)
    assert numbers(post(client, "/v1/labels", sent(slice(350, 450)))) == (50, 50, 0)
    twice = sent(slice(450, 451))
    twice = {name: values * 2 for name, values in twice.items()}
    assert numbers(post(client, "/v1/labels", twice)) == (1, 1, 0)


def test_unknown_classes_count_as_missed_and_are_shown(client, data):
    post(client, "/v1/sets", body(data, slice(300, 400)))
    ids = body(data, slice(300, 400))["ids"]
    labels = ["hornet"] * 40 + [NAMES[y] for y in data.labels[340:400]]
    assert numbers(post(client, "/v1/labels", {"ids": ids, "labels": labels})) == (100, 0, 0)
    found = client.get("/v1/coverage").json()
    assert found["rows"] == 100
    assert found["coverage"] <= 0.6
    assert found["overall"]["alarm"]
    assert found["unknown_labels"] == {"hornet": 40}
    assert sum(each["rows"] for each in found["classes"]) == 60
    assert "hornet (40)" in client.get("/").text


def test_labels_need_the_token(serve, data):
    given = body(data, labels=True)
    client = serve()
    for headers in ({}, {"authorization": TOKEN}, {"authorization": "Bearer x"}):
        assert client.post("/v1/labels", json=given, headers=headers).status_code == 401
    locked = serve(token=None, state=None)
    assert locked.post("/v1/labels", json=given, headers=BEARER).status_code == 403
    assert client.get("/v1/coverage").json()["rows"] == 0


@pytest.mark.parametrize(
    "content",
    [
        {"labels": [1]},
        {"ids": ["a"]},
        {"ids": ["a"], "labels": [1, 2]},
        {"ids": ["a"], "labels": [1.5]},
        {"ids": ["a"], "labels": [1], "time": ["yesterday"]},
        {"ids": [], "labels": []},
    ],
    ids=str,
)
def test_bad_labels_are_rejected_and_nothing_is_counted(client, data, content):
    post(client, "/v1/sets", body(data, slice(300, 301)) | {"ids": ["a"]})
    assert client.post("/v1/labels", json=content, headers=BEARER).status_code == 422
    found = client.get("/v1/coverage").json()
    assert (found["rows"], found["waiting"]) == (0, 0)


# Pages ------------------------------------------------------------------------------------------


def test_alarms_are_on_every_page(client, data):
    wrong = body(data, labels=True)
    wrong["labels"] = [(y + 1) % K for y in wrong["labels"]]
    post(client, "/v1/sets", body(data))
    post(client, "/v1/labels", wrong)
    found = client.get("/v1/coverage").json()
    assert found["alarm"] is True
    assert found["alarm_level"]["class"] == K / (
        0.05 * min(K, sum(c["alarm"] for c in found["classes"]) + 1)
    )
    first = found["classes"][0]
    assert first["since"] == first["periods"][0]["period"]
    page = client.get("/").text
    assert "ALARM" in page
    assert "Alarm level" in page
    figures = client.get("/metrics").text
    for line in (
        'evencover_alarm{test="below_target"} 1.0',
        "evencover_labeled_rows 300.0",
        f"evencover_coverage {found['coverage']}",
        f'evencover_class_coverage{{class="{first["class"]}"}} {first["coverage"]}',
        'evencover_set_size_bucket{le="+Inf"} 300.0',
        'evencover_requests_total{path="/v1/labels",status="200"} 1.0',
    ):
        assert line in figures
    assert figures.count("evencover_class_e_value{") == K


def test_coverage_by_class_and_period_is_a_table(client, data):
    post(client, "/v1/labels", body(data, labels=True) | {"time": ["2026-01-01"] * 300})
    answer = client.get("/v1/coverage.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    lines = [line.split(",") for line in answer.text.splitlines()]
    assert lines[0] == ["class", "period", "rows", "covered", "coverage"]
    rows = {name: int(n) for name, _, n, *_ in lines[1:]}
    counts = np.bincount(data.labels[300:], minlength=K).tolist()
    assert rows == {"(all)": 300, **dict(zip(NAMES, counts, strict=True))}


# States -----------------------------------------------------------------------------------------


def test_labels_that_cannot_be_stored_are_not_counted_and_can_be_sent_again(
    serve, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    client = serve()
    other = sqlite3.connect(tmp_path / "watch.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    sent = body(data, labels=True)
    assert client.post("/v1/labels", json=sent, headers=BEARER).status_code == 503
    answer = client.post("/v1/sets", json=body(data))  # not recorded, but answered
    assert (
        answer.json()["sets"]
        == client.service.now.predictor.predict_set(
            data.rows[300:], ids=body(data)["ids"]
        ).to_lists()
    )
    assert client.get("/healthz").json()["status"] == "degraded"
    assert client.service.n_unrecorded == 300
    other.execute("ROLLBACK")
    assert client.get("/v1/coverage").json()["rows"] == 0
    assert numbers(post(client, "/v1/labels", sent)) == (300, 0, 0)
    other.close()


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
    known = {name: body(data, labels=True)[name] for name in ("ids", "labels")}
    assert numbers(post(client, "/v1/labels", known)) == (300, 0, 0)
    assert client.get("/v1/coverage").json()["rows"] == 200
    path = tmp_path / "watch.db"
    first, second = slice(300, 400), slice(400, 600)
    assert same(CoverageMonitor(fitted, store=path), expected(fitted, data, first))
    assert same(CoverageMonitor(other, store=path), expected(other, data, second))
    model.write_bytes(model.read_bytes()[:100])
    with pytest.raises(InputError):
        client.service.reload()
    assert client.post("/v1/sets", json=body(data)).status_code == 200


@pytest.mark.parametrize("restart", [False, True])
def test_a_model_that_comes_back_goes_on_with_its_counts(serve, data, model, restart):
    first, client = model.read_bytes(), serve()
    other = StandardPredictor().fit(data.rows[:300], data.labels[:300])
    for content in (None, first):  # another model, and back
        part = slice(300, 400) if content is None else slice(400, 450)
        post(client, "/v1/labels", body(data, part, labels=True))
        if content is None:
            save(other, model, force=True)
        else:
            model.write_bytes(content)
        if restart:
            client = serve()
        else:
            assert client.service.reload()
    assert client.get("/v1/coverage").json()["rows"] == 100
    again = body(data, slice(300, 400), labels=True)
    assert numbers(post(client, "/v1/labels", again)) == (0, 100, 0)


def test_many_at_once_on_two_services_are_all_counted_once(serve, data, fitted, tmp_path):
    """Two services share a state, and every label is sent to both."""
    clients = serve(), serve()
    post(clients[0], "/v1/sets", body(data))
    counted = []

    def send(service, start):
        for n in range(start, start + 50, 10):
            content = body(data, slice(n, n + 10), labels=True)
            answer = service.labels(_known(content))
            assert answer["counted"] + answer["repeated"] == 10
            counted.append(answer["counted"])

    def _known(content):
        from evencover.serving.requests import Rows

        return Rows(None, ids=content["ids"], labels=content["labels"])

    threads = [
        threading.Thread(target=send, args=(client.service, start))
        for start in range(300, 600, 50)
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counted) == 300
    found = CoverageMonitor(fitted, store=tmp_path / "watch.db")
    np.testing.assert_array_equal(found.rows, expected(fitted, data).rows)
    np.testing.assert_array_equal(found.covered, expected(fitted, data).covered)
    shown = [json.dumps(each.get("/v1/coverage").json()["classes"]) for each in clients]
    assert shown[0] == shown[1]


def test_a_store_may_be_handed_over(model, data):
    from evencover.serving.http import Service
    from evencover.serving.requests import Rows

    service = Service(model, Store(retention=1))
    service.sets(Rows(data.rows[300:310], list(range(10))))
    assert service.labels(Rows(None, list(range(10)), labels=[0] * 10))["counted"] == 10
