"""A KServe transformer: the classifier's probabilities become prediction sets.

A client asks the transformer; it asks the classifier, then `evencover serve`, which runs next to it
and tracks coverage. Row n of the request ID has the id ID/n: send its label to the service when it
is known. If the service has a token, set EVENCOVER_TOKEN here, too. Needs kserve;
`inference_service.yaml` runs it on Kubernetes, and without it:

evencover serve model.safetensors --state watch.db
python transformer.py --model_name CLASSIFIER --predictor_host HOST:PORT --predictor_protocol v2
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
from kserve import (
    InferenceRESTClient,
    InferInput,
    InferRequest,
    InferResponse,
    Model,
    ModelServer,
    model_server,
)
from kserve.inference_client import RESTConfig

parser = argparse.ArgumentParser(parents=[model_server.parser])
parser.add_argument("--sets_url", default="http://127.0.0.1:8080", help="the service's URL")
parser.add_argument(
    "--sets_model", default="model", help="name of its model file, without .safetensors"
)
parser.add_argument("--output", default="probabilities", help="output of the classifier to use")
parser.add_argument("--reads", default="probabilities", help="probabilities or logits")


class SetTransformer(Model):
    """Replace the outputs of a classifier by `sizes`, `classes` and `accepted`."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        super().__init__(name)
        self.options, self.ready = options, True
        self.client = InferenceRESTClient(RESTConfig(protocol="v2"))

    async def postprocess(
        self, result: InferResponse, headers: Any = None, response_headers: Any = None
    ) -> InferResponse:
        """Ask the service for the sets of the classifier's rows."""
        rows = result.get_output_by_name(self.options.output).as_numpy()
        ids = np.array([f"{result.id}/{n}" for n in range(len(rows))], dtype=object)
        kind = {"float32": "FP32", "float64": "FP64"}[rows.dtype.name]
        inputs = [
            InferInput(self.options.reads, list(rows.shape), kind),
            InferInput("ids", list(ids.shape), "BYTES"),
        ]
        for each, values in zip(inputs, (rows, ids), strict=True):
            each.set_data_from_numpy(values, binary_data=True)
        request = InferRequest(self.options.sets_model, inputs, request_id=result.id)
        token = os.environ.get("EVENCOVER_TOKEN")
        found = await self.client.infer(
            self.options.sets_url,
            request,
            model_name=self.options.sets_model,
            headers={"Authorization": f"Bearer {token}"} if token else None,
        )
        return InferResponse(result.id, self.name, found.outputs)


if __name__ == "__main__":
    options = parser.parse_args()
    ModelServer().start([SetTransformer(options.model_name, options)])
