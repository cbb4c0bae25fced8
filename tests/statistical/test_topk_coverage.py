"""Coverage with labels that are not listed, against what each method states about recall at k."""

import warnings

import numpy as np
import pytest
from depth import IS_DEEP, size

from evencover import EvencoverWarning
from evencover.predictors import make_predictor
from evencover.quantiles import ClassAlpha, guard_ranks

K, ALPHA = 20, 0.1
SHAPES = np.linspace(0.5, 2, K)  # a score is U ** shape, so classes differ
RECALLS = (0.75, 0.85, 0.93, 0.99) if IS_DEEP else (0.85, 0.99)


def simulate(method, recall, n_per_class, n_times, spread=0.05):
    """Return coverage by class (times, K), thresholds (times, K) and recall by class (K,).

    The score of a label that is not listed is +inf; a set covers a label if its finite score is
    within the threshold, so coverage given the thresholds is known exactly.
    """
    rng = np.random.default_rng(int(1000 * recall))
    recalls = np.clip(recall + np.linspace(-spread, spread, K), 0, 1)
    thresholds = np.empty((n_times, K))
    labels = np.repeat(np.arange(K), n_per_class)
    for time in range(n_times):
        u = rng.random(len(labels))
        scores = np.where(u <= recalls[labels], u ** SHAPES[labels], np.inf)
        predictor = make_predictor(method, alpha=ALPHA, random_state=time)
        thresholds[time] = predictor.fit_scores(scores, labels, K).thresholds_
    with np.errstate(invalid="ignore"):
        covered = np.maximum(thresholds, 0) ** (1 / SHAPES)
    return np.minimum(covered, recalls), thresholds, recalls


@pytest.mark.parametrize("recall", RECALLS)
@pytest.mark.parametrize("method", ["classwise", "standard", "clustered", "pooled"])
def test_coverage_is_as_stated(method, recall):
    n_per_class = 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        covered, thresholds, recalls = simulate(method, recall, n_per_class, size(50, 600))
    is_infinite = np.isinf(thresholds)
    lost = ((1 - recalls) * is_infinite).mean(axis=0)
    noise = 4 * covered.std(axis=0).mean() / np.sqrt(len(covered))
    overall = covered.mean()
    assert overall >= 1 - ALPHA - lost.mean() - noise / np.sqrt(K) - 0.003
    if method == "classwise":
        assert (covered.mean(axis=0) >= 1 - ALPHA - lost - noise).all()
    if method == "pooled":
        counts = np.full(K, n_per_class)
        ranks = guard_ranks(counts, ClassAlpha.of(ALPHA, None, K, "test"))
        assert (covered.mean(axis=0) >= ranks / (counts + 1) - lost - noise).all()
    if method != "classwise" and recall > 0.9:
        assert overall <= 1 - ALPHA + 0.02  # no more than dense rows: thresholds stay finite
        assert is_infinite.all(axis=1).mean() < 0.02  # .003 for STANDARD with a recall of .93


def test_pooled_covers_the_target_overall_where_recall_allows_it():
    """Without levels of +inf for labels that are not listed it is .889."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        covered, thresholds, _ = simulate("pooled", 0.93, 30, size(80, 600), spread=0.1)
    assert np.isinf(thresholds).any()
    assert covered.mean() == pytest.approx(1 - ALPHA, abs=0.005)
