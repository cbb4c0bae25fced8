"""Kernels over the N x K matrix: arrays in, arrays out, one row block at a time.

The C++ kernels are used where available, else the NumPy reference. Their results are bit-identical.
``EVENCOVER_KERNELS=numpy`` or ``c++`` in the environment selects one. Kernels raise `BadRow` for
rows that are not probabilities. Most take top-k rows (`TopK`), too.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from evencover._kernels import reference, topk
from evencover._kernels.reference import p_values_of, top_classes
from evencover._kernels.types import (
    NO_DRAWS,
    BadRow,
    Coverage,
    Draws,
    Formula,
    KernelInput,
    Native,
    Position,
    Thresholds,
    ThresholdTable,
    is_member,
)
from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError
from evencover.topk import TopK

__all__ = [
    "NAME",
    "NO_DRAWS",
    "BadRow",
    "Coverage",
    "Draws",
    "Formula",
    "KernelInput",
    "Native",
    "Position",
    "ThresholdTable",
    "Thresholds",
    "ascending",
    "by_group",
    "is_member",
    "p_values",
    "p_values_of",
    "prediction_sets",
    "random_bits",
    "rank_matrix",
    "rank_within",
    "ready_sets",
    "row_keys",
    "row_numbers",
    "sample_labels",
    "score_entries",
    "score_matrix",
    "set_coverage",
    "set_sizes",
    "top_classes",
    "true_label_ranks",
    "true_label_scores",
    "uniforms",
]

Rows = Array | TopK


def _choose(wanted: str) -> ModuleType:
    if wanted not in ("", "numpy", "c++"):
        raise InputError(
            "The environment variable EVENCOVER_KERNELS must be 'numpy' or 'c++'. "
            f"Got {wanted!r} instead; unset it to use the fastest available."
        )
    if wanted == "numpy":
        return reference
    try:
        from evencover._kernels import native
    except ImportError as error:
        if wanted == "c++":
            raise InputError(
                "The environment variable EVENCOVER_KERNELS is 'c++', but the C++ kernels were not "
                f"built ({error}); reinstall evencover with a C++17 compiler, or use 'numpy'."
            ) from error
        return reference
    return native


_chosen: Any = _choose(os.environ.get("EVENCOVER_KERNELS", "").strip().lower())
NAME: str = _chosen.NAME


def _for(rows: Rows, *, in_cpp: bool = False) -> Any:
    """Return the module for these rows; `in_cpp` if the C++ kernel takes top-k rows, too."""
    if not isinstance(rows, TopK) or (in_cpp and _chosen is not reference):
        return _chosen
    return topk


# These take no rows, or dense ones only; `reference` documents them.
random_bits, uniforms, sample_labels = _chosen.random_bits, _chosen.uniforms, _chosen.sample_labels
ascending, by_group, rank_within = _chosen.ascending, _chosen.by_group, _chosen.rank_within
ready_sets, p_values = _chosen.ready_sets, _chosen.p_values


# ---- random numbers ------------------------------------------------------------------------------


def row_keys(rows: Rows, draws: Draws) -> Array:
    """Return the key of each row's random numbers: its id, or its content and index."""
    return _for(rows).row_keys(rows, draws)


def row_numbers(rows: Rows, draws: Draws) -> tuple[FloatArray, FloatArray]:
    """Return each row's uniform u and randomization draw; 1 and 0 if unused."""
    return _for(rows).row_numbers(rows, draws)


# ---- scores and ranks ----------------------------------------------------------------------------


def true_label_scores(given: KernelInput, labels: IntArray) -> FloatArray:
    """Score each row's label (n,); +inf for a label that is not listed."""
    return _for(given.rows, in_cpp=True).true_label_scores(given, labels)


def true_label_ranks(given: KernelInput, labels: IntArray) -> IntArray:
    """Rank each row's label (n,), from 1; the last rank for a label that is not listed."""
    return _for(given.rows).true_label_ranks(given, labels)


def score_matrix(given: KernelInput) -> FloatArray:
    """Score every class in every row (n, K); +inf for a class that is not listed."""
    return _for(given.rows).score_matrix(given)


def rank_matrix(given: KernelInput) -> IntArray:
    """Rank every class in every row (n, K), from 1; the last rank if it is not listed."""
    return _for(given.rows).rank_matrix(given)


def score_entries(given: KernelInput) -> tuple[FloatArray, IntArray]:
    """Score and rank every listed class of top-k rows, in the order of the entries."""
    return _for(given.rows, in_cpp=True).score_entries(given)


# ---- sets ----------------------------------------------------------------------------------------


def prediction_sets(
    given: KernelInput, thresholds: Thresholds, *, keep_top: bool
) -> tuple[IntArray, Array]:
    """Return the boundaries of the rows' classes (n + 1,), and the classes of all sets (int32).

    `is_member` defines the sets. With `keep_top`, each also contains the row's most probable
    class. Classes are ordered by decreasing probability, ties by class index.
    """
    return _for(given.rows, in_cpp=True).prediction_sets(given, thresholds, keep_top=keep_top)


def set_coverage(
    given: KernelInput, labels: IntArray, thresholds: Thresholds, *, keep_top: bool
) -> Coverage:
    """Evaluate the sets of labeled rows."""
    kernels = _for(given.rows, in_cpp=True)
    return kernels.set_coverage(given, labels, thresholds, keep_top=keep_top)


def set_sizes(given: KernelInput, table: ThresholdTable) -> IntArray:
    """Count the sets' members under each of T vectors of thresholds (n, T), in one pass."""
    return _for(given.rows).set_sizes(given, table)
