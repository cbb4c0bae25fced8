"""What touches the N x K matrix: plain arrays in, plain arrays out, one row block at a time.

The C++ kernels are used where they were built, the NumPy reference elsewhere; the results are the
same bits. ``EVENCOVER_KERNELS=numpy`` or ``c++`` in the environment chooses one. A row that holds
no probabilities ends a kernel with `BadRow`.
"""

import os
from types import ModuleType
from typing import TYPE_CHECKING

from evencover._kernels import reference
from evencover._kernels.types import (
    NO_DRAWS,
    BadRow,
    Draws,
    Formula,
    Limits,
    LimitTable,
    Position,
    is_member,
)
from evencover.errors import InputError


def _choose(wanted: str) -> ModuleType:
    if wanted not in ("", "numpy", "c++"):
        raise InputError(
            "The environment variable EVENCOVER_KERNELS must be 'numpy' or 'c++'. "
            f"Got {wanted!r} instead; unset it to use the fastest there is."
        )
    if wanted == "numpy":
        return reference
    try:
        from evencover._kernels import native
    except ImportError as error:
        if wanted == "c++":
            raise InputError(
                "The environment variable EVENCOVER_KERNELS asks for the 'c++' kernels, but they "
                f"were not built ({error}); reinstall evencover where there is a C++17 compiler, "
                "or use 'numpy'."
            ) from error
        return reference
    return native


if TYPE_CHECKING:
    from evencover._kernels.reference import (
        NAME,
        counts_within,
        p_values,
        p_values_of,
        prediction_sets,
        random_bits,
        rank_matrix,
        ready_sets,
        row_keys,
        row_numbers,
        score_matrix,
        set_coverage,
        set_sizes,
        shortfalls,
        true_label_ranks,
        true_label_scores,
        uniforms,
    )
else:
    _chosen = _choose(os.environ.get("EVENCOVER_KERNELS", "").strip().lower())
    NAME = _chosen.NAME
    counts_within = _chosen.counts_within
    p_values = _chosen.p_values
    p_values_of = _chosen.p_values_of
    prediction_sets = _chosen.prediction_sets
    random_bits = _chosen.random_bits
    rank_matrix = _chosen.rank_matrix
    ready_sets = _chosen.ready_sets
    row_keys = _chosen.row_keys
    row_numbers = _chosen.row_numbers
    score_matrix = _chosen.score_matrix
    set_coverage = _chosen.set_coverage
    set_sizes = _chosen.set_sizes
    shortfalls = _chosen.shortfalls
    true_label_ranks = _chosen.true_label_ranks
    true_label_scores = _chosen.true_label_scores
    uniforms = _chosen.uniforms

__all__ = [
    "NAME",
    "NO_DRAWS",
    "BadRow",
    "Draws",
    "Formula",
    "LimitTable",
    "Limits",
    "Position",
    "counts_within",
    "is_member",
    "p_values",
    "p_values_of",
    "prediction_sets",
    "random_bits",
    "rank_matrix",
    "ready_sets",
    "row_keys",
    "row_numbers",
    "score_matrix",
    "set_coverage",
    "set_sizes",
    "shortfalls",
    "true_label_ranks",
    "true_label_scores",
    "uniforms",
]
