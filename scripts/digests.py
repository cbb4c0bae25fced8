"""Digests of thresholds, sets and p-values in some 700 cases, to verify a refactoring.

    python scripts/digests.py --write FILE.json   # before
    python scripts/digests.py --check FILE.json   # after; names every case that differs

Run the check with both kernels (EVENCOVER_KERNELS=numpy). POOLED is excluded: its fit uses SciPy's
normal distribution, whose last bits may change between versions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from evencover.predictors import make_predictor
from evencover.scores import make_score

N_CLASSES = 12
METHODS: dict[str, dict[str, Any]] = {
    "standard": {},
    "classwise": {},
    "clustered": {"n_clusters": 2, "gamma": 0.4},
    "interpolated": {},
    "fuzzy": {},
    "macro": {},
    "rc3p": {},
    "grouped": {"groups": list("aabbccddeeff")},
}
SCORES: list[Any] = [
    "softmax",
    "aps",
    {"name": "aps", "randomize": False},
    "raps",
    "saps",
    "pas",
]
# Input format: type of the numbers, logits or not, ids or not.
INPUTS = [(np.float16, False, False), (np.float32, False, True), (np.float64, True, True)]


def data(seed: int, n_rows: int, dtype: Any, logits: bool) -> tuple[Any, Any]:
    """Simulate rows of classes of unequal difficulty and size."""
    rng = np.random.default_rng(seed)
    weights = 1 / (1 + np.arange(N_CLASSES))
    labels = rng.choice(N_CLASSES, n_rows, p=weights / weights.sum())
    rows = rng.normal(size=(n_rows, N_CLASSES))
    strength = np.linspace(0.5, 5, N_CLASSES)
    rows[np.arange(n_rows), labels] += strength[labels] * rng.exponential(size=n_rows)
    if not logits:
        rows = np.exp(rows)
        rows /= rows.sum(axis=1, keepdims=True)
    return rows.astype(dtype), labels


def digest(case: tuple[Any, ...]) -> str:
    """Fit, predict, and hash all results."""
    (method, own), score, alpha, exact, (dtype, logits, with_ids) = case
    rows, labels = data(1, 700, dtype, logits)
    new, _ = data(2, 150, dtype, logits)
    ids = [f"row {row}" for row in range(700)] if with_ids else None
    parameters = {"alpha": alpha, "exact": exact, "keep_top": False, "from_logits": logits, **own}
    model = make_predictor(method, score=make_score(score), **parameters)
    model.fit(rows, labels, ids=ids)
    sets = model.predict_set(new, ids=None if ids is None else ids[:150])
    found = hashlib.blake2b(digest_size=8)
    p_values = None if method in ("interpolated", "rc3p") else model.predict_p(new[:20])
    for array in (*model.fit_.thresholds, sets.to_mask(), p_values):
        found.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def cases() -> dict[str, tuple[Any, ...]]:
    """Name every case."""
    found = {}
    for case in product(METHODS.items(), SCORES, (0.05, 0.1, 0.3), (False, True), INPUTS):
        (method, _), score, alpha, exact, (dtype, logits, ids) = case
        if exact and not make_predictor(method)._supports_exact:
            continue
        name = score if isinstance(score, str) else f"{score['name']} not randomized"
        kind = f"{np.dtype(dtype)}{' logits' * logits}{' ids' * ids}"
        found[f"{method} {name} {alpha}{' exact' * exact} {kind}"] = case
    return found


def main() -> None:
    """Write the digests, or compare with those of a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {name: digest(case) for name, case in cases().items()}
    if options.write:
        options.write.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    if options.check:
        known = json.loads(options.check.read_text(encoding="utf-8"))
        different = [name for name in known if found.get(name) != known[name]]
        print(f"{len(known)} cases, {len(different)} differ", *different, sep="\n")
        sys.exit(bool(different))


if __name__ == "__main__":
    main()
