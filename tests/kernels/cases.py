"""Rows, random numbers and thresholds to compare the kernels on, ordinary ones and strange ones."""

import numpy as np

from evencover._kernels import Draws, Thresholds
from evencover.scores import APS, RAPS, SAPS, Softmax

SCORES = [
    Softmax(),
    APS(),
    APS(randomize=False),
    RAPS(),
    RAPS(penalty=0.3, k_reg=0),
    RAPS(randomize=False, penalty=0.001, k_reg=2),
    SAPS(),
]
DTYPES = [np.float16, np.float32, np.float64]
PLAIN = {"logits": False}


def softmax_rows(rng, n, k, dtype=np.float32, sharpness=3.0):
    logits = rng.normal(scale=sharpness, size=(n, k))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (p / p.sum(axis=1, keepdims=True)).astype(dtype)


def tied_rows(rng, n, k, dtype=np.float32):
    """Few distinct values, so that most classes are tied, and many exact zeros."""
    counts = rng.integers(0, 3, size=(n, k)) * rng.integers(0, 2, size=(n, k))
    counts[:, 0] += 1
    return (counts / counts.sum(axis=1, keepdims=True)).astype(dtype)


def saturated_rows(rng, n, k, dtype=np.float32):
    rows = np.zeros((n, k), dtype=dtype)
    rows[np.arange(n), rng.integers(0, k, size=n)] = 1
    return rows


def tiny_tail_rows(rng, n, k, dtype=np.float32):
    """Values far below 2**-52, subnormal ones too."""
    rows = np.exp(-rng.uniform(0, 700, size=(n, k)))
    rows /= rows.sum(axis=1, keepdims=True)
    return rows.astype(dtype)


MAKERS = [softmax_rows, tied_rows, saturated_rows, tiny_tail_rows]


def draws_of(rng, score, n, with_ids=False):
    """Random numbers from the rows' content and indices, or from ids."""
    seed, first = int(rng.integers(2**63)), int(rng.integers(2**40))
    ids = rng.integers(0, 2**63, size=n).astype(np.uint64) if with_ids else None
    return Draws(seed, 1 if score.is_random else None, 2, ids, first)


def random_thresholds(rng, k, kind):
    """Thresholds as the methods make them, and stranger ones."""
    if kind == "standard":
        return Thresholds(np.full(k, rng.choice([0.0, 0.3, 0.9, 0.97, 1.0, 1.2, 5.0])))
    upper = rng.choice([0.1, 0.5, 0.9, 0.99, 0.9999, 1.0, 1.05], size=k) + rng.normal(size=k) * 1e-3
    if kind == "clustered":
        upper = np.array([0.85, 0.9, 0.95])[rng.integers(0, 3, size=k)]
    if kind == "infinite":
        upper[rng.random(k) < 0.5] = np.inf
        upper[rng.random(k) < 0.1] = -np.inf
    if kind == "never":
        upper[:] = -np.inf
    if kind == "always":
        upper[:] = np.inf
    if kind != "pair":
        return Thresholds(upper)
    upper[rng.random(k) < 0.3] = np.inf
    lower = upper - rng.random(k) * 0.1
    lower[np.isnan(lower) | (rng.random(k) < 0.2)] = np.inf
    lower[rng.random(k) < 0.2] = -np.inf
    return Thresholds(upper, lower, rng.random(k))


KINDS = ["standard", "classwise", "clustered", "infinite", "never", "always", "pair"]
