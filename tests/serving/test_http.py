"""The service: the sets of `predict_set`, bad requests, and limits."""

import numpy as np
import pytest
from serving.service import BEARER, NAMES, body

from evencover import ClasswisePredictor, TopK, save

for library in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

# Sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [True, False])
def test_sets_are_those_of_predict_set(client, data, fitted, ids):
    given = body(data, ids=ids)
    answer = client.post("/v1/sets", json=given)
    assert answer.status_code == 200
    found = answer.json()
    sets = fitted.predict_set(data.rows[300:], ids=given.get("ids"))
    assert found["sets"] == sets.to_lists()
    assert found["names"] == sets.to_lists(names=True)
    assert found["sizes"] == sets.sizes.tolist()
    assert found["accepted"] == sets.accepted.tolist()
    n_accepted = sum(found["accepted"])
    assert 0 < n_accepted < 300
    assert f"evencover_accepted_rows_total {n_accepted}.0" in client.get("/metrics").text
    for members, values, row in zip(sets, found["probabilities"], given["rows"], strict=True):
        assert values == np.array(row)[members].tolist()
    assert found["model"] == client.get("/healthz").json()["model"]


def test_a_model_of_logits_refuses_probabilities(data, serve, tmp_path):
    logits = np.log(data.rows)
    fitted = ClasswisePredictor(from_logits=True).fit(logits[:300], data.labels[:300])
    save(fitted, tmp_path / "logits.safetensors")
    client = serve(tmp_path / "logits.safetensors", state=None)
    one = slice(300, 301)
    for part in (one, slice(300, 400)):
        answer = client.post("/v1/sets", json=body(data, part))
        assert answer.status_code == 422
        assert "Got probabilities" in answer.json()["error"]
    found = client.post("/v1/sets", json={"rows": logits[one].tolist()}).json()
    [values], [members] = found["probabilities"], found["sets"]
    assert values == pytest.approx(data.rows[one][0, members])
    nothing = client.post("/v1/sets", json={"rows": []}).json()
    assert nothing["accepted"] == nothing["probabilities"] == []
    assert client.get("/v1/model").json()["reads"] == "logits"


def test_the_service_names_capped_classes_with_their_share(data, serve, tmp_path):
    fitted = ClasswisePredictor(alpha=0.02, max_share=0.1).fit(*data, class_names=NAMES)
    save(fitted, tmp_path / "capped.safetensors")
    about = serve(tmp_path / "capped.safetensors", state=None).get("/v1/model").json()
    capped = np.flatnonzero(fitted.is_capped_)
    assert len(capped)
    assert about["capped_classes"] == {NAMES[y]: fitted.share_[y] for y in capped}
    assert "would put it into" in about["guarantee"]


# Bad requests -----------------------------------------------------------------------------------


def nested(depth):
    return b'{"rows": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (nested(100_000), 422),
        (b"[]", 422),
        (b'{"rows": [1, 2]}', 422),
        (b'{"rows": [[0.5, 0.5]]}', 422),
        (b'{"rows": [[0.2, 0.2, 0.2, 0.2, 0.2], [1]]}', 422),
        (b'{"rows": [["0.2", "0.2", "0.2", "0.2", "0.2"]]}', 422),
        (b'{"rows": [[0.2, 0.2, 0.2, 0.2, null]]}', 422),
        (b'{"rows": [[true, 0.0, 0.0, 0.0, 0.0]]}', 422),
        (b'{"rows": [[NaN, 0.2, 0.2, 0.2, 0.2]]}', 400),
        (b'{"rows": [[1e999, 0, 0, 0, 0]]}', 422),
        (b'{"rows": [[%s, 0, 0, 0, 0]]}' % (b"9" * 400), 422),
        (b'{"rows": [[-1, 2, 0, 0, 0]]}', 422),
        (b'{"rows": [{"no such class": 0.5}]}', 422),
        (b'{"rows": [{"ant": 0.9, "bee": 0.9}]}', 422),
        (b'{"rows": [{"ant": -0.5}]}', 422),
        (b'{"rows": [{}]}', 422),
        (b'{"rows": [{"ant": 0.5}, [1, 0, 0, 0, 0]]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": [1, 2]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": [{}]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": [99999999999999999999]}', 422),
        (b'{"rows": [[1, 0, 0, 0, 0]], "ids": ["\\ud800"]}', 400),
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
    assert client.post("/v1/labels", content=content, headers=headers).status_code in (400, 422)
    with client.service.state.reading() as run:
        assert run("SELECT id FROM served UNION SELECT id FROM labels") == []


def test_limits(serve, data):
    client = serve(state=None, body=2000, rows=3)
    assert client.post("/v1/sets", json=body(data, slice(300, 303))).status_code == 200
    assert client.post("/v1/sets", json=body(data, slice(300, 304), ids=False)).status_code == 413
    headers = {"content-type": "application/json"}
    assert client.post("/v1/sets", content=b" " * 2001, headers=headers).status_code == 413

    def stream():
        for _ in range(30):
            yield b" " * 100

    assert client.post("/v1/sets", content=stream(), headers=headers).status_code == 413
    for name in ("content-type", "content-encoding"):
        answer = client.post("/v1/sets", content=b"x", headers=headers | {name: "gzip"})
        assert answer.status_code == 415
    for status, path in ((405, "/v1/sets"), (404, "/nowhere"), (404, "/v2/repository/index")):
        answer = client.get(path)
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}


def test_failures_show_nothing_of_the_inside(client, data, monkeypatch):
    from starlette.testclient import TestClient

    monkeypatch.setattr(client.service, "sets", lambda *_: 1 / 0)
    again = TestClient(client.app, raise_server_exceptions=False)
    answer = again.post("/v1/sets", json=body(data), headers=BEARER)
    assert answer.status_code == 422
    assert "division" not in answer.json()["error"]
    figures = again.get("/metrics").text
    assert 'evencover_requests_total{path="/v1/sets",status="422"} 1.0' in figures
    assert "evencover_failures_total 1.0" in figures


def test_rows_by_class_are_top_k_rows(client, data, fitted):
    top = np.argsort(-data.rows[300:], axis=1)[:, :3]
    rows = [
        {NAMES[y]: float(row[y]) for y in classes}
        for row, classes in zip(data.rows[300:], top, strict=True)
    ]
    ids = list(range(300))
    answer = client.post("/v1/sets", json={"rows": rows, "ids": ids})
    assert answer.status_code == 200
    numbers = np.take_along_axis(data.rows[300:], top, axis=1)
    sets = fitted.predict_set(TopK(top, numbers, n_classes=len(NAMES)), ids=ids)
    assert answer.json()["sets"] == sets.to_lists()
    for members, values, row in zip(sets, answer.json()["probabilities"], rows, strict=True):
        assert values == [row[NAMES[y]] for y in members]
