"""POOLED: its limits are STANDARD and CLASSWISE, its level is calibrated, its guarantee holds."""

from math import inf

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from evencover import (
    ClasswisePredictor,
    EvencoverWarning,
    InputError,
    PooledPredictor,
    StandardPredictor,
)
from evencover.predictors.pooling import Blend, ClusterPrior, NormalPrior, OwnRows

K = 60


def simulated(n_per_class, seed, *, spread=1.0, rounded=False):
    """Normal scores whose class means differ, so that the truth is known; and the means."""
    rng = np.random.default_rng(seed)
    means = spread * norm.ppf((np.arange(K) + 0.5) / K)
    labels = np.repeat(np.arange(K), n_per_class)
    scores = means[labels] + rng.normal(size=len(labels))
    return (scores.round(1) if rounded else scores), labels, means


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_infinite_strength_with_one_cluster_is_standard(exact, rounded):
    scores, labels, _ = simulated(7, 0, rounded=rounded)
    pooled = PooledPredictor(prior=1, strength=inf, exact=exact).fit_scores(scores, labels, K)
    standard = StandardPredictor(exact=exact).fit_scores(scores, labels, K)
    np.testing.assert_array_equal(pooled.thresholds_, standard.thresholds_)
    if exact:
        np.testing.assert_array_equal(pooled.lower_thresholds_, standard.lower_thresholds_)
        np.testing.assert_array_equal(pooled.upper_probability_, standard.upper_probability_)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("exact", [False, True])
def test_no_strength_is_classwise(exact):
    scores, labels, _ = simulated(np.arange(K) % 25 + 1, 1, rounded=True)
    pooled = PooledPredictor(strength=0, exact=exact).fit_scores(scores, labels, K)
    classwise = ClasswisePredictor(exact=exact).fit_scores(scores, labels, K)
    np.testing.assert_array_equal(pooled.thresholds_, classwise.thresholds_)
    if exact:
        np.testing.assert_array_equal(pooled.lower_thresholds_, classwise.lower_thresholds_)


def covgap(predictor, means):
    """The true class coverage is known: thresholds are compared with normal distributions."""
    coverage = norm.cdf(predictor.thresholds_ - means)
    return 100 * np.abs(coverage - 0.9).mean(), coverage.mean()


@pytest.mark.parametrize("n_per_class", [10, 40])
def test_pooled_is_closer_to_every_class_than_both_extremes(n_per_class):
    """Mean true CovGap over 8 seeded data sets; pooled wins by 20% or more each way."""
    gaps = {"pooled": [], "standard": [], "classwise": []}
    for seed in range(8):
        scores, labels, means = simulated(n_per_class, seed)
        for name, cls in (
            ("pooled", PooledPredictor),
            ("standard", StandardPredictor),
            ("classwise", ClasswisePredictor),
        ):
            gaps[name].append(covgap(cls().fit_scores(scores, labels, K), means)[0])
    mean = {name: np.mean(values) for name, values in gaps.items()}
    assert mean["pooled"] < 0.8 * min(mean["standard"], mean["classwise"])


def test_with_equal_classes_pooled_is_nearly_standard():
    gaps = []
    for seed in range(8):
        scores, labels, means = simulated(10, seed, spread=0.0)
        gaps.append(
            [
                covgap(cls().fit_scores(scores, labels, K), means)[0]
                for cls in (PooledPredictor, StandardPredictor, ClasswisePredictor)
            ]
        )
    pooled, standard, classwise = np.mean(gaps, axis=0)
    assert pooled < standard + 1.0 < classwise


def test_a_class_with_plenty_of_rows_speaks_for_itself():
    scores, labels, _ = simulated(np.where(np.arange(K) == 0, 5000, 10), 2)
    predictor = PooledPredictor().fit_scores(scores, labels, K)
    assert predictor.own_weight_[0] > 2 * predictor.own_weight_[1:].max()
    weights = (
        predictor.own_weight_ + predictor.normal_weight_ + predictor.cluster_weights_.sum(axis=1)
    )
    np.testing.assert_allclose(weights, 1)


def test_a_class_without_rows_gets_a_finite_threshold_and_a_warning():
    scores, labels, _ = simulated(10, 3)
    kept = labels != 5
    with pytest.warns(UserWarning, match="1 of 60 classes have no calibration examples"):
        predictor = PooledPredictor().fit_scores(scores[kept], labels[kept], K)
    assert np.isfinite(predictor.thresholds_).all()
    assert predictor.own_weight_[5] == 0


