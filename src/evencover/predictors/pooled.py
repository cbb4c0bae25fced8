"""POOLED: class-specific thresholds by partial pooling, and a guarantee for every class.

    u(s)       = #{i : s_i < s} / N
    x(s)       = Phi^-1(u(s))
    prior_y(s) = (1 - shared) Phi((x(s) - mu_y) / sigma_y) + shared u(s)
    level_y(s) = (#{own scores < s} + c prior_y(s)) / (n_y + c)
    threshold  = the largest score with level_y(s) <= t, at least the k(n_y)-th smallest own score

mu_y and sigma_y come from a random-effects model of the classes, c from the method of moments, and
t is the conformal rank of held-out levels; with an alpha per class, t_a is that of the classes with
alpha a. c = 0 is CLASSWISE; c = inf with shared = 1 is STANDARD, both without the guard k(n_y).

The guard (`quantiles.guard_ranks`) is an order statistic of the class's own exchangeable scores. So
the class is covered with probability at least k / (n_y + 1), whatever the model. Levels know it:
scores up to the guard, which are included anyway, have level_y(s) - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil, inf
from typing import ClassVar, NamedTuple

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError, warn_caller
from evencover.predictors.base import BasePredictor
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.explanations import floor_sentence, target_coverage
from evencover.predictors.fit import Fit
from evencover.predictors.folds import HELD_OUT, N_FOLDS, Dealt, deal, tie_draws
from evencover.predictors.guarantees import AUTO, some_names
from evencover.predictors.normal_model import NormalModel, fit_models, normal_scores
from evencover.quantiles import (
    Alpha,
    ClassAlpha,
    GroupedScores,
    Groups,
    Thresholds,
    break_ties,
    content_draws,
    guard_ranks,
    just_below,
    select,
)
from evencover.sizes import at_once
from evencover.threads import on_slices
from evencover.validation import Check, one_of, real_number, unless

ROWS_AT_ONCE = at_once(1 << 14)  # that one thread computes at a time
LEAST_STRENGTH, MOST_STRENGTH = 5.0, 200.0  # no prior outweighs hundreds of examples


def moment_strength(hits: IntArray, n: IntArray, alpha: float) -> float:
    """Estimate c from how much coverage at a common prior level varies between classes.

    Under a Dirichlet process around the prior, a class's coverage where the prior has 1 - alpha
    has variance alpha (1 - alpha) / (c + 1). `hits` of `n` (K,) rows are covered; the squared gap
    of a class is estimated without bias from pairs of its rows.
    """
    pairs = n * (n - 1.0)
    gap = hits - n * (1 - alpha)
    own_squares = hits * alpha**2 + (n - hits) * (1 - alpha) ** 2
    weights = np.where(pairs > 0, 1 / (1 + pairs / 200), 0.0)  # pairs cancels out below
    total = (weights * pairs).sum()
    variance = (weights * (gap**2 - own_squares)).sum() / total if total else 0.0
    c = alpha * (1 - alpha) / variance - 1 if variance > 0 else inf
    return float(min(max(c, LEAST_STRENGTH), MOST_STRENGTH))


@dataclass(frozen=True, eq=False)
class Pool:
    """The fitted distributions of the classes.

    The index of a score is the number of scores below it, of all n that the model learned from,
    ``scores`` (n,), ascending; ``normal`` (n + 1,) are the normal scores of all indices. Class y
    has its own scores at ``indices[offsets[y]:offsets[y + 1]]``, ascending. ``model`` is the prior,
    and ``guards`` (K,) are the ranks of the guards, as far as levels know them.
    """

    scores: FloatArray
    normal: FloatArray
    indices: IntArray
    offsets: IntArray
    model: NormalModel
    strength: float
    shared: float
    guards: IntArray

    @cached_property
    def counts(self) -> IntArray:
        """The number of own scores of each class (K,)."""
        return np.diff(self.offsets)

    @cached_property
    def own_groups(self) -> GroupedScores:
        """Each class's own scores, sorted."""
        return GroupedScores(self.scores[self.indices], self.offsets)

    @property
    def own_weight(self) -> FloatArray:
        """The weight of the own scores of each class (K,), n / (n + c)."""
        return own_share(self.counts, self.strength)

    @cached_property
    def keys(self) -> IntArray:
        """The own indices as one increasing list: class * (n + 1) + index."""
        return np.repeat(np.arange(len(self.counts)), self.counts) * len(self.normal) + self.indices

    def level(self, classes: IntArray, indices: IntArray) -> FloatArray:
        """Compute level_y(s) of scores at these indices, as members of `classes`."""
        before = np.searchsorted(self.keys, classes * len(self.normal) + indices)
        return self._level(classes, indices, before - self.offsets[classes])

    def _level(self, classes: IntArray | slice, indices: IntArray, before: IntArray) -> FloatArray:
        parts = blend_parts(before, self.counts[classes], self.strength, self.guards[classes])
        return blend(parts, self._prior(classes, indices))

    def _prior(self, classes: IntArray | slice, indices: IntArray) -> FloatArray:
        mean, deviation = self.model
        return prior_level(self.normal, indices, mean[classes], deviation[classes], self.shared)

    def _own(self, numbers: IntArray) -> IntArray:
        return self.indices[np.clip(numbers, 0, len(self.indices) - 1)]

    def last_index(self, level: FloatArray) -> IntArray:
        """Find the largest index of each class with at most this level (K,); -1 for none."""
        found = np.empty(len(level), dtype=np.int64)

        def find(classes: slice) -> None:
            found[classes] = self._last_index(classes, level[classes])

        on_slices(find, len(level), ROWS_AT_ONCE)
        return found

    def _last_index(self, classes: slice, level: FloatArray) -> IntArray:
        """Bisect the own indices first, and then the indices between two of these."""
        start, n = self.offsets[:-1][classes], self.counts[classes]
        low, high = np.full_like(n, -1), n - 1
        while (low < high).any():
            middle = low + (high - low + 1) // 2
            within = self._level(classes, self._own(start + middle), middle) <= level
            low, high = np.where(within, middle, low), np.where(within, high, middle - 1)
        before = low + 1
        low = np.where(before > 0, self._own(start + low), -1)
        high = np.where(before < n, self._own(start + before) - 1, len(self.scores))
        fixed = blend_parts(before, n, self.strength, self.guards[classes])
        while (low < high).any():
            middle = low + (high - low + 1) // 2
            within = blend(fixed, self._prior(classes, middle)) <= level
            low, high = np.where(within, middle, low), np.where(within, high, middle - 1)
        return low


