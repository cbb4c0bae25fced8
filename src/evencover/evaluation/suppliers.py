"""The few classes that supply most labels in sets, and what a cap on them would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, IntArray

FEW = 0.05  # of the classes
CAP = 0.1  # the `max_share` that a sentence suggests
MOST_NAMES = 3


class Suppliers(NamedTuple):
    """The few classes that supply more than half of all labels in sets, the most wrong ones first.

    ``share`` is that of all labels in sets. No classes if it takes more than 5% of them.
    """

    classes: IntArray
    share: float

    @classmethod
    def of(cls, labels: Array, wrong: Array) -> Suppliers:
        """Find them from the labels that each class adds (K,), and how many of these are wrong.

        >>> Suppliers.of(np.array([60, *[1] * 39]), np.array([50, *[0] * 39])).classes
        array([0])
        """
        order = np.argsort(-wrong, kind="stable")
        shares = np.cumsum(labels[order]) / max(float(labels.sum()), 1e-12)
        n_few = 1 + int(np.searchsorted(shares, 0.5, side="right"))
        if n_few > FEW * len(labels):
            return cls(order[:0], 0.0)
        return cls(order[:n_few], float(shares[n_few - 1]))

    def sentence(
        self, names: Sequence[str] | None, n_classes: int, *measured: tuple[float, float]
    ) -> str:
        """Name the classes; state labels per set and shortfall, without a cap and with one.

        >>> few = Suppliers(np.array([1]), 0.55)
        >>> few.sentence(["ant", "bee"], 40, (2.27, 2.5), (1.89, 3.0))
        "1 of 40 classes supplies 55% of all labels in sets: 'bee'. With max_share=0.1, sets would \
have 1.9 labels instead of 2.3, and the shortfall would be 3.0 instead of 2.5 points."
        """
        n_few = len(self.classes)
        first = self.classes[:MOST_NAMES].tolist()
        shown = ", ".join(repr(str(names[y])) if names else f"class {y}" for y in first)
        more = f" and {n_few - MOST_NAMES:,} more" if n_few > MOST_NAMES else ""
        text = (
            f"{n_few:,} of {n_classes:,} classes {'supplies' if n_few == 1 else 'supply'} "
            f"{self.share:.0%} of all labels in sets: {shown}{more}."
        )
        if len(measured) < 2:
            return text
        (size, shortfall), (capped_size, capped_shortfall) = measured
        text += (
            f" With max_share={CAP}, sets would have {capped_size:.1f} labels instead of {size:.1f}"
        )
        if not np.isnan([shortfall, capped_shortfall]).any():
            text += (
                f", and the shortfall would be {capped_shortfall:.1f} instead of {shortfall:.1f} "
                "points"
            )
        return f"{text}."
