"""Clustering: the paper's embedding, gamma and M; weighted k-means; the null cluster."""

from fractions import Fraction

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring import true_label_scores
from sklearn.cluster import KMeans

from evencover import ClusteredPredictor, EvencoverWarning, StandardPredictor
from evencover.predictors.clustered import (
    automatic_parameters,
    cluster_embeddings,
    least_count,
    quantile_embedding,
)
from evencover.quantiles import GroupedScores
from evencover.randomness import RandomStream, random_order
from evencover.scores import APS, make_score


def of_counts(counts):
    return [y for y, n in enumerate(counts) for _ in range(n)]


@given(
    st.lists(st.integers(0, 300), min_size=2, max_size=60),
    st.sampled_from([Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 3)]),
)
def test_gamma_and_m_follow_the_papers_rules(counts, alpha):
    if sum(counts) == 0:
        counts[0] = 1
    expected = oracle.clustering_parameters(of_counts(counts), len(counts), alpha)
    assert automatic_parameters(np.array(counts), alpha) == expected


@given(alpha=st.sampled_from([0.01, 0.05, 0.1, 0.3]), seed=st.integers(0, 100), ties=st.booleans())
def test_embedding_is_the_papers(alpha, seed, ties):
    rng = np.random.default_rng(seed)
    counts = [0, 3, 8, 9, 10, 18, 19, 20, 57, 98, 99, 150]
    labels = rng.permutation(of_counts(counts))
    scores = rng.beta(3, 1, len(labels))
    if ties:
        scores = scores.round(1)
    meant = Fraction(str(alpha))
    classes, z, _ = oracle.embedding(scores.tolist(), labels.tolist(), len(counts), meant)
    groups = GroupedScores.sort(scores, labels, len(counts))
    assert np.flatnonzero(groups.counts >= least_count(alpha)).tolist() == classes
    assert quantile_embedding(groups, alpha)[classes].tolist() == z
    assert len(z[0]) == (5 if alpha in (0.1, 0.3) else 6)


@pytest.mark.parametrize("score", ["softmax", "aps", "raps"])
def test_clusters_are_a_weighted_k_means_of_the_oracles_embedding(simulate, quietly, score):
    """Local optimum for the weights sqrt(n), and the one that scikit-learn's defaults find."""
    rows, labels = simulate(6000, 60, seed=8, long_tail=True)
    predictor = quietly(ClusteredPredictor(score=score, gamma=0.6, n_clusters=4), rows, labels)
    first = np.sort(random_order(0, RandomStream.SPLIT, np.arange(6000))[:3600])
    scores = true_label_scores(make_score(score), rows, labels)[first]
    classes, z, weights = oracle.embedding(
        scores.tolist(), labels[first].tolist(), 60, Fraction(1, 10)
    )
    assignment = predictor.cluster_of_class_[classes].tolist()
    assert sorted(set(assignment)) == [0, 1, 2, 3]
    assert min(predictor.cluster_of_class_) == -1

    z, weights = np.array(z), np.array(weights)
    centers = [
        np.average(z[np.equal(assignment, m)], axis=0, weights=weights[np.equal(assignment, m)])
        for m in range(4)
    ]
    distances = ((z[:, None] - np.array(centers)) ** 2).sum(axis=2)
    assert distances.argmin(axis=1).tolist() == assignment
    assert np.all(np.diff([c.mean() for c in centers]) > 0)  # numbered from easy to hard

    theirs = KMeans(4, random_state=0).fit(z, sample_weight=weights)
    found = oracle.weighted_inertia(z.tolist(), weights.tolist(), assignment)
    assert found == pytest.approx(theirs.inertia_)


def test_k_means_weighs_classes_by_their_data():
    """A heavy point draws the border: the middle one may go either way only without it."""
    z = np.array([[0.0], [0.0], [0.5], [0.8], [1.2]])

    def found(weights):
        return {tuple(cluster_embeddings(z, weights, 2, seed).tolist()) for seed in range(8)}

    assert found(np.ones(5)) == {(0, 0, 0, 1, 1), (0, 0, 1, 1, 1)}
    assert found(np.array([1.0, 1.0, 1.0, 1.0, 99.0])) == {(0, 0, 0, 1, 1)}


def test_d1_has_exactly_floor_gamma_n_rows(simulate):
    """0.29 * 100 is 28.999999999999996 in floating point."""
    rows, labels = simulate(1000, 5, seed=1)
    predictor = ClusteredPredictor(gamma=0.29, n_clusters=2).fit(rows, labels)
    assert (
        predictor.fit_.groups.scores.offsets[-1] - predictor.fit_.groups.scores.offsets[-2]
        == 1000 - 290
    )
    assert predictor.gamma_ == 0.29


def test_null_classes_use_the_standard_threshold_of_d2(simulate):
    rows, labels = simulate(1500, 40, seed=3, long_tail=True)
    with pytest.warns(EvencoverWarning) as caught:
        predictor = ClusteredPredictor(score="aps", gamma=0.5, n_clusters=3).fit(rows, labels)
    proper = random_order(0, RandomStream.SPLIT, np.arange(1500))[750:]
    d2 = true_label_scores(APS(), rows, labels)[proper]
    standard = oracle.conformal_quantile(d2.tolist(), Fraction(1, 10))
    null = predictor.cluster_of_class_ == -1
    assert null.any()
    assert set(predictor.thresholds_[null]) == {standard}
    seen = int((null & (predictor.class_counts_ > 0)).sum())
    messages = [str(w.message) for w in caught]
    assert f"{seen} of 40 classes have fewer than 9 examples for clustering" in messages[0]
    assert f"{int((predictor.class_counts_ == 0).sum())} of 40 classes have no" in messages[1]


@pytest.mark.parametrize(
    ("n_rows", "parameters", "why"),
    [
        (100, {}, "number of clusters would be"),
        (400, {"n_clusters": 1}, "number of clusters would be 1"),
        (400, {"n_clusters": 8, "gamma": 0.5}, "8 clusters need more"),
        (60, {"n_clusters": 2, "gamma": 0.5}, "2 clusters need more"),
    ],
)
def test_without_clusters_it_is_standard_on_all_rows(simulate, n_rows, parameters, why):
    rows, labels = simulate(n_rows, 8, seed=2)
    with pytest.warns(EvencoverWarning, match=why) as caught:
        predictor = ClusteredPredictor(**parameters).fit(rows, labels)
    assert len(caught) == 1
    standard = StandardPredictor().fit(rows, labels)
    assert predictor.thresholds_.tolist() == standard.thresholds_.tolist()
    assert predictor.cluster_of_class_.tolist() == [-1] * 8
    assert (predictor.n_clusters_, predictor.gamma_) == (0, 0)


def test_classes_with_nearly_equal_quantiles_do_not_upset_k_means():
    """Saturated classes differ in the last bit only; k-means then finds fewer clusters."""
    z = 1 - np.random.default_rng(0).integers(0, 3, (12, 5)) * 2.0**-53
    z[0] = 0.2
    clusters = cluster_embeddings(z, np.sqrt(np.arange(9.0, 21.0)), 4, 0)
    assert set(clusters.tolist()) == set(range(clusters.max() + 1))
    assert clusters[0] == 0
    assert (clusters[1:] > 0).all()
