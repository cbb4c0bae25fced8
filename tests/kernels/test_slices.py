"""The NumPy kernels see a few rows at a time, and nobody can tell."""

import numpy as np
import pytest

from evencover._kernels import Draws, reference, slices
from evencover.quantiles import GroupedScores, Thresholds
from evencover.scores import APS, SAPS

N, K = 23, 6
RNG = np.random.default_rng(3)
ROWS = RNG.dirichlet(np.ones(K), size=N)
LABELS = RNG.integers(0, K, size=N)
DRAWS = Draws(4, 1, 2, first=100)
LIMITS = Thresholds(RNG.random(K), rank_limit=RNG.integers(1, K, size=K))
PAIR = Thresholds(np.full(K, 0.8), np.full(K, 0.5), np.full(K, 0.5))
GROUPS = GroupedScores.sort(RNG.random(40), RNG.integers(0, 2, size=40), 2)
PLAIN = {"logits": False, "temperature": 1.0}
SETS = {**PLAIN, "allow_empty": False}

CALLS = {
    "true_label_scores": ((ROWS, DRAWS, LABELS), PLAIN),
    "score_matrix": ((ROWS, DRAWS), PLAIN),
    "prediction_sets": ((ROWS, DRAWS, LIMITS), SETS),
    "set_coverage": ((ROWS, DRAWS, LABELS, PAIR), SETS),
    "set_sizes": ((ROWS, DRAWS, [LIMITS, PAIR]), PLAIN),
    "p_values": ((ROWS, DRAWS, GROUPS, np.arange(K) % 2), PLAIN),
}


@pytest.mark.parametrize("rows_at_once", [1, 5, 22, 23, 24])
@pytest.mark.parametrize("score", [APS(), SAPS()])
@pytest.mark.parametrize("name", CALLS)
def test_slices_change_nothing(monkeypatch, name, score, rows_at_once):
    arguments, options = CALLS[name]
    kernel = getattr(reference, name)
    whole = kernel(score, *arguments, **options)
    monkeypatch.setattr(slices, "SLICE_ELEMENTS", rows_at_once * K)
    for ours, expected in zip(kernel(score, *arguments, **options), whole, strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)


@pytest.mark.parametrize("name", ["true_label_ranks", "rank_matrix"])
def test_ranks_too(monkeypatch, name):
    arguments = (ROWS, LABELS) if name == "true_label_ranks" else (ROWS,)
    whole, _ = getattr(reference, name)(*arguments, **PLAIN)
    monkeypatch.setattr(slices, "SLICE_ELEMENTS", 4 * K)
    np.testing.assert_array_equal(getattr(reference, name)(*arguments, **PLAIN)[0], whole)


@pytest.mark.parametrize("bad_row", [0, 9, 22])
def test_a_bad_row_is_counted_from_the_first(monkeypatch, bad_row):
    monkeypatch.setattr(slices, "SLICE_ELEMENTS", 4 * K)
    rows = ROWS.copy()
    rows[bad_row, 2] = np.nan
    for name, ((_, *rest), options) in CALLS.items():
        *_, bad = getattr(reference, name)(APS(), rows, *rest, **options)
        assert bad == bad_row


def test_no_rows_are_no_rows():
    scores, bad = reference.score_matrix(APS(), ROWS[:0], DRAWS, **PLAIN)
    assert scores.shape == (0, K)
    assert bad == -1
