"""Models for the benchmark of inference: a ResNet-50 with random weights, and one in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

SIDE = 224
MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def pixels(image: Any, side: int = SIDE) -> np.ndarray:
    """Convert the image to float32, scaled as for ImageNet."""
    small = np.asarray(image.resize((side, side)), dtype=np.float32) / 255
    return ((small - MEAN) / DEVIATION).transpose(2, 0, 1)


class ResNet50:
    """The paper's network with random weights."""

    prepare = staticmethod(pixels)

    def __init__(self) -> None:
        import torch
        import transformers

        self._torch = torch
        torch.manual_seed(0)
        config = transformers.ResNetConfig(num_labels=1000)
        self._model = transformers.ResNetForImageClassification(config).eval()

    def __call__(self, batch: list[np.ndarray]) -> Any:
        with self._torch.inference_mode():
            return self._model(self._torch.from_numpy(np.stack(batch))).logits


class Linear:
    """One matrix, on small images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._weights = rng.normal(size=(3 * 16 * 16, 100)).astype(np.float32)

    def prepare(self, image: Any) -> np.ndarray:
        return pixels(image, 16)

    def __call__(self, batch: list[np.ndarray]) -> np.ndarray:
        return np.stack(batch).reshape(len(batch), -1) @ self._weights


def letters(texts: list[str]) -> np.ndarray:
    """Count letters as logits of 26 classes, which needs no memory."""
    return np.array([[text.count(each) for each in "abcdefghijklmnopqrstuvwxyz"] for text in texts])
