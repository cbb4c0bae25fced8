"""A small residual network, and its wrapper for `evencover infer`."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawing import SIDE
from torch import Tensor, nn

WIDTHS = (32, 64, 128)
WEIGHTS, CLASSES = "network.safetensors", "characters.json"


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        same = n_in == n_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add both paths."""
        return torch.relu(self.body(x) + self.shortcut(x))


class Network(nn.Sequential):
    """Map an image of 32 x 32 to a logit per character."""

    def __init__(self, n_classes: int) -> None:
        blocks = [Block(WIDTHS[0], WIDTHS[0], 1)]
        blocks += [Block(a, b, 2) for a, b in pairwise(WIDTHS)]
        super().__init__(
            nn.Conv2d(1, WIDTHS[0], 5, 2, 2, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(),
            *blocks,
            nn.Flatten(),
            nn.Linear(WIDTHS[-1] * (SIDE // 8) ** 2, n_classes),
        )
        self.to(memory_format=torch.channels_last)


def as_input(pixels: np.ndarray) -> Tensor:
    """Convert bytes (n, SIDE, SIDE) to the network's input."""
    numbers = torch.from_numpy(np.ascontiguousarray(pixels)).float()[:, None].div_(128).sub_(0.5)
    return numbers.contiguous(memory_format=torch.channels_last)


class Classifier:
    """The model of `evencover infer network.py:Classifier`; GLYPH_STUDY is the study's folder."""

    def __init__(self) -> None:
        from safetensors.torch import load_file

        folder = Path(os.environ["GLYPH_STUDY"])
        self.class_names = json.loads((folder / CLASSES).read_text("utf-8"))
        self.network = Network(len(self.class_names))
        self.network.load_state_dict(load_file(folder / WEIGHTS))
        self.network.eval()
        self.identity = hashlib.blake2b((folder / WEIGHTS).read_bytes()).hexdigest()

    def prepare(self, image: Any) -> np.ndarray:
        """Convert an image to gray bytes."""
        return np.asarray(image.convert("L"))

    @torch.inference_mode()
    def __call__(self, pictures: list[np.ndarray]) -> Tensor:
        """Compute logits of a batch."""
        return self.network(as_input(np.stack(pictures)))
