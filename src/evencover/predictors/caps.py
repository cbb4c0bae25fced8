"""The price of a class: caps on thresholds that would put it into too many sets.

    share_y(q) = fraction, among the m sampled calibration rows of other classes, with s(x, y) <= q
    y is capped  if share_y(threshold) > max_share and threshold > STANDARD's
    threshold    = max(STANDARD's, the floor(max_share m)-th smallest s(x, y))   for capped classes

Rows of other classes, because only there the label is wrong. The sample are the rows whose keys
have the smallest hashes, so it does not depend on blocks, workers or the order of the rows. They
are scored in a second pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from math import floor
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block, Source
from evencover.engine.blocks import gathered, joined, map_source
from evencover.errors import InputError
from evencover.predictors.rule import BoundScore
from evencover.quantiles import Thresholds, distinct, exact_fraction
from evencover.randomness import RandomStream
from evencover.scores import Score
from evencover.sizes import at_once, sampled
from evencover.threads import on_slices
from evencover.validation import LARGEST

# 64 MB of float32, but enough rows to measure a share of a hundredth.
MOST_ROWS, LEAST_ROWS, MOST_NUMBERS = sampled(4096), sampled(512), sampled(1 << 24, 600)
FEWEST_ROWS = sampled(128)  # of a sample in a comparison, which has several at a time
NUMBERS_AT_ONCE = at_once(1 << 18)  # scores in float64 while they are computed


def exact_share(value: Any, name: str = "max_share", owner: str = "the method") -> Fraction:
    """Return the largest share of sets as the fraction in (0, 1] that was meant."""
    try:
        return exact_fraction(value)
    except InputError:
        if isinstance(value, bool) or np.ndim(value) > 0 or value != 1:
            raise InputError(
                f"The '{name}' parameter of {owner} must be a number in (0, 1]. Got {value!r}."
            ) from None
    return Fraction(1)


def check_price(max_share: Any, floor: Any, owner: str) -> None:
    """Raise InputError for a cap together with a floor that is a number."""
    if max_share is not None and floor not in (None, "auto"):
        raise InputError(
            f"'floor' and 'max_share' of {owner} cannot be combined if the floor is a number. "
            f"Got {floor!r} and {max_share!r}; use floor='auto', or one of them."
        )


def is_never_capped(method: Any) -> bool:
    """Return whether thresholds are STANDARD's, which no cap changes."""
    return bool(method.method == "standard" and method.floor is None)


