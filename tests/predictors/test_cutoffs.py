"""Cutoffs for every class from reviewed predictions."""

import math

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from evencover import InputError, fit_cutoffs
from evencover.predictors.cutoffs import fewest_reviews, review_order
from evencover.randomness import RandomStream, random_order, row_indices


def reviews(n_classes, n, seed=0):
    """Classes of different quality; a higher score is more often right."""
    rng = np.random.default_rng(seed)
    classes = np.repeat(np.arange(n_classes), n)
    scores = rng.normal(size=len(classes))
    chances = 1 / (1 + np.exp(-(rng.normal(1, 1.5, n_classes)[classes] + 1.5 * scores)))
    return [f"class {k:05}" for k in classes], scores, rng.random(len(classes)) < chances


def test_too_few_reviews_guarantee_nothing_and_enough_do():
    fewest = fewest_reviews(0.9, 0.9)
    for n, expected in ((fewest - 1, False), (2 * fewest, True)):
        scores, right = np.linspace(0, 1, 2 * n), np.ones(2 * n, dtype=bool)
        found = fit_cutoffs(["a", "b"] * n, scores, right, accuracy=0.9)
        assert found.is_guaranteed.tolist() == [expected] * 2
        assert found.n_reviewed.tolist() == found.n_right.tolist() == [n, n]
        assert [row["guaranteed"] for row in found.rows()] == [0.9 if expected else None] * 2


@pytest.mark.parametrize(("accuracy", "confidence"), [(0.8, 0.9), (0.9, 0.8), (0.95, 0.95)])
def test_the_fewest_reviews_are_the_fewest(accuracy, confidence):
    """Three quarters of them, all right, pass the test, and three quarters of one less do not."""
    fewest = fewest_reviews(accuracy, confidence)
    assert accuracy ** math.floor(0.75 * fewest) <= 1 - confidence
    assert accuracy ** math.floor(0.75 * (fewest - 1)) > 1 - confidence


def test_cutoffs_rise_and_fall_with_the_scores():
    """Any rising function of the scores gives the same reviews kept."""
    names, scores, is_right = reviews(30, 10)
    first = fit_cutoffs(names, scores, is_right)
    second = fit_cutoffs(names, 1e6 + np.exp(scores), is_right)
    kept = first.is_accepted(names, scores)
    assert np.array_equal(kept, second.is_accepted(names, 1e6 + np.exp(scores)))
    assert 0.2 < kept.mean() < 0.9


def test_order_and_type_of_reviews_do_not_matter():
    names, scores, is_right = reviews(30, 10)
    first = fit_cutoffs(names, scores, is_right)
    order = np.random.default_rng(1).permutation(len(names))
    words = ["Yes " if right else "no" for right in is_right[order]]
    second = fit_cutoffs(np.array(names)[order], scores[order].tolist(), words)
    assert first.class_names == second.class_names
    np.testing.assert_array_equal(first.cutoffs, second.cutoffs)
    np.testing.assert_allclose(first.expected, second.expected)


def test_unknown_classes_and_classes_without_cutoff_are_never_kept():
    names, scores, is_right = reviews(40, 8)
    bad = np.array(names) == "class 00007"
    found = fit_cutoffs(names, scores, is_right & ~bad, accuracy=0.95)
    assert math.isinf(found.cutoffs[7])
    assert math.isnan(found.expected[7])
    assert found.rows()[7]["cutoff"] == "never"
    assert found.rows()[7]["expected_precision"] is None
    assert not found.is_accepted(["unknown", "class 00007"], [1e300, 1e300]).any()
    kept = ~np.isinf(found.cutoffs)
    assert (found.expected[kept] >= 0.95).all()


def test_one_bad_class_does_not_lower_the_others():
    """A clean class keeps all, a class that is always wrong nothing."""
    classes = np.repeat(np.arange(40), 8)
    scores = np.tile(np.linspace(0.1, 0.9, 8), 40)
    found = fit_cutoffs([f"{k:02}" for k in classes], scores, classes != 7, accuracy=0.9)
    assert np.isinf(found.cutoffs[7])
    assert (np.delete(found.cutoffs, 7) == 0.1).all()


