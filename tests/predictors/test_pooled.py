"""POOLED: the formula by hand, its limits STANDARD and CLASSWISE, ties and copies."""

from math import inf

import numpy as np
import oracle
import pytest
from scipy.stats import norm

from evencover import (
    ClasswisePredictor,
    EvencoverWarning,
    PooledPredictor,
    StandardPredictor,
    compare,
)
from evencover.comparison.splits import calibration_split
from evencover.predictors import folds as folds_of_rows
from evencover.predictors.folds import N_FOLDS, hold_out, one_of_each
from evencover.predictors.normal_model import NormalModel
from evencover.predictors.pooled import moment_strength
from evencover.randomness import RandomStream, random_order

K = 60


def simulated(n_per_class, seed, *, spread=1.0, rounded=False):
    """Normal scores whose class means differ, so that the truth is known; and the means."""
    rng = np.random.default_rng(seed)
    means = spread * norm.ppf((np.arange(K) + 0.5) / K)
    labels = np.repeat(np.arange(K), n_per_class)
    scores = means[labels] + rng.normal(size=len(labels))
    return (scores.round(1) if rounded else scores), labels, means


@pytest.fixture
def folds_seen(monkeypatch):
    """The groups and folds of each fit, in the order of its rows."""
    seen, folds = [], folds_of_rows.assign_folds

    def spy(groups, *rows):
        seen.append((groups, folds(groups, *rows)))
        return seen[-1][1]

    monkeypatch.setattr(folds_of_rows, "assign_folds", spy)
    return seen


@pytest.mark.parametrize("floor", ["auto", None])
@pytest.mark.parametrize("most", [2, 24])
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_thresholds_are_those_of_the_formula_by_hand(folds_seen, quietly, alpha, most, floor):
    """Also near one example per class, and for a class without examples."""
    rng = np.random.default_rng(8)
    n_classes = 12
    labels = np.repeat(np.arange(n_classes), rng.integers(1, most + 1, n_classes))
    labels = labels[labels != 7]
    scores = rng.normal(size=n_classes)[labels] + rng.normal(size=len(labels))
    order = np.argsort(scores)
    scores, labels = scores[order], labels[order]
    with pytest.warns(EvencoverWarning, match="1 of 12"):
        fitted = PooledPredictor(alpha=alpha, floor=floor).fit_scores(scores, labels, n_classes)
    folds = folds_seen[0][1]
    by_hand = oracle.pooled(scores, labels, folds, n_classes, alpha, guarded=floor == "auto")
    assert fitted.fit_.derived.pool.strength == pytest.approx(by_hand[0])
    assert fitted.fit_.derived.t.upper.max() == pytest.approx(by_hand[1])
    assert fitted.thresholds_.tolist() == by_hand[2]
    n = np.bincount(labels, minlength=n_classes)
    np.testing.assert_allclose(fitted.own_weight_, n / (n + by_hand[0]))


@pytest.mark.parametrize("n_each", ["balanced", "unequal", "nearly equal", "about one"])
def test_the_normal_model_is_a_meta_regression_on_class_size(n_each):
    rng = np.random.default_rng(5)
    n = {
        "balanced": np.full(80, 12),
        "unequal": rng.integers(0, 60, 80),
        "nearly equal": rng.integers(11, 14, 80) * (np.arange(80) > 3),
        "about one": rng.integers(0, 3, 80),
    }[n_each]
    labels = np.repeat(np.arange(80), n)
    x = (1.5 - 0.4 * np.log1p(n) + rng.normal(0, 0.5, 80))[labels] + rng.normal(0, 0.8, len(labels))
    moments = [np.bincount(labels, weights, 80) for weights in (None, x, x * x)]
    padding = max(1.5 * (n > 0).sum() / n.sum() - 1, 0)
    model = NormalModel.fit(*moments, padding=padding)
    by_hand = oracle.normal_model(x, labels, 80)
    np.testing.assert_allclose(np.stack(model, axis=1), by_hand, rtol=1e-6)


def test_a_line_through_nearly_equal_counts_is_not_extrapolated():
    """Of 500 classes 300 have no examples; the others have 20 to 22, at random."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(200), rng.integers(20, 23, 200))
    scores = norm.cdf(rng.normal(size=200)[labels] + rng.normal(size=len(labels)))
    with pytest.warns(EvencoverWarning, match="300 of 500"):
        fitted = PooledPredictor().fit_scores(scores, labels, 500)
    seen, unseen = np.split(fitted.thresholds_, [200])
    assert np.ptp(unseen) == 0
    assert seen.min() < unseen[0] < np.quantile(seen, 0.9)


def test_the_strength_is_recovered_from_a_dirichlet_process():
    """Coverage of class y is Beta(c p, c (1 - p)); the estimate's median is near the truth."""
    rng, n, found = np.random.default_rng(0), np.full(2000, 30), []
    for c in (10.0, 40.0, 100.0):
        coverage = rng.beta(0.9 * c, 0.1 * c, (21, 2000))
        estimates = [moment_strength(rng.binomial(n, row), n, 0.1) for row in coverage]
        found.append(np.median(estimates) / c)
    np.testing.assert_allclose(found, 1, atol=0.15)
    assert moment_strength(np.full(50, 9), np.full(50, 10), 0.1) == 200  # less than chance allows
    assert moment_strength(np.tile([0, 10], 25), np.full(50, 10), 0.1) == 5
    assert moment_strength(np.array([1, 0]), np.array([1, 0]), 0.1) == 200  # nothing to go by


