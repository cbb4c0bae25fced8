"""Compute conformal ranks and quantiles per group, and the randomized pair for exact coverage.

Ranks are exact: k = ceil((n + 1)(1 - alpha)) in rational arithmetic, then the k-th smallest score.
A quantile at a float level can be off by one rank (n = 564, alpha = 0.1).
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from math import ceil, floor, isqrt, log
from typing import Any, NamedTuple

import numpy as np

from evencover import _kernels
from evencover._kernels import Thresholds as Thresholds
from evencover.arrays import Array, FloatArray, IntArray, to_numpy
from evencover.classes import align_classes, by_class
from evencover.errors import InputError
from evencover.randomness import RandomStream, uniforms
from evencover.sizes import at_once

MOST_DIGITS = 400  # maximum digits of a number given as text; a float has fewer
MOST_VALUES = 3  # maximum values of alpha in a text
GUARD_RISK = Fraction(1, 10)  # probability that a guard exceeds the quantile that it guards
MANY_VALUES, ONE_VALUE_IN = at_once(1 << 16, 20), at_once(64, 2)  # see `select`
DEFAULT = "default"  # key of the classes that an alpha by class does not name

Alpha = float | str | Fraction | Decimal


def exact_fraction(value: Any, name: str = "alpha", owner: str = "the method") -> Fraction:
    """Return the number in (0, 1) that the user meant by `value`, as a fraction.

    A short decimal is taken as written. A float that uses all its digits comes from an expression
    such as 1/3 or 1 - 0.9. It becomes the simplest fraction within its rounding error. Messages use
    `name` and `owner`.

    >>> exact_fraction(0.059), exact_fraction(1 / 3), exact_fraction(1 - 0.9)
    (Fraction(59, 1000), Fraction(1, 3), Fraction(1, 10))
    >>> exact_fraction("1/3")
    Fraction(1, 3)
    """
    number = Fraction(0)
    is_text = isinstance(value, str) and len(value) <= MOST_DIGITS
    try:
        if isinstance(value, numbers.Rational) or (is_text and "/" in value):
            number = Fraction(value)
        elif (is_text or isinstance(value, Decimal)) and 0 < float(value) <= 1:
            number = Fraction(value)  # a float first: the fraction of 1e-999999999 is too slow
        elif isinstance(value, numbers.Real):
            number = _meant_by_float(value)  # type: ignore[arg-type]
    except (ValueError, OverflowError, ZeroDivisionError):
        pass
    if isinstance(value, bool) or not 0 < number < 1:
        raise InputError(
            f"The '{name}' parameter of {owner} must be a number in (0, 1). Got {value!r} instead."
        )
    return number


@lru_cache(maxsize=64, typed=True)  # every fit reads the same alpha several times
def _meant_by_float(value: Any) -> Fraction:
    decimal = Fraction(str(value))  # str of a NumPy float32 0.1 is 0.1, as the user wrote it
    if len(str(value).partition(".")[2].lstrip("0")) <= 15:
        return decimal
    simple = decimal.limit_denominator(1_000_000)
    return simple if abs(simple - decimal) <= Fraction(1, 2**52) else decimal


def conformal_rank(n: int, alpha: Alpha) -> int:
    """Compute k = ceil((n + 1)(1 - alpha)); the threshold is the k-th smallest of n scores.

    >>> conformal_rank(9, 0.1), conformal_rank(8, 0.1), conformal_rank(564, 0.1)
    (9, 9, 509)
    """
    return ceil((int(n) + 1) * (1 - exact_fraction(alpha)))


class ClassAlpha(NamedTuple):
    """The target miscoverage of each class.

    ``values`` are the distinct values, ascending; ``of_class`` (K,) maps each class to its value.
    ``one`` is the value if all classes share it.
    """

    values: FloatArray
    of_class: IntArray
    one: Fraction | None = None

    @classmethod
    def of(
        cls,
        alpha: Any,
        class_names: Sequence[str] | None,
        n_classes: int,
        owner: str = "the method",
    ) -> ClassAlpha:
        """Read one number for all classes, or one per class (see `align_classes`).

        >>> ClassAlpha.of({"bee": 0.01, "default": 0.1}, ["ant", "bee"], 2).floats.tolist()
        [0.1, 0.01]
        """
        if isinstance(alpha, ClassAlpha):
            return alpha
        if is_per_class(alpha):
            aligned = align_classes(alpha, class_names, n_classes, "alpha", default=DEFAULT)
            if aligned.dtype.kind != "f":
                exact = [exact_fraction(value, owner=owner) for value in aligned.tolist()]
                aligned = np.array(exact, dtype=np.float64)
            short = np.rint(aligned * 1e12) / 1e12  # 1 - 0.9 is meant to be 0.1
            is_short = (np.abs(short - aligned) <= 2.0**-52) & (short > 1e-6)
            aligned = np.where(is_short, short, aligned)
            outside = aligned[~((aligned > 0) & (aligned < 1))]
            if len(outside):
                exact_fraction(outside[0].item(), owner=owner)  # raises
            values, of_class = np.unique(aligned, return_inverse=True)
            if len(values) > 1:
                return cls(values, of_class)
            alpha = values[0].item()
        one = exact_fraction(alpha, owner=owner)
        return cls(np.array([float(one)]), np.zeros(n_classes, dtype=np.int64), one)

    @property
    def is_one(self) -> bool:
        """Whether all classes have the same value."""
        return self.one is not None

    @property
    def floats(self) -> FloatArray:
        """The target miscoverage of each class (K,)."""
        return self.values[self.of_class]

    @property
    def typical(self) -> Fraction:
        """The lower median over classes."""
        if self.one is not None:
            return self.one
        middle = np.partition(self.of_class, (len(self.of_class) - 1) // 2)
        return self.exact(int(middle[(len(self.of_class) - 1) // 2]))

    def exact(self, index: int) -> Fraction:
        """Return one of the distinct values as the fraction that was meant."""
        return exact_fraction(self.values[index].item()) if self.one is None else self.one

    def divided_by(self, number: int) -> ClassAlpha:
        """Divide every value."""
        one = None if self.one is None else self.one / number
        return ClassAlpha(self.values / number, self.of_class, one)

    def __str__(self) -> str:
        """Format the value, or the most common values with their numbers of classes."""
        shown = [f"{value:g}" for value in self.values.tolist()]
        if self.is_one:
            return shown[0]
        if len(shown) > MOST_VALUES:
            return f"{shown[0]} to {shown[-1]}, by class"
        counts = np.bincount(self.of_class, minlength=len(shown))
        order = np.argsort(-counts, kind="stable").tolist()
        return ", ".join(
            f"{shown[i]} for {counts[i]:,} class{'' if counts[i] == 1 else 'es'}" for i in order
        )


def is_per_class(alpha: Any) -> bool:
    """Check whether alpha is given by class."""
    return not isinstance(alpha, str | numbers.Number | Decimal)


def check_alpha(alpha: Any, name: str = "alpha", owner: str = "the method") -> float:
    """Check a number in (0, 1), or one per class; return the largest."""
    if not is_per_class(alpha):
        return float(exact_fraction(alpha, name, owner))
    known = by_class(alpha, name)
    array = to_numpy(() if known is not None else alpha)
    if array.size and array.dtype.kind == "f" and ((array > 0) & (array < 1)).all():
        return float(array.max())
    values = array.ravel().tolist() if known is None else list(known.values())
    if values and all(isinstance(value, float) and 0 < value < 1 for value in values):
        return float(max(values))
    return float(max(exact_fraction(value, name, owner) for value in values or [alpha]))


def conformal_ranks(
    counts: Array, alpha: Alpha | ClassAlpha, confidence: Alpha | None = None
) -> IntArray:
    """Compute `conformal_rank` of every count, or the rank that holds with a `confidence`.

    Given n calibration scores, the k-th smallest covers Beta(k, n + 1 - k) of new examples if
    scores are distinct, and more if not (Vovk 2012). So with a confidence, k is the smallest rank
    with P(Beta(k, n + 1 - k) < 1 - alpha) = P(Binomial(n, 1 - alpha) >= k) <= 1 - confidence. It is
    n + 1, a threshold of +inf, if n is below `least_rows`. A `ClassAlpha` has one entry per count.

    >>> conformal_ranks(np.array([22, 21, 1000]), 0.1, confidence=0.9).tolist()
    [22, 22, 913]
    """
    if not isinstance(alpha, ClassAlpha):
        one = exact_fraction(alpha)
        alpha = ClassAlpha(np.array([float(one)]), np.zeros(counts.shape, dtype=np.int64), one)
    if confidence is not None:
        return _confident_ranks(counts, alpha, 1 - exact_fraction(confidence, name="confidence"))
    if alpha.one is not None:
        up, down = (1 - alpha.one).as_integer_ratio()
        fits = (int(counts.max(initial=0)) + 1) * up < 2**63
        # -(-a // b) is ceil(a / b), in integers.
        ranks = -(-(counts.astype(np.int64 if fits else object) + 1) * up // down)
        return np.asarray(ranks, np.int64)
    n, alpha, inverse = _distinct_pairs(counts, alpha)
    real = (n + 1.0) * (1 - alpha.floats)
    ranks = np.ceil(real).astype(np.int64)
    for index in np.flatnonzero(np.abs(real - np.rint(real)) < 1e-6):  # not decided in floats
        ranks[index] = ceil((int(n[index]) + 1) * (1 - alpha.exact(alpha.of_class[index])))
    return ranks[inverse]


def _distinct_pairs(counts: IntArray, alpha: ClassAlpha) -> tuple[IntArray, ClassAlpha, IntArray]:
    """Return the distinct pairs of a count and its alpha, and the index of each count's pair."""
    n_values = len(alpha.values)
    pairs, inverse = distinct(counts * n_values + alpha.of_class)
    n, value_index = np.divmod(pairs, n_values)
    return n, alpha._replace(of_class=value_index), inverse


