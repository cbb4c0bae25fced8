"""The service: the sets of `predict_set`, labels counted once, limits, and files that survive."""

import json
import shutil
import threading

import numpy as np
import pytest

from evencover import (
    ClasswisePredictor,
    CoverageMonitor,
    InputError,
    RowGroupedPredictor,
    StandardPredictor,
    load,
    save,
)

for library in ("starlette", "uvicorn", "prometheus_client", "httpx", "pyarrow"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

from evencover.serving.http.app import make_app  # noqa: E402
from evencover.serving.http.requests import ARROW, read_rows  # noqa: E402
from evencover.serving.http.service import Limits, Service  # noqa: E402

K, NAMES, TOKEN = 5, ["ant", "bee", "wasp", "fly", "naïve"], "open sesame"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, K, seed=17)


@pytest.fixture(scope="module")
def fitted(data):
    predictor = ClasswisePredictor(score="aps")
    return predictor.fit(data.rows[:300], data.labels[:300], class_names=NAMES)


@pytest.fixture
def model(fitted, tmp_path):
    save(fitted, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def serve(model, tmp_path):
    """A client of a service with a state, a token and limits."""
    from starlette.testclient import TestClient

    clients = []

    def start(path=model, token=TOKEN, state=tmp_path / "watch.json", **limits):
        service = Service(path, state)
        client = TestClient(make_app(service, token=token, limits=Limits(**limits)))
        client.service = service
        clients.append(client.__enter__())
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(serve):
    return serve()


def body(data, part=slice(300, 600), ids=True, labels=False):
    numbers = range(*part.indices(600))
    content = {"rows": data.rows[part].tolist()}
    content |= {"ids": [f"row {n}" for n in numbers]} if ids else {}
    return content | ({"labels": data.labels[part].tolist()} if labels else {})


# Sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [True, False])
def test_sets_are_those_of_predict_set(client, data, fitted, ids):
    given = body(data, ids=ids)
    answer = client.post("/v1/sets", json=given)
    assert answer.status_code == 200
    found = answer.json()
    sets = fitted.predict_set(data.rows[300:], ids=given.get("ids"))
    assert found["sets"] == sets.most_probable_first(data.rows[300:])
    assert found["names"] == sets.most_probable_first(data.rows[300:], names=True)
    assert found["sizes"] == sets.sizes.tolist()
    assert found["model"] == client.get("/healthz").json()["model"]


def test_arrow_in_arrow_out(client, data, fitted):
    import pyarrow as pa

    given = body(data)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(data.rows[300:].ravel()), K)
    table = pa.table({"rows": rows, "ids": given["ids"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    headers = {"content-type": ARROW, "accept": ARROW}
    answer = client.post("/v1/sets", content=bytes(sink.getvalue()), headers=headers)
    assert answer.headers["content-type"] == ARROW
    found = pa.ipc.open_stream(answer.content).read_all()
    sets = fitted.predict_set(data.rows[300:], ids=given["ids"])
    assert found["set"].to_pylist() == sets.most_probable_first(data.rows[300:])
    assert found["size"].to_pylist() == sets.sizes.tolist()


def test_one_row_at_a_time_with_ids_is_all_at_once(client, data):
    given = body(data, slice(300, 320))
    together = client.post("/v1/sets", json=given).json()["sets"]
    alone = [
        client.post("/v1/sets", json={"rows": [row], "ids": [name]}).json()["sets"][0]
        for row, name in zip(given["rows"], given["ids"], strict=True)
    ]
    assert alone == together


def test_groups_of_rows(data, serve, tmp_path):
    sites = np.array(["north", "south"])[np.arange(300) % 2]
    by_site = RowGroupedPredictor().fit(data.rows[:300], data.labels[:300], groups=sites)
    save(by_site, tmp_path / "sites.safetensors")
    client = serve(tmp_path / "sites.safetensors", state=None)
    given = body(data, ids=False) | {"groups": sites.tolist()}
    sets = by_site.predict_set(data.rows[300:], groups=sites)
    assert client.post("/v1/sets", json=given).json()["sizes"] == sets.sizes.tolist()
    assert client.post("/v1/sets", json=body(data)).status_code == 422
    assert (
        "groups"
        in client.get("/openapi.json").json()["paths"]["/v1/sets"]["post"]["requestBody"][
            "content"
        ]["application/json"]["schema"]["required"]
    )


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


def test_the_model_is_described(client, fitted):
    found = client.get("/v1/model").json()
    assert found["class_names"] == NAMES
    assert found["method"] == "classwise"
    assert found["guarantee"] == fitted.guarantee


# Bad requests -----------------------------------------------------------------------------------


def nested(depth):
    return b'{"rows": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (nested(100_000), 400),
        (nested(60), 422),
        (b"[]", 422),
        (b"null", 422),
        (b"{}", 422),
        (b'{"rows": 1}', 422),
        (b'{"rows": []}', 422),
        (b'{"rows": [1, 2]}', 422),
        (b'{"rows": [[0.5, 0.5]]}', 422),
        (b'{"rows": [[0.2, 0.2, 0.2, 0.2, 0.2], [1]]}', 422),
        (b'{"rows": [["0.2", "0.2", "0.2", "0.2", "0.2"]]}', 422),
        (b'{"rows": [[0.2, 0.2, 0.2, 0.2, null]]}', 422),
        (b'{"rows": [[NaN, 0.2, 0.2, 0.2, 0.2]]}', 422),
        (b'{"rows": [[1e999, 0, 0, 0, 0]]}', 422),
        (b'{"rows": [[%s, 0, 0, 0, 0]]}' % (b"9" * 400), 422),
        (b'{"rows": [[%s, 0, 0, 0, 0]]}' % (b"9" * 9000), 400),
        (b'{"rows": [[-1, 2, 0, 0, 0]]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": [1, 2]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": [1.5]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": [{}]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": [99999999999999999999]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": ["\\ud800"]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "groups": ["a"]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "other": [1]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "labels": [1]}', 422),
    ],
)
def test_malformed_bodies_are_refused_and_change_nothing(serve, content, status):
    client = serve(state=None)
    headers = {"content-type": "application/json", **BEARER}
    answer = client.post("/v1/sets", content=content, headers=headers)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    if b'"labels": [1]' not in content:
        refused = client.post("/v1/labels", content=content, headers=headers)
        assert refused.status_code in (400, 422)
    assert client.get("/v1/coverage").json()["rows"] == 0
    assert client.service.now.monitor.counts.sizes.sum() == 0


@pytest.mark.parametrize("labels", [[9], [-1], ["nobody"], [None], [[0]], [0.5], ["\ud800"]])
def test_bad_labels_are_refused(client, data, labels):
    given = body(data, slice(300, 301)) | {"labels": labels}
    content = json.dumps(given).encode()
    headers = {"content-type": "application/json", **BEARER}
    answer = client.post("/v1/labels", content=content, headers=headers)
    assert answer.status_code == 422
    assert client.get("/v1/coverage").json()["rows"] == 0
    assert not client.service.now.counted


def test_broken_arrow_is_refused(client, data):
    import pyarrow as pa

    table = pa.table({"rows": [[0.2] * K], "ids": ["a"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole = bytes(sink.getvalue())
    rng = np.random.default_rng(0)
    headers = {"content-type": ARROW}
    assert client.post("/v1/sets", content=whole, headers=headers).status_code == 200
    for cut in range(0, len(whole), 37):
        refused = client.post("/v1/sets", content=whole[:cut], headers=headers)
        assert refused.status_code in (400, 422)
    for _ in range(40):
        spoilt = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            spoilt[place] = rng.integers(0, 256)
        answer = client.post("/v1/sets", content=bytes(spoilt), headers=headers)
        assert answer.status_code in (200, 400, 422)


def test_limits(serve, data):
    client = serve(state=None, body=2000, rows=3)
    assert client.post("/v1/sets", json=body(data, slice(300, 303))).status_code == 200
    assert client.post("/v1/sets", json=body(data, slice(300, 304), ids=False)).status_code == 413
    assert client.post("/v1/sets", content=b" " * 2001).status_code == 413

    def stream():
        for _ in range(30):
            yield b" " * 100

    assert client.post("/v1/sets", content=stream()).status_code == 413
    assert client.post("/v1/sets", content=b"x", headers={"content-type": "a/b"}).status_code == 415
    assert client.get("/v1/sets").status_code == 405
    assert client.get("/nowhere").status_code == 404


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
    given = read_rows(content, "application/json", most_rows=300, with_labels=True)
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
    given = read_rows(content, "application/json", most_rows=300, with_labels=True)
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
        return read_rows(content, "application/json", most_rows=100, with_labels=True)

    threads = [threading.Thread(target=send, args=(start,)) for start in range(300, 600, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    saved = CoverageMonitor.load(tmp_path / "watch.json", load(tmp_path / "model.safetensors"))
    expected = CoverageMonitor(fitted)
    expected.update(data.rows[300:], data.labels[300:], ids=body(data)["ids"])
    assert signed(saved, expected)
