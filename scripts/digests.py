"""Digests of thresholds, sets and p-values in some 1,500 cases, to verify a refactoring.

    python scripts/digests.py --write FILE.json   # before
    python scripts/digests.py --check FILE.json   # after; names every case that differs

They cover every method, score, alpha and type of input, with and without `exact`, and for one alpha
`keep_top`, floors, an alpha per class, `confidence`, tied rows and top-k rows. Run the check with
both kernels (EVENCOVER_KERNELS=numpy).

The fit of POOLED uses SciPy's normal distribution, whose last bits may change between versions, so
its thresholds count as ranks among the calibration scores, and its chances with nine digits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evencover import TopK
from evencover.predictors import BasePredictor, make_predictor, predictor_class
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
    "pooled": {},
    "pooled holdout": {"split": "holdout"},  # the first word is the method
}
SCORES: list[Any] = [
    "softmax",
    "aps",
    {"name": "aps", "randomize": False},
    "raps",
    "saps",
    "pas",
]
TOP_K_SCORES = ["softmax", "aps", "raps", "saps"]
# Parameters by what a case is called. Not every method takes all of them.
VARIATIONS: dict[str, dict[str, Any]] = {
    "0.3 keep_top": {"alpha": 0.3, "keep_top": True},
    "0.3 floor 0.8": {"alpha": 0.3, "floor": 0.8},
    "0.3 floor auto": {"alpha": 0.3, "floor": "auto"},
    "0.3 no floor": {"alpha": 0.3, "floor": None},
    "alpha per class": {"alpha": [0.05, 0.1, 0.1, 0.3] * 3},
    "confidence 0.9": {"confidence": 0.9},
}


class Input(NamedTuple):
    """Type of the numbers, logits or not, ids or not; what is done to the probabilities."""

    dtype: Any
    logits: bool = False
    ids: bool = False
    form: str = ""  # "ties", "exact ties", "top 7" or "top 1 to 12"

    def __str__(self) -> str:
        logits, ids = " logits" * self.logits, " ids" * self.ids
        return f"{self.form}{' ' * bool(self.form)}{np.dtype(self.dtype)}{logits}{ids}"


class Case(NamedTuple):
    """What is fitted to what."""

    method: str
    score: Any
    parameters: dict[str, Any]
    input: Input


INPUTS = [Input(np.float16), Input(np.float32, ids=True), Input(np.float64, logits=True, ids=True)]
TIED = [Input(np.float32, form="ties"), Input(np.float64, ids=True, form="exact ties")]
TOP_K = [Input(np.float32, ids=True, form="top 7"), Input(np.float64, form="top 1 to 12")]


def data(seed: int, n_rows: int, kind: Input) -> tuple[Any, Any]:
    """Simulate rows of classes of unequal difficulty and size."""
    rng = np.random.default_rng(seed)
    weights = 1 / (1 + np.arange(N_CLASSES))
    labels = rng.choice(N_CLASSES, n_rows, p=weights / weights.sum())
    rows = rng.normal(size=(n_rows, N_CLASSES))
    strength = np.linspace(0.5, 5, N_CLASSES)
    rows[np.arange(n_rows), labels] += strength[labels] * rng.exponential(size=n_rows)
    if not kind.logits:
        rows = np.exp(rows)
        rows /= rows.sum(axis=1, keepdims=True)
    if kind.form == "ties":  # two decimals; the top class takes what is missing to 1
        rows = rows.round(2)
        top = np.arange(n_rows), rows.argmax(axis=1)
        rows[top] = (rows[top] + 1 - rows.sum(axis=1)).round(2)
    if kind.form == "exact ties":  # sums are exactly 1
        rows = np.array([rng.multinomial(64, row) / 64 for row in rows])
    if kind.form.startswith("top"):
        n_listed = np.full(n_rows, 7)
        if kind.form == "top 1 to 12":
            n_listed = rng.integers(1, N_CLASSES + 1, n_rows)
        return top_k(rows.astype(kind.dtype), n_listed), labels
    return rows.astype(kind.dtype), labels


def top_k(rows: Any, n_listed: Any) -> TopK:
    """List the most probable classes of each row, which has its own number of them."""
    classes = np.argsort(-rows, axis=1, kind="stable")
    is_listed = np.arange(N_CLASSES) < n_listed[:, None]
    starts = np.append(0, np.cumsum(n_listed))
    values = np.take_along_axis(rows, classes, axis=1)[is_listed]
    return TopK.from_csr(starts, classes[is_listed], values, N_CLASSES)


def digest(case: Case) -> str:
    """Fit, predict, and hash all results."""
    rows, labels = data(1, 700, case.input)
    new, _ = data(2, 150, case.input)
    ids = np.arange(10_000, 10_700) if case.input.ids else None  # keys of integers are no hashes
    method, own = case.method.split()[0], METHODS[case.method]
    parameters = {"alpha": 0.1, "keep_top": False, "from_logits": case.input.logits, **own}
    model = make_predictor(method, score=make_score(case.score), **parameters | case.parameters)
    model.fit(rows, labels, ids=ids)
    sets = model.predict_set(new, ids=None if ids is None else ids[:150])
    p_values = None if method in ("interpolated", "rc3p") else model.predict_p(new[:20])
    if isinstance(new, TopK) and p_values is not None:
        p_values = p_values.toarray()
    found = hashlib.blake2b(digest_size=8)
    for array in (*thresholds(model), sets.to_mask(), p_values):
        found.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def thresholds(model: BasePredictor) -> tuple[Any, ...]:
    """Return all arrays of the thresholds; of POOLED, ranks and rounded chances."""
    fitted = model.fit_.thresholds
    if model.method != "pooled":
        return tuple(fitted)
    scores = np.sort(model.fit_.scored_rows.scores)
    upper, lower = (
        None if values is None else np.searchsorted(scores, values, "right")
        for values in (fitted.upper, fitted.lower)
    )
    chances = (None if values is None else np.round(values, 9) for values in fitted[2:])
    return (upper, lower, *chances)


def cases() -> dict[str, Case]:
    """Name every case."""
    found = {}
    for method, score, alpha, exact, kind in product(
        METHODS, SCORES, (0.05, 0.1, 0.3), (False, True), INPUTS
    ):
        if not exact or "exact" in class_of(method).supports:
            name = f"{method} {title(score)} {alpha}{' exact' * exact} {kind}"
            found[name] = Case(method, score, {"alpha": alpha, "exact": exact}, kind)
    for (variation, parameters), method, score in product(VARIATIONS.items(), METHODS, SCORES):
        if accepts(method, parameters):
            name = f"{method} {title(score)} {variation} {INPUTS[1]}"
            found[name] = Case(method, score, parameters, INPUTS[1])
    for kinds, scores in ((TIED, SCORES), (TOP_K, TOP_K_SCORES)):
        for method, score, exact, kind in product(METHODS, scores, (False, True), kinds):
            if not exact or "exact" in class_of(method).supports:
                name = f"{method} {title(score)}{' exact' * exact} {kind}"
                found[name] = Case(method, score, {"exact": exact}, kind)
    return found


def title(score: Any) -> str:
    """Name a score."""
    return score if isinstance(score, str) else f"{score['name']} not randomized"


def class_of(method: str) -> type[BasePredictor]:
    """Return the class of a method by its name in METHODS."""
    return predictor_class(method.split()[0])


def accepts(method: str, parameters: dict[str, Any]) -> bool:
    """Return whether a method takes these parameters."""
    kind = class_of(method)
    if isinstance(parameters.get("alpha"), list) and "class alpha" not in kind.supports:
        return False
    if parameters.get("floor", "none") == kind.floor:  # as without the parameter
        return False
    return set(parameters) <= set(kind().get_params())


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
