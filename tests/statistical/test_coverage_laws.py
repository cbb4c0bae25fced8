"""Coverage against its exact law, and proof that each check would notice a broken method.

Scores have continuous distributions that we know, so the coverage of a fitted predictor is
computed, not estimated. Seeds are fixed: a test that passes once passes always. The rates written
down are the chance that a correct implementation fails for a seed drawn at random; all tests
together: 1.2%. The short form has fewer repetitions, but enough to notice what is broken.
"""

import numpy as np
import pytest
from depth import size
from scipy.stats import beta, kstest
from scoring import true_label_scores

from evencover import APS, ClasswisePredictor, ClusteredPredictor, StandardPredictor, quantiles
from evencover.quantiles import GroupedScores

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

LEVEL = 1e-3  # false-alarm rate of each Kolmogorov-Smirnov test
SIGMAS = 4  # of each test of a mean: false-alarm rate 6e-5


def two_classes(scores):
    """Rows whose true label 0 has the given softmax score."""
    return np.column_stack([1 - scores, scores])


@pytest.fixture(params=[False, True], ids=["as it is", "broken"])
def broken(request, monkeypatch):
    """Everything is tested twice: as it is, and with every conformal rank too low by one."""
    if request.param:
        ranks = quantiles.conformal_ranks
        monkeypatch.setattr(quantiles, "conformal_ranks", lambda *of: ranks(*of) - 1)
    return request.param


def follows(sample, law):
    """Whether a Kolmogorov-Smirnov test at LEVEL accepts the law."""
    return bool(kstest(sample, law).pvalue > LEVEL)


@pytest.mark.parametrize(("n", "alpha"), [(40, 0.1), (99, 0.05), (30, 0.3)])
def test_standard_coverage_is_beta(broken, n, alpha):
    """Given the calibration data, marginal coverage is Beta(k, n + 1 - k). False alarms: 0.1%."""
    rng = np.random.default_rng(1)
    k = int(np.ceil((n + 1) * (1 - alpha) - 1e-9))
    coverage = []
    for _ in range(size(short=300, deep=5000)):
        fitted = StandardPredictor(alpha=alpha).fit_scores(rng.random(n), np.arange(n) % 2, 2)
        coverage.append(fitted.thresholds_[0])  # scores are uniform: it is its own coverage
    assert follows(coverage, beta(k, n + 1 - k).cdf) != broken


def test_standard_coverage_with_the_randomised_aps_score_is_beta(broken):
    """Labels drawn from the model's own probabilities have uniform APS scores. Rate: 0.1%."""
    rng = np.random.default_rng(2)
    n, coverage = 40, []
    for repetition in range(size(short=300, deep=3000)):
        rows = rng.dirichlet(np.full(4, 0.7), n)
        labels = (rows.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=3)
        predictor = StandardPredictor(score="aps", random_state=repetition)
        scores = true_label_scores(APS(), rows, labels, random_state=repetition)
        coverage.append(predictor.fit_scores(scores, np.arange(n) % 4, 4).thresholds_[0])
    assert follows(coverage, beta(37, 4).cdf) != broken


def test_classwise_coverage_is_beta_for_every_class(broken):
    """Class y has scores Beta(a_y, 1) and n_y rows: Beta(k_y, n_y + 1 - k_y). Rate: 4 x 0.1%."""
    rng = np.random.default_rng(4)
    shape, counts = np.array([0.5, 1.0, 3.0, 9.0]), np.array([12, 19, 45, 80])
    labels = np.repeat(np.arange(4), counts)
    thresholds = []
    for _ in range(size(short=300, deep=4000)):
        scores = rng.random(len(labels)) ** (1 / shape[labels])
        thresholds.append(ClasswisePredictor().fit_scores(scores, labels, 4).thresholds_)
    coverage = np.array(thresholds) ** shape
    for y, n in enumerate(counts):
        k = int(np.ceil((n + 1) * 0.9 - 1e-9))
        assert follows(coverage[:, y], beta(k, n + 1 - k).cdf) != broken


def test_clustered_coverage_is_beta_for_every_cluster(broken):
    """Given D1 and the cluster's n_m rows of D2: Beta(k_m, n_m + 1 - k_m). False alarms: 0.1%.

    Labels are drawn at random, so a cluster's score distribution is the mixture of its classes. A
    cluster with too few rows for a threshold (k_m > n_m) covers everything instead.
    """
    rng = np.random.default_rng(5)
    shape = np.array([0.4, 0.5, 0.6, 0.45, 0.55, 6.0, 7.0, 8.0, 6.5, 7.5])
    chance = np.array([3, 2, 2, 2, 3, 2, 3, 2, 3, 2]) / 24
    positions = []  # of the coverage in its own Beta law
    for repetition in range(size(short=60, deep=750)):
        labels = rng.choice(10, 420, p=chance)
        scores = rng.random(420) ** (1 / shape[labels])
        fitted = ClusteredPredictor(gamma=0.7, n_clusters=2, random_state=repetition)
        fitted.fit_scores(scores, labels, 10)
        for cluster in range(2):
            members = fitted.cluster_of_class_ == cluster
            threshold, n = fitted.thresholds_[members][0], fitted.fit_.groups.scores.counts[cluster]
            weight = chance[members] / chance[members].sum()
            coverage = weight @ threshold ** shape[members]
            k = int(np.ceil((n + 1) * 0.9 - 1e-9))
            if k > n:
                assert threshold == np.inf or broken
            else:
                positions.append(beta(k, n + 1 - k).cdf(coverage))
    assert follows(positions, "uniform") != broken


