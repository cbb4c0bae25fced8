"""The KServe transformer between a classifier and the service, all of them running."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from serving.service import TOKEN, K

pytestmark = [
    pytest.mark.deep,
    pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning"),
]

TRANSFORMER = Path(__file__).resolve().parents[2] / "examples" / "kserve" / "transformer.py"
CLASSIFIER = """
import numpy as np
from kserve import InferOutput, InferResponse, Model, ModelServer

class Classifier(Model):  # of inputs that are probabilities already
    def predict(self, payload, headers=None):
        rows = payload.inputs[0].as_numpy()
        output = InferOutput("probabilities", list(rows.shape), "FP64")
        output.set_data_from_numpy(rows, binary_data=False)
        return InferResponse(payload.id, self.name, [output])

model = Classifier("animals")
model.ready = True
ModelServer(http_port={port}, enable_grpc=False).start([model])
"""


@pytest.fixture
def python():
    """A Python with kserve, whose dependencies are older than those of the other tests."""
    if importlib.util.find_spec("kserve") is not None:
        return sys.executable
    if "KSERVE_PYTHON" not in os.environ:
        pytest.skip("needs kserve, or KSERVE_PYTHON: a Python that has it")
    return os.environ["KSERVE_PYTHON"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def wait_for(url):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(url)


def test_the_transformer_gives_the_sets_and_the_service_knows_their_rows(
    python, start, data, fitted
):
    http = pytest.importorskip("tritonclient.http")
    server, classifier, transformer = start(), free_port(), free_port()
    commands = [
        [python, "-c", CLASSIFIER.format(port=classifier)],
        [
            *(python, str(TRANSFORMER), "--model_name", "animals"),
            *("--http_port", str(transformer), "--enable_grpc", "false"),
            *("--predictor_host", f"127.0.0.1:{classifier}", "--predictor_protocol", "v2"),
            *("--sets_url", f"http://127.0.0.1:{server.port}"),
        ],
    ]
    rows = data.rows[300:320]
    environment = os.environ | {"EVENCOVER_TOKEN": TOKEN}
    with ExitStack() as stack:
        for command in commands:
            process = stack.enter_context(subprocess.Popen(command, env=environment))
            stack.callback(process.kill)
        for port in (classifier, transformer):
            wait_for(f"http://127.0.0.1:{port}/v2/models/animals/ready")
        client = stack.enter_context(http.InferenceServerClient(f"127.0.0.1:{transformer}"))
        given = http.InferInput("pixels", rows.shape, "FP64")
        given.set_data_from_numpy(rows)
        answer = client.infer("animals", [given], request_id="monday")
        sizes, classes = answer.as_numpy("sizes"), answer.as_numpy("classes")
    ids = [f"monday/{n}" for n in range(20)]
    sets = fitted.predict_set(rows, ids=ids)
    assert sizes.tolist() == sets.sizes.tolist()
    assert classes.shape == (20, K)
    assert [[c for c in row if c >= 0] for row in classes.tolist()] == sets.to_lists()
    labels = {"ids": ids, "labels": data.labels[300:320].tolist()}
    assert server.ask("POST", "/v1/labels", labels)[1]["counted"] == 20
    assert np.isfinite(server.ask("GET", "/v1/coverage")[1]["coverage"])
