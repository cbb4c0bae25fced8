"""Sets, and what rows are answered with: the same bits on every path that a row can take."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from evencover import (
    ClasswisePredictor,
    PredictionSets,
    Taxonomy,
    _kernels,
    load,
    predict_to_folder,
    save,
    to_onnx,
)
from evencover._kernels import reference

pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

K, N_FIT, N_NEW = 12, 1500, 150
NAMES = [f"class {index}" for index in range(K)]
# Groups of three, and two of them in a wider one; the last three classes have none.
TREE = [[f"class {k}", f"group {k // 3}", "wide" if k < 6 else ""] for k in range(9)]
GRID = 2.0**20  # probabilities are multiples of 1 / GRID: their float32 and float64 are equal
RULES = [  # keep_top, and cutoffs, which need it
    (True, None),
    (False, None),
    (True, "classes"),
    (True, "groups"),
]
CASES = [(*rule, *how) for rule, how in product(RULES, product(["softmax", "aps"], [False, True]))]


class Case(NamedTuple):
    """A predictor, new rows (n, K) in float32 with their ids, and what must come of them."""

    predictor: object
    file: object
    rows: np.ndarray
    ids: list
    sets: list
    accepted: list
    answers: list  # nodes


def outputs(n_rows, seed):
    """Logits with ties and saturated rows, and their probabilities."""
    rng = np.random.default_rng(seed)
    logits = np.rint(rng.normal(size=(n_rows, K)) * 40).astype(np.float32) / 16
    logits[::9] *= 40  # all but one probability are 0, so that unequal logits tie
    p = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    labels = (p / p.sum(axis=1, keepdims=True)).cumsum(axis=1) < rng.random((n_rows, 1))
    units = np.floor(p / p.sum(axis=1, keepdims=True) * GRID)
    units[np.arange(n_rows), p.argmax(axis=1)] += GRID - units.sum(axis=1)
    return logits, (units / GRID).astype(np.float32), labels.sum(axis=1).clip(max=K - 1)


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request, tmp_path_factory):
    keep_top, cutoffs, score, from_logits = request.param
    known, new = (outputs(n, seed) for seed, n in enumerate((N_FIT, N_NEW)))
    rows, labels = known[0 if from_logits else 1], known[2]
    predictor = ClasswisePredictor(
        alpha=0.4, score=score, keep_top=keep_top, from_logits=from_logits
    ).fit(rows, labels, class_names=NAMES)
    if cutoffs:
        tree = Taxonomy(TREE, NAMES, ["class", "group", "wide"]) if cutoffs == "groups" else None
        predictor.fit_acceptance(
            rows, labels, accuracy=0.7, taxonomy=tree, per_class=tree is None, class_names=NAMES
        )
    rows, ids = new[0 if from_logits else 1], [f"row {n}" for n in range(N_NEW)]
    sets = predictor.predict_set(rows, ids=ids)
    assert 0 < sets.accepted.sum() < N_NEW
    if score == "softmax" and not keep_top:  # some sets are another class than the top one
        assert sets.accepted.tolist() != (sets.sizes == 1).tolist()
    file = tmp_path_factory.mktemp("model") / "model.safetensors"
    save(predictor, file)
    nodes = sets.answer_nodes
    assert (nodes[sets.accepted] == rows[sets.accepted].argmax(axis=1)).all()
    if cutoffs == "groups":
        assert min(sets.answers.counts().values()) > 0
    return Case(predictor, file, rows, ids, sets.to_lists(), sets.accepted.tolist(), nodes.tolist())


def result_of(sets):
    return sets.to_lists(), sets.accepted.tolist(), sets.answer_nodes.tolist()


def nodes_of(names, case):
    """Return the nodes of answers by name; None where there are no groups, and no such column."""
    acceptance = case.predictor.acceptance_
    if acceptance is None or not acceptance.groups:
        return None
    index = {name: node for node, name in enumerate([*NAMES, *acceptance.groups])}
    return [index.get(name, -1) for name in names]


def in_blocks(case):
    return result_of(
        PredictionSets.concatenate(case.predictor.predict_set_blocks(case.rows, ids=case.ids))
    )


def one_row_at_a_time(case):
    rule, rows = load(case.file).rule(), case.rows
    return result_of(
        PredictionSets.concatenate(
            rule.predict_set(rows[n : n + 1], [case.ids[n]]) for n in range(N_NEW)
        )
    )


def in_float64(case):
    return result_of(case.predictor.predict_set(case.rows.astype(np.float64), ids=case.ids))


def on_threads(case):
    with ThreadPoolExecutor(2) as executor:
        return result_of(case.predictor.predict_set(case.rows, ids=case.ids, executor=executor))


def on_dask(case):
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "dashboard_address": None}
    with distributed.Client(**options, set_as_default=False) as client:
        return result_of(case.predictor.predict_set(case.rows, ids=case.ids, executor=client))


def to_folder(case):
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = case.file.parent / "sets"
    predict_to_folder(case.predictor, case.rows, folder, ids=case.ids)
    table = parquet.read_table(folder)
    names = table["answer"].to_pylist() if "answer" in table.column_names else ()
    return table["set"].to_pylist(), table["accepted"].to_pylist(), nodes_of(names, case)


def by_numpy_kernels(case):
    with pytest.MonkeyPatch.context() as patch:
        chosen = _kernels._chosen
        if chosen is not reference:
            patch.setattr(chosen, "_native", None)  # a call of C++ fails
        for name in _kernels.__all__:
            if hasattr(reference, name) and getattr(chosen, name, 0) is getattr(_kernels, name):
                patch.setattr(_kernels, name, getattr(reference, name))
        patch.setattr(_kernels, "_chosen", reference)
        for name, kernel in vars(_kernels).items():  # those that are taken from it directly
            if getattr(kernel, "__module__", None) == "evencover._kernels.native":
                patch.setattr(_kernels, name, getattr(reference, name))
        return result_of(load(case.file).predict_set(case.rows, ids=case.ids))


def onnx_graph(dtype):
    def run(case):
        runtime = pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
        from evencover.serving.onnx import onnx_inputs

        path = to_onnx(case.predictor, case.file.parent / f"{dtype}.onnx", dtype=dtype)
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        session = runtime.InferenceSession(path, options)
        rows = case.rows.astype(dtype)
        numbers = onnx_inputs(case.predictor, rows, ids=case.ids)
        names = ["classes", "accepted", "answers"]
        classes, accepted, answers = session.run(names, {"rows": rows, **numbers})
        return [row[row >= 0].tolist() for row in classes], accepted.tolist(), answers.tolist()

    return run


def service(case):
    for library in ("starlette", "uvicorn", "prometheus_client", "httpx"):
        pytest.importorskip(library)
    from starlette.testclient import TestClient

    from evencover.serving.http import Application
    from evencover.serving.service import Service

    return TestClient(Application(Service(case.file)).asgi())


def as_json(case):
    with service(case) as client:
        answer = client.post("/v1/sets", json={"rows": case.rows.tolist(), "ids": case.ids}).json()
        nodes = nodes_of(answer.get("answer", ()), case)
        return answer["sets"], answer["accepted"], nodes


def as_tensors(case):
    name = "logits" if case.predictor.from_logits else "probabilities"
    rows = {"name": name, "datatype": "FP32", "data": case.rows.ravel().tolist()}
    ids = {"name": "ids", "datatype": "BYTES", "shape": [N_NEW], "data": case.ids}
    with service(case) as client:
        request = {"inputs": [rows | {"shape": [N_NEW, K]}, ids]}
        answer = client.post("/v2/models/model/infer", json=request).json()
    found = {output["name"]: output["data"] for output in answer["outputs"]}
    classes = np.reshape(found["classes"], (N_NEW, K))
    return [row[row >= 0].tolist() for row in classes], found["accepted"], found["answers"]


def in_mlflow(case):
    pytest.importorskip("mlflow")
    pandas = pytest.importorskip("pandas")
    from evencover.serving.mlflow import SetsModel

    column = "logits" if case.predictor.from_logits else "probabilities"
    frame = pandas.DataFrame({column: case.rows.tolist(), "id": case.ids})
    found = SetsModel(load(case.file)).predict(frame)
    index = {name: place for place, name in enumerate(case.predictor.class_names_)}
    sets = [[index[name] for name in names] for names in found["set"]]
    return sets, found["accepted"].tolist(), nodes_of(found.get("answer", ()), case)


PATHS = {
    "blocks": in_blocks,
    "one row": one_row_at_a_time,
    "float64": in_float64,
    "executor": on_threads,
    "dask": on_dask,
    "folder": to_folder,
    "numpy kernels": by_numpy_kernels,
    "onnx float32": onnx_graph("float32"),
    "onnx float64": onnx_graph("float64"),
    "service": as_json,
    "open inference": as_tensors,
    "mlflow": in_mlflow,
}


@pytest.mark.parametrize("path", PATHS)
def test_sets_and_answers_are_the_same_on_every_path(case, path):
    sets, accepted, answers = PATHS[path](case)
    assert sets == case.sets
    assert accepted == case.accepted
    assert answers is None or answers == case.answers
