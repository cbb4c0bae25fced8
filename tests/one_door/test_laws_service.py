"""The laws of every form, through the service: the sets of memory, or status 422, never others."""

import json
import re
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from one_door.drawn import ODD, contents, orders
from one_door.forms import entries
from one_door.material import simulated, top_of

from evencover import ClasswisePredictor, CoverageMonitor, load, save

for library in ("starlette", "uvicorn", "prometheus_client", "httpx", "msgspec"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

TOKEN = "open sesame"
BEARER = {"authorization": f"Bearer {TOKEN}"}
JSON = {"content-type": "application/json"}
REJECTED = (400, 422)
PLAIN_INTEGER = re.compile("0|[1-9][0-9]*")
few = settings(max_examples=examples(12))
NUMBER = count(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("service")


@contextmanager
def serving(folder, content):
    """A client of a service with a model of these classes, and the model."""
    from starlette.testclient import TestClient

    from evencover.serving.http import Application
    from evencover.serving.service import Service

    n_classes, path = content.rows.shape[1], folder / f"model{next(NUMBER)}.safetensors"
    fitted = ClasswisePredictor(alpha=0.4, score="aps", keep_top=False)
    calibration = simulated(40 * n_classes, n_classes, seed=1)
    fitted.fit(*calibration, class_names=content.names, labels_are="indices")
    save(fitted, path)
    application = Application(Service(path), token=TOKEN)
    with TestClient(application.asgi(), headers=BEARER) as client:
        client.service = application.service
        yield client, load(path)
    path.unlink()


def body_of(way, content):
    """The rows of a request, in one of the ways that it may have."""
    if way == "lists":
        return content.rows.tolist()
    if way == "entries":
        return entries(content)
    return [dict(zip(content.columns, row, strict=True)) for row in content.rows.tolist()]


def ask(client, way, content):
    """The sets that the service gives, or None if it rejects the request."""
    if way == "tensor":
        return ask_tensors(client, content)
    sent = {"rows": body_of(way, content)}
    if content.ids is not None:
        sent["ids"] = content.ids
    answer = client.post(
        "/v1/sets", content=json.dumps(sent), headers={"content-type": "application/json"}
    )
    if answer.status_code in REJECTED:
        assert answer.json()["error"]
        return None
    assert answer.status_code == 200, answer.text
    return answer.json()["sets"]


def ask_tensors(client, content):
    """As the Open Inference Protocol has it: rows without names, ids as text."""
    shape = list(content.rows.shape)
    tensors = [
        {"name": "probabilities", "shape": shape, "datatype": "FP64", "data": content.rows.tolist()}
    ]
    if content.ids is not None:
        ids = list(map(str, content.ids))
        tensors.append({"name": "ids", "shape": shape[:1], "datatype": "BYTES", "data": ids})
    name = client.service.now.name
    answer = client.post(f"/v2/models/{name}/infer", json={"inputs": tensors})
    if answer.status_code in REJECTED:
        return None
    assert answer.status_code == 200, answer.text
    outputs = {output["name"]: output for output in answer.json()["outputs"]}
    classes = np.reshape(outputs["classes"]["data"], shape)
    return [row[row >= 0].tolist() for row in classes]


def in_memory(model, content):
    return model.predict_set(content.rows, ids=content.ids).to_lists()


WAYS = st.sampled_from(["lists", "objects", "tensor"])


@few
@given(content=contents(), way=WAYS)
def test_every_way_gives_the_sets_of_memory(folder, content, way):
    with serving(folder, content) as (client, model):
        assert ask(client, way, content) == in_memory(model, content)


@few
@given(content=contents())
def test_entries_are_read_or_rejected(folder, content):
    with serving(folder, content) as (client, model):
        assert ask(client, "entries", content) in (None, in_memory(model, content))


@few
@given(data=st.data(), content=contents(with_ids=True), way=WAYS)
def test_rows_and_classes_may_stand_in_any_order(folder, data, content, way):
    order = data.draw(orders(len(content.rows)))
    turned = content.take(order)
    with serving(folder, content) as (client, model):
        straight = in_memory(model, content)
        assert ask(client, way, turned) == [straight[row] for row in order]
        classes = data.draw(orders(content.rows.shape[1]))
        columns = [content.columns[y] for y in classes]
        renamed = turned._replace(rows=turned.rows[:, classes], names=columns)
        assert ask(client, "objects", renamed) == [straight[row] for row in order]


@few
@given(data=st.data(), content=contents(with_ids=True))
def test_classes_of_other_names_are_rejected(folder, data, content):
    column = data.draw(st.integers(0, content.rows.shape[1] - 1))
    others = ["other", content.columns[column - 1], f" {content.columns[column]}", "0", "03", ""]
    name = data.draw(st.sampled_from([name for name in others if name != content.columns[column]]))
    names = [*content.columns[:column], name, *content.columns[column + 1 :]]
    with serving(folder, content) as (client, _):
        if len(set(names)) == len(names):
            assert ask(client, "objects", content._replace(names=names)) is None
        twice = [*zip(names, content.rows[0].tolist(), strict=True)]  # if not unknown
        row = ", ".join(f"{json.dumps(name)}: {number}" for name, number in twice)
        sent = f'{{"rows": [{{{row}}}]}}'
        assert client.post("/v1/sets", content=sent, headers=JSON).status_code in REJECTED


@few
@given(data=st.data(), content=contents())
def test_rows_that_list_some_classes_are_top_k_rows(folder, data, content):
    k = data.draw(st.integers(1, content.rows.shape[1]))
    listed = top_of(content.rows, k)
    rows = [
        {content.columns[y]: p for y, p in zip(classes, values, strict=True)}
        for classes, values in zip(
            listed.classes.reshape(-1, k).tolist(),
            listed.values.reshape(-1, k).tolist(),
            strict=True,
        )
    ]
    with serving(folder, content) as (client, model):
        sent = {"rows": rows} | ({} if content.ids is None else {"ids": content.ids})
        answer = client.post("/v1/sets", json=sent).json()
        expected = model.predict_set(listed, ids=content.ids)
        assert answer["sets"] == expected.to_lists()
        assert answer["accepted"] == expected.accepted.tolist()
        # No class that is not listed is in the set of the whole row, which is the same set if the
        # row has an id. Without one, its random number depends on what is listed.
        dense = model.predict_set(content.rows, ids=content.ids).to_lists()
        for row in np.flatnonzero(answer["accepted"]):
            assert {content.columns[y] for y in dense[row]} <= rows[row].keys()
            assert content.ids is None or dense[row] == answer["sets"][row]


@few
@given(data=st.data(), content=contents(with_ids=True))
def test_ids_are_read_or_rejected(folder, data, content):
    is_text = isinstance(content.ids[0], str)
    row = data.draw(st.integers(0, len(content.rows) - 1))
    bad = data.draw(st.sampled_from([None, "", " ", 0.5, True, [1], {}]))
    with serving(folder, content) as (client, model):
        ids = [*content.ids[:row], bad, *content.ids[row + 1 :]]
        assert ask(client, "lists", content._replace(ids=ids)) is None
        assert ask(client, "lists", content._replace(ids=content.ids[1:])) is None
        retyped = list(map(str, content.ids))
        expected = in_memory(model, content)
        assert ask(client, "lists", content._replace(ids=retyped)) == expected
        if not is_text:
            floats, mixed = list(map(float, content.ids)), [*retyped[:1], *content.ids[1:]]
            for other in (floats, mixed):
                assert ask(client, "lists", content._replace(ids=other)) in (None, expected)


def counts(monitor):
    snapshot = monitor.snapshot()
    return snapshot.rows.tolist(), snapshot.covered.tolist(), snapshot.totals


def labeled_in_memory(model, content):
    monitor, labels = CoverageMonitor(model), content.labels
    if isinstance(labels[0], str):
        labels = [content.names.index(label) for label in labels]
    if content.names is not None:
        labels = [content.names[label] for label in labels]
    monitor.update(content.rows, labels, ids=content.ids)
    return counts(monitor)


def send_labels(client, ids, labels):
    return client.post("/v1/labels", json={"ids": ids, "labels": labels}).status_code


@few
@given(data=st.data(), content=contents(with_ids=True))
def test_labels_are_counted_as_in_memory(folder, data, content):
    order = data.draw(orders(len(content.rows)))
    turned = content.take(order)
    with serving(folder, content) as (client, model):
        is_early = data.draw(st.booleans())
        assert is_early or ask(client, "lists", content) is not None
        ids = turned.ids if data.draw(st.booleans()) else list(map(str, turned.ids))
        assert send_labels(client, ids, turned.labels) == 200
        assert not is_early or ask(client, "objects", content) is not None
        client.get("/v1/coverage")  # after all rows are written
        assert counts(client.service.now.monitor) == labeled_in_memory(model, content)


DIGITS = st.sampled_from(list("0123456789"))


@few
@given(
    data=st.data(), content=contents(names=st.one_of(DIGITS, ODD), with_names=True, with_ids=True)
)
def test_labels_of_odd_names_are_counted_as_in_memory_or_rejected(folder, data, content):
    kind = data.draw(st.sampled_from([str, int, float]))
    with serving(folder, content) as (client, model):
        if ask(client, "objects", content) is None:
            return
        for labels in (content.labels, [kind(y) for y in content.labels if isinstance(y, int)]):
            status = send_labels(client, content.ids[: len(labels)], labels)
            assert status in (200, *REJECTED)
            are_names = labels and isinstance(labels[0], str)
            if status == 200 and labels is content.labels:
                assert counts(client.service.now.monitor) == labeled_in_memory(model, content)
            if status == 200 and labels and not are_names:
                numbers = [
                    n == str(y) for y, n in enumerate(content.names) if PLAIN_INTEGER.fullmatch(n)
                ]
                assert all(numbers), "it guessed"


@few
@given(content=contents(with_ids=True))
def test_rejected_requests_leave_no_trace(folder, content):
    with serving(folder, content) as (client, _):
        assert ask(client, "lists", content) is not None
        client.get("/v1/coverage")
        before = client.get("/v1/coverage").json()
        bad = [*content.labels[:-1], None]
        assert send_labels(client, content.ids, bad) in REJECTED
        assert send_labels(client, [*content.ids[:-1], ""], content.labels) in REJECTED
        assert send_labels(client, content.ids[1:], content.labels) in REJECTED
        out_of_range = [content.rows.shape[1], *content.labels[1:]]
        assert send_labels(client, content.ids, out_of_range) in REJECTED
        assert client.get("/v1/coverage").json()["rows"] == before["rows"] == 0