# ---- ranks with a confidence over calibration sets ---------------------------------------------


def least_rows(alpha: Alpha, confidence: Alpha | None = None) -> int:
    """Return the fewest scores for a finite threshold: n with (1 - alpha)^n <= 1 - confidence.

    Without a confidence it is the smallest n whose `conformal_rank` is at most n.

    >>> least_rows(0.1), least_rows(0.1, 0.9), least_rows(0.05, 0.99)
    (9, 22, 90)
    """
    level = 1 - exact_fraction(alpha)
    if confidence is None:
        return ceil(1 / (1 - level) - 1)
    delta = 1 - exact_fraction(confidence, name="confidence")
    n = max(1, floor(log(delta) / log(level)))
    n -= n > 1 and level ** (n - 1) <= delta
    return n if level**n <= delta else n + 1


def _confident_ranks(counts: IntArray, alpha: ClassAlpha, delta: Fraction) -> IntArray:
    """Bisect all counts together: the tail falls from 1 at rank 0 to 0 at rank n + 1."""
    n, alpha, inverse = _distinct_pairs(counts, alpha)
    low, high = np.zeros_like(n), n + 1
    while (high - low > 1).any():
        middle = (low + high) // 2
        within = _tails_within(n, middle, alpha, delta)
        low, high = np.where(within, low, middle), np.where(within, middle, high)
    return high[inverse]


