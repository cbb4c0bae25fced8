"""Train the network; after an interruption, continue with the next epoch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from network import WEIGHTS, Network, as_input
from safetensors.torch import save_file
from torch import nn

BATCH, PEAK_RATE, DECAY = 128, 2e-3, 0.02


def train(
    pixels: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    folder: Path,
    n_epochs: int,
    log: Callable[[str], None],
) -> None:
    """Train on all images, and save the weights in the folder."""
    state_file = folder / "training.pt"
    torch.manual_seed(0)
    network = Network(n_classes)
    optimizer = torch.optim.AdamW(network.parameters(), PEAK_RATE, weight_decay=DECAY)
    n_steps = n_epochs * (len(labels) // BATCH)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=n_steps + 1)
    first = 0
    if state_file.is_file():
        state = torch.load(state_file, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        rate.load_state_dict(state["rate"])
        first = state["epoch"]
    for epoch in range(first, n_epochs):
        begun = time.monotonic()
        right, loss = _epoch(network, optimizer, rate, pixels, labels, epoch)
        seconds = time.monotonic() - begun
        state = {
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rate": rate.state_dict(),
            "epoch": epoch + 1,
        }
        torch.save(state, state_file.with_suffix(".part"))
        os.replace(state_file.with_suffix(".part"), state_file)
        log(
            f"epoch {epoch + 1} of {n_epochs}: loss {loss:.3f}, right {right:.3f}, "
            f"{len(labels) / seconds:.0f} pictures/s"
        )
    weights = {name: each.contiguous() for name, each in network.state_dict().items()}
    save_file(weights, folder / f".{WEIGHTS}.part")
    os.replace(folder / f".{WEIGHTS}.part", folder / WEIGHTS)


def _epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    rate: torch.optim.lr_scheduler.LRScheduler,
    pixels: np.ndarray,
    labels: np.ndarray,
    epoch: int,
) -> tuple[float, float]:
    """Run one epoch in an order determined by its number; return accuracy and mean loss."""
    network.train()
    order = np.random.default_rng([7, epoch]).permutation(len(labels))
    n_right, total, n_seen = 0.0, 0.0, 0
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = np.sort(order[start : start + BATCH])
        truth = torch.from_numpy(labels[chosen])
        logits = network(as_input(pixels[chosen]))
        loss = nn.functional.cross_entropy(logits, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        n_right += (logits.argmax(1) == truth).sum().item()
        total += loss.item() * len(chosen)
        n_seen += len(chosen)
    return n_right / n_seen, total / n_seen
