"""How evenly rows are spread over classes."""

from __future__ import annotations

import numpy as np

from evencover._types import IntArray


def class_balance(class_counts: IntArray) -> float:
    """The paper's metric: rows of the rarest 5% of classes over those of a uniform distribution.

    >>> class_balance(np.full(100, 7)), class_balance(np.arange(100))
    (1.0, 0.04040404040404041)
    """
    n_rare = max(1, len(class_counts) // 20)
    return float(np.sort(class_counts)[:n_rare].sum() / (class_counts.mean() * n_rare))
