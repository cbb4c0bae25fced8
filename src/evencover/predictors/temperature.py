"""One temperature by likelihood, from rows that then take no part in calibrating."""

from __future__ import annotations

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Source
from evencover.errors import InputError
from evencover.randomness import RandomStream, places, random_order
from evencover.sizes import sampled
from evencover.topk import raise_listed_logits

FIT = "fit"
# A fifth of the rows, but limited in rows and numbers: one parameter needs few.
SHARE, MOST_ROWS, MOST_NUMBERS = 5, sampled(2000), sampled(1 << 24, 900)
COLDEST, HOTTEST = 1 / 20, 20.0


def fitted_temperature(source: Source, logits: bool, random_state: int) -> tuple[float, Array]:
    """Return the likeliest temperature, and the rows (N,) it was fitted to.

    Ids, or places, alone choose these rows, so the others remain exchangeable with new rows.
    """
    if not logits:
        raise InputError(
            "temperature='fit' needs logits. Got probabilities; pass their logarithms with "
            "from_logits=True (--logits on the command line)."
        )
    if source.n_rows is None:
        raise InputError(
            "With temperature='fit' the rows are read twice. Got an iterator, which can be read "
            "once; pass an array or the path of a file."
        )
    n = min(source.n_rows // SHARE, MOST_ROWS, max(1, MOST_NUMBERS // source.n_classes))
    if n < 1:
        raise InputError(
            f"temperature='fit' needs at least {SHARE} rows. Got {source.n_rows} of them."
        )
    keys = places(0, source.n_rows) if source.keys is None else source.keys
    chosen: Array = np.zeros(source.n_rows, dtype=bool)
    chosen[random_order(random_state, RandomStream.TEMPERATURE, keys)[:n]] = True
    if source.reader.is_listed:
        raise_listed_logits()
    rows, labels = [], []
    for block in source.blocks():
        assert block.labels is not None
        is_chosen = chosen[block.start : block.start + len(block.rows)]
        is_chosen = is_chosen & (block.labels < source.n_classes)
        rows.append(block.rows[is_chosen].astype(np.float64))
        labels.append(block.labels[is_chosen])
    if not any(map(len, labels)):
        raise source.no_known_label()
    return likeliest_temperature(np.concatenate(rows), np.concatenate(labels)), chosen


def likeliest_temperature(logits: FloatArray, labels: IntArray) -> float:
    """Find the temperature at which the labels are the most likely, between 1/20 and 20.

    The mean log likelihood is concave in b = 1/T, so b is the one place at which its slope, the
    mean over rows of (logit of the label - expected logit), is 0.

    >>> round(likeliest_temperature(np.log([[0.8, 0.2]] * 4), np.array([0, 0, 0, 1])), 2)
    1.26
    """
    from scipy.optimize import brentq

    z = logits - logits.max(axis=1, keepdims=True)
    label_logits = z[np.arange(len(z)), labels]

    def slope(log_b: float) -> float:
        weights = np.exp(np.exp(log_b) * z)
        expected = (weights * z).sum(axis=1) / weights.sum(axis=1)
        return float((label_logits - expected).mean())

    low, high = -np.log(HOTTEST), -np.log(COLDEST)
    if slope(low) <= 0:
        return HOTTEST
    if slope(high) >= 0:
        return COLDEST
    return float(np.exp(-brentq(slope, low, high, xtol=1e-10)))
