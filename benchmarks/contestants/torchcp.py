"""TorchCP on the CPU, given probabilities (its "identity" transform, so no second softmax)."""

from __future__ import annotations

import importlib.metadata
import sys
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.contestants.base import ContestantBase, Sets, UnsupportedError


class _StandIn(ModuleType):
    """A module with every attribute."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


# `import torchcp` imports its language-model, graph and training parts with gigabytes of packages,
# none of which is measured.
for _name in (
    "torchsort",
    "transformers",
    "torch_geometric",
    "torch_geometric.nn",
    "torch_geometric.loader",
    "torch_geometric.utils",
    "torch_geometric.utils.convert",
):
    sys.modules.setdefault(_name, _StandIn(_name))

import torch  # noqa: E402
from torchcp.classification.predictor import (  # noqa: E402
    ClassConditionalPredictor,
    ClusteredPredictor,
    SplitPredictor,
)
from torchcp.classification.score import APS, LAC  # noqa: E402

warnings.simplefilter("ignore")

PREDICTORS = {
    "standard": SplitPredictor,
    "classwise": ClassConditionalPredictor,
    "clustered": ClusteredPredictor,
}


class Contestant(ContestantBase):
    def set_up(self) -> None:
        if self.method not in PREDICTORS:
            raise UnsupportedError(self.method)
        torch.manual_seed(0)
        identity = {"score_type": "identity"}
        score = (
            LAC(**identity)
            if self.score == "softmax"
            else APS(**identity, randomized=self.randomize)
        )
        self.predictor = PREDICTORS[self.method](score, alpha=self.alpha)

    @staticmethod
    def version() -> str:
        return f"{importlib.metadata.version('torchcp')} (torch {torch.__version__})"

    def prepare(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)

    def calibrate(self, probabilities: torch.Tensor, labels: torch.Tensor) -> None:
        self.predictor.calculate_threshold(probabilities, labels)

    def predict(self, probabilities: torch.Tensor) -> torch.Tensor:
        return self.predictor.predict_with_logits(probabilities)

    def sets(self, predicted: torch.Tensor) -> Sets:
        return Sets.from_mask(predicted.numpy().astype(bool))

    def thresholds(self, n_classes: int) -> np.ndarray:
        return np.broadcast_to(self.predictor.q_hat.double().numpy(), (n_classes,))