def _tails_within(counts: IntArray, ranks: IntArray, alpha: ClassAlpha, delta: Fraction) -> Array:
    """Check P(Binomial(n, level) >= k) <= delta, exactly where floats cannot decide."""
    from scipy.special import betainc

    inside = (ranks >= 1) & (ranks <= counts)
    k, n = np.where(inside, ranks, 1), np.where(inside, counts, 1)
    tails = betainc(k.astype(float), n - k + 1.0, 1 - alpha.floats)
    tails = np.where(inside, tails, np.where(ranks < 1, 1.0, 0.0))
    within: Array = tails <= float(delta)
    for index in np.flatnonzero(inside & (np.abs(tails - float(delta)) <= 1e-9 * float(delta))):
        level = 1 - alpha.exact(alpha.of_class[index])
        within[index] = _tail_within(int(counts[index]), int(ranks[index]), level, delta)
    return within


def _tail_within(n: int, k: int, level: Fraction, delta: Fraction) -> bool:
    """Compare the tail of one count in exact integers."""
    hit, miss = level.numerator, level.denominator - level.numerator
    term = total = hit**n
    for j in range(n, k, -1):
        term = term * j * miss // ((n - j + 1) * hit)
        total += term
    return total * delta.denominator <= delta.numerator * level.denominator**n


