"""The price of a class: caps on thresholds that would put it into too many sets.

    share_y(q) = fraction, among the m sampled calibration rows of other classes, with s(x, y) <= q
    y is capped  if share_y(threshold) > max_share and threshold > STANDARD's
    threshold    = max(STANDARD's, the floor(max_share m)-th smallest s(x, y))   for capped classes

Rows of other classes, because only there the label is wrong. The sample are the rows whose keys
have the smallest hashes, so it does not depend on blocks, workers or the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.data.source import Block
from evencover.errors import InputError
from evencover.predictors.rule import BoundScore
from evencover.quantiles import Thresholds, exact_fraction
from evencover.randomness import RandomStream, row_indices
from evencover.scores import Score
from evencover.sizes import at_once, sampled
from evencover.threads import on_slices
from evencover.validation import LARGEST

# 64 MB of float32, but enough rows to measure a share of a hundredth.
MOST_ROWS, LEAST_ROWS, MOST_NUMBERS = sampled(4096), sampled(512), sampled(1 << 24, 600)
FEWEST_ROWS = sampled(128)  # of a sample in a comparison, which has several at a time
NUMBERS_AT_ONCE = at_once(1 << 20)  # scores in float64 while they are computed

Columns = tuple[Any, ...]


def exact_share(max_share: Any) -> Fraction:
    """Return the largest share of sets as the fraction in (0, 1] that was meant."""
    return Fraction(1) if max_share == 1 else exact_fraction(max_share, name="max_share")


def check_max_share(value: Any, name: str, owner: str) -> None:
    """Raise InputError unless the value is a number in (0, 1]."""
    if isinstance(value, bool) or value != 1:
        try:
            exact_fraction(value)
        except InputError:
            raise InputError(
                f"The '{name}' parameter of {owner} must be a number in (0, 1]. Got {value!r}."
            ) from None


def check_price(max_share: Any, floor: Any, owner: str) -> None:
    """Raise InputError for a cap together with a floor that is a number."""
    if max_share is not None and floor not in (None, "auto"):
        raise InputError(
            f"'floor' and 'max_share' of {owner} cannot be combined if the floor is a number. "
            f"Got {floor!r} and {max_share!r}; use floor='auto', or one of them."
        )


class ScoreSample(NamedTuple):
    """Base scores of every class in sampled calibration rows.

    ``labels`` (m,) are those of the rows. ``scores`` (m, K) are float32, +inf where a row does not
    list the class, and ``ranks`` (m, K) are those of the classes, for methods that limit them.
    """

    labels: IntArray
    scores: Array
    ranks: Array | None = None

    @classmethod
    def of(
        cls,
        scoring: BoundScore,
        rows: Any,
        keys: Array,
        labels: IntArray,
        *,
        with_ranks: bool,
    ) -> ScoreSample:
        """Score every class in sampled rows (m, K), whose random numbers have these keys (m,)."""
        n_classes = rows.shape[1]
        given = scoring.kernel_input(rows, scoring.draws(keys, calibrating=True))
        scores = np.empty(rows.shape, dtype=np.float32)
        ranks = np.empty(rows.shape, np.min_scalar_type(n_classes)) if with_ranks else None
        step = max(1, NUMBERS_AT_ONCE // n_classes)
        for first in range(0, len(labels), step):
            some = slice(first, min(first + step, len(labels)))
            scores[some] = _rounded_down(_kernels.score_matrix(given.of_rows(some)))
            if ranks is not None:
                ranks[some] = _kernels.rank_matrix(given.of_rows(some))
        return cls(labels, scores, ranks)

    def caps(self, max_share: Any, thresholds: Thresholds) -> Caps:
        """Compute where classes exceed a share, and the shares of thresholds on the base score."""
        share, n_classes = exact_share(max_share), self.scores.shape[1]
        n_others = len(self.labels) - np.bincount(self.labels, minlength=n_classes)
        most = np.array([floor(share * n) for n in n_others.tolist()])
        cap, excess, entered = (np.empty(n_classes) for _ in range(3))
        upper = np.minimum(thresholds.upper, LARGEST)  # no set has a class that is not listed

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
        return Caps(cap, excess, entered, np.zeros(n_classes, dtype=bool))

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


@dataclass
class SampleCollector:
    """Collects the rows with the smallest hashes of their keys, block by block.

    Only rows that may be among them are scored: those whose hashes do not exceed the largest of a
    full sample. It is filled in place, because the scores take 64 MB.
    """

    scoring: BoundScore
    n_classes: int
    with_ranks: bool = False
    _limit: int = 2**64 - 1
    _n_kept: int = 0
    _kept: Columns = ()  # hashes and indices, which decide what is kept, and the sample's columns

    def fresh(self) -> SampleCollector:
        """Return a collector for a partition of the same input."""
        return SampleCollector(self.scoring, self.n_classes, self.with_ranks)

    def of(self, block: Block) -> Columns:
        """Sample the known labels' rows of a block, on any thread."""
        assert block.labels is not None
        ids = block.ids
        if ids is None:
            ids = row_indices(block.start, block.start + len(block.labels))
        hashes = hashed(ids)
        is_possible = (block.labels < self.n_classes) & (hashes <= np.uint64(self._limit))
        chosen = np.flatnonzero(is_possible)
        chosen = chosen[smallest(hashes[chosen], chosen, sample_size(self.n_classes))]
        rows, labels = block.rows[chosen], block.labels[chosen]
        keys = _kernels.row_keys(block.rows, self.scoring.draws(block.ids, block.start))[chosen]
        sample = ScoreSample.of(self.scoring, rows, keys, labels, with_ranks=self.with_ranks)
        return hashes[chosen], block.start + chosen, *sample

    def add(self, part: Columns) -> None:
        """Add the sample of a block or partition: in free rows, and in place of larger hashes."""
        most = sample_size(self.n_classes)
        self._kept = self._kept or tuple(
            None if x is None else np.empty((most, *x.shape[1:]), x.dtype) for x in part
        )
        hashes, indices = (
            np.concatenate([old[: self._n_kept], new])
            for old, new in zip(self._kept[:2], part[:2], strict=True)
        )
        is_kept = np.zeros(len(hashes), dtype=bool)
        is_kept[smallest(hashes, indices, most)] = True
        added = np.flatnonzero(is_kept[self._n_kept :])
        dropped = np.flatnonzero(~is_kept[: self._n_kept])
        free = np.append(dropped, np.arange(self._n_kept, most))[: len(added)]
        for old, new in zip(self._kept, part, strict=True):
            if old is not None and new is not None:
                old[free] = new[added]
        self._n_kept = int(is_kept.sum())
        if self._n_kept == most:
            self._limit = int(self._kept[0].max())

    def result(self) -> Columns:
        """Return the sample of all blocks so far, as `of` returns that of a block."""
        return tuple(None if column is None else column[: self._n_kept] for column in self._kept)

    def sample(self) -> ScoreSample:
        """Return the scores of the sampled rows."""
        return ScoreSample(*self.result()[2:])


