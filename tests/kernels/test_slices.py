"""The NumPy kernels see a few rows at a time, and nobody can tell."""

import numpy as np
import pytest

from evencover._kernels import BadRow, Draws, Thresholds, reference
from evencover.scores import APS, SAPS

N, K = 23, 6
RNG = np.random.default_rng(3)
ROWS = RNG.dirichlet(np.ones(K), size=N)
LABELS = RNG.integers(0, K, size=N)
DRAWS = Draws(4, 1, 2, first=100)
RANKED = Thresholds(RNG.random(K), rank_limit=RNG.integers(1, K, size=K))
PAIR = Thresholds(np.full(K, 0.8), np.full(K, 0.5), np.full(K, 0.5))
GROUPS = (np.sort(RNG.random((2, 20)), axis=1).ravel(), np.array([0, 20, 40]), np.arange(K) % 2)
PLAIN = {"logits": False, "temperature": 1.0}
SETS = {**PLAIN, "allow_empty": False}

CALLS = {
    "true_label_scores": ((ROWS, DRAWS, LABELS), PLAIN),
    "score_matrix": ((ROWS, DRAWS), PLAIN),
    "prediction_sets": ((ROWS, DRAWS, RANKED), SETS),
    "set_coverage": ((ROWS, DRAWS, LABELS, PAIR), SETS),
    "set_sizes": ((ROWS, DRAWS, [RANKED, PAIR]), PLAIN),
    "p_values": ((ROWS, DRAWS, *GROUPS), PLAIN),
}
OF_RANKS = {"true_label_ranks": (ROWS, LABELS), "rank_matrix": (ROWS,)}


def arrays(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("rows_at_once", [1, 5, 22, 23, 24])
@pytest.mark.parametrize("score", [APS(), SAPS()])
@pytest.mark.parametrize("name", CALLS)
def test_slices_change_nothing(monkeypatch, name, score, rows_at_once):
    arguments, options = CALLS[name]
    kernel = getattr(reference, name)
    whole = arrays(kernel(score.kernel, *arguments, **options))
    monkeypatch.setattr(reference, "SLICE_ELEMENTS", rows_at_once * K)
    sliced = arrays(kernel(score.kernel, *arguments, **options))
    for ours, expected in zip(sliced, whole, strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)


@pytest.mark.parametrize("name", OF_RANKS)
def test_ranks_too(monkeypatch, name):
    whole = getattr(reference, name)(*OF_RANKS[name], **PLAIN)
    monkeypatch.setattr(reference, "SLICE_ELEMENTS", 4 * K)
    np.testing.assert_array_equal(getattr(reference, name)(*OF_RANKS[name], **PLAIN), whole)


@pytest.mark.parametrize("bad_row", [0, 9, 22])
def test_a_bad_row_is_counted_from_the_first(monkeypatch, bad_row):
    monkeypatch.setattr(reference, "SLICE_ELEMENTS", 4 * K)
    rows = ROWS.copy()
    rows[bad_row, 2] = np.nan
    calls = {name: ((APS().kernel, rows, *rest), how) for name, ((_, *rest), how) in CALLS.items()}
    calls |= {name: ((rows, *rest), PLAIN) for name, (_, *rest) in OF_RANKS.items()}
    for name, (arguments, options) in calls.items():
        with pytest.raises(BadRow) as caught:
            getattr(reference, name)(*arguments, **options)
        assert caught.value.row == bad_row, name


def test_no_rows_are_no_rows():
    assert reference.score_matrix(APS().kernel, ROWS[:0], DRAWS, **PLAIN).shape == (0, K)