@pytest.mark.parametrize("split", ["crossfit", "holdout"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_set_is_where_the_p_value_exceeds_alpha(simulate, split, exact):
    rows, labels = simulate(1200, 40, seed=3)
    predictor = PooledPredictor(score="raps", split=split, exact=exact, alpha=0.2)
    predictor.fit(rows[:800], labels[:800])
    p = predictor.predict_p(rows[800:])
    np.testing.assert_array_equal(p > 0.2, predictor.predict_set(rows[800:]).to_mask())


def test_rows_in_another_order_with_their_ids_change_nothing():
    scores, labels, _ = simulated(12, 4, rounded=True)
    ids = np.arange(len(scores)) * 7 + 3
    order = np.random.default_rng(0).permutation(len(scores))
    here = PooledPredictor().fit_scores(scores, labels, K, ids=ids)
    there = PooledPredictor().fit_scores(scores[order], labels[order], K, ids=ids[order])
    np.testing.assert_array_equal(here.thresholds_, there.thresholds_)


def test_a_monotone_change_of_the_scores_changes_no_set():
    scores, labels, _ = simulated(12, 5)
    plain = PooledPredictor().fit_scores(scores, labels, K).thresholds_
    bent = PooledPredictor().fit_scores(np.exp(scores), labels, K).thresholds_
    np.testing.assert_allclose(np.exp(plain), bent)


def test_the_normal_prior_is_the_textbook_shrinkage():
    """With equal counts, a class's mean is drawn to the grand mean by n / (n + within/between)."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(K), 8)
    u = norm.cdf(norm.ppf((labels + 0.5) / K) * 0.6 + 0.8 * rng.normal(size=len(labels)))
    x = norm.ppf(u).reshape(K, 8)
    within = x.var(axis=1, ddof=1).mean()
    between = x.mean(axis=1).var(ddof=1) - within / 8
    shrunk = x.mean() + (x.mean(axis=1) - x.mean()) * 8 / (8 + within / between)
    np.testing.assert_allclose(NormalPrior.fit(u, labels, K).mean, shrunk)


@pytest.mark.parametrize("balanced", [False, True])
def test_the_normal_prior_is_a_meta_regression_on_class_size(balanced):
    """Least squares by lstsq, and the variance between classes by a root finder."""
    rng = np.random.default_rng(5)
    n = np.full(80, 12) if balanced else rng.integers(1, 200, 80)
    labels = np.repeat(np.arange(80), n)
    x = (1.5 - 0.4 * np.log1p(n) + rng.normal(0, 0.5, 80))[labels] + rng.normal(0, 0.8, len(labels))
    u = (np.argsort(np.argsort(x)) + 0.5) / len(x)
    scores = norm.ppf(u)
    means = np.array([scores[labels == y].mean() for y in range(80)])
    within = sum(((scores[labels == y] - means[y]) ** 2).sum() for y in range(80)) / (len(x) - 80)
    columns = [np.ones(80)] if balanced else [np.ones(80), np.log1p(n)]
    design = np.stack(columns, axis=1)

    def expected(between):
        root = 1 / np.sqrt(between + within / n)
        line = np.linalg.lstsq(design * root[:, None], means * root, rcond=None)[0]
        return design @ line, root

    def excess(between):
        fitted, root = expected(between)
        return (((means - fitted) * root) ** 2).sum() - (80 - design.shape[1])

    between = brentq(excess, 1e-3, 1e3)
    share = n / (n + within / between)
    wanted = share * means + (1 - share) * expected(between)[0]
    assert NormalPrior.fit(u, labels, 80).mean == pytest.approx(wanted, abs=1e-6)


def test_rare_classes_that_are_hard_are_covered_without_rows_of_their_own():
    """Harder the rarer: what the frequent ones show is told to the rarest, which has no rows."""
    rng = np.random.default_rng(6)
    n = np.concatenate([[0, 0, 0], np.geomspace(2, 400, 97).astype(int)])
    centre = 3 - 0.6 * np.log1p(n) + rng.normal(0, 0.1, 100)
    labels = np.repeat(np.arange(100), n)
    scores = norm.cdf(centre[labels] + rng.normal(size=len(labels)))
    with pytest.warns(EvencoverWarning, match="3 of 100"):
        model = PooledPredictor().fit_scores(scores, labels, 100)
    coverage = norm.cdf(norm.ppf(np.minimum(model.thresholds_, 1 - 1e-12)) - centre)
    assert coverage[:3].min() > 0.7
    with pytest.warns(EvencoverWarning):
        standard = StandardPredictor().fit_scores(scores, labels, 100).thresholds_
    assert norm.cdf(norm.ppf(standard) - centre)[:3].max() < 0.3


def test_soft_clusters_find_kinds_of_classes():
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(K), 50)
    u = np.where(labels < K // 2, rng.beta(1, 4, len(labels)), rng.beta(4, 1, len(labels)))
    prior = ClusterPrior.fit(u, labels, K, 2)
    assert prior.weights[: K // 2, 0].min() > 0.99 > 0.01 > prior.weights[K // 2 :, 0].max()


def test_the_last_place_within_a_level_is_found_by_a_plain_scan_too():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, 50)
    own = OwnRows.of(np.arange(50), labels, 4, 50)
    blend = Blend(
        own,
        np.full(4, 0.5),
        NormalPrior.fit((np.arange(50) + 0.5) / 50, labels, 4),
        np.full(4, 0.3),
        ClusterPrior(np.full((4, 1), 0.2), np.linspace(0, 1, 257)[None, :]),
    )
    for level in (-1.0, 0.0, 0.3, 0.9, 1.0):
        for index, last in enumerate(blend.last_place(level)):
            levels = blend.level(np.full(51, index), np.arange(51))
            within = np.flatnonzero(levels <= level)
            assert last == (within[-1] if len(within) else -1)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"prior": "norml"}, "'prior' parameter of PooledPredictor must be"),
        ({"prior": 0}, "whole number of at least 1"),
        ({"strength": -1}, "'strength' parameter"),
        ({"split": "hold"}, "did you mean 'holdout'"),
    ],
)
def test_bad_parameters_are_named(parameters, sentence):
    scores, labels, _ = simulated(5, 0)
    with pytest.raises(InputError, match=sentence):
        PooledPredictor(**parameters).fit_scores(scores, labels, K)