@pytest.mark.parametrize("exact", [False, True])
def test_infinite_strength_with_the_pooled_distribution_is_standard(exact):
    scores, labels, _ = simulated(7, 0)
    options = {"shared": 1, "strength": inf, "floor": None}
    fitted = PooledPredictor(**options, exact=exact).fit_scores(scores, labels, K)
    standard = StandardPredictor(exact=exact).fit_scores(scores, labels, K)
    np.testing.assert_equal(fitted.fit_.thresholds, standard.fit_.thresholds)


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("exact", [False, True])
def test_no_strength_is_classwise(exact):
    scores, labels, _ = simulated(np.arange(K) % 25 + 1, 1, rounded=True)
    fitted = PooledPredictor(strength=0, floor=None, exact=exact).fit_scores(scores, labels, K)
    classwise = ClasswisePredictor(exact=exact).fit_scores(scores, labels, K)
    np.testing.assert_equal(fitted.fit_.thresholds, classwise.fit_.thresholds)


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


def test_rare_classes_that_are_hard_are_covered_without_rows_of_their_own():
    """Harder the rarer: the line in log(1 + n) extends what the frequent classes show."""
    rng = np.random.default_rng(6)
    n = np.concatenate([[0, 0, 0], np.geomspace(2, 400, 97).astype(int)])
    center = 3 - 0.6 * np.log1p(n) + rng.normal(0, 0.1, 100)
    labels = np.repeat(np.arange(100), n)
    scores = norm.cdf(center[labels] + rng.normal(size=len(labels)))
    with pytest.warns(EvencoverWarning, match="3 of 100"):
        model = PooledPredictor().fit_scores(scores, labels, 100)
    coverage = norm.cdf(norm.ppf(np.minimum(model.thresholds_, 1 - 1e-12)) - center)
    assert coverage[:3].min() > 0.7
    with pytest.warns(EvencoverWarning):
        standard = StandardPredictor().fit_scores(scores, labels, 100).thresholds_
    assert norm.cdf(norm.ppf(standard) - center)[:3].max() < 0.3


@pytest.mark.parametrize("split", ["crossfit", "holdout"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_set_is_where_the_p_value_exceeds_alpha(simulate, split, exact):
    rows, labels = simulate(1200, 40, seed=3)
    floor = "auto" if split == "crossfit" else None  # a holdout's level does not know the guard
    own = {"split": split, "floor": floor, "keep_top": False}
    predictor = PooledPredictor(score="raps", exact=exact, alpha=0.2, **own)
    predictor.fit(rows[:800], labels[:800])
    p = predictor.predict_p(rows[800:])
    np.testing.assert_array_equal(p > 0.2, predictor.predict_set(rows[800:]).to_mask())


def test_a_monotone_change_of_the_scores_changes_no_set():
    scores, labels, _ = simulated(12, 5)
    plain = PooledPredictor().fit_scores(scores, labels, K).thresholds_
    bent = PooledPredictor().fit_scores(np.exp(scores), labels, K).thresholds_
    np.testing.assert_allclose(np.exp(plain), bent)


def votes(n_rows, n_votes, seed):
    """Shares of votes for each of 30 classes, and labels that follow them in part."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 30, n_rows)
    rows = np.zeros((n_rows, 30))
    for _ in range(n_votes):
        right = rng.random(n_rows) < 0.4 + 0.5 * labels / 30
        vote = np.where(right, labels, rng.integers(0, 30, n_rows))
        np.add.at(rows, (np.arange(n_rows), vote), 1 / n_votes)
    return rows, labels


def test_ties_are_broken_by_the_rows_draw_in_prediction_too(quietly):
    rows, labels = votes(600, 3, 0)
    model = quietly(PooledPredictor(), rows, labels)
    assert model.fit_.thresholds.upper_probability is not None
    once, again = model.predict_set(rows), model.predict_set(rows, ids=np.arange(600) + 10**6)
    assert once == model.predict_set(rows)
    assert once != again
    p = model.predict_p(rows)
    assert (once.to_mask() <= (p > 0.1)).all()  # p-values count ties in full


def test_compare_counts_the_sets_that_predict_gives_on_tied_scores(quietly):
    rows, labels = votes(900, 3, 1)
    found = compare(rows, labels, methods=["pooled"], scores=["softmax"], n_splits=2)
    chosen = calibration_split(labels, 0, 0)
    test = np.setdiff1d(np.arange(900), chosen)
    model = PooledPredictor().fit_scores(
        1 - rows[chosen, labels[chosen]], labels[chosen], 30, ids=chosen
    )
    sets = model.predict_set(rows)  # all rows, so that the rows keep their places
    report = found.candidates[0].reports[0]
    assert report.avg_size == pytest.approx(sets.sizes[test].mean())
    covered = sets.to_mask()[test, labels[test]].mean()
    assert report.marginal_coverage == pytest.approx(covered)


@pytest.mark.parametrize("score", ["softmax", "aps"])
@pytest.mark.parametrize("split", ["crossfit", "holdout"])
def test_copies_share_a_fold_and_a_side_and_are_warned_about(simulate, folds_seen, score, split):
    rows, labels = simulate(300, 10, seed=2)
    copied = np.tile(np.arange(300), 3)
    with pytest.warns(EvencoverWarning, match="66% of the calibration rows are copies"):
        fitted = PooledPredictor(split=split, score=score).fit(rows[copied], labels[copied])
    groups, folds = folds_seen[0]
    n_rows = np.unique(groups, return_counts=True)[1]
    # The smallest and the largest value, where scores saturate, are not taken for copies.
    assert (n_rows == 3).sum() >= 298
    assert len(np.unique(np.stack([groups, folds]), axis=1).T) == len(n_rows)
    assert sorted(np.unique(folds)) == list(range(N_FOLDS + (split == "holdout")))
    if split == "holdout":  # all copies of a row learn, or none does
        scores = fitted.fit_.derived.pool.scores
        learning = np.searchsorted(np.unique(scores), scores)
        assert score == "aps" or (np.bincount(learning) % 3 == 0).mean() > 0.98


def test_inputs_that_recur_by_chance_are_not_taken_for_copies(folds_seen):
    """One input makes an eighth of each class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 1000)
    atom = 0.6 + 0.3 * rng.random(10)
    scores = np.where(rng.random(1000) < 0.125, atom[labels], 0.5 * rng.random(1000))
    PooledPredictor().fit_scores(scores, labels, 10)  # no warning, which would be an error
    assert folds_seen[0][0] is None


@pytest.mark.parametrize("n_inputs", [1, 2])
def test_one_recurring_input_per_class_is_not_taken_for_copies(folds_seen, n_inputs):
    """One distinct row is always half of all; two that occur equally often may be copies."""
    labels = np.repeat(np.arange(K), 12 * n_inputs)
    scores = np.random.default_rng(0).permutation(K * n_inputs).reshape(K, n_inputs)
    scores = scores[labels, np.tile(np.arange(n_inputs), 12 * K)] / K / n_inputs
    if n_inputs == 1:
        PooledPredictor().fit_scores(scores, labels, K)  # no warning, which would be an error
        assert folds_seen[0][0] is None
    else:
        with pytest.warns(EvencoverWarning, match="are copies"):
            PooledPredictor().fit_scores(scores, labels, K)


def test_rows_with_the_same_id_share_a_fold(simulate, folds_seen):
    rows, labels = simulate(40, 4, seed=3)
    with pytest.warns(EvencoverWarning, match="the id of an earlier row"):
        PooledPredictor().fit(rows, labels, ids=np.arange(40) % 20)
    assert (np.unique(folds_seen[0][0], return_counts=True)[1] == 2).all()


def test_a_large_group_comes_first_no_more_often_than_a_single_row():
    """Two groups of three rows, and 24 rows alone."""
    groups = np.append(np.repeat([0, 1], 3), np.arange(2, 26))
    ids = np.arange(30, dtype=np.uint64)
    orders = [random_order(seed, RandomStream.FOLDS, ids) for seed in range(2600)]
    first = [groups[one_of_each(groups, ids, order)[0]] for order in orders]
    assert abs(np.mean(np.array(first) < 2) - 2 / 26) < 0.02
    for order in orders[:100]:
        is_held_out = hold_out(groups, ids, order)
        assert is_held_out.sum() <= 6
        assert (is_held_out[:6].reshape(2, 3).sum(axis=1) % 3 == 0).all()


def test_ties_across_classes_are_not_taken_for_copies():
    labels = np.tile(np.arange(K), 10)
    scores = np.random.default_rng(0).choice([0.0, 0.5, 1.0], len(labels))
    PooledPredictor().fit_scores(scores, labels, K)  # no warning, which would be an error
