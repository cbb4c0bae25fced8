"""Coverage does not depend on how rows arrive: alone, in small batches, or all at once."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from evencover import APS, RAPS, SAPS, ClasswisePredictor, PooledPredictor, StandardPredictor
from evencover.data import load_languages

ALPHA, N_CALIBRATION, N_TEST = 0.1, 2000, 300
VARIANTS = {
    "aps": {"score": APS()},
    "raps": {"score": RAPS()},
    "saps": {"score": SAPS()},
    "exact": {"exact": True},
}

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def coverage(predictor, rows, labels, size):
    """The share of labels in their sets, if `size` rows are sent at a time."""
    starts = range(0, len(rows), size)
    covered = [
        predictor.predict_set(rows[at : at + size]).contains(labels[at : at + size])
        for at in starts
    ]
    return np.concatenate(covered).mean()


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_row_at_a_time_is_covered_like_a_batch(variant):
    """Twenty seeds on the bundled data.

    Of each seed, the four coverages of the same 300 rows are within 5 standard errors of a
    difference of independent ones (false alarm below 1 in 10,000 for all 120 pairs: they share
    rows, so they differ less). Over all seeds each is within 3 standard errors of 1 - alpha, the
    calibration's own included.
    """
    rows, labels, _ = load_languages()
    by_size = {size: [] for size in (1, 8, 64, N_TEST)}
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(rows))
        calibration = order[:N_CALIBRATION]
        test = order[N_CALIBRATION : N_CALIBRATION + N_TEST]
        predictor = StandardPredictor(alpha=ALPHA, random_state=seed, **VARIANTS[variant])
        predictor.fit(rows[calibration], labels[calibration])
        for size, found in by_size.items():
            found.append(coverage(predictor, rows[test], labels[test], size))
    once = np.array(by_size[N_TEST])
    of_difference = np.sqrt(2 * ALPHA * (1 - ALPHA) / N_TEST)
    n_tests = 20 * N_TEST
    of_mean = np.sqrt(ALPHA * (1 - ALPHA) * (1 / n_tests + 1 / (20 * N_CALIBRATION)))
    for found in by_size.values():
        assert np.abs(np.array(found) - once).max() < 5 * of_difference
        assert abs(np.mean(found) - (1 - ALPHA)) < 3 * of_mean


@pytest.mark.parametrize("n_ids", [1, 2, 7, 30])
def test_repeated_ids_do_not_decide_by_score_who_is_held_out(n_ids):
    """POOLED with a holdout keeps its marginal guarantee; 60 calibrations of 1000 rows.

    Coverage is computed, not sampled: scores of class y are normal with mean y / 2.
    """
    rng = np.random.default_rng(n_ids)
    covered = []
    for seed in range(60):
        labels = rng.integers(0, 5, size=1000)
        scores = rng.normal(labels / 2)
        ids = rng.integers(0, n_ids, size=1000)
        predictor = PooledPredictor(
            alpha=ALPHA, split="holdout", prior=4, strength=30.0, random_state=seed
        )
        predictor.fit_scores(scores, labels, 5, ids=ids)
        covered.append(norm.cdf(predictor.thresholds_ - np.arange(5) / 2).mean())
    error = np.std(covered, ddof=1) / np.sqrt(len(covered))
    assert np.mean(covered) >= 1 - ALPHA - 3 * error


def test_exact_coverage_follows_its_law_with_rows_in_the_same_order(simulate):
    """CLASSWISE, exact, default ids: calibration row i and test row i share nothing.

    Given the calibration rows, the share of covered test rows is binomial around the coverage of
    the randomised pair, whose mean over calibrations is just 1 - alpha; 400 calibrations with 40
    rows of a class, 3 standard errors (false alarm 1 in 370), and no trend between a calibration
    row's uniform and the test row's at its place.
    """
    rng = np.random.default_rng(5)
    covered, n_rows = [], 40
    for seed in range(400):
        rows = rng.dirichlet([1.0, 0.5, 0.5], size=2 * n_rows)
        labels = np.array([rng.choice(3, p=row) for row in rows])
        predictor = StandardPredictor(alpha=ALPHA, score="aps", exact=True, random_state=seed)
        predictor.fit(rows[:n_rows], labels[:n_rows])
        covered.append(predictor.predict_set(rows[n_rows:]).contains(labels[n_rows:]).mean())
    error = np.std(covered, ddof=1) / np.sqrt(len(covered))
    assert abs(np.mean(covered) - (1 - ALPHA)) < 3 * error


def test_uniforms_of_rows_that_come_alone_are_uniform():
    """20,000 rows, each in a call of its own; false alarm 1 in 10,000."""
    rows = np.random.default_rng(0).dirichlet(np.ones(4), size=2000)
    alone = np.concatenate([APS().matrix(row[None]) for row in rows])
    top = rows.max(axis=1)
    u = alone[np.arange(len(rows)), rows.argmax(axis=1)] / top
    assert kstest(u, "uniform").pvalue > 1e-4


def test_classwise_exact_alone():
    """The coin too: without a number of its own, one row in two at the pair's lower limit."""
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(3), size=4000)
    labels = np.array([rng.choice(3, p=row) for row in rows])
    predictor = ClasswisePredictor(alpha=0.25, exact=True).fit(rows[:9], labels[:9])
    alone = coverage(predictor, rows[9:1009], labels[9:1009], 1)
    once = coverage(predictor, rows[9:], labels[9:], 4000)
    assert abs(alone - once) < 3 * np.sqrt(0.25 / 1000)
