"""A careful NumPy version that sorts every row, in blocks that fit the cache.

Not a package: the baseline. float64 sums, exact ranks, and sets as row-wise class indices.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from benchmarks.contestants.base import ContestantBase, Sets, UnsupportedError
from benchmarks.harness import row_blocks


class Contestant(ContestantBase):
    def set_up(self) -> None:
        if self.method == "clustered":
            raise UnsupportedError("no clustering")
        self.rng = np.random.default_rng(0)

    @staticmethod
    def version() -> str:
        return np.__version__

    def calibrate(self, probabilities: np.ndarray, labels: np.ndarray) -> None:
        n_classes = probabilities.shape[1]
        if self.score == "softmax":
            own = probabilities[np.arange(len(labels)), labels]
            scores = 1.0 - own.astype(np.float64)
        else:
            u = self._uniforms(len(labels))
            parts = [
                self._aps_of_labels(probabilities[block], labels[block], u[block])
                for block in row_blocks(probabilities)
            ]
            scores = np.concatenate(parts)
        if self.method == "standard":
            self.limits = np.full(n_classes, self._quantile(np.sort(scores)))
            return
        order = np.lexsort((scores, labels))
        ends = np.searchsorted(labels[order], np.arange(n_classes), side="right")
        by_class = np.split(scores[order], ends[:-1])
        self.limits = np.array([self._quantile(each) for each in by_class])

    def _quantile(self, ordered: np.ndarray) -> float:
        rank = ceil(round((len(ordered) + 1) * (1 - self.alpha), 9))
        return float(ordered[rank - 1]) if rank <= len(ordered) else np.inf

    def _uniforms(self, n_rows: int) -> np.ndarray:
        return self.rng.random(n_rows) if self.randomize else np.ones(n_rows)

    def _aps_of_labels(self, p: np.ndarray, labels: np.ndarray, u: np.ndarray) -> np.ndarray:
        order, own, before = _sorted_mass(p)
        place = (order == labels[:, None]).argmax(axis=1)
        rows = np.arange(len(labels))
        return before[rows, place] + u * own[rows, place]

    def predict(self, probabilities: np.ndarray) -> Sets:
        u = self._uniforms(len(probabilities))
        parts = [
            self._predict_block(probabilities[block], u[block])
            for block in row_blocks(probabilities)
        ]
        return Sets(
            np.concatenate([sizes for sizes, _ in parts]),
            np.concatenate([indices for _, indices in parts]),
        )

    def _predict_block(self, p: np.ndarray, u: np.ndarray) -> Sets:
        if self.score == "softmax":
            return Sets.from_mask(1.0 - p.astype(np.float64) <= self.limits)
        order, own, before = _sorted_mass(p)
        inside = before + u[:, None] * own <= self.limits[order]
        sizes = inside.sum(axis=1)
        row = np.repeat(np.arange(len(p)), sizes)
        # Classes in ascending order within a row, as in any CSR matrix.
        key = np.sort(row * p.shape[1] + order[inside])
        return Sets(sizes, (key % p.shape[1]).astype(np.int32))

    def sets(self, predicted: Sets) -> Sets:
        return predicted

    def thresholds(self, n_classes: int) -> np.ndarray:
        return self.limits


def _sorted_mass(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort classes by decreasing probability; return order, probabilities and mass before."""
    order = np.argsort(-p, axis=1)
    own = np.take_along_axis(p, order, axis=1).astype(np.float64)
    before = np.cumsum(own, axis=1)
    before -= own
    return order, own, before
