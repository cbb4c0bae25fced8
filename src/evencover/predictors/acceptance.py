"""Accept or review: which predictions are right often enough to act on without a person.

A row is answered with its most probable class if the probability of the class reaches its cutoff,
else with its most probable group at the next level that has one, and so on; else it goes to review.
Half of the labeled rows, chosen by their ids, propose the cutoffs, and the other half tests them
(learn, then test: Angelopoulos et al. 2021).

1. At each level, from fine to wide, `RightModel` gives P(right | predicted node, probability) among
   the rows that are not answered yet.
2. A proposal aims at a level of accuracy L. With `per_class` the cutoff of a node is the lowest one
   at which the mean of P(right) over its answers is L or more; "never" if there is none. Otherwise
   all nodes have the same limit on P(right), the lowest one at which its mean over all answers is L
   or more.
3. Six levels L between nearly 1 and the target accuracy are tested on the other half, from the
   strictest on: k of n answers are wrong, and P(Binomial(n, 1 - target) <= k) must be at most the
   level's risk. That is (1 - confidence) / 6, and a level that passes hands its risk to the next
   one (the fallback procedure: Wiens 2003). The lowest level that passes is used; if none passes,
   nothing is accepted.

The cutoffs do not depend on the half that tests them. So, for exchangeable rows, the accuracy among
all answers is at least the target with probability `confidence` over labeled rows. For a single
node the accuracy is a target with `per_class` only. It is guaranteed, with the same confidence for
one node at a time, where the node passes the test at (1 - confidence) / 6 (``is_guaranteed``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from evencover.answers import REVIEW, Levels
from evencover.arrays import Array, FloatArray, IntArray
from evencover.errors import warn_caller
from evencover.predictors.right_model import Predictions, RightModel
from evencover.randomness import RandomStream, random_order

CONFIDENCE = 0.9
# Levels to test, as shares of the errors that the target accuracy allows.
ERROR_SHARES = (0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
N_BISECTIONS = 12  # of the logit of the limit on P(right), between the logits of these
LOWEST, HIGHEST = 0.02, 0.9999


class Acceptance(NamedTuple):
    """The predictions to accept, by the level and the node that would answer.

    The first five fields are those of `Levels`. ``node_limits`` (L, M) are the largest scores, 1
    minus the probability, of answers with a node at a level, -inf for never. Of the ``node_tested``
    (L, M) answers of the testing half, ``node_right`` (L, M) are right.
    """

    level_names: tuple[str, ...]
    groups: tuple[str, ...]
    level_of_node: IntArray
    node_of_class: IntArray
    class_of_group: IntArray
    node_limits: FloatArray
    node_tested: IntArray
    node_right: IntArray
    accuracy: float
    confidence: float
    per_class: bool

    @property
    def levels(self) -> Levels:
        """The nodes that can answer."""
        return Levels(*self[:5])

    @property
    def limits(self) -> FloatArray:
        """The largest softmax score 1 - p of accepted predictions of each class (K,)."""
        limits: FloatArray = self.node_limits[0, : self.node_of_class.shape[1]]
        return limits

    @property
    def cutoffs(self) -> FloatArray:
        """The smallest accepted probability of each predicted class (K,); +inf for never."""
        return 1 - self.limits

    @property
    def can_answer(self) -> Array:
        """Whether each node (M,) has a cutoff at any level."""
        can_answer: Array = np.isfinite(self.node_limits.max(axis=0))
        return can_answer

    @property
    def is_guaranteed(self) -> Array:
        """Whether the accuracy among a class's accepted predictions is tested to reach the target.

        With the stated confidence for each class separately (K,).
        """
        return self.node_guaranteed[0, : len(self.limits)]

    @property
    def node_guaranteed(self) -> Array:
        """Whether this holds for the answers with each node at each level (L, M)."""
        risk = (1 - self.confidence) / len(ERROR_SHARES)
        return (self.node_tested > 0) & (self._chances(self.node_tested, self.node_right) <= risk)

    @property
    def tested_accuracy(self) -> float:
        """The share of right ones among all answers of the testing half; NaN without any."""
        n_tested = self.node_tested.sum()
        return float(self.node_right.sum() / n_tested) if n_tested else np.nan

    def within(self, level: int, nodes: IntArray, scores: FloatArray) -> Array:
        """Return whether nodes (n,) may answer at a level with these scores, 1 - p."""
        return (nodes != REVIEW) & (scores <= self.node_limits[level][nodes])

    def answering_levels(self, found: Sequence[Predictions]) -> IntArray:
        """Return the level at which each row (n,) is answered, given one prediction per level."""
        levels = np.full(len(found[0].scores), REVIEW)
        for level, (scores, nodes, _) in enumerate(found):
            levels[(levels == REVIEW) & self.within(level, nodes, scores)] = level
        return levels

    def tested_on(self, found: Sequence[Predictions]) -> Acceptance:
        """Count the answers to other rows, and those that are right."""
        levels, shape = self.answering_levels(found), self.node_limits.shape
        n_tested, n_right = np.zeros((2, *shape), dtype=np.int64)
        for level, (_, nodes, is_right) in enumerate(found):
            here = levels == level
            n_tested[level] = np.bincount(nodes[here], minlength=shape[1])
            n_right[level] = np.bincount(nodes[here & is_right], minlength=shape[1])
        return self._replace(node_tested=n_tested, node_right=n_right)

    def chance(self) -> float:
        """Return the chance of so few wrong answers if the target accuracy were just missed."""
        return float(self._chances(self.node_tested.sum(), self.node_right.sum()))

    def _chances(self, n_tested: IntArray, n_right: IntArray) -> Array:
        from scipy.special import bdtr

        n_wrong = np.asarray(n_tested - n_right, dtype=np.float64)
        chances: Array = bdtr(n_wrong, n_tested, 1 - self.accuracy)
        return chances


def fit_acceptance(
    found: Sequence[Predictions],
    levels: Levels,
    ids: Array,
    *,
    accuracy: float,
    confidence: float = CONFIDENCE,
    per_class: bool = True,
    random_state: int = 0,
) -> Acceptance:
    """Find which predictions to accept, given one per level of each row, to reach a target."""
    order = random_order(random_state, RandomStream.ACCEPTANCE, ids)
    half = len(order) // 2
    learning = [of_level.take(order[:half]) for of_level in found]
    testing = [of_level.take(order[half:]) for of_level in found]
    proposals = _Proposals(learning, levels)
    shape = levels.n_levels, levels.n_nodes
    never, none = np.full(shape, -np.inf), np.zeros(shape, dtype=np.int64)
    best = Acceptance(*levels, never, none, none, accuracy, confidence, per_class)
    risk = 0.0
    for share in ERROR_SHARES:
        aim = 1 - (1 - accuracy) * share
        limits = proposals.by_node(aim) if per_class else proposals.overall(aim)
        tested = best._replace(node_limits=limits).tested_on(testing)
        risk += (1 - confidence) / len(ERROR_SHARES)
        if _passes(tested, risk):
            best = tested
        else:
            risk = 0.0
    _warn(best, len(order), len(order) - half)
    return best


def _warn(found: Acceptance, n_rows: int, n_tested: int) -> None:
    """Warn if nothing is accepted, or if the answers are far more accurate than they need be."""
    accuracy, n_answered = found.accuracy, int(found.node_tested.sum())
    if n_answered == 0:
        warn_caller(
            f"No prediction is accepted: with {n_rows} rows, no rule is shown to have "
            f"accuracy {accuracy:g} with confidence {found.confidence:g}. Use more labeled rows, "
            "or a lower accuracy."
        )
    elif (
        found.per_class
        and n_answered < n_tested
        and found.tested_accuracy > accuracy + (1 - accuracy) / 2
    ):
        warn_caller(
            f"{found.tested_accuracy:.1%} of the accepted test rows are right, more than the "
            f"accuracy {accuracy:g} asks for, because every class has it as its target. With "
            "per_class=False (--accept-mode overall) usually more are accepted; fit that on other "
            "rows than these, whose result you have seen."
        )


def _passes(tested: Acceptance, risk: float) -> bool:
    """Return whether the answers to the testing half prove the target accuracy at this risk."""
    return tested.chance() <= risk


class _Proposals:
    """What the learning half proposes: limits by level and node (L, M) for a level of accuracy."""

    def __init__(self, found: Sequence[Predictions], levels: Levels) -> None:
        self.found, self.levels = found, levels
        self.asked = [levels.asked(level) for level in range(levels.n_levels)]
        self.of_classes = RightModel(found[0], levels.n_nodes)
        self.above = cache(self._above)  # all bisections begin alike

    def by_node(self, aim: float) -> FloatArray:
        """Propose limits at which each node has this accuracy."""
        return self._limits(partial(RightModel.limits_at, level=aim))[0]

    def overall(self, aim: float) -> FloatArray:
        """Propose limits for one limit on P(right), the lowest at which all answers reach it."""
        low, high = (np.log(p / (1 - p)) for p in (LOWEST, HIGHEST))
        best = np.full((len(self.asked), self.levels.n_nodes), -np.inf)
        for _ in range(N_BISECTIONS):
            middle = (low + high) / 2
            least = float(1 / (1 + np.exp(-middle)))
            limits, chances = self.above(least)
            if len(chances) and chances.mean() >= aim:
                best, high = limits, middle
            else:
                low = middle
        return best

    def _above(self, least: float) -> tuple[FloatArray, FloatArray]:
        return self._limits(partial(RightModel.limits_above, probability=least))

    def _limits(self, choose: Callable[[RightModel], FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Return the limits of all levels, and P(right) of all rows that these answer."""
        limits = np.full((len(self.asked), self.levels.n_nodes), -np.inf)
        chances, is_left = [], np.ones(len(self.found[0].scores), dtype=bool)
        for level, (found, asked) in enumerate(zip(self.found, self.asked, strict=True)):
            rows = np.flatnonzero(is_left & (found.classes != REVIEW) & asked[found.classes])
            left = found.take(rows)
            model = RightModel(left, len(asked)) if level else self.of_classes
            limits[level, asked] = choose(model)[asked]
            is_answered = left.scores <= limits[level][left.classes]
            answered = left.take(is_answered)
            chances.append(model.chances(answered.scores, answered.classes))
            is_left[rows[is_answered]] = False
        return limits, np.concatenate(chances)
