"""E-values of counts: evidence that stays valid at any number of looks.

An e-value is the wealth of a bet against a hypothesis, in multiples of the stake. While the
hypothesis holds its mean is at most 1 at every moment, so the probability that it ever reaches
1 / level is at most `level` (Ville 1939). All bets are mixtures over alternatives (Waudby-Smith and
Ramdas 2024), so they depend on the labels only through hits and misses.

**Restarts.** A bet on all labels loses for as long as coverage is good, and a later fall must first
win that back. So the bet starts again at the first label of every block of a class's labels, and
the evidence is the weighted mean of these bets,

    E_t = sum over j <= t of w_j e(counts of blocks j..t) + sum over j > t of w_j,

with w_j = 1 / (j (j + 1)). *Proof of the guarantee.* `block_of` maps the ordinal of a label in its
class to its block, so restart j is a fixed ordinal, known before any label is. The bet j is 1 up to
there and a nonnegative supermartingale from there on, in the history of all labels. The weights
are fixed and sum to 1, so E_t is one, too, and starts at 1: Ville's inequality applies. Blocks hold
25 labels, and sqrt(n / 2) after n labels once that is more, so a class has less than sqrt(8 n) of
them. Labels count in the order in which they arrive, those of one call in a random order, because
the order of a file may depend on the outcome. A corrected label leaves its block and arrives again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from evencover.arrays import Array, FloatArray, IntArray
from evencover.quantiles import conformal_ranks
from evencover.sizes import at_once

# Shortfalls to bet on, as fractions of the target coverage: from 0.2% to 99%, each scale with the
# same weight, because the size of a fall is unknown. Any finite list is a valid bet.
SHORTFALLS = np.geomspace(2.0**-9, 0.99, 40)
AT_ONCE = at_once(1 << 20, 120)  # numbers in memory at a time
BLOCK = 25  # labels in each of the first 2 * BLOCK blocks of a class


def block_of(ordinals: IntArray) -> IntArray:
    """Return the block of a class's labels by their ordinals, both from 0.

    >>> block_of(np.array([0, 24, 25, 1249, 1250, 5000, 1_000_000])).tolist()
    [0, 0, 1, 49, 50, 150, 2778]
    """
    growing = np.sqrt(8.0 * ordinals).astype(np.int64) - 2 * BLOCK
    return np.where(ordinals < 2 * BLOCK**2, ordinals // BLOCK, growing)


def shortfall_log_e(hits: IntArray, misses: IntArray, target: FloatArray | float) -> FloatArray:
    """Return log e-values (K,) against "coverage is at least `target`", from hits and misses.

    The mean over theta = target (1 - shortfall) of
    (theta / target)^hits ((1 - theta) / (1 - target))^misses.

    >>> shortfall_log_e(np.array([8, 40]), np.array([2, 60]), 0.9).round(1).tolist()
    [0.0, 71.8]
    """
    target = np.broadcast_to(np.asarray(target, dtype=np.float64), hits.shape)
    result = np.empty(hits.shape)
    for part in _parts(np.arange(len(hits))):
        odds = (target[part] / (1 - target[part]))[:, None]
        less_often = hits[part, None] * np.log1p(-SHORTFALLS)
        more_often = misses[part, None] * np.log1p(SHORTFALLS * odds)
        result[part] = _log_mean(np.asarray(less_often + more_often, dtype=np.float64))
    return result


def _parts(classes: IntArray) -> Iterator[IntArray]:
    """Divide classes, so that the bets of each part fit in memory."""
    step = max(1, AT_ONCE // len(SHORTFALLS))
    return (classes[start : start + step] for start in range(0, len(classes), step))


class Urn(NamedTuple):
    """Locate each class's calibration scores: the `ranks`-th smallest of `counts` is the limit.

    The rank is CLASSWISE's, or the last score's where there are too few for it. It does not depend
    on the scores, which makes the probability that a new score is within exact for every method.
    The rank of the method's own threshold depends on them, and its urn has no known law.
    """

    ranks: IntArray
    counts: IntArray
    limits: FloatArray

    @classmethod
    def of(cls, predictor: Any) -> Urn | None:
        """Return the urns of the classes; None if the predictor has no base scores of rows."""
        rows, alpha = predictor.fit_.rows, predictor.fit_.alpha
        if not rows.of_base:
            return None
        counts = rows.class_counts
        ranks = np.minimum(conformal_ranks(counts, alpha), counts)
        limits = rows.by_class.at_ranks(ranks)
        # No set shows whether an unlisted label has the infinite score of such a limit.
        counts = np.where(limits == np.inf, 0, counts)
        return cls(np.minimum(ranks, counts), counts, limits)


def urn_log_e(
    hits: IntArray,
    misses: IntArray,
    ranks: IntArray,
    counts: IntArray,
    earlier: tuple[IntArray, IntArray] | None = None,
) -> FloatArray:
    """Return log e-values (K,) against "new and calibration examples are exchangeable".

    A hit is a new score that is at most the `ranks`-th smallest of `counts` calibration scores.
    If they are exchangeable, the next one is a hit with probability (rank + hits) / (count + 1 +
    examples so far): a Pólya urn that starts with `rank` balls for a hit, exact for distinct
    scores, which accounts for the noise of few calibration examples. The bets are urns, too, with
    as many balls, of which a fraction of those for a hit was exchanged. So an e-value falls with
    every hit: where scores are tied, or new examples score better than the old ones, hits are only
    more frequent. A class without calibration examples has e-value 1.

    `earlier` are hits and misses before a restart. What they show of this calibration must not
    turn into evidence: the denominator is the larger of the urn's probability and of that given
    the earlier labels. The bet is then at most a likelihood ratio in the history of *all* labels,
    which the ratio of fresh urns is not (a long history reveals the calibration noise).
    """
    result = np.zeros(hits.shape)
    for part in _parts(np.flatnonzero(counts > 0)):
        hit, miss = hits[part, None], misses[part, None]
        balls = (counts[part, None] + 1).astype(np.float64)
        rank = np.minimum(ranks, counts)[part, None].astype(np.float64)
        log_bets = _log_drawn(hit, miss, rank * (1 - SHORTFALLS), balls)
        log_fair = _log_drawn(hit, miss, rank, balls)
        if earlier is not None:
            before, missed = earlier[0][part, None], earlier[1][part, None]
            log_given = _log_drawn(hit, miss, rank + before, balls + before + missed)
            log_fair = np.maximum(log_fair, log_given)
        result[part] = _log_mean(log_bets) - log_fair[:, 0]
    return result


def _log_drawn(hit: IntArray, miss: IntArray, start: FloatArray, balls: FloatArray) -> FloatArray:
    """Return the log probability of a sequence with these counts from an urn."""
    from scipy.special import gammaln

    drawn = gammaln(start + hit) + gammaln(balls - start + miss) - gammaln(balls + (hit + miss))
    return np.asarray(drawn - gammaln(start) - gammaln(balls - start) + gammaln(balls))


def with_restarts(log_e: FloatArray, starts: IntArray) -> tuple[FloatArray, IntArray]:
    """Combine the bets (R,) of all blocks, class after class, into log evidence (C,).

    `starts` (C,) are the indices of each class's first block. Also return the index of the block
    with the largest share of the evidence: where a fall, if there is one, began.

    >>> log_e, _ = with_restarts(np.log([4.0, 6.0, 1.0]), np.array([0, 2]))
    >>> np.exp(log_e).round(3).tolist()  # 4/2 + 6/6 + 1/3, and 1/2 + 1/2
    [3.333, 1.0]
    """
    n_blocks = np.diff(starts, append=len(log_e))
    number = np.arange(len(log_e)) - np.repeat(starts, n_blocks) + 1.0
    weighted = log_e - np.log(number * (number + 1))
    started = np.logaddexp.reduceat(weighted, starts)
    order = np.lexsort((-weighted, np.repeat(np.arange(len(starts)), n_blocks)))
    return np.logaddexp(started, -np.log(n_blocks + 1.0)), order[starts]


def since_restarts(counts: IntArray, starts: IntArray) -> tuple[IntArray, IntArray]:
    """Return counts (R, ...) of each block and all later ones of its class, and of all earlier."""
    n_blocks = np.diff(starts, append=len(counts))
    before = np.cumsum(counts, axis=0) - counts
    earlier = before - np.repeat(before[starts], n_blocks, axis=0)
    total = np.add.reduceat(counts, starts, axis=0)
    return np.repeat(total, n_blocks, axis=0) - earlier, earlier


def _log_mean(bets: FloatArray) -> FloatArray:
    top = bets.max(axis=1, keepdims=True)
    return np.asarray(top[:, 0] + np.log(np.exp(bets - top).mean(axis=1)))


def raised(log_e: FloatArray, level: float) -> Array:
    """Return the rejected hypotheses (K,), at a false discovery rate of `level`.

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
    """Return the log of the mean e-value: a test of all hypotheses at once, dependent or not."""
    return float(_log_mean(log_e[None, :])[0])


def coverage_limits(hits: IntArray, misses: IntArray, level: float) -> FloatArray:
    """Return limits (K, 2) that contain the coverage, at all times, with probability 1 - level.

    They are the coverages that neither bet rejects at level / 2: the one on less, and its mirror.
    """
    # Many classes share their counts.
    pairs, pair = np.unique(np.stack([hits, misses], axis=-1), axis=0, return_inverse=True)
    upper = _upper_limit(pairs[:, 0], pairs[:, 1], level / 2)
    lower = 1.0 - _upper_limit(pairs[:, 1], pairs[:, 0], level / 2)
    return np.stack([np.maximum(lower, 0.0), upper], axis=-1)[pair.reshape(-1)]


def _upper_limit(hits: IntArray, misses: IntArray, level: float) -> FloatArray:
    """Return the largest target that is not rejected; the e-value rises with the target."""
    low, high = np.zeros(len(hits)), np.ones(len(hits))
    for _ in range(26):
        middle = (low + high) / 2
        rejected = shortfall_log_e(hits, misses, middle) >= -np.log(level)
        low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
    return high
