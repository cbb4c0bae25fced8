"""Simulated outputs of a many-class model, created once from a seed for all contestants.

Classes differ in frequency, in difficulty and in the model's overconfidence, and have nine similar
classes each, so that STANDARD, CLASSWISE and CLUSTERED have different work to do. With 1000
classes, APS sets at alpha = 0.1 average about 35 to 40 classes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import BLOCK_ELEMENTS, CACHE

VERSION = 1  # part of the file names: increase when `simulate` changes
FAMILY = 10


@dataclass(frozen=True)
class Arrays:
    """The files of one data set: float32 probabilities (N, K) and int64 labels (N,)."""

    probabilities: Path
    labels: Path

    def to_job(self) -> dict[str, str]:
        return {"probabilities": str(self.probabilities), "labels": str(self.labels)}


def make(n_rows: int, n_classes: int, seed: int) -> Arrays:
    """Return files of this many rows; different seeds sample the same model."""
    folder = CACHE / "data"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"v{VERSION}_{n_rows}x{n_classes}_seed{seed}"
    arrays = Arrays(folder / f"{stem}.npy", folder / f"{stem}_labels.npy")
    if not (arrays.probabilities.exists() and arrays.labels.exists()):
        _write(arrays, n_rows, n_classes, seed)
    return arrays


def _write(arrays: Arrays, n_rows: int, n_classes: int, seed: int) -> None:
    # An interrupted run must not leave a file that looks complete.
    temporary = arrays.probabilities.with_suffix(".tmp")
    rows = np.lib.format.open_memmap(
        temporary, mode="w+", dtype=np.float32, shape=(n_rows, n_classes)
    )
    labels = np.empty(n_rows, dtype=np.int64)
    step = max(1, BLOCK_ELEMENTS // n_classes)
    for block, start in enumerate(range(0, n_rows, step)):
        stop = min(start + step, n_rows)
        rows[start:stop], labels[start:stop] = simulate(
            stop - start, n_classes, np.random.default_rng([seed, block])
        )
    rows.flush()
    del rows
    np.save(arrays.labels, labels)
    os.replace(temporary, arrays.probabilities)


def simulate(
    n_rows: int, n_classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities, and labels drawn from the correct distribution."""
    model = np.random.default_rng(n_classes)  # the same classes in every block and seed
    frequency = model.lognormal(0.0, 0.4, n_classes)
    ease = model.uniform(5.0, 12.0, n_classes).astype(np.float32)
    honesty = model.uniform(0.8, 1.25, n_classes).astype(np.float32)

    home = rng.choice(n_classes, size=n_rows, p=frequency / frequency.sum())
    logits = rng.standard_normal((n_rows, n_classes), dtype=np.float32) * np.float32(2.5)
    logits[np.arange(n_rows), home] += ease[home]
    family = np.arange(n_classes) // FAMILY
    # More classes have more mass in the tail; this keeps the relative set size the same.
    bonus = np.float32(3.0 + np.log(n_classes / 1000))
    logits += bonus * (family[None, :] == family[home][:, None])
    truth = np.cumsum(_softmax(logits * honesty[home][:, None]), axis=1, dtype=np.float64)
    labels = (truth < rng.random((n_rows, 1)) * truth[:, -1:]).sum(axis=1)
    return _softmax(logits), labels


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def repeat_to_file(arrays: Arrays, times: int, target: Path) -> Arrays:
    """Repeat the rows in one large file, written in blocks."""
    rows = np.load(arrays.probabilities, mmap_mode="r")
    labels = np.load(arrays.labels)
    large = Arrays(target, target.with_name(target.stem + "_labels.npy"))
    shape = (times * len(rows), rows.shape[1])
    with target.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(times):
            file.write(memoryview(rows))
    np.save(large.labels, np.tile(labels, times))
    return large
