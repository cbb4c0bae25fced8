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
PLAIN = {"logits": False}
SETS = {**PLAIN, "keep_top": True}

CALLS = {
    "true_label_scores": ((ROWS, DRAWS, LABELS), PLAIN),
    "score_matrix": ((ROWS, DRAWS), PLAIN),
    "prediction_sets": ((ROWS, DRAWS, RANKED), SETS),
    "set_coverage": ((ROWS, DRAWS, LABELS, PAIR), SETS),
    "set_sizes": ((ROWS, DRAWS, [RANKED, PAIR]), PLAIN),
    "p_values": ((ROWS, DRAWS, *GROUPS), PLAIN),
    "true_label_ranks": ((ROWS, LABELS), PLAIN),
    "rank_matrix": ((ROWS,), PLAIN),
}


def call(name, score, rows=ROWS):
    (_, *arguments), options = CALLS[name]
    formula = () if "rank" in name else (score.kernel,)
    result = getattr(reference, name)(*formula, rows, *arguments, **options)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("rows_at_once", [1, 5, 22, 23, 24])
@pytest.mark.parametrize("score", [APS(), SAPS()])
@pytest.mark.parametrize("name", CALLS)
def test_slices_change_nothing(monkeypatch, name, score, rows_at_once):
    whole = call(name, score)
    monkeypatch.setattr(reference, "SLICE_ELEMENTS", rows_at_once * K)
    for ours, expected in zip(call(name, score), whole, strict=True):
        np.testing.assert_array_equal(ours, expected, strict=True)


@pytest.mark.parametrize("bad_row", [0, 9, 22])
def test_a_bad_row_is_counted_from_the_first(monkeypatch, bad_row):
    monkeypatch.setattr(reference, "SLICE_ELEMENTS", 4 * K)
    rows = ROWS.copy()
    rows[bad_row, 2] = np.nan
    for name in CALLS:
        with pytest.raises(BadRow) as caught:
            call(name, APS(), rows)
        assert caught.value.row == bad_row, name
