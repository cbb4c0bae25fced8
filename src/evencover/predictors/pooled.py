"""POOLED: class-specific thresholds by partial pooling.

    u(s)       = #{i : s_i < s} / N
    x(s)       = Phi^-1(u(s))
    prior_y(s) = (1 - shared) Phi((x(s) - mu_y) / sigma_y) + shared u(s)
    level_y(s) = (#{own scores < s} + c prior_y(s)) / (n_y + c)
    threshold  = the largest score with level_y(s) <= t

mu_y and sigma_y come from a random-effects model of the classes, c from the method of moments, and
t is the conformal rank of held-out levels; with an alpha per class, t_a is that of the classes with
alpha a. c = 0 is CLASSWISE; c = inf with shared = 1 is STANDARD.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evencover import _kernels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import InputError, warn_caller
from evencover.predictors.base import BasePredictor
from evencover.predictors.explanation import enough_for_classwise, some_names
from evencover.predictors.fitting import (
    N_FOLDS,
    CalibrationRows,
    ascending,
    assign_folds,
    find_copies,
    hold_out,
    one_of_each,
    with_same_id,
)
from evencover.predictors.method import ClassValues
from evencover.predictors.prevalence import (
    class_weights,
    sorted_weights,
    weighted_p_values,
    weighted_thresholds,
)
from evencover.predictors.state import kept
from evencover.quantiles import GroupedScores, Thresholds, break_ties, by_group
from evencover.randomness import RandomStream, random_order
from evencover.validation import Check, one_of, real_number, unless

SPREAD_ROWS = 40.0  # pseudo-count of the variance within classes
LEAST_STRENGTH, MOST_STRENGTH = 5.0, 200.0  # no prior outweighs hundreds of examples


class NormalModel(NamedTuple):
    """Mean and standard deviation (K,) of each class's normal scores."""

    mean: FloatArray
    deviation: FloatArray

    @classmethod
    def fit(cls, n: FloatArray, total: FloatArray, squares: FloatArray) -> NormalModel:
        """Fit random effects to each class's count, sum and sum of squares (K,).

        The class means follow N(a + b log(1 + n_y), between + within / n_y): rare classes tend to
        be the hard ones. Each mean shrinks toward the line by within / between, each variance
        toward `within`.
        """
        if not n.any():  # one fold holds all rows
            return cls(np.zeros(len(n)), np.ones(len(n)))
        own_mean = total / np.maximum(n, 1)
        spread = np.maximum(squares - n * own_mean**2, 0.0)
        # One example per class does not identify `within` and `between`: what is missing to
        # 1.5 examples per class counts as variance within classes.
        seen, everyone = (n > 0).sum(), squares.sum() - total.sum() ** 2 / n.sum()
        missing = max(1.5 * seen - n.sum(), 0)
        variance = (spread.sum() + missing * everyone / n.sum()) / (n.sum() - seen + missing)
        within = max(variance, 1e-6)
        expected, between = _class_line(n, own_mean, within)
        kappa = within / between
        mean = (n * own_mean + kappa * expected) / (n + kappa)
        variance = (SPREAD_ROWS * within + spread) / (SPREAD_ROWS + np.maximum(n - 1, 0))
        return cls(mean, np.sqrt(variance * (1 + 1 / (n + kappa))))


def _class_line(n: FloatArray, means: FloatArray, within: float) -> tuple[FloatArray, float]:
    """Fit a + b log(1 + n_y) to the class means; return it (K,) and the variance around it.

    Weighted least squares; the variance is the one at which the weighted squares equal their
    degrees of freedom (Paule and Mandel 1982), found by Newton's method.
    """
    seen = n > 0
    feature, y, noise = np.log1p(n), means[seen], within / n[seen]
    x = feature[seen]
    has_slope = len(x) > 2 and np.ptp(x) > 1e-9
    between = 0.0
    for _ in range(100):
        w = 1 / (between + noise)
        center, mean = w @ x / w.sum(), w @ y / w.sum()
        slope = (w * (x - center)) @ (y - mean) / (w @ (x - center) ** 2) if has_slope else 0.0
        squares = (y - mean - slope * (x - center)) ** 2
        step = (w @ squares - (len(x) - 1 - has_slope)) / max(w**2 @ squares, 1e-300)
        if step <= 1e-9 * between:
            break
        between += step
    return mean + slope * (feature - center), min(max(between, 1e-3), 1e3)


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


