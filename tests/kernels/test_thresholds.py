"""Who is in a set: one definition, read class by class and label by label."""

import numpy as np
import pytest

from evencover._kernels import Thresholds, is_member

RNG = np.random.default_rng(1)
N, K = 30, 5
SCORES = RNG.choice([0.25, 0.5, 0.75], size=(N, K))
RANKS = RNG.permuted(np.tile(np.arange(1, K + 1), (N, 1)), axis=1)
COIN = RNG.choice([0.0, 0.25, 0.5, 0.75], size=N)
UPPER, LOWER = np.array([0.5, 0.75, np.inf, 0.5, -np.inf]), np.array([0.25, 0.5, 0.5, -np.inf, 1])
CHANCE = np.array([0.25, 0.5, 0.75, 1.0, 0.0])
THRESHOLDS = {
    "one threshold": Thresholds(UPPER),
    "a pair": Thresholds(UPPER, LOWER, CHANCE),
    "with a rank limit": Thresholds(UPPER, rank_limit=np.array([1, 2, 3, 4, 5])),
    "a pair with a rank limit": Thresholds(UPPER, LOWER, CHANCE, np.array([5, 4, 3, 2, 1])),
}


def naive_member(thresholds, i, y):
    limit = thresholds.upper[y]
    if thresholds.lower is not None and COIN[i] >= thresholds.upper_probability[y]:
        limit = thresholds.lower[y]
    within = thresholds.rank_limit is None or RANKS[i, y] <= thresholds.rank_limit[y]
    return bool(SCORES[i, y] <= limit and within)


@pytest.mark.parametrize("thresholds", THRESHOLDS.values(), ids=THRESHOLDS)
def test_membership_is_its_sentence(thresholds):
    inside = is_member(SCORES, thresholds, COIN, RANKS)
    expected = [[naive_member(thresholds, i, y) for y in range(K)] for i in range(N)]
    assert inside.tolist() == expected
