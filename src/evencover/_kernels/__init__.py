"""What touches the N x K matrix: plain arrays in, plain arrays out, one row block at a time."""

from evencover._kernels.reference import (
    NAME,
    p_values,
    prediction_sets,
    random_bits,
    score_matrix,
    set_sizes,
    true_label_scores,
    uniforms,
)

__all__ = [
    "NAME",
    "p_values",
    "prediction_sets",
    "random_bits",
    "score_matrix",
    "set_sizes",
    "true_label_scores",
    "uniforms",
]
