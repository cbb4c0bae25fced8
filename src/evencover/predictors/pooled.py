"""POOLED: every class borrows from the others in proportion to how little data it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import floor, inf
from typing import ClassVar

import numpy as np

from evencover import _kernels
from evencover._validation import (
    FloatArray,
    InputError,
    IntArray,
    raise_unknown,
    real_number,
    whole_number,
)
from evencover.predictors.calibration import CalibrationRows
from evencover.predictors.checks import NOT_FOLLOWING, same_array, unlike, wrong_order
from evencover.predictors.crossfit import (
    RankedRows,
    blend_of,
    canonical_order,
    crossfit,
    ingredient_weights,
)
from evencover.predictors.explanation import enough_for_classwise
from evencover.predictors.pooling import FINE_BINS, Blend, ClusterPrior, NormalPrior, OwnRows
from evencover.predictors.prevalence import (
    TargetPredictor,
    sorted_with,
    weighted_p_values,
    weighted_thresholds,
)
from evencover.predictors.state import Field
from evencover.quantiles import GroupedScores, Thresholds, exact_fraction
from evencover.randomness import Use, random_order

HOLDOUT_SHARE = 0.2
STRENGTHS = (30.0, 100.0, 300.0, inf)
# Kinds of prior: normal, or a number of soft clusters.
PRIORS: tuple[str | int, ...] = ("normal", 1, 4, 8)
ROUNDING = 1e-9  # how far a level may differ between machines


@dataclass(kw_only=True, eq=False, repr=False)
class PooledPredictor(TargetPredictor):
    """Partial pooling of all classes: one threshold per class, learnt from everybody's rows.

    A class's score distribution is estimated as a blend of its own rows and of what the other
    classes lead one to expect of it: a normal model of how classes differ, and soft clusters.
    The prior counts as much as a number of rows, so a class with many rows speaks for itself and
    one without any is given the expected distribution. All classes then use one and the same
    *level* of these distributions, chosen so that the sets hold 1 - alpha of held-out labels.
    How to blend is decided by cross-fitting on the calibration rows: every prior and strength is
    weighted by how well it predicts the held-out rows' quantile (pinball loss in ranks), and all
    that are within noise of the best count.

    Guarantee. ``split="holdout"``: marginal coverage P(Y in C(X)) >= 1 - alpha, exact in finite
    samples, for exchangeable rows, because the level is learnt from rows that had no other part
    in the method. ``split="crossfit"``: the level is learnt from all rows, each under a blend that
    did not see it; coverage is 1 - alpha up to the instability of the blend, with no finite-sample
    guarantee. Class-conditional coverage is the aim of the method, not a guarantee.

    Parameters
    ----------
    prior
        "auto" blends them all; "normal", or a number of soft clusters (1: every class is
        expected to look like all classes together).
    strength
        How many rows the prior counts; "auto" blends several, 0 is CLASSWISE, and infinity with
        ``prior=1`` is STANDARD.
    split
        "crossfit" or "holdout".
    target_prevalence
        None: the promise is for the class frequencies of the calibration rows. Otherwise for these:
        (K,) numbers in proportion, the path of a file with them, or "uniform".
    alpha, score, exact, allow_empty, from_logits, temperature, random_state
        As for every predictor. P-values count calibration rows whose cross-fitted (held-out)
        level is at least the level at which y enters the set.

    Attributes
    ----------
    own_weight_
        (K,) weight of each class's own rows in its distribution, n / (n + strength).
    normal_weight_, cluster_weights_
        (K,), (K, M): weights of what is expected of it; all weights of a class add up to 1.
    ingredients_
        (prior, strength, weight) of each way to pool that was considered.
    level_
        The level that all classes share; with a target prevalence the largest of theirs.
    """

    prior: int | str = "auto"
    strength: float | str = "auto"
    split: str = "crossfit"

    method: ClassVar[str] = "pooled"
    summary: ClassVar[str] = "one threshold per class, learnt from everybody's rows"
    guarantee: ClassVar[str] = (
        "Coverage of 1 - alpha for every class is the aim, not a guarantee; on average over all "
        "rows it is guaranteed with split='holdout', and otherwise close to 1 - alpha."
    )
    fate_of_missing_classes: ClassVar[str] = "their thresholds are predicted from the other classes"
    state: ClassVar[dict[str, Field]] = {
        "pooled_scores_": Field(float, "N", for_p_values=True),
        "own_places_": Field(int, "N", for_p_values=True),
        "own_offsets_": Field(int, "L"),
        "own_weight_": Field(float, "K"),
        "normal_mean_": Field(float, "K"),
        "normal_deviation_": Field(float, "K"),
        "normal_weight_": Field(float, "K"),
        "cluster_weights_": Field(float, "KM"),
        "cluster_functions_": Field(float, "MB"),
        "calibration_levels_": Field(float, "?", for_p_values=True),
        "ingredients_": Field(list),
        "level_": Field(float),
        "level_weights_": Field(float, "?", optional=True),
    }

    pooled_scores_: FloatArray = field(init=False)
    own_places_: IntArray = field(init=False)
    own_offsets_: IntArray = field(init=False)
    own_weight_: FloatArray = field(init=False)
    normal_mean_: FloatArray = field(init=False)
    normal_deviation_: FloatArray = field(init=False)
    normal_weight_: FloatArray = field(init=False)
    cluster_weights_: FloatArray = field(init=False)
    cluster_functions_: FloatArray = field(init=False)
    calibration_levels_: FloatArray = field(init=False)
    ingredients_: list[tuple[str | int, float, float]] = field(init=False)
    level_: float = field(init=False)
    level_weights_: FloatArray | None = field(init=False)  # None without a target

    # ---- calibration -------------------------------------------------------------------------

    def _calibrate(self, rows: CalibrationRows) -> Thresholds:
        # Sums depend on the order of the rows in their last bits: give it by the rows themselves.
        canonical = canonical_order(rows)
        held_out, learning = np.empty(0, dtype=np.int64), canonical
        if self.split == "holdout":
            ids = rows.ids[canonical]
            order = random_order(self.random_state, Use.SPLIT, ids, canonical)
            n_held_out = floor(HOLDOUT_SHARE * len(order))
            held_out = canonical[order[:n_held_out]]
            learning = canonical[np.sort(order[n_held_out:])]
        if len(learning) < 2:
            raise InputError(
                "PooledPredictor must have at least 2 calibration rows to learn from, each of "
                f"which is tried on the others. Got {len(learning)}."
            )
        scores = rows.scores[learning]
        ranked = RankedRows.of(scores, rows.labels[learning], self.n_classes_)
        order = random_order(self.random_state, Use.FOLDS, rows.ids[learning], learning)
        tried = crossfit(ranked, order, self._ingredients())
        weights = ingredient_weights(tried, self.alpha)
        self.ingredients_ = [
            (kind, strength, float(weight))
            for (kind, strength), weight in zip(tried.ingredients, weights, strict=True)
        ]
        blend = blend_of(tried, weights)
        if self.split == "holdout":
            place, own = np.searchsorted(scores, rows.scores[held_out]), rows.labels[held_out]
            levels = blend.level(own, place)
        else:
            levels, own = _kernels.blended_levels(tried.blends, weights), tried.labels
        self._keep(blend, scores, np.sort(levels))
        self._read_target()
        self.level_weights_ = None
        if self.target_prevalence_ is not None:
            self.level_weights_ = sorted_with(levels, self._class_weights()[own])[1]
        if self.strength == 0:
            self.level_ = float(1 - exact_fraction(self.alpha))
            return self._own_groups().thresholds(self.alpha, exact=self.exact)
        common = self._class_levels()
        self.level_ = float(common.upper.max())
        return Thresholds(
            self._scores_at(blend, common.upper),
            None if common.lower is None else self._scores_at(blend, common.lower),
            common.upper_probability,
        )

    def _class_levels(self) -> Thresholds:
        """The level of each class, or the randomised pair: the same for all without a target."""
        levels = self.calibration_levels_
        if self.level_weights_ is not None:
            own = self._class_weights()
            return Thresholds(weighted_thresholds(levels, self.level_weights_, own, self.alpha))
        common = GroupedScores(levels, np.array([0, len(levels)]))
        found = common.thresholds(self.alpha, exact=self.exact)
        return found.of_classes(np.zeros(self.n_classes_, dtype=np.int64))

    def _scores_at(self, blend: Blend, level: FloatArray) -> FloatArray:
        """The largest score of each class whose level is at most `level` (K,)."""
        return np.concatenate([self.pooled_scores_, [np.inf, -np.inf]])[blend.last_place(level)]

    def _keep(self, blend: Blend, sorted_scores: FloatArray, levels: FloatArray) -> None:
        self.pooled_scores_, self.calibration_levels_ = sorted_scores, levels
        self.own_places_, self.own_offsets_ = blend.own.places, blend.own.offsets
        self.own_weight_, self.normal_weight_ = blend.own_weight, blend.normal_weight
        self.normal_mean_, self.normal_deviation_ = blend.normal
        self.cluster_weights_, self.cluster_functions_ = blend.clusters

    @property
    def _fitted_blend(self) -> Blend:
        return Blend(
            OwnRows(self.own_places_, self.own_offsets_, len(self.pooled_scores_)),
            self.own_weight_,
            NormalPrior(self.normal_mean_, self.normal_deviation_),
            self.normal_weight_,
            ClusterPrior(self.cluster_weights_, self.cluster_functions_),
        )

    def _own_groups(self) -> GroupedScores:
        """Each class's own scores, sorted."""
        place = self.own_places_ % (len(self.pooled_scores_) + 1)
        return GroupedScores(self.pooled_scores_[place], self.own_offsets_)

    # ---- prediction --------------------------------------------------------------------------

    def _p_values(self, scores: FloatArray, classes: IntArray, own_share: FloatArray) -> FloatArray:
        if self.strength == 0:
            return _kernels.p_values_of(scores, *self._own_groups(), classes, own_share)
        place = np.searchsorted(self.pooled_scores_, scores)
        level = self._fitted_blend.level(np.broadcast_to(classes, scores.shape), place)
        if self.level_weights_ is not None:
            kept, own = (self.calibration_levels_, self.level_weights_), self._class_weights()
            return weighted_p_values(level, *kept, own[classes], own_share)
        n_levels = len(self.calibration_levels_)
        at_least = n_levels - np.searchsorted(self.calibration_levels_, level)
        return np.asarray((at_least + own_share[:, None]) / (n_levels + 1))

    def _level_rows(self) -> int:
        return len(self.calibration_levels_)

    # ---- explanation -------------------------------------------------------------------------

    def _weights(self) -> dict[str, FloatArray]:
        return {
            "its own rows": self.own_weight_,
            "how classes differ in general": self.normal_weight_,
            "the classes it resembles": self.cluster_weights_.sum(axis=1),
        }

    def _cause(self, under: IntArray) -> str:
        weight = 100 * float(np.median(self.own_weight_[under]))
        cause = (
            f"For {'this class' if len(under) == 1 else 'a typical one of these classes'} its own "
            f"calibration rows decide {weight:.0f}% of the threshold; its test rows were harder "
            "than predicted."
        )
        on_their_own = enough_for_classwise(self.class_counts_[under], self.row_needs())
        return f"{cause} {on_their_own}." if on_their_own else cause

    # ---- files -------------------------------------------------------------------------------

    def _restore(self) -> None:
        self.ingredients_ = [
            (kind, float(strength), float(weight)) for kind, strength, weight in self.ingredients_
        ]

    def _check_state(self) -> str | None:
        return self._wrong_rows() or self._wrong_thresholds()

    def _wrong_rows(self) -> str | None:
        places, offsets, n_rows = self.own_places_, self.own_offsets_, len(self.pooled_scores_)
        if self.cluster_functions_.shape[1] != FINE_BINS + 1:
            return f"cluster_functions_ has the shape {self.cluster_functions_.shape}"
        classes = np.repeat(np.arange(self.n_classes_), np.diff(offsets))
        if offsets[0] != 0 or not np.array_equal(places // (n_rows + 1), classes):
            return "its rows do not fit its classes"
        if (np.diff(places) <= 0).any():
            return "its rows are not sorted"
        if not np.array_equal(np.sort(places % (n_rows + 1)), np.arange(n_rows)):
            return "its rows do not fit its scores"
        n_held_out = self.n_calibration_ - n_rows if self.split == "holdout" else n_rows
        if len(self.calibration_levels_) != n_held_out:
            return "its levels do not fit its rows"
        problem = self._wrong_target(self.level_weights_, n_held_out)
        if problem:
            return problem
        weights = sum(self._weights().values())
        if not np.allclose(weights, 1):
            return "its weights do not add up to 1"
        return wrong_order(self.pooled_scores_) or wrong_order(self.calibration_levels_)

    def _wrong_thresholds(self) -> str | None:
        """A threshold must be where its class's level passes the common one, up to rounding."""
        if self.strength == 0:
            return unlike(self, self._own_groups().thresholds(self.alpha, exact=self.exact))
        common = self._class_levels()
        blend, limits = self._fitted_blend, (self.thresholds_, self.lower_thresholds_)
        same = common.upper.max() == self.level_
        same = same and same_array(common.upper_probability, self.upper_probability_)
        for thresholds, level in zip(limits, (common.upper, common.lower), strict=True):
            same = same and (thresholds is None) == (level is None)
            if same and thresholds is not None and level is not None:
                low = self._scores_at(blend, level - ROUNDING)
                high = self._scores_at(blend, level + ROUNDING)
                same = bool(((low <= thresholds) & (thresholds <= high)).all())
        return None if same else NOT_FOLLOWING

    # ---- parameters --------------------------------------------------------------------------

    def _ingredients(self) -> list[tuple[str | int, float]]:
        kinds = PRIORS if self.prior == "auto" else (self.prior,)
        strengths = STRENGTHS if self.strength == "auto" else (float(self.strength),)
        return list(product(kinds, strengths))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        owner = type(self).__name__
        if self.split not in ("crossfit", "holdout"):
            raise_unknown("split", self.split, ("crossfit", "holdout"))
        if self.strength not in ("auto", inf):
            real_number(self.strength, "strength", owner, 0)
        if isinstance(self.prior, str):
            if self.prior not in ("auto", "normal"):
                raise InputError(
                    f"The 'prior' parameter of {owner} must be 'auto', 'normal' or a number of "
                    f"soft clusters. Got {self.prior!r} instead."
                )
        else:
            whole_number(self.prior, "prior", owner, 1)
