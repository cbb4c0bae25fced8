"""The Open Inference Protocol v2: Triton's client against a server, and bad requests."""

import json
import random

import numpy as np
import pytest
from depth import size
from serving.service import BEARER, K

for library in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

INFER = "/v2/models/model/infer"


def tensors(sets):
    """The outputs of the ONNX export, from the lists of `predict_set`."""
    padded = [row + [-1] * (sets.n_classes - len(row)) for row in sets.to_lists()]
    return sets.sizes.tolist(), padded, sets.accepted.tolist()


# Triton's client ----------------------------------------------------------------------------------


@pytest.fixture
def triton(start):
    http = pytest.importorskip("tritonclient.http")
    with http.InferenceServerClient(f"127.0.0.1:{start().port}") as client:
        yield http, client


def ask(http, client, rows, ids=None, *, binary_in, binary_out, reads="probabilities", **more):
    """Send rows as tensors; return the answer, and its sizes, classes and what is accepted."""
    kind = "FP32" if rows.dtype == np.float32 else "FP64"
    inputs = [http.InferInput(reads, rows.shape, kind)]
    inputs[0].set_data_from_numpy(rows, binary_data=binary_in)
    if ids is not None:
        inputs.append(http.InferInput("ids", ids.shape, "BYTES"))
        inputs[1].set_data_from_numpy(ids, binary_data=binary_in)
    wanted = ("sizes", "classes", "accepted")
    outputs = [http.InferRequestedOutput(name, binary_data=binary_out) for name in wanted]
    outputs = None if binary_out is None else outputs
    answer = client.infer("model", inputs, outputs=outputs, headers={**BEARER}, **more)
    values = [answer.as_numpy(name) for name in wanted]
    assert [array.dtype for array in values] == [np.int64, np.int64, bool]
    return answer, tuple(array.tolist() for array in values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("binary_in", [True, False])
def test_tritons_client_gets_the_sets_of_predict_set(triton, data, fitted, dtype, binary_in):
    rows = data.rows[300:].astype(dtype)
    for ids in (None, np.array([f"row {n}" for n in range(300)], dtype=object)):
        for binary_out in (True, False, None):
            options = {"binary_in": binary_in, "binary_out": binary_out, "request_id": "a request"}
            answer, found = ask(*triton, rows, ids, **options)
            assert found == tensors(fitted.predict_set(rows, ids=ids))
            assert answer.get_response()["id"] == "a request"


def test_tritons_client_finds_the_server_and_the_model(triton):
    http, client = triton
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("model")
    assert not client.is_model_ready("another")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    about = client.get_model_metadata("model")
    (version,) = about["versions"]
    assert client.is_model_ready("model", version)
    assert not client.is_model_ready("model", "1")
    assert about["inputs"] == [
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, K]},
        {"name": "ids", "datatype": "BYTES", "shape": [-1]},
    ]
    assert about["outputs"] == [
        {"name": "sizes", "datatype": "INT64", "shape": [-1]},
        {"name": "members", "datatype": "INT64", "shape": [-1]},
        {"name": "starts", "datatype": "INT64", "shape": [-1]},
        {"name": "classes", "datatype": "INT64", "shape": [-1, K]},
        {"name": "accepted", "datatype": "BOOL", "shape": [-1]},
        {"name": "answers", "datatype": "INT64", "shape": [-1]},
    ]
    rows = np.full((1, K), 1 / K)
    answer, _ = ask(http, client, rows, binary_in=True, binary_out=True, model_version=version)
    assert answer.get_response()["model_version"] == version
    with pytest.raises(http.InferenceServerException, match="probabilities"):
        ask(http, client, rows, reads="logits", binary_in=True, binary_out=True)


# JSON ---------------------------------------------------------------------------------------------


def request(rows, datatype="FP64", data=None, **more):
    data = np.asarray(rows).ravel().tolist() if data is None else data
    shape = list(np.shape(rows))
    tensor = {"name": "probabilities", "shape": shape, "datatype": datatype, "data": data}
    return {"inputs": [tensor], **more}


def test_outputs_are_chosen_and_data_may_be_nested(client, data, fitted):
    rows = data.rows[300:304]
    chosen = request(rows, data=rows.tolist(), outputs=[{"name": "classes"}], id="x")
    found = client.post(INFER, json=chosen).json()
    flat = np.ravel(tensors(fitted.predict_set(rows))[1]).tolist()
    assert found["outputs"] == [
        {"name": "classes", "datatype": "INT64", "shape": [4, K], "data": flat}
    ]
    assert (found["model_name"], found["id"]) == ("model", "x")
    metrics = client.get("/metrics").text
    assert metrics.count("/v2/models/{name}/infer") > 0
    assert "evencover_set_size_count 4.0" in metrics


