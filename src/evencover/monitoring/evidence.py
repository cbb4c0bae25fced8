"""E-values of counts: evidence that stays valid however often, and whenever, somebody looks.

An e-value is what a bet against a hypothesis has won so far, in multiples of the stake: while the
hypothesis holds, its mean is at most 1 at any moment, so that it ever reaches 1 / level has at most
the probability `level` (Ville 1939). All bets here are mixtures over alternatives (Waudby-Smith and
Ramdas 2024), so they depend on the rows only through hits and misses: counts add up, in any order.
"""

from __future__ import annotations

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray

# Shortfalls that are bet on, as shares of the promised coverage: from 0.2% to 99%, each scale with
# the same weight, because nobody knows how far coverage falls. Any finite list is a valid bet.
SHORTFALLS = np.geomspace(2.0**-9, 0.99, 40)
AT_ONCE = 1 << 20  # numbers that are held at a time


def shortfall_log_e(hits: IntArray, misses: IntArray, promised: FloatArray | float) -> FloatArray:
    """Log e-values (K,) against "coverage is at least `promised`", from hits and misses.

    The mean over theta = promised (1 - shortfall) of
    (theta / promised)^hits ((1 - theta) / (1 - promised))^misses.

    >>> shortfall_log_e(np.array([8, 40]), np.array([2, 60]), 0.9).round(1).tolist()
    [0.0, 71.8]
    """
    promised = np.broadcast_to(np.asarray(promised, dtype=np.float64), hits.shape)
    result = np.empty(hits.shape)
    step = max(1, AT_ONCE // len(SHORTFALLS))
    for at in range(0, len(hits), step):
        own = slice(at, at + step)
        odds = (promised[own] / (1 - promised[own]))[:, None]
        less_often = hits[own, None] * np.log1p(-SHORTFALLS)
        more_often = misses[own, None] * np.log1p(SHORTFALLS * odds)
        result[own] = _log_mean(np.asarray(less_often + more_often, dtype=np.float64))
    return result


def urn_log_e(hits: IntArray, misses: IntArray, ranks: IntArray, counts: IntArray) -> FloatArray:
    """Log e-values (K,) against "new rows come like the calibration rows".

    A hit is a new score that is at most the `ranks`-th smallest of `counts` calibration scores.
    If they come alike, the next one is a hit with probability (rank + hits) / (count + 1 + rows so
    far): a Pólya urn that starts with `rank` balls for a hit, exact for distinct scores, in which
    the noise of few calibration rows has its place. The bets are urns, too: they start with as many
    balls, of which a share of those for a hit was exchanged. So an e-value falls with every hit:
    where scores are tied, or new rows come better than the old ones, hits are only more frequent,
    and the e-value is at most what it would be. (Bets on fixed coverages do not have this: the mean
    of theirs can reach 1.48 with 20 rows that come better.) A class without rows has e-value 1.
    """
    result = np.zeros(hits.shape)
    has_rows = np.flatnonzero(counts > 0)
    step = max(1, AT_ONCE // len(SHORTFALLS))
    for at in range(0, len(has_rows), step):
        own = has_rows[at : at + step]
        hit, miss = hits[own, None], misses[own, None]
        balls = (counts[own, None] + 1).astype(np.float64)
        rank = np.minimum(ranks, counts)[own, None].astype(np.float64)
        log_bets = _log_drawn(hit, miss, rank * (1 - SHORTFALLS), balls)
        log_fair = _log_drawn(hit, miss, rank, balls)
        result[own] = _log_mean(np.subtract(log_bets, log_fair))
    return result


def _log_drawn(hit: IntArray, miss: IntArray, start: FloatArray, balls: FloatArray) -> FloatArray:
    """The log probability of a sequence from an urn, up to a term that `start` has no part in."""
    from scipy.special import gammaln

    for_hits, for_misses = gammaln(start + hit), gammaln(balls - start + miss)
    return np.asarray(for_hits - gammaln(start) + for_misses - gammaln(balls - start))


def difference_log_e(before: IntArray, now: IntArray) -> FloatArray:
    """Log e-values (...) against "both rows of counts (..., B) come from the same shares".

    Universal inference (Wasserman, Ramdas, Balakrishnan 2020): each part under a Dirichlet mixture
    of its own (1/2 in each bin), against the best shares for both together.
    """
    from scipy.special import xlogy

    both = before + now
    total = both.sum(axis=-1, keepdims=True)
    best = xlogy(both, both / np.maximum(total, 1)).sum(axis=-1)
    return np.asarray(_log_mixture(before) + _log_mixture(now) - best)


def _log_mixture(counts: IntArray) -> FloatArray:
    """The log probability of a sequence with these counts, the shares being Dirichlet (1/2)."""
    from scipy.special import gammaln

    half = 0.5 * counts.shape[-1]
    of_bins = (gammaln(counts + 0.5) - gammaln(0.5)).sum(axis=-1)
    return np.asarray(of_bins - gammaln(counts.sum(axis=-1) + half) + gammaln(half))


def _log_mean(bets: FloatArray) -> FloatArray:
    top = bets.max(axis=1, keepdims=True)
    return np.asarray(top[:, 0] + np.log(np.exp(bets - top).mean(axis=1)))


def raised(log_e: FloatArray, level: float) -> Array:
    """Which hypotheses are refused (K,), at most a share `level` of them wrongly on average.

    e-BH (Wang and Ramdas 2022): the k largest e-values, for the largest k whose k-th is at least
    K / (k level). It needs no independence.

    >>> raised(np.log([300.0, 30.0, 1.0]), 0.1).tolist()
    [True, True, False]
    """
    n = len(log_e)
    order = np.argsort(-log_e, kind="stable")
    enough = log_e[order] >= np.log(n) - np.log(np.arange(1, n + 1)) - np.log(level)
    named: Array = np.zeros(n, dtype=bool)
    if enough.any():
        named[order[: np.flatnonzero(enough)[-1] + 1]] = True
    return named


def e_values(log_e: FloatArray | float) -> FloatArray:
    """Return e-values, the largest float for those beyond it."""
    return np.exp(np.minimum(log_e, 709.0))


def log_mean_e(log_e: FloatArray) -> float:
    """The log of the mean e-value, which tests all hypotheses at once, dependent or not."""
    return float(_log_mean(log_e[None, :])[0])


def coverage_limits(hits: IntArray, misses: IntArray, level: float) -> FloatArray:
    """Limits (K, 2) between which coverage lies, at all times, with probability 1 - level.

    The coverages that neither bet refuses at level / 2, the one on less and its mirror on more.
    """
    upper = _upper_limit(hits, misses, level / 2)
    lower = 1.0 - _upper_limit(misses, hits, level / 2)
    return np.stack([np.maximum(lower, 0.0), upper], axis=-1)


def _upper_limit(hits: IntArray, misses: IntArray, level: float) -> FloatArray:
    """The largest promise that is not refused; the e-value rises with the promise."""
    low, high = np.zeros(len(hits)), np.ones(len(hits))
    for _ in range(40):
        middle = (low + high) / 2
        refused = shortfall_log_e(hits, misses, middle) >= -np.log(level)
        low, high = np.where(refused, low, middle), np.where(refused, middle, high)
    return high