def guard_ranks(counts: Array, alpha: ClassAlpha) -> IntArray:
    """Compute the largest k with P(Binomial(n, 1 - alpha) < k) <= 0.1 of every count n.

    The k-th smallest of a class's n scores covers at least k / (n + 1) of its new examples, on
    average over calibration sets, and it exceeds their 1 - alpha quantile with probability at most
    0.1. Rank 0 is no guard. `alpha` has one entry per count.

    >>> guard_ranks(np.array([0, 1, 2, 10, 100]), ClassAlpha.of(0.1, None, 5)).tolist()
    [0, 1, 1, 8, 86]
    """
    # P(Binomial(n, 1 - alpha) < k) = P(Binomial(n, alpha) >= n + 1 - k).
    one = None if alpha.one is None else 1 - alpha.one
    misses = ClassAlpha(1 - alpha.values, alpha.of_class, one)
    return counts + 1 - _confident_ranks(counts, misses, GUARD_RISK)


def conformal_quantile(scores: Any, alpha: Alpha) -> float:
    """Return the score of the conformal rank; +inf if there are too few scores for alpha.

    >>> conformal_quantile([0.3, 0.1, 0.2], alpha=0.25), conformal_quantile([0.3, 0.1], alpha=0.25)
    (0.3, inf)
    """
    scores = calibration_scores(scores)
    groups = np.zeros(len(scores), dtype=np.int64)
    return float(GroupedScores.sort(scores, groups, 1).quantiles(alpha)[0])