class FittedPool(NamedTuple):
    """Distributions, held-out levels in groups by alpha, and t of each class, or the pair of it."""

    pool: Pool
    held_out: Groups
    t: Thresholds


def prior_level(
    normal: FloatArray, indices: IntArray, mean: FloatArray, deviation: FloatArray, shared: float
) -> FloatArray:
    """Compute prior_y at some indices, for classes with this mean and spread."""
    from scipy.special import ndtr

    level = (1 - shared) * ndtr((normal[indices] - mean) / deviation)
    return level + shared * (indices / (len(normal) - 1))


def own_share(n: FloatArray | IntArray, c: float) -> FloatArray:
    """Compute n / (n + c), also for no examples and no prior."""
    return n / np.maximum(n + c, 1e-12)


def blend_parts(
    before: IntArray, n: FloatArray | IntArray, c: float, guard: IntArray
) -> tuple[FloatArray, FloatArray, Array]:
    """Return what `blend` needs besides the prior, with so many of n own scores before it."""
    own = own_share(n, c)
    return own * before / np.maximum(n, 1), 1 - own, before < guard


def blend(parts: tuple[FloatArray, FloatArray, Array], prior: FloatArray) -> FloatArray:
    """Compute level_y from the share of own scores, the weight of the prior, and the guard."""
    own, weight, is_guarded = parts
    return own + weight * prior - is_guarded


def count_by_class(flags: Array, offsets: IntArray) -> IntArray:
    """Count flags (N,) in the order of classes; class y has ``flags[offsets[y]:offsets[y + 1]]``.

    >>> count_by_class(np.array([True, False, True]), np.array([0, 2, 2, 3])).tolist()
    [1, 0, 1]
    """
    counts, is_there = np.zeros(len(offsets) - 1, dtype=np.int64), np.diff(offsets) > 0
    if len(flags):
        counts[is_there] = np.add.reduceat(flags, offsets[:-1][is_there], dtype=np.int32)
    return counts