class ScoreSample(NamedTuple):
    """Base scores of every class in sampled calibration rows.

    ``labels`` (m,) are those of the rows. ``scores`` (m, K) are s - 1 as float32, because most
    scores are so near 1 that float32 would make them equal; +inf where a row does not list the
    class. ``ranks`` (m, K) are those of the classes, for methods that limit them.
    """

    labels: IntArray
    scores: Array
    ranks: Array | None = None

    @classmethod
    def read(
        cls,
        source: Source,
        scoring: BoundScore,
        rows: IntArray,
        needs: Sequence[str],
        executor: Any,
    ) -> ScoreSample:
        """Score every class in the rows with these indices, ascending, for which it reads all."""
        is_sampled = np.zeros(source.n_rows or 0, dtype=bool)
        is_sampled[rows] = True
        score = partial(_score_sampled, scoring, is_sampled, "ranks" in needs)
        return cls(*gathered(map_source(source, score, joined, executor), len(rows)))

    def take(self, rows: Array) -> ScoreSample:
        """Return some of the rows."""
        ranks = None if self.ranks is None else self.ranks[rows]
        return ScoreSample(self.labels[rows], self.scores[rows], ranks)

    def caps(self, max_share: Any, thresholds: Thresholds) -> Caps:
        """Compute where classes exceed a share, and the shares of thresholds on the base score."""
        share, n_classes = exact_share(max_share), self.scores.shape[1]
        n_others = len(self.labels) - np.bincount(self.labels, minlength=n_classes)
        sizes, size_of_class = distinct(n_others)
        most = np.array([floor(share * n) for n in sizes.tolist()])[size_of_class]
        cap, excess, entered = (np.empty(n_classes) for _ in range(3))
        upper = np.minimum(thresholds.upper, LARGEST) - 1  # no set has a class that is not listed

        def measure(classes: slice) -> None:
            scores = self._of_others(classes, thresholds.rank_limit)
            n_within = (scores <= upper[classes, None]).sum(axis=1)
            entered[classes] = n_within / np.maximum(n_others[classes], 1)
            ends = ((0, 0), (1, 1))
            scores = np.pad(np.sort(scores, axis=1), ends, constant_values=(-np.inf, np.inf))
            rows = np.arange(len(scores))
            cap[classes] = scores[rows, most[classes]]
            excess[classes] = scores[rows, most[classes] + 1]

        on_slices(measure, n_classes, max(1, NUMBERS_AT_ONCE // max(1, len(self.labels))))
        return Caps(cap + 1, excess + 1, entered, np.zeros(n_classes, dtype=bool))

    def _of_others(self, classes: slice, rank_limit: IntArray | None) -> Array:
        """Return the scores of some classes (k, m); +inf in rows of the class itself."""
        scores = self.scores[:, classes].T.copy()
        rows = np.flatnonzero((classes.start <= self.labels) & (self.labels < classes.stop))
        scores[self.labels[rows] - classes.start, rows] = np.inf
        if rank_limit is not None and self.ranks is not None:
            scores[rank_limit[classes, None] < self.ranks[:, classes].T] = np.inf
        return scores


class Caps(NamedTuple):
    """The classes (K,) that are capped, and where a threshold on the base score is too large.

    ``cap`` is the largest score within the share, ``excess`` the smallest beyond it, and ``share``
    that of the uncapped threshold. A fit that is updated keeps the first two; its shares are NaN.
    """

    cap: FloatArray
    excess: FloatArray
    share: FloatArray
    is_capped: Array

    def applied(
        self, thresholds: Thresholds, standard: Thresholds, score: Score
    ) -> tuple[Thresholds, Caps]:
        """Cap thresholds on a score, but not below STANDARD's; return them, and what is capped."""
        reached = np.minimum(score.base_thresholds(thresholds).upper, LARGEST)
        is_capped = (reached >= self.excess) & (thresholds.upper > standard.upper)
        cap = score.from_base(self.cap, np.arange(len(self.cap)))
        highest = np.where(is_capped, np.maximum(standard.upper, cap), np.inf)
        return thresholds.at_most(highest), self._replace(is_capped=is_capped)


def _score_sampled(
    scoring: BoundScore, is_sampled: Array, with_ranks: bool, block: Block
) -> tuple[Array, ...]:
    """Return labels, scores and, if asked for, ranks of the sampled rows of a block."""
    assert block.labels is not None
    chosen = np.flatnonzero(is_sampled[block.start : block.start + len(block.labels)])
    keys = None
    if scoring.score.is_random:  # hashing all numbers takes time
        keys = _kernels.row_keys(block.rows, scoring.draws(block.ids, block.start))[chosen]
    draws = scoring.draws(keys, calibrating=True)
    n_classes = block.rows.shape[1]
    scores = np.empty((len(chosen), n_classes), dtype=np.float32)
    ranks = np.empty(scores.shape, np.min_scalar_type(n_classes)) if with_ranks else None
    step = max(1, NUMBERS_AT_ONCE // n_classes)
    for first in range(0, len(chosen), step):
        some = slice(first, min(first + step, len(chosen)))
        given = scoring.kernel_input(block.rows[chosen[some]], draws.of_rows(some.start, some.stop))
        scores[some] = _rounded_down(_kernels.score_matrix(given) - 1)
        if ranks is not None:
            ranks[some] = _kernels.rank_matrix(given)
    columns = (block.labels[chosen], scores)
    return columns if ranks is None else (*columns, ranks)


def sample_size(n_classes: int, *, most_numbers: int | None = None) -> int:
    """Return the largest number of rows in a sample."""
    most_numbers = MOST_NUMBERS if most_numbers is None else most_numbers
    return min(MOST_ROWS, max(LEAST_ROWS, most_numbers // n_classes))


def sampled_rows(ids: Array, most: int) -> IntArray:
    """Return the rows, ascending, whose ids (N,) have the smallest hashes, at most so many."""
    hashes = _kernels.random_bits(0, int(RandomStream.CAPS), ids)
    return np.sort(np.argsort(hashes, kind="stable")[:most])


def sampled_of(calibrations: dict[Any, IntArray], n_classes: int) -> dict[Any, IntArray]:
    """Choose the rows of the sample of each of some calibration sets, which are indices of rows.

    As many as a fit samples or, if the rows of all samples together have many more numbers than
    a sample may have, half as many, and so on. Splits into halves then sample half as many.
    """
    most = sample_size(n_classes)
    while True:
        chosen = {
            key: rows[sampled_rows(rows.astype(np.uint64), most)]
            for key, rows in calibrations.items()
        }
        n_rows = len(np.unique(np.concatenate(list(chosen.values()))))
        if n_rows * n_classes <= 1.25 * MOST_NUMBERS or most <= FEWEST_ROWS:
            return chosen
        most //= 2


def _rounded_down(scores: FloatArray) -> Array:
    """Return scores as float32, rounded down.

    So a score within a threshold remains within it, and a cap admits no more rows than it should.
    """
    with np.errstate(over="ignore"):
        nearest = scores.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > scores, below, nearest)