def distinct(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Return distinct integers from 0 on, ascending, and the index of each number among them.

    >>> [found.tolist() for found in distinct(np.array([7, 2, 7]))]
    [[2, 7], [1, 0, 1]]
    """
    if int(numbers.max(initial=0)) > 4 * numbers.size + 1024:
        values, inverse = np.unique(numbers, return_inverse=True)
        return values, inverse.reshape(numbers.shape)
    is_there = np.zeros(int(numbers.max(initial=0)) + 1, dtype=bool)  # a table instead of a sort
    is_there[numbers] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]


def select(values: FloatArray, indices: IntArray) -> FloatArray:
    """Return the values at some indices of their sorted order, in a few passes instead of a sort.

    >>> select(np.array([0.3, 0.1, 0.2]), np.array([2, 0]))
    array([0.3, 0.1])
    """
    if not len(indices):
        return values[indices]
    low, high = int(indices.min()), int(indices.max())
    if len(values) >= MANY_VALUES:
        # Two values of a sample enclose those at the indices, to four standard deviations.
        some = np.sort(values[::ONE_VALUE_IN])
        first = some[max(0, low // ONE_VALUE_IN - 2 * isqrt(len(some)))]
        last = some[min(len(some) - 1, high // ONE_VALUE_IN + 2 * isqrt(len(some)))]
        is_below = values < first
        n_below, between = np.count_nonzero(is_below), values[~is_below & (values <= last)]
        if n_below <= low and high < n_below + len(between):
            values, indices = between, indices - n_below
    return np.partition(values, np.unique(indices))[indices]


@dataclass(frozen=True, eq=False)
class GroupedScores:
    """Calibration scores by group: group g has ``offsets[g]`` to ``offsets[g + 1]`` of them.

    Those of a single group may come in any order if `sort_values` returns them sorted; a few ranks
    of them need no sort.
    """

    values: FloatArray
    offsets: IntArray
    sort_values: Callable[[], FloatArray] | None = None

    @cached_property
    def scores(self) -> FloatArray:
        """The scores, sorted within groups."""
        return self.values if self.sort_values is None else self.sort_values()

    @classmethod
    def sort(
        cls, scores: FloatArray, groups: IntArray, n_groups: int, order: IntArray | None = None
    ) -> GroupedScores:
        """Sort scores within groups, leaving out group -1; `order` sorts them all, if known."""
        if n_groups == 1:
            return cls.one(scores[groups == 0])
        order = _kernels.ascending(scores) if order is None else order
        order, offsets = _kernels.by_group(groups, n_groups, order)
        return cls(scores[order[offsets[0] :]], offsets - offsets[0])

    @classmethod
    def one(cls, scores: FloatArray, sort: Callable[[], FloatArray] | None = None) -> GroupedScores:
        """Wrap scores in any order as one group; `sort` returns them sorted, if they may be so."""
        return cls(scores, np.array([0, len(scores)]), sort or partial(np.sort, scores))

    def with_all(self, scores: FloatArray) -> GroupedScores:
        """Append a group of all scores (N,), which are sorted."""
        offsets = np.append(self.offsets, len(self.scores) + len(scores))
        return GroupedScores(np.concatenate([self.scores, scores]), offsets)

    @property
    def counts(self) -> IntArray:
        """Number of scores in each group."""
        return np.diff(self.offsets)

    def of(self, group: int) -> FloatArray:
        """Return the sorted scores of one group."""
        return self.scores[self.offsets[group] : self.offsets[group + 1]]

    def at_ranks(self, ranks: IntArray, groups: IntArray | None = None) -> FloatArray:
        """Return the ranks[..., i]-th smallest score of groups[i]: -inf for rank 0, +inf after n.

        By default all groups.
        """
        groups = np.arange(len(self.counts)) if groups is None else groups
        groups, ranks = np.broadcast_arrays(groups, ranks)
        inside = (ranks >= 1) & (ranks <= self.counts[groups])
        indices = (self.offsets[groups] + ranks - 1)[inside]
        is_sorted = self.sort_values is None or "scores" in vars(self)
        values = np.where(ranks < 1, -np.inf, np.inf)
        values[inside] = self.scores[indices] if is_sorted else select(self.values, indices)
        return values

    def quantiles(self, alpha: Alpha) -> FloatArray:
        """Compute the conformal quantile of each group."""
        return self.at_ranks(conformal_ranks(self.counts, alpha))

    def thresholds(
        self,
        alpha: Alpha | ClassAlpha,
        exact: bool,
        confidence: Alpha | None = None,
        random_state: int = 0,
        *,
        groups: IntArray | None = None,
    ) -> Thresholds:
        """Compute one threshold per group, or the randomized pair.

        `groups` (J,) are the groups of J classes, each of which has its own `alpha`.
        """
        groups = np.arange(len(self.counts)) if groups is None else groups
        counts = self.counts[groups]
        ranks = conformal_ranks(counts, alpha, confidence)
        if not exact:
            return Thresholds(self.at_ranks(ranks, groups))
        # With b and c as in the paper, c / (b + c) = (n + 1)(1 - alpha) - (k - 1).
        class_alpha = ClassAlpha.of(alpha, None, len(groups))
        if class_alpha.one is None:
            chance = np.clip((counts + 1.0) * (1 - class_alpha.floats) - (ranks - 1), 0, 1)
        else:
            sizes, size_of_group = distinct(counts)
            aims = [(n + 1) * (1 - class_alpha.one) for n in sizes.tolist()]
            chance = np.array([float(aim - ceil(aim) + 1) for aim in aims])[size_of_group]
        both = np.stack([ranks, ranks - 1])
        (upper, lower), shares = self.at_ranks(both, groups), self.tie_shares(groups, both)
        if shares is None:
            return Thresholds(upper, lower, chance)
        draws = content_draws(random_state, len(groups), self.scores, self.offsets)
        edge = shares[0] - shares[1]  # of E ties, 1 / (E + 1)
        return break_ties(upper, lower, chance, shares[0], shares[1], draws, edge)

    def tie_shares(self, groups: IntArray, ranks: IntArray) -> FloatArray | None:
        """Return P(a new tied score is at most the ranks[..., i]-th smallest of groups[i]).

        If E scores and a new one are equal and in random order, the new one precedes the j-th with
        probability j / (E + 1). Return None if no group has ties.
        """
        is_first = np.append(True, self.scores[1:] != self.scores[:-1])
        is_first[self.offsets[:-1][self.counts > 0]] = True
        if is_first.all():
            return None
        ends = np.append(np.flatnonzero(is_first), len(self.scores))
        index = np.clip(self.offsets[groups] + ranks - 1, 0, len(self.scores) - 1)
        run = np.searchsorted(ends, index, side="right") - 1
        shares = (index - ends[run] + 1) / (ends[run + 1] - ends[run] + 1)
        return np.where((ranks >= 1) & (ranks <= self.counts[groups]), shares, 1.0)


class Groups(NamedTuple):
    """Calibration scores by group, and the group of each class (K,).

    The last group may have the scores of all classes (``has_all``), for classes without their own.
    """

    scores: GroupedScores
    of_class: IntArray
    has_all: bool = False

    @property
    def whose(self) -> list[str]:
        """Whose scores each group has: it follows "60 calibration scores"."""
        members = np.bincount(self.of_class, minlength=len(self.scores.counts)).tolist()
        whose = [
            "of this class" if n == 1 else f"shared with {n - 1:,} other class{'es' * (n > 2)}"
            for n in members
        ]
        if self.has_all or len(members) == 1:
            whose[-1] = "of all classes"
        return whose

    def thresholds(
        self, alpha: ClassAlpha, *, exact: bool, random_state: int, confidence: Alpha | None = None
    ) -> Thresholds:
        """Compute the threshold of each class, or the randomized pair."""
        options = (exact, confidence, random_state)
        if alpha.one is None:
            return self.scores.thresholds(alpha, *options, groups=self.of_class)
        return self.scores.thresholds(alpha.one, *options).of_classes(self.of_class)

    def p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        """Compute p-values of scores (n, J) of rows as members of `classes` (J,)."""
        ordered, offsets = self.scores.scores, self.scores.offsets
        return _kernels.p_values_of(scores, ordered, offsets, self.of_class[classes], own_share)


def break_ties(
    upper: FloatArray,
    lower: FloatArray,
    chance: FloatArray,
    upper_share: FloatArray,
    lower_share: FloatArray,
    draws: FloatArray,
    edge: FloatArray | float = 0.0,
) -> Thresholds:
    """Randomize thresholds that new scores can tie with.

    The order within a tie is random. A new score that ties with `upper` (used with probability
    `chance`) is within it with probability `upper_share`, and likewise for `lower`. If they differ,
    one of `draws` per group includes or excludes each tie for all rows, which keeps a pair of
    thresholds sufficient. If both thresholds are equal, the row's draw decides, but that of the
    group where it puts the new score before all ties or after them, which has probability `edge`
    each. So sets grow with both shares. Coverage equals that of distinct scores.
    """
    same = upper == lower
    share = chance * upper_share + (1 - chance) * lower_share
    within = np.clip((share - edge) / np.maximum(1 - 2 * edge, 1e-12), 0, 1)
    within = np.where(draws < edge, 1.0, np.where(draws < 1 - edge, within, 0.0))
    return Thresholds(
        np.where(same | (draws < upper_share), upper, just_below(upper)),
        np.where(~same & (draws < lower_share), lower, just_below(lower)),
        np.where(same, within, chance),
    )


def content_draws(random_state: int, n_draws: int, *content: Array) -> FloatArray:
    """Draw uniforms (n_draws,) that depend on the calibration content as well as the seed.

    With the seed alone, the same groups would be favored in every calibration.
    """
    digest = hashlib.blake2b(digest_size=8)
    for values in content:
        with np.errstate(over="ignore"):  # seven digits: levels differ in the last one by machine
            digest.update((values.astype(np.float32) + 0).tobytes())  # + 0 turns -0.0 into 0.0
    first = np.uint64(int.from_bytes(digest.digest(), "little"))
    keys = np.arange(n_draws, dtype=np.uint64) + first
    return uniforms(random_state, RandomStream.THRESHOLD_TIES, keys)


def just_below(values: FloatArray) -> FloatArray:
    """Return the next smaller floats; infinite values stay."""
    return np.where(np.isfinite(values), np.nextafter(values, -np.inf), values)


def calibration_scores(scores: Any) -> FloatArray:
    """Convert scores to float64; reject NaN."""
    values = to_numpy(scores).astype(np.float64, copy=False)
    if values.ndim != 1:
        raise InputError(f"'scores' must have one dimension. Got shape {values.shape} instead.")
    if np.isnan(values).any():
        raise InputError(
            f"'scores' must not contain NaN. Got NaN at {int(np.isnan(values).argmax())}."
        )
    return values