@dataclass(kw_only=True, eq=False, repr=False)
class PooledPredictor(BasePredictor):
    """Class-specific thresholds by partial pooling.

    Each class's score distribution combines its own calibration scores with a prior fitted to all
    classes. The prior acts as a pseudo-count, so frequent classes rely mostly on their own data.
    All classes share one level of these distributions, chosen so that the sets cover 1 - alpha of
    held-out labels.

    Guarantee. ``split="holdout"``: marginal coverage P(Y in C(X)) >= 1 - alpha in finite samples,
    for exchangeable rows. ``split="crossfit"``: coverage is 1 - alpha up to the instability of the
    fit, without a finite-sample guarantee. Class-conditional coverage is the target, not a
    guarantee.

    Parameters
    ----------
    strength
        Pseudo-count c of the prior; "auto" estimates it. 0 is CLASSWISE.
    shared
        Weight of the pooled distribution in the prior; 1 with infinite strength is STANDARD.
    split
        "crossfit" uses all rows for both steps; "holdout" sets a fifth aside for the level.
    target_prevalence
        Class frequencies of the guarantee: (K,) numbers in proportion, the path of a file, or
        "uniform"; by default those of the calibration set.
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor. P-values compare levels with those of held-out calibration rows.

    Attributes
    ----------
    strength_
        The pseudo-count c.
    own_weight_
        (K,) weight of each class's own examples in its distribution, n / (n + c).
    expected_
        (K, 2) mean and spread of each class's normal scores under the prior.
    level_
        The level t that all classes share; with a target prevalence, or an alpha per class, the
        largest of theirs.
    """

    target_prevalence: ClassValues | None = None
    strength: float | str = "auto"
    shared: float = 0.1
    split: str = "crossfit"

    method: ClassVar[str] = "pooled"
    summary: ClassVar[str] = "one threshold per class, estimated by partial pooling"
    guarantee: ClassVar[str] = (
        "Targets coverage of 1 - alpha for every class without guaranteeing it; overall coverage "
        "is guaranteed with split='holdout', and otherwise close to 1 - alpha."
    )
    needs: ClassVar[tuple[str, ...]] = ("label values",)
    class_alpha_guarantee: ClassVar[str] = (
        "Targets coverage of 1 - alpha for every class without guaranteeing it; coverage over the "
        "classes with the same alpha is guaranteed with split='holdout', and otherwise close to "
        "1 - alpha."
    )
    supports_class_alpha: ClassVar[bool] = True
    missing_class_note: ClassVar[str] = "their thresholds are predicted from the other classes"
    constraints: ClassVar[dict[str, Check]] = {
        "strength": unless(("auto", inf), partial(real_number, low=0)),
        "shared": partial(real_number, low=0, high=1),
        "split": one_of("crossfit", "holdout"),
    }
    pooled_scores_: FloatArray = kept(float, "N")
    # class * (N + 1) + place among the pooled scores, in increasing order
    own_places_: IntArray = kept(int, "N")
    own_weight_: FloatArray = kept(float, "K")
    expected_: FloatArray = kept(float, "KP")
    # by alpha, and once more all of them if an alpha has too few
    calibration_levels_: FloatArray = kept(float, "?")
    level_offsets_: IntArray = kept(int, "?")
    level_group_: IntArray = kept(int, "K")
    level_weights_: FloatArray | None = kept(float, "?", optional=True)
    strength_: float = kept(float)
    level_: float = kept(float)

    # ---- calibration -------------------------------------------------------------------------

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        by_score, tie_draws = ascending(rows, self.random_state)
        order = random_order(self.random_state, RandomStream.FOLDS, rows.ids)
        copies = find_copies(rows, by_score, has_ties=tie_draws is not None)
        together = with_same_id(copies, rows.ids, order)
        counts = np.zeros(len(order), dtype=bool)  # one of each group of copies
        counts[one_of_each(copies, order)] = True
        is_held_out = np.zeros_like(counts)
        if self.split == "holdout":
            is_held_out = hold_out(together, order)
        learns = ~is_held_out[by_score]
        learning = by_score[learns]
        if len(learning) < 2:
            raise InputError(
                "PooledPredictor needs at least 2 calibration rows to fit the classes. "
                f"Got {len(learning)}."
            )
        labels, once = rows.labels[learning], counts[learning]
        folds = assign_folds(together, rows.labels, order[~is_held_out[order]])[learning]
        self.pooled_scores_ = rows.scores[learning]
        levels = self._fit_classes(labels, folds, once)
        if self.split == "holdout":
            held_out = by_score[~learns]
            place = np.cumsum(learns)[~learns]  # learning rows before each held-out one
            labels, once = rows.labels[held_out], counts[held_out]
            levels = self._level(labels, place)
        labels, levels = labels[once], levels[once]
        self._keep_levels(levels, labels)
        self.level_weights_ = None
        if self.target_prevalence_ is not None:
            self.level_weights_ = sorted_weights(levels, class_weights(self)[labels])
        if self.strength == 0:
            self.level_ = float(1 - self.class_alpha.values[0])
            return self._own_groups().thresholds(
                self.class_alpha, exact=self.exact, random_state=self.random_state
            )
        shares = None if tie_draws is None else tie_draws[learning]
        return self._thresholds_at(self._class_levels(), shares)

    def _fit_classes(self, labels: IntArray, folds: IntArray, once: Array) -> FloatArray:
        """Fit the prior, its strength and each class's distribution; return held-out levels.

        `labels` (N,) are those of the rows in increasing order of score; the level of a row comes
        from the fit to the other folds. The strength is estimated from the rows `once` (N,).
        """
        n_rows, n_classes = len(labels), self.n_classes_
        x, cell = _normal_score((np.arange(n_rows) + 0.5) / n_rows), labels * N_FOLDS + folds
        moments = [
            np.bincount(cell, weights, n_classes * N_FOLDS).reshape(n_classes, N_FOLDS)
            for weights in (None, x, x * x)
        ]
        totals = [each.sum(axis=1) for each in moments]
        self.expected_ = np.stack(NormalModel.fit(*totals), axis=1)
        models = [
            NormalModel.fit(*(t - m[:, f] for t, m in zip(totals, moments, strict=True)))
            for f in range(N_FOLDS)
        ]
        expected = np.stack([np.stack(model, axis=1) for model in models])[folds, labels]
        prior = self._prior(expected, np.arange(n_rows) / n_rows)
        self.strength_ = self._strength(prior[once], labels[once])
        n_own = (totals[0][:, None] - moments[0])[labels, folds]
        before = _rank_within(labels, n_classes) - _rank_within(cell, n_classes * N_FOLDS)
        self.own_weight_ = self._weight(totals[0])
        order = by_group(labels, n_classes)
        self.own_places_ = labels[order] * (n_rows + 1) + order
        weight = self._weight(n_own)
        return weight * before / np.maximum(n_own, 1) + (1 - weight) * prior

    def _strength(self, prior: FloatArray, labels: IntArray) -> float:
        if self.strength != "auto":
            return float(self.strength)
        level = 1 - self.class_alpha.typical
        place = ceil(level * len(prior)) - 1
        is_hit = prior <= np.partition(prior, place)[place]
        hits, n = (np.bincount(labels[some], minlength=self.n_classes_) for some in (is_hit, ...))
        return moment_strength(hits, n, float(1 - level))

    def _weight(self, n: FloatArray) -> FloatArray:
        """Weight `n` examples of a class against the prior."""
        return n / np.maximum(n + self.strength_, 1e-12)

    def _prior(self, expected: FloatArray, u: FloatArray) -> FloatArray:
        """Prior level at pooled ranks `u` of classes with this mean and spread (..., 2)."""
        from scipy.special import ndtr

        normal = ndtr((_normal_score(u) - expected[..., 0]) / expected[..., 1])
        return (1 - self.shared) * normal + self.shared * u

    def _level(self, classes: IntArray, places: IntArray) -> FloatArray:
        """Level of scores that have `places` pooled scores below them."""
        n_rows, offsets = len(self.pooled_scores_), self._own_offsets
        before = np.searchsorted(self.own_places_, classes * (n_rows + 1) + places)
        n_own = np.maximum(np.diff(offsets), 1)[classes]
        weight, own = self.own_weight_[classes], (before - offsets[classes]) / n_own
        return weight * own + (1 - weight) * self._prior(self.expected_[classes], places / n_rows)

    def _last_place(self, level: FloatArray) -> IntArray:
        """Largest place of each class whose level is at most `level` (K,); -1 if there is none."""
        classes = np.arange(self.n_classes_)
        low, high = np.full(self.n_classes_, -1), np.full(self.n_classes_, len(self.pooled_scores_))
        while (low < high).any():
            middle = low + (high - low + 1) // 2
            within = self._level(classes, middle) <= level
            low, high = np.where(within, middle, low), np.where(within, high, middle - 1)
        return low

    def _keep_levels(self, levels: FloatArray, labels: IntArray) -> None:
        """Group held-out levels by alpha; classes of an alpha with too few use those of all."""
        alpha = self.class_alpha
        self.level_group_ = alpha.of_class
        groups = GroupedScores.sort(levels, alpha.of_class[labels], len(alpha.values))
        least = np.ceil(1 / alpha.values - 1 - 1e-9)  # as `least_rows`
        few = (groups.counts < least)[alpha.of_class]
        if few.any() and not alpha.is_one:
            warn_caller(
                f"{int(few.sum())} of {self.n_classes_} classes"
                f"{some_names(self.class_names_, few)} have an alpha with too few "
                "calibration examples together; the level of their thresholds comes from the "
                "examples of all classes."
            )
            self.level_group_ = np.where(few, len(alpha.values), alpha.of_class)
            groups = GroupedScores(
                np.concatenate([groups.scores, np.sort(levels)]),
                np.append(groups.offsets, 2 * len(levels)),
            )
        self.calibration_levels_, self.level_offsets_ = groups

    @property
    def guarantee_text(self) -> str:
        """The guarantee, without the classes whose level is that of all classes."""
        few = self.level_group_ == len(self.class_alpha.values)
        if self.out_of_fold_ or not few.any():
            return super().guarantee_text
        return (
            f"{super().guarantee_text} {int(few.sum())} of {self.n_classes_} classes"
            f"{some_names(self.class_names_, few)} have an alpha with too few calibration examples "
            "together: with split='holdout' nothing is guaranteed for that alpha."
        )

    def _class_levels(self) -> Thresholds:
        """Level of each class, or the randomized pair: the same for all of the same alpha."""
        levels, alpha = self._levels(), self.class_alpha
        if self.level_weights_ is not None:
            own = class_weights(self)
            found = weighted_thresholds(levels.scores, self.level_weights_, own, alpha.typical)
            return Thresholds(found)
        options: Any = {"exact": self.exact, "random_state": self.random_state}
        if not alpha.is_one:
            return levels.thresholds(alpha, groups=self.level_group_, **options)
        return levels.thresholds(alpha.typical, **options).of_classes(self.level_group_)

    def _levels(self) -> GroupedScores:
        return GroupedScores(self.calibration_levels_, self.level_offsets_)

    def _thresholds_at(self, levels: Thresholds, shares: FloatArray | None) -> Thresholds:
        """Scores at these levels; `shares` (N,) break ties between the pooled scores."""
        self.level_ = float(levels.upper.max())
        scores = np.concatenate([self.pooled_scores_, [inf, -inf]])
        places = self._last_place(levels.upper)
        lower = places if levels.lower is None else self._last_place(levels.lower)
        if shares is None:
            pair = None if levels.lower is None else scores[lower]
            return Thresholds(scores[places], pair, levels.upper_probability)
        shares, chance = np.append(shares, [1.0, 1.0]), levels.upper_probability
        return break_ties(
            scores[places],
            scores[lower],
            np.ones(self.n_classes_) if chance is None else chance,
            shares[places],
            shares[lower],
            self.random_state,
        )

    @property
    def _own_offsets(self) -> IntArray:
        starts = np.arange(self.n_classes_ + 1) * (len(self.pooled_scores_) + 1)
        return np.searchsorted(self.own_places_, starts)

    def _own_groups(self) -> GroupedScores:
        """Each class's own scores, sorted."""
        place = self.own_places_ % (len(self.pooled_scores_) + 1)
        return GroupedScores(self.pooled_scores_[place], self._own_offsets)

    # ---- prediction --------------------------------------------------------------------------

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        if self.strength == 0:
            return _kernels.p_values_of(scores, *self._own_groups(), classes, own_share)
        place = np.searchsorted(self.pooled_scores_, scores)
        level = self._level(np.broadcast_to(classes, scores.shape), place)
        if self.level_weights_ is not None:
            own = class_weights(self)[classes]
            levels, weights = self.calibration_levels_, self.level_weights_
            return weighted_p_values(level, levels, weights, own, own_share)
        return _kernels.p_values_of(level, *self._levels(), self.level_group_[classes], own_share)

    def _level_rows(self) -> int:
        return int(self.level_offsets_[len(self.class_alpha.values)])

    # ---- explanation -------------------------------------------------------------------------

    def _weights(self) -> dict[str, FloatArray]:
        borrowed = 1 - self.own_weight_
        return {
            "its own calibration examples": self.own_weight_,
            "the normal model of all classes": (1 - self.shared) * borrowed,
            "the pooled distribution": self.shared * borrowed,
        }

    def _cause(self, under: IntArray) -> str:
        borrowed = 100 * (1 - float(np.median(self.own_weight_[under])))
        who = "This class takes" if len(under) == 1 else "The median class of these takes"
        cause = f"{who} {borrowed:.0f}% of its threshold from other classes; the result is too low."
        on_their_own = enough_for_classwise(self.class_counts_[under], self.row_needs())
        return f"{cause} {on_their_own}".strip()


def _normal_score(u: FloatArray) -> FloatArray:
    from scipy.special import ndtri

    return ndtri(np.clip(u, 1e-7, 1 - 1e-7))


def _rank_within(groups: IntArray, n_groups: int) -> IntArray:
    """Count earlier rows of the same group (N,)."""
    order, counts = by_group(groups, n_groups), np.bincount(groups, minlength=n_groups)
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank
