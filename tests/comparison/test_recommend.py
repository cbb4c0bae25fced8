"""recommend(): the paper's regimes, as sentences with numbers."""

import numpy as np
import pytest

from evencover import ClusteredPredictor, InputError, PooledPredictor, recommend


def labels_of(counts):
    return np.repeat(np.arange(len(counts)), counts)


@pytest.mark.parametrize(
    ("counts", "regime", "paper", "method"),
    [
        ([5] * 100, "extremely low", "standard", "pooled"),
        ([30] * 100, "low", "clustered", "pooled"),
        ([12] * 100, "low", "standard", "pooled"),  # too few rows in D1
        ([90] * 100, "high", "clustered", "pooled"),
        ([100] * 100, "extremely high", "classwise", "classwise"),
        ([3] * 40 + [2000] * 60, "high", "clustered", "pooled"),
        ([30] * 3, "low", "standard", "pooled"),  # too few classes to cluster
    ],
)
def test_regimes_of_the_paper(counts, regime, paper, method):
    advice = recommend(labels_of(counts), n_classes=len(counts))
    assert (advice.regime, advice.paper_method, advice.method) == (regime, paper, method)


def test_boundaries_move_with_alpha():
    counts = [100] * 50
    assert recommend(labels_of(counts), n_classes=50, alpha=0.1).regime == "extremely high"
    assert recommend(labels_of(counts), n_classes=50, alpha=0.05).regime == "low"
    assert recommend(labels_of(counts), n_classes=50, alpha=0.005).regime == "extremely low"


def test_the_paper_method_is_clustered_only_where_clustering_happens():
    for counts in ([12] * 30, [12] * 100, [9] * 200, [40] * 4):
        labels = labels_of(counts)
        advice = recommend(labels, n_classes=len(counts))
        if advice.paper_method == "clustered":
            scores = np.random.default_rng(0).random(len(labels))
            fitted = ClusteredPredictor().fit_scores(scores, labels, len(counts))
            assert fitted.n_clusters_ >= 2


def test_the_advice_counts_what_is_missing():
    counts = np.array([0, 0, 40] + [150] * 20)
    advice = recommend(labels_of(counts), n_classes=len(counts))
    assert advice.n_rows == counts.sum()
    assert advice.smallest_class == 0
    assert "260 more labels" in advice.would_change
    assert "2 classes without any" in advice.would_change
    assert "2 of 23 classes" in advice.expect
    first, *lines = str(advice).splitlines()
    assert first == "Recommended: pooled + softmax"
    parts = (advice.why, advice.expect, advice.would_change)
    assert [line[2:] for line in lines] == [line for part in parts for line in part.splitlines()]
    assert advice.to_dict()["regime"] == advice.regime


@pytest.mark.parametrize(
    ("labels", "more", "words"),
    [
        ([], {}, "one label"),
        ([0.5], {}, "'labels'"),
        ([0, 7], {}, "'labels'.*7"),
        ([0, 1], {"alpha": 1.5}, "'alpha'"),
    ],
)
def test_bad_labels_and_alphas_are_rejected(labels, more, words):
    with pytest.raises(InputError, match=words):
        recommend(labels, n_classes=5, **more)


def test_the_balance_is_the_share_of_the_rarest_classes():
    assert recommend(labels_of([7] * 100)).class_balance == 1
    # of 40 classes the two rarest have 3 rows, where 2 x 100 / 40 would be even
    counts = [1, 2] + [97 // 38] * 37 + [97 - 97 // 38 * 37]
    assert recommend(labels_of(counts)).class_balance == pytest.approx(3 / 5)


def test_with_probabilities_it_says_how_large_sets_will_be(simulate):
    rows, labels = simulate(600, 6, seed=1)
    advice = recommend(rows, labels)
    assert advice.method == recommend(labels).method
    assert set(advice.expected_sizes) == {"standard", "classwise", "pooled"}
    fitted = PooledPredictor().fit(rows[::2], labels[::2])
    size = fitted.predict_set(rows[1::2]).sizes.mean()
    assert advice.expected_sizes["pooled"] == pytest.approx(size, abs=0.5)
    assert f"about {advice.expected_sizes['pooled']:.1f} of 6 classes" in advice.expect
    assert recommend(labels).expected_sizes == {}


def test_alpha_may_differ_by_class_and_a_floor_is_charged_in_labels(simulate):
    rows, labels = simulate(600, 6, seed=1)
    plain, floored = recommend(rows, labels), recommend(rows, labels, floor=0.88)
    added = floored.expected_sizes["pooled"] - plain.expected_sizes["pooled"]
    assert floored.floor_cost == pytest.approx(added)
    assert added > 0
    assert plain.floor_cost is None
    assert f"{added:.2f} labels" in floored.expect
    careful = recommend(rows, labels, alpha={0: 0.01, "default": 0.1})
    assert careful.regime == plain.regime  # that of the median class
    assert careful.expected_sizes["standard"] > plain.expected_sizes["standard"]


def test_rows_without_labels_are_refused(simulate):
    with pytest.raises(InputError, match="labels"):
        recommend(simulate(60, 6).rows)
