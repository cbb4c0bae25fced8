"""A cap at rank k of m sampled rows admits n new rows by an exact law."""

import numpy as np
import pytest
from depth import size
from scipy.stats import betabinom, chisquare

from evencover import ClasswisePredictor

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

M, N_NEW, REPETITIONS = 39, 20, size(short=600, deep=3000)


def rows_of_others(rng, n):
    """Rows of classes 1 and 2, which the model knows; class 0 has the law of its probability."""
    p = 0.2 * rng.random(n)
    labels = rng.integers(1, 3, n)
    rows = np.full((n, 3), 0.01)
    rows[:, 0], rows[np.arange(n), labels] = p, 0.99 - p
    return rows, labels


@pytest.mark.parametrize(("share", "rank"), [(0.1, 3), (0.4, 15)])
def test_new_rows_in_a_cap_are_beta_binomial(share, rank):
    """Where STANDARD's threshold does not bind, and without the most probable class."""
    rng = np.random.default_rng([7, rank])
    predictor = ClasswisePredictor(max_share=share, keep_top=False)
    counts = np.zeros(N_NEW + 1)
    for _ in range(REPETITIONS):
        own = [[0.5, 0.3, 0.2]] * 2  # too few for a threshold: the class is in every set
        rows, labels = rows_of_others(rng, M)
        fitted = predictor.fit(np.concatenate([rows, own]), np.append(labels, [0, 0]))
        assert fitted.is_capped_[0]
        assert fitted.share_[0] == 1
        new, _ = rows_of_others(rng, N_NEW)
        counts[fitted.predict_set(new).have(np.zeros(N_NEW, dtype=int)).sum()] += 1
    expected = REPETITIONS * betabinom(N_NEW, rank, M + 1 - rank).pmf(np.arange(N_NEW + 1))
    few = expected < 5
    counts, expected = (np.append(x[~few], x[few].sum()) for x in (counts, expected))
    counts, expected = counts[expected > 0], expected[expected > 0]
    assert chisquare(counts, expected).pvalue > 1e-3
