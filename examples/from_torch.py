"""Calibrate sets for a PyTorch network and its data loaders; needs ``pip install torch``.

python examples/from_torch.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from evencover import PooledPredictor, save


@torch.inference_mode()
def logits_of(model: nn.Module, loader: Iterable, device: str = "cpu") -> Iterator:
    """Yield (logits, labels) of each batch; only one batch is on the device at a time."""
    model = model.to(device).eval()
    for inputs, labels in loader:
        yield model(inputs.to(device)), labels


def toy_data(n_rows: int, n_classes: int) -> TensorDataset:
    """Simulate points around one center per class."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(n_classes, 16, generator=generator)
    labels: Tensor = torch.randint(n_classes, (n_rows,), generator=generator)
    return TensorDataset(centers[labels] + torch.randn(n_rows, 16, generator=generator), labels)


def train(model: nn.Module, loader: Iterable, epochs: int = 5) -> nn.Module:
    """Train a few epochs with Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return model


def main(model_file: str | None = None) -> float:
    """Train, calibrate, predict; return the coverage."""
    torch.manual_seed(0)
    data = toy_data(9000, n_classes=30)
    parts = [Subset(data, range(start, start + 3000)) for start in (0, 3000, 6000)]
    training, calibration, test = (DataLoader(part, batch_size=128) for part in parts)
    model = train(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 30)), training)

    predictor = PooledPredictor(alpha=0.1, from_logits=True)
    predictor.fit(
        logits_of(model, calibration)
    )  # keeps a score and a label per row, not N x K numbers
    report = predictor.evaluate(logits_of(model, test))
    print(f"coverage {report.marginal_coverage:.3f}, average size {report.avg_size:.2f}")
    for sets in predictor.predict_set_blocks(rows for rows, _ in logits_of(model, test)):
        print(f"first three sets: {sets.to_lists()[:3]}")
        break
    if model_file is not None:
        save(predictor, model_file)
    return report.marginal_coverage


if __name__ == "__main__":
    main()