def sample_size(n_classes: int) -> int:
    """Return the largest number of rows in a sample."""
    return min(MOST_ROWS, max(LEAST_ROWS, MOST_NUMBERS // n_classes))


def sampled_of(calibrations: dict[Any, IntArray], n_classes: int) -> dict[Any, IntArray]:
    """Choose the rows of the sample of each of some calibration sets, which are indices of rows.

    As many as a fit samples or, if the rows of all samples together have more numbers than two
    samples may have, half as many, and so on.
    """
    hashes = {key: hashed(rows.astype(np.uint64)) for key, rows in calibrations.items()}
    most = sample_size(n_classes)
    while True:
        chosen = {
            key: rows[smallest(hashes[key], rows, most)] for key, rows in calibrations.items()
        }
        n_rows = len(np.unique(np.concatenate(list(chosen.values()))))
        if n_rows * n_classes <= 2 * MOST_NUMBERS or most <= FEWEST_ROWS:
            return chosen
        most //= 2


def hashed(keys: Array) -> Array:
    """Hash the keys of rows, whatever the seed."""
    return _kernels.random_bits(0, int(RandomStream.CAPS), keys)


def smallest(hashes: Array, indices: Array, n: int) -> IntArray:
    """Return the positions of the n smallest hashes; indices decide between equal ones."""
    if len(hashes) <= n:
        return np.arange(len(hashes))
    return np.lexsort((indices, hashes))[:n]


def _rounded_down(scores: FloatArray) -> Array:
    """Return scores as float32, rounded down: near 1, most probabilities are below its precision.

    So a score within a threshold remains within it, and a cap admits no more rows than it should.
    """
    with np.errstate(over="ignore"):
        nearest = scores.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > scores, below, nearest)