def test_json_numbers_are_rounded_to_the_type_of_the_tensor(client, data, fitted):
    rows = data.rows[300:]
    found = client.post(INFER, json=request(rows, "FP32")).json()
    expected = fitted.predict_set(rows.astype(np.float32)).sizes.tolist()
    assert found["outputs"][0]["data"] == expected


GOOD = request([[0.2] * K])
IDS = {"name": "ids", "shape": [1], "datatype": "BYTES", "data": ["a"]}


def changed(**fields):
    return {"inputs": [GOOD["inputs"][0] | fields]}


@pytest.mark.parametrize(
    "content",
    [
        {"inputs": [IDS]},
        {"inputs": GOOD["inputs"] * 2},
        changed(name="rows"),
        changed(shape=[K]),
        changed(shape=[2, K]),
        changed(shape=[1, 1000], data=[0.001] * 1000),
        changed(data=None),
        changed(data=[0.2] * 4 + [True]),
        changed(data=[[0.2] * 4, 0.2]),
        changed(data=[10**400] * K),
        changed(data=[1e300] * K, datatype="FP32"),
        changed(parameters={"binary_data_size": 40}),
        {"inputs": [*GOOD["inputs"], IDS | {"data": [1]}]},
        {"inputs": [*GOOD["inputs"], IDS | {"data": [1], "datatype": "INT64"}]},
        {"inputs": [*GOOD["inputs"], IDS | {"data": ["a", "b"], "shape": [2]}]},
        {"inputs": [*GOOD["inputs"], IDS | {"data": ["a" * 2000]}]},
        GOOD | {"outputs": [{"name": "membership"}]},
    ],
    ids=lambda content: json.dumps(content)[:60],
)
def test_bad_requests_are_rejected(client, content):
    answer = client.post(INFER, content=json.dumps(content))
    assert answer.status_code in (413, 422)
    assert set(answer.json()) == {"error"}


VALUES = [None, True, -1, 0, 1, 2**70, 0.5, "", "ids", "BYTES", "labels", [], [1], [[]], {}]


def spoiled(value, rng):
    """The same value with one of its parts replaced, removed or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice([*value])
        if rng.random() < 0.1:
            return {key: value[key] for key in value if key != name}
        return value | {name: spoiled(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        if rng.random() < 0.1:
            return value + value[place:]
        return [*value[:place], spoiled(value[place], rng), *value[place + 1 :]]
    return rng.choice(VALUES)


def test_spoiled_requests_are_answered_or_rejected(client):
    rng = random.Random(0)
    output = {"name": "classes", "parameters": {"binary_data": False}}
    more = {"id": "x", "outputs": [output], "parameters": {"binary_data_output": True}}
    whole = {"inputs": [*GOOD["inputs"], IDS | {"parameters": {}}], **more}
    found = set()
    for _ in range(size(short=300, deep=2_000)):
        content = spoiled(whole, rng)
        answer = client.post(INFER, content=json.dumps(content))
        assert answer.status_code in (200, 413, 422)
        found.add(answer.status_code)
    assert found >= {200, 422}


def binary(n_bytes, tail):
    """A request whose `ids` follow its head."""
    ids = {key: IDS[key] for key in ("name", "shape", "datatype")}
    ids["parameters"] = {"binary_data_size": n_bytes}
    head = json.dumps({"inputs": [*GOOD["inputs"], ids]}).encode()
    return head + tail, {"inference-header-content-length": str(len(head))}


def test_binary_texts(client):
    good, head = binary(6, b"\x02\0\0\0ab")
    assert client.post(INFER, content=good, headers=head).status_code == 200
    for n_bytes, tail in [
        (5, b"\x01\0\0\0ab"),  # a byte more than the inputs use
        (6, b"\x09\0\0\0ab"),
        (6, b"\x01\0\0\0ab"),
        (6, b"\xff\xff\xff\xffab"),
        (3, b"\x01\0\0"),
        (6, b"\x02\0\0\0\xff\xff"),
        (8, b"\0\0\0\0\0\0\0\0"),
        (0, b""),
        (7, b"\x02\0\0\0ab"),
    ]:
        content, headers = binary(n_bytes, tail)
        assert client.post(INFER, content=content, headers=headers).status_code == 422
    for length in ("-1", "1e3", "", "9" * 30, str(len(good) + 1)):
        headers = {"inference-header-content-length": length}
        assert client.post(INFER, content=good, headers=headers).status_code == 400


@pytest.mark.parametrize("path", ["other", "model/versions/1"])
def test_other_models_are_not_found(client, path):
    assert client.post(f"/v2/models/{path}/infer", json=GOOD).status_code == 404
    assert client.get(f"/v2/models/{path}").status_code == 404