N_EXACT = size(short=400, deep=3000)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("method", "n", "alpha"),
    [
        (StandardPredictor, 15, 0.1),
        (ClasswisePredictor, 5, 0.1),
        pytest.param(ClasswisePredictor, 15, 0.1, marks=pytest.mark.deep),
        pytest.param(StandardPredictor, 5, 0.1, marks=pytest.mark.deep),
        pytest.param(StandardPredictor, 33, 0.05, marks=pytest.mark.deep),
        pytest.param(ClasswisePredictor, 33, 0.05, marks=pytest.mark.deep),
    ],
)
def test_exact_coverage_is_one_minus_alpha_on_average(method, exact, n, alpha):
    """Rows, coins and all; without exact=True the mean is k/(n + 1). False alarms: 6e-5 each."""
    rng = np.random.default_rng(6)
    covered = []
    for repetition in range(N_EXACT):
        fitted = method(alpha=alpha, exact=exact, random_state=repetition)
        if method is StandardPredictor:
            fitted.fit_scores(rng.random(n), np.arange(n) % 2, 2)
        else:
            fitted.fit_scores(rng.random(2 * n), np.repeat([0, 1], n), 2)
        test = two_classes(rng.random(40))
        covered.append(fitted.predict_set(test).to_mask()[:, 0].mean())
    error = np.std(covered, ddof=1) / np.sqrt(N_EXACT)
    mean = (1 - alpha) if exact else min(1, np.ceil((n + 1) * (1 - alpha) - 1e-9) / (n + 1))
    if mean == 1:
        assert np.mean(covered) == 1
    else:
        assert abs(np.mean(covered) - mean) < SIGMAS * error
    if exact:  # the check would see the overshoot that randomisation removes
        overshoot = np.ceil((n + 1) * (1 - alpha) - 1e-9) / (n + 1) - (1 - alpha)
        assert overshoot > 2 * SIGMAS * error


def test_a_tie_is_included_more_often_as_alpha_falls():
    """With b of n scores below it and E equal: ((n + 1)(1 - alpha) - b)/(E + 1). Rate: 6e-5 each.

    That is the mean over the draws of groups; with each of these, no set loses a tie.
    """
    scores, n_seeds = np.array([0.1, 0.2, 0.2, 0.5, 0.5, 0.5, 0.5, 0.9]), size(100, 3000)
    calibration = GroupedScores.sort(scores, np.zeros(8, dtype=int), 1)
    earlier = 0
    for alpha in (0.9, 0.75, 0.7, 0.5, 0.4, 0.2, 0.15):
        included = []
        for seed in range(n_seeds):
            thresholds = calibration.thresholds(alpha, exact=True, random_state=seed)
            upper, lower, chance = thresholds.upper, thresholds.lower, thresholds.upper_probability
            included.append(chance * (scores <= upper) + (1 - chance) * (scores <= lower))
        n_below = (scores[:, None] > scores).sum(axis=1)
        n_equal = (scores[:, None] == scores).sum(axis=1)
        expected = np.clip((9 * (1 - alpha) - n_below) / (n_equal + 1), 0, 1)
        error = np.sqrt(expected * (1 - expected) / n_seeds)
        assert (abs(np.mean(included, axis=0) - expected) <= SIGMAS * error + 1e-9).all()
        assert (np.array(included) >= np.array(earlier) - 1e-12).all()
        earlier = included


def test_exact_coverage_of_clusters_is_one_minus_alpha_on_average():
    """Two clusters of few D2 rows; coverage is computed from both thresholds. Rate: 6e-5."""
    rng = np.random.default_rng(7)
    shape = np.array([0.4, 0.5, 0.6, 6.0, 7.0, 8.0])
    gaps = {True: [], False: []}
    for repetition in range(size(short=60, deep=600)):
        labels = rng.permutation(np.repeat(np.arange(6), 25))  # none too rare to be clustered
        scores = rng.random(150) ** (1 / shape[labels])
        fitted = ClusteredPredictor(gamma=0.8, n_clusters=2, exact=True, random_state=repetition)
        fitted.fit_scores(scores, labels, 6)
        upper = np.minimum(fitted.thresholds_, 1) ** shape
        lower = np.minimum(fitted.fit_.thresholds.lower, 1) ** shape
        mixed = (
            fitted.fit_.thresholds.upper_probability * upper
            + (1 - fitted.fit_.thresholds.upper_probability) * lower
        )
        for use, coverage in ((True, mixed), (False, upper)):
            means = [coverage[fitted.cluster_of_class_ == m].mean() for m in (0, 1)]
            gaps[use].append(np.mean(means) - 0.9)
    z = {use: np.mean(g) / (np.std(g, ddof=1) / np.sqrt(len(g))) for use, g in gaps.items()}
    assert abs(z[True]) < SIGMAS
    assert abs(z[False]) > SIGMAS


@pytest.mark.parametrize("exact", [True, False])
def test_exact_p_values_of_true_labels_are_uniform(exact):
    """One test row per calibration set, so the p-values are independent. False alarms: 0.1%."""
    rng = np.random.default_rng(8)
    p, n = [], size(short=250, deep=5000)
    for repetition in range(n):
        fitted = StandardPredictor(exact=exact, random_state=repetition)
        fitted.fit_scores(rng.random(7), [0, 1] * 3 + [0], 2)
        p.append(fitted.predict_p(two_classes(rng.random(1)))[0, 0])
    assert follows(p, "uniform") == exact
    if not exact:  # conservative: P(p <= a) <= a, with equality at the multiples of 1/8
        assert np.mean(np.array(p) <= 0.25) == pytest.approx(0.25, abs=SIGMAS * np.sqrt(0.1875 / n))