@dataclass(kw_only=True, eq=False, repr=False)
class PooledPredictor(BasePredictor):
    """Class-specific thresholds by partial pooling, with a guarantee for every class.

    Each class's score distribution combines its own calibration scores with a prior fitted to all
    classes. The prior acts as a pseudo-count, so frequent classes rely mostly on their own data.
    All classes share one level, at which the sets cover 1 - alpha of held-out labels.

    Guarantee. P(Y in C(X) | Y = y) >= k / (n_y + 1) for every class y, on average over calibration
    sets, for exchangeable rows within the class: at alpha = 0.1 it is 73% with 10 examples, 82%
    with 50 and 85% with 100 (``floor="auto"``). Coverage of 1 - alpha is the target.
    Overall coverage, P(Y in C(X)), is at least 1 - alpha with ``split="holdout"``, unless rows are
    taken for copies. With "crossfit" it is close to 1 - alpha, without a finite-sample guarantee.
    P-values compare levels with those of held-out calibration rows.

    Parameters
    ----------
    strength
        Pseudo-count c of the prior; "auto" estimates it. 0 is CLASSWISE.
    shared
        Weight of the pooled distribution in the prior; 1 with infinite strength is STANDARD.
    split
        "crossfit" uses all rows for both steps; "holdout" sets a fifth aside for the level.
    alpha, score, exact, keep_top, floor, from_logits, random_state
        As for every predictor.

    Examples
    --------
    >>> from evencover.data import load_languages
    >>> rows, labels, names = load_languages()
    >>> predictor = PooledPredictor().fit(rows[:10000], labels[:10000], class_names=names)
    >>> predictor.predict_set(rows[10002:10004]).to_lists(names=True)
    [['Quechua, Huamalíes-Dos de Mayo Huánuco', 'Quechua, Cusco', 'Quechua, Arequipa-La Unión'],
     ['Telugu']]
    >>> print(predictor.class_counts_[0], predictor.guarantees_[0].round(2))
    17 0.78
    """

    floor: Alpha | None = AUTO
    strength: float | str = "auto"
    shared: float = 0.1
    split: str = "crossfit"

    method = "pooled"
    summary = "one threshold per class, estimated by partial pooling"
    needs = ("label values",)
    supports = ("exact", "class alpha")
    _remedies = ("classwise", None)
    _missing_class_note = "their thresholds are predicted from the other classes"
    _constraints: ClassVar[dict[str, Check]] = {
        "strength": unless(("auto", inf), partial(real_number, low=0)),
        "shared": partial(real_number, low=0, high=1),
        "split": one_of("crossfit", "holdout"),
    }

    # ---- calibration -------------------------------------------------------------------------

    def _calibrate(self, rows: CalibrationRows) -> tuple[Thresholds, None]:
        dealt = self._deal(rows)
        n_learning = int((dealt.folds != HELD_OUT).sum())
        if n_learning < 2:
            raise InputError(
                "PooledPredictor needs at least 2 calibration rows to fit the classes. "
                f"Got {n_learning}."
            )
        dealt.warn_of_copies()
        fitted, alpha = self._fit_pool(rows, dealt), self._class_alpha(rows)
        few = fitted.held_out.of_class == len(alpha.values)
        if few.any():
            warn_caller(
                f"{few_of_alpha(few, rows.class_names)}; the level of their thresholds comes from "
                "the examples of all classes."
            )
        if self.strength == 0:
            own = fitted.pool.own_groups
            return own.thresholds(alpha, self.exact, random_state=self.random_state), None
        return self._thresholds(rows, dealt, fitted), None

    def _deal(self, rows: CalibrationRows) -> Dealt:
        return deal(rows, self.random_state, with_holdout=self.split == "holdout")

    def _fit_pool(self, rows: CalibrationRows, dealt: Dealt | None = None) -> FittedPool:
        """Fit the distributions of the classes, and compute the levels of held-out rows.

        The level of a row comes from the fit to the other folds. Copies count once for the
        strength, which is about the variation between rows, but every row counts for t.
        """
        dealt = self._deal(rows) if dealt is None else dealt
        # From here on, rows are in the order of their classes and then of their scores.
        alpha, folds = self._class_alpha(rows), dealt.by_class(dealt.folds)
        pool, level = self._levels(dealt, folds, alpha)
        # No set contains the label of a top-k row that does not list it, whatever the thresholds.
        level[dealt.indices >= np.searchsorted(dealt.scores, inf)] = inf
        held_out = self._group_levels(level, folds == HELD_OUT, np.diff(dealt.offsets), alpha)
        t = held_out.thresholds(alpha, exact=self.exact, random_state=self.random_state)
        return FittedPool(pool, held_out, t)

    def _levels(self, dealt: Dealt, folds: Array, alpha: ClassAlpha) -> tuple[Pool, FloatArray]:
        """Fit the distributions of the classes, and compute the level of every row (N,)."""
        counts, n_classes = np.diff(dealt.offsets), len(dealt.offsets) - 1
        learns = folds != HELD_OUT
        indices, scores = dealt.indices, dealt.scores
        if self.split == "holdout":
            learned = dealt.folds[dealt.by_score] != HELD_OUT
            indices, scores = (np.cumsum(learned) - learned)[indices], scores[learned]
        n_rows, cell = len(scores), np.multiply(folds, n_classes, dtype=np.int64)
        cell += np.repeat(np.arange(n_classes), counts)
        # Own scores of other folds before each row: all before it less those of its fold.
        before = np.arange(len(folds))
        before -= np.repeat(dealt.offsets[:-1], counts)
        before -= _kernels.rank_within(cell, (N_FOLDS + 1) * n_classes)
        before = before.astype(np.int32)
        x = normal_scores(len(folds), n_rows, lambda some: indices[some] + 0.5)
        n, models = fit_models(cell, x, n_classes)
        cell, level = cell.astype(np.int32), x  # which is no longer needed
        normal = normal_scores(n_rows + 1, n_rows, lambda some: np.arange(some.start, some.stop))
        mean, deviation = models.mean.ravel(), models.deviation.ravel()

        def compute_prior(some: slice) -> None:
            model = mean[cell[some]], deviation[cell[some]]
            level[some] = prior_level(normal, indices[some], *model, self.shared)

        on_slices(compute_prior, len(level), ROWS_AT_ONCE)
        counted = learns if dealt.is_once is None else learns & dealt.by_class(dealt.is_once)
        strength = self._strength(level, counted, dealt.offsets, alpha)
        guards = self._guards(n, alpha)

        def compute_level(some: slice) -> None:
            of_cell = n.ravel()[cell[some]], strength, guards.ravel()[cell[some]]
            level[some] = blend(blend_parts(before[some], *of_cell), level[some])

        on_slices(compute_level, len(level), ROWS_AT_ONCE)
        pool = Pool(
            scores,
            normal,
            indices[learns] if self.split == "holdout" else indices,
            np.append(0, np.cumsum(n[HELD_OUT])),
            NormalModel(models.mean[HELD_OUT], models.deviation[HELD_OUT]),
            strength,
            self.shared,
            guards[HELD_OUT],
        )
        return pool, level

    def _strength(
        self, prior: FloatArray, counted: Array, offsets: IntArray, alpha: ClassAlpha
    ) -> float:
        """Return c, estimated from the priors of the rows that are counted, or as given."""
        if self.strength != "auto":
            return float(self.strength)
        level, is_all = 1 - alpha.typical, bool(counted.all())
        of_counted = prior if is_all else prior[counted]
        index = ceil(level * len(of_counted)) - 1
        is_hit = counted & (prior <= select(of_counted, np.array([index])))
        hits = count_by_class(is_hit, offsets)
        n = np.diff(offsets) if is_all else count_by_class(counted, offsets)
        return moment_strength(hits, n, float(1 - level))

    def _guards(self, n: IntArray, alpha: ClassAlpha) -> IntArray:
        """Return the guard's rank among `n` (folds + 1, K) own scores, as far as levels know it.

        Held-out rows of split="holdout" are among the scores that make the guard, so the level of
        all thresholds is chosen without it.
        """
        if self.floor != AUTO or self.split == "holdout":
            return np.zeros_like(n)
        return guard_ranks(n, alpha._replace(of_class=np.broadcast_to(alpha.of_class, n.shape)))

    def _group_levels(
        self, level: FloatArray, is_held_out: Array, counts: IntArray, alpha: ClassAlpha
    ) -> Groups:
        """Group held-out levels by alpha; classes of an alpha with too few use those of all."""
        decides = is_held_out if self.split == "holdout" else slice(None)
        level = level[decides]
        if alpha.is_one:
            return Groups(GroupedScores.one(level), alpha.of_class)
        value_index = np.repeat(alpha.of_class, counts)[decides]
        groups = GroupedScores.sort(level, value_index, len(alpha.values))
        least = np.ceil(1 / alpha.values - 1 - 1e-9)  # as `least_rows`
        few = (groups.counts < least)[alpha.of_class]
        if not few.any():
            return Groups(groups, alpha.of_class)
        return Groups(
            groups.with_all(np.sort(level)), np.where(few, len(alpha.values), alpha.of_class), True
        )

    def _thresholds(self, rows: CalibrationRows, dealt: Dealt, fitted: FittedPool) -> Thresholds:
        """Find the score of each class at its level t, or at its guard if that is higher."""
        pool, _, (level, low, chance, _) = fitted
        guards = self._guard_indices(rows, dealt, pool)

        def last_index(level: FloatArray) -> IntArray:
            index = pool.last_index(level)
            if self.split == "holdout":  # the pool has some of all scores
                learned = np.flatnonzero(dealt.folds[dealt.by_score] != HELD_OUT)
                index = np.append(learned, [len(rows), -1])[index]
            return np.maximum(index, guards)

        upper, lower = last_index(level), None if low is None else last_index(low)
        scores = dealt.score_at(upper), None if lower is None else dealt.score_at(lower)
        if not dealt.has_ties:
            return Thresholds(*scores, chance)

        def share(index: IntArray) -> FloatArray:
            row = dealt.by_score[np.clip(index, 0, len(rows) - 1)]
            is_row = (index >= 0) & (index < len(rows))
            return np.where(is_row, tie_draws(rows, row, self.random_state), 1.0)

        if lower is None or chance is None or scores[1] is None:
            return Thresholds(scores[0], just_below(scores[0]), share(upper))
        draws = content_draws(self.random_state, len(upper), pool.scores, pool.keys)
        return break_ties(scores[0], scores[1], chance, share(upper), share(lower), draws)

    def _guard_indices(self, rows: CalibrationRows, dealt: Dealt, pool: Pool) -> IntArray:
        """Return the index (K,) of each class's guard among all scores; -1 for none."""
        if self.floor != AUTO:
            return np.full(rows.n_classes, -1)
        ranks = pool.guards
        if self.split == "holdout":  # levels do not know them
            ranks = self._floor.ranks(rows.class_counts, self._class_alpha(rows))
        own = dealt.indices[np.maximum(dealt.offsets[:-1] + ranks - 1, 0)]
        return np.where(ranks > 0, own, -1)

    def _with_floor(self, thresholds: Thresholds, rows: CalibrationRows) -> Thresholds:
        return thresholds if self.floor == AUTO else super()._with_floor(thresholds, rows)

    # ---- what follows from the rows ------------------------------------------------------------

    def _derive(self, rows: CalibrationRows, state: None) -> FittedPool:
        return self._fit_pool(rows)

    @property
    def own_weight_(self) -> FloatArray:
        """The weight of each class's own examples in its distribution (K,), n / (n + c)."""
        own_weight: FloatArray = self._any_fit.derived.pool.own_weight
        return own_weight.copy()

    def _p_values(
        self, fit: Fit, scores: FloatArray, classes: IntArray, own_share: FloatArray
    ) -> FloatArray:
        pool, held_out, _ = fit.derived
        if self.strength == 0:
            own = pool.own_groups
            return _kernels.p_values_of(scores, own.scores, own.offsets, classes, own_share)
        indices = np.searchsorted(pool.scores, scores)
        level = pool.level(np.broadcast_to(classes, scores.shape), indices)
        return held_out.p_values(level, classes, own_share)

    def _level_rows(self, fit: Fit) -> int:
        return int(fit.derived.held_out.scores.offsets[len(fit.alpha.values)])

    # ---- explanation -------------------------------------------------------------------------

    def _guarantee_of(self, fit: Fit) -> str:
        overall = "over all examples" if fit.alpha.is_one else "over classes with the same alpha"
        relation = "guaranteed to be at least" if self.split == "holdout" else "close to"
        target = target_coverage(fit.alpha)
        text = f"Targets {target} for every class; coverage {overall} is {relation} {target}."
        text = f"{text} {floor_sentence(fit) or 'No single class has a guarantee.'}"
        few = fit.derived.held_out.of_class == len(fit.alpha.values)
        if few.any():
            text += f" {few_of_alpha(few, fit.class_names)}, so nothing is guaranteed overall."
        return text

    def _own_guarantees(self, fit: Fit) -> FloatArray:
        alpha = fit.alpha.floats
        return alpha * 0 if self.strength else 1 - alpha  # 0 is CLASSWISE

    def _weights(self, fit: Fit) -> dict[str, FloatArray]:
        own_weight = fit.derived.pool.own_weight
        borrowed = 1 - own_weight
        return {
            "its own calibration examples": own_weight,
            "the normal model of all classes": (1 - self.shared) * borrowed,
            "the pooled distribution": self.shared * borrowed,
        }

    def _cause(self, fit: Fit, under: IntArray) -> str:
        borrowed = 1 - float(np.median(fit.derived.pool.own_weight[under]))
        whose = "The threshold is" if len(under) == 1 else "The median threshold of these is"
        return f"{whose} {borrowed:.0%} borrowed from other classes, which made it too strict."


def few_of_alpha(few: Array, class_names: Sequence[str] | None) -> str:
    """State which classes (K,) have an alpha with too few examples."""
    return (
        f"{int(few.sum())} of {len(few)} classes{some_names(class_names, few)} have an alpha with "
        "too few calibration examples together"
    )
