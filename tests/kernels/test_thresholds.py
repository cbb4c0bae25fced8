"""Who is in a set: one definition, read class by class and label by label."""

import numpy as np
import pytest

from evencover._kernels import Draws, Thresholds, is_member, reference
from evencover.scores import Softmax

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


@pytest.mark.parametrize("thresholds", THRESHOLDS.values(), ids=THRESHOLDS)
def test_labels_have_the_thresholds_of_their_classes(thresholds):
    rows, labels = np.arange(N), RNG.integers(0, K, size=N)
    own = thresholds.of_classes(labels)
    inside = is_member(SCORES[rows, labels], own, COIN, RANKS[rows, labels])
    assert inside.tolist() == is_member(SCORES, thresholds, COIN, RANKS)[rows, labels].tolist()


@pytest.mark.parametrize("logits", [False, True])
def test_the_most_probable_member_comes_first_and_equal_ones_by_index(logits):
    rows = np.array([[0.25, 0.5, 0.0, 0.25], [0.1, 0.2, 0.3, 0.4], [0.25] * 4])
    thresholds = Thresholds(np.array([0.9, 0.7, np.inf, 0.8]))
    options = {"keep_top": False, "logits": logits}
    sizes, classes = reference.prediction_sets(
        Softmax().kernel, rows, Draws(), thresholds, **options
    )
    sets = [each.tolist() for each in np.split(classes, np.cumsum(sizes)[:-1])]
    for members, row in zip(sets, rows, strict=True):
        assert members == sorted(members, key=lambda y, row=row: (-row[y], y))
    assert logits or sets == [[1, 0, 3, 2], [3, 2, 0], [0, 2, 3]]
