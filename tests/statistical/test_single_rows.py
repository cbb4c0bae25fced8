"""Coverage does not depend on how rows arrive: alone, in small batches, or all at once."""

import itertools

import numpy as np
import pytest
from depth import size
from scipy.stats import ks_2samp, norm

from evencover import PooledPredictor, StandardPredictor
from evencover.data import load_languages
from evencover.randomness import RandomStream, uniforms

ALPHA, N_CALIBRATION, N_TEST = 0.1, 2000, 300
N_SEEDS = size(short=2, deep=20)

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def coverage(predictor, rows, labels, at_once):
    """The share of labels in their sets, if so many rows are sent at a time."""
    starts = range(0, len(rows), at_once)
    covered = [
        predictor.predict_set(rows[at : at + at_once]).contains(labels[at : at + at_once])
        for at in starts
    ]
    return np.concatenate(covered).mean()


def telling_seeds(n):
    place = np.zeros(1, dtype=np.uint64)
    seeds = (
        seed for seed in itertools.count() if uniforms(seed, RandomStream.SCORE, place)[0] > 0.98
    )
    return itertools.islice(seeds, n)


@pytest.mark.parametrize("score", ["aps", "raps", "saps", "softmax, exact"])
def test_one_row_at_a_time_is_covered_like_a_batch(score):
    """Several seeds on the bundled data, under which the number of place 0 is near 1.

    If it were that of every row that comes alone, half of them would not be covered. Of each
    seed, the four coverages of the same 300 rows are within 5 standard errors of a difference of
    independent ones (false alarm below 1 in 10,000 for all pairs: they share rows, so they differ
    less). Over all seeds each is within 3 standard errors of 1 - alpha, the calibration's own
    included.
    """
    rows, labels, _ = load_languages()
    by_size = {at_once: [] for at_once in (1, 8, 64, N_TEST)}
    for seed in telling_seeds(N_SEEDS):
        order = np.random.default_rng(seed).permutation(len(rows))
        calibration = order[:N_CALIBRATION]
        test = order[N_CALIBRATION : N_CALIBRATION + N_TEST]
        name, *exact = score.split(", ")
        # The top class in every set would raise coverage above 1 - alpha.
        kwargs = {"score": name, "exact": bool(exact), "keep_top": False}
        predictor = StandardPredictor(alpha=ALPHA, random_state=seed, **kwargs)
        predictor.fit(rows[calibration], labels[calibration])
        for at_once, found in by_size.items():
            found.append(coverage(predictor, rows[test], labels[test], at_once))
    once = np.array(by_size[N_TEST])
    of_difference = np.sqrt(2 * ALPHA * (1 - ALPHA) / N_TEST)
    n_rows = N_SEEDS * N_TEST, N_SEEDS * N_CALIBRATION
    of_mean = np.sqrt(ALPHA * (1 - ALPHA) * (1 / n_rows[0] + 1 / n_rows[1]))
    for found in by_size.values():
        assert np.abs(np.array(found) - once).max() < 5 * of_difference
        assert abs(np.mean(found) - (1 - ALPHA)) < 3 * of_mean


@pytest.mark.parametrize("n_ids", [1, 2, 7, 30])
def test_repeated_ids_do_not_decide_by_score_who_is_held_out(n_ids):
    """POOLED with a holdout keeps its marginal guarantee; 30 calibrations of 1000 rows or more.

    Coverage is computed, not sampled: scores of class y are normal with mean y / 2.
    """
    rng = np.random.default_rng(n_ids)
    covered = []
    for seed in range(size(short=15, deep=600)):
        labels = rng.integers(0, 5, size=1000)
        scores = rng.normal(labels / 2)
        ids = rng.integers(0, n_ids, size=1000)
        predictor = PooledPredictor(alpha=ALPHA, split="holdout", strength=30.0, random_state=seed)
        predictor.fit_scores(scores, labels, 5, ids=ids)
        covered.append(norm.cdf(predictor.thresholds_ - np.arange(5) / 2).mean())
    error = np.std(covered, ddof=1) / np.sqrt(len(covered))
    assert np.mean(covered) >= 1 - ALPHA - 3 * error


def test_exact_coverage_follows_its_beta_law_with_rows_in_the_same_order():
    """STANDARD with APS, exact, default ids: calibration row i and test row i share nothing.

    The model is certain and right, so a row's score is its uniform, and a threshold is its own
    coverage. With n = 40 rows and alpha = .1 the exact rule takes rank 36 with odds .1 and rank 37
    with odds .9, since (n + 1)(1 - alpha) = 36.9. The oracle draws from that law (sorted uniforms,
    whose ranks are Beta); compared in mean (3 standard errors) and law (false alarm 1 in 10,000).
    """
    rng = np.random.default_rng(5)
    n_rows, n_calibrations = 40, size(short=200, deep=4000)
    covered, expected = [], []
    for seed in range(n_calibrations):
        labels = rng.integers(0, 3, size=2 * n_rows)
        rows = np.eye(3)[labels]
        predictor = StandardPredictor(alpha=ALPHA, score="aps", exact=True, random_state=seed)
        predictor.fit(rows[:n_rows], labels[:n_rows])
        covered.append(predictor.predict_set(rows[n_rows:]).contains(labels[n_rows:]).mean())
        ranks = np.sort(rng.random(n_rows))[[35, 36]]
        expected.append(rng.binomial(n_rows, [0.1, 0.9] @ ranks) / n_rows)
    error = np.std(covered, ddof=1) / np.sqrt(n_calibrations)
    assert abs(np.mean(covered) - (1 - ALPHA)) < 3 * error
    assert ks_2samp(covered, expected).pvalue > 1e-4