def test_the_interval_is_that_of_the_kept_reviews():
    from scipy.stats import binomtest

    names, scores, is_right = reviews(20, 30)
    found = fit_cutoffs(names, scores, is_right)
    for k, name in enumerate(found.class_names):
        kept = (np.array(names) == name) & (scores >= found.cutoffs[k])
        if not kept.any():
            assert found.interval[k].tolist() == [0, 1]
            continue
        exact = binomtest(int(is_right[kept].sum()), int(kept.sum())).proportion_ci(0.9)
        np.testing.assert_allclose(found.interval[k], [exact.low, exact.high])


def test_the_tested_reviews_do_not_move_a_guaranteed_cutoff():
    """Three quarters of the reviews of each class, by a hash of their rows, only test."""
    classes = np.tile([0, 1], 1000)
    rng = np.random.default_rng(5)
    scores = rng.normal(size=2000)
    is_right = rng.random(2000) < 1 / (1 + np.exp(-1.5 - 2 * scores))
    order = random_order(0, RandomStream.ACCEPTANCE, row_indices(0, 2000))
    tested = np.concatenate([order[classes[order] == k][:750] for k in (0, 1)])
    found = fit_cutoffs(classes, scores, is_right, accuracy=0.8)
    assert found.is_guaranteed.all()
    better, worse = is_right.copy(), is_right.copy()
    better[tested], worse[np.delete(np.arange(2000), tested)] = True, False
    np.testing.assert_array_equal(fit_cutoffs(classes, scores, better, accuracy=0.8)[1], found[1])
    assert (fit_cutoffs(classes, scores, worse, accuracy=0.8).cutoffs > found.cutoffs).all()


@pytest.mark.parametrize(
    ("names", "scores", "is_right", "words"),
    [
        (["a", "b"], [0.5, np.nan], [True, False], "row 1"),
        (["a", "b"], [0.5, "high"], [True, False], "'high' in row 1"),
        (["a", "b"], [np.inf, 0.5], [True, False], "row 0"),
        (["a", None], [0.5, 0.5], [True, False], "class. Got none in row 1"),
        (["a", " "], [0.5, 0.5], [True, False], "class. Got none in row 1"),
        (["a", np.nan], [0.5, 0.5], [True, False], "class. Got none in row 1"),
        (["a", "b"], [0.5, 0.5], ["yes", "maybe"], "'maybe' in row 1"),
        (["a", "b"], [0.5, 0.5], [1, 2], "2 in row 1"),
        (["a", "b"], [0.5, 0.5], [1, np.nan], "nan in row 1"),
        (["a", "b"], [0.5], [True, False], "2, 1 and 2"),
        ([], [], [], "0, 0 and 0"),
    ],
)
def test_what_cannot_be_a_review_is_refused(names, scores, is_right, words):
    with pytest.raises(InputError, match=words):
        fit_cutoffs(names, scores, is_right)


@pytest.mark.parametrize("name", ["accuracy", "confidence"])
@pytest.mark.parametrize("value", [0, 1, 1.5, np.nan, "high"])
def test_accuracy_and_confidence_are_shares(name, value):
    with pytest.raises(InputError, match=name):
        fit_cutoffs(["a"], [0.5], [True], **{name: value})


def test_classes_take_turns_in_the_order_of_reviews():
    """The first n have a random sample of each class, for any n, and each class its share."""
    classes = np.repeat(["rare", "some", "many"], [2, 30, 5000])
    order = review_order(classes)
    assert sorted(order) == list(range(5032))
    for n, expected in ((3, {1}), (6, {2}), (62, {2, 30})):
        found = np.unique(classes[order[:n]], return_counts=True)[1]
        assert set(found.tolist()) == expected
    assert not np.array_equal(order, review_order(classes, random_state=1))


@pytest.mark.parametrize("n", [5, 10, 23])
def test_the_order_of_reviews_is_random(n):
    """Each of 100 rows is equally often among the first n, also if a round is incomplete."""
    classes = np.tile(np.arange(10), 10)
    first = np.concatenate([review_order(classes, seed)[:n] for seed in range(2000)])
    counts = np.bincount(first, minlength=100)
    assert abs(counts - 20 * n).max() < 5 * np.sqrt(20 * n)


def test_threads_of_linear_algebra_change_no_bit():
    rng = np.random.default_rng(5)
    scores, classes = rng.random(4000), [f"{k:03}" for k in rng.integers(0, 500, 4000)]
    is_right, found = rng.random(4000) < scores**0.2, []
    for threads in (1, 2, 4):
        with threadpool_limits(threads, user_api="blas"):
            found.append(fit_cutoffs(classes, scores, is_right).expected)
    assert all(np.array_equal(found[0], other, equal_nan=True) for other in found)
