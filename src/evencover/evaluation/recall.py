"""Recall at k: how often top-k rows list the true label, which limits coverage."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.evaluation.statistics import clopper_pearson, share_with_limits


class RecallAtK(NamedTuple):
    """The share of labels that their rows list, with its 95% confidence interval.

    ``listed`` of ``counts`` (K,) examples of each class have their label listed. A class is
    ``capped`` (K,) if its threshold is infinite: all rows that list it include it, so its coverage
    is its recall.
    """

    counts: IntArray
    listed: IntArray
    capped: Array

    def interval(self, classes: Array | slice = slice(None)) -> FloatArray:
        """Return the recall of all examples of these classes, and its two limits (3,)."""
        return share_with_limits(self.listed[classes].sum(), self.counts[classes].sum())

    def limited(self, guarantees: FloatArray) -> FloatArray:
        """Return the guarantees (K,) that hold for labels that may not be listed.

        A threshold that is the k-th smallest of n own scores guarantees k / (n + 1), where a score
        of +inf is within a threshold of +inf. Of the share 1 - r that is not listed, sets lose up
        to all whenever the threshold is infinite, which is when fewer than k of n labels are
        listed. Both fall with r, so its lower limit gives a guarantee with 95% confidence.
        """
        from scipy.special import bdtr

        n, low = self.counts, clopper_pearson(self.listed, self.counts, 0.9)[:, 0]
        ranks = np.ceil(guarantees * (n + 1) - 1e-9)
        is_infinite = np.where(ranks < 1, 0.0, bdtr(np.clip(ranks - 1, 0, n), n, low))
        return np.maximum(guarantees - (1 - low) * is_infinite, 0.0)

    @property
    def sentences(self) -> str:
        """State the recall, and what it means for coverage."""
        text = (
            f"Rows list some of the classes: recall at k is {_percent(self.interval())}. A label "
            "that is not listed is in no set. Coverage can therefore be below the guarantee by the "
            "share of labels that are not listed, times the probability that the threshold is "
            "infinite; guarantees by class account for it with 95% confidence."
        )
        if self.capped.any():
            recall, n_capped = self.interval(self.capped), int(self.capped.sum())
            text += (
                f" The coverage of {n_capped:,} classes with an infinite threshold is their recall "
                f"at k, {'unknown' if np.isnan(recall[0]) else _percent(recall)}."
            )
        return text

    def warning(self, target: float) -> str | None:
        """Warn if recall is significantly below a target, so that no method reaches it."""
        if self.interval()[2] >= target:
            return None
        return (
            f"Recall at k is {_percent(self.interval())}, below the target of {target:.1%}: no set "
            "contains a label that is not listed. Use a larger k."
        )


def _percent(recall: FloatArray) -> str:
    return "{:.1%} (95% confidence interval {:.1%} to {:.1%})".format(*recall)
