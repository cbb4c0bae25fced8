"""INTERPOLATED's p-values: many rows are looked up class by class, a few entry by entry."""

import numpy as np
import pytest

from evencover import InterpolatedPredictor
from evencover.predictors import interpolated


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("tau", [0, 0.3, 0.5, 1])
@pytest.mark.parametrize("score", ["softmax", "raps"])
def test_both_ways_give_the_same_bits(simulate, monkeypatch, score, tau):
    rows, labels = simulate(300, 9, seed=5, long_tail=True)
    fitted = InterpolatedPredictor(score=score, tau=tau).fit(rows[:200], labels[:200])
    found = []
    for many in (0, 10**6):
        monkeypatch.setattr(interpolated, "MANY", many)
        found.append(fitted.predict_p(rows[200:]))
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0] > 0.1, fitted.predict_set(rows[200:]).to_mask())
