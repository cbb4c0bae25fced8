"""Predictors against the paper, and the properties that every method must have."""

import itertools
from fractions import Fraction

import numpy as np
import oracle
import pytest
from depth import IS_DEEP, examples, size
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scoring import true_label_scores
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from evencover import (
    ClasswisePredictor,
    ClusteredPredictor,
    FuzzyPredictor,
    GroupedPredictor,
    InputError,
    InterpolatedPredictor,
    MacroPredictor,
    PooledPredictor,
    StandardPredictor,
)
from evencover.data import readers as source
from evencover.evaluation.report import evaluate
from evencover.predictors import PREDICTORS, make_predictor, method_names
from evencover.randomness import RandomStream, random_order, uniforms
from evencover.scores import APS, RAPS, Softmax

SCORES = [Softmax(), APS(), APS(randomize=False), RAPS(), RAPS(randomize=False)]
ALPHAS = {0.01: Fraction(1, 100), 0.05: Fraction(1, 20), 0.1: Fraction(1, 10), 0.3: Fraction(3, 10)}
GIVEN = {"gamma": 0.5, "n_clusters": 3}
SEED = 11


def keys_of(rows):
    return np.array(oracle.row_keys(rows), dtype=np.uint64)


def score_uniforms(score, rows, use=RandomStream.SCORE, seed=SEED):
    return uniforms(seed, use, keys_of(rows)) if score.is_random else np.ones(len(rows))


def oracle_groups(predictor, scores, labels, n_classes, alpha):
    """The scores behind each class, by the paper; of the fit only the k-means labels are used."""
    if isinstance(predictor, StandardPredictor):
        return oracle.standard_groups(scores, labels, n_classes)
    if isinstance(predictor, ClasswisePredictor):
        return oracle.classwise_groups(scores, labels, n_classes)
    gamma, n_clusters = oracle.clustering_parameters(
        labels,
        n_classes,
        alpha,
        None if predictor.gamma == "auto" else Fraction(str(predictor.gamma)),
        None if predictor.n_clusters == "auto" else predictor.n_clusters,
    )
    order = random_order(
        predictor.random_state, RandomStream.SPLIT, np.arange(len(scores))
    ).tolist()
    first, second = oracle.split(order, gamma)
    d1 = [scores[i] for i in first], [labels[i] for i in first]
    d2 = [scores[i] for i in second], [labels[i] for i in second]
    classes, z, _ = oracle.embedding(*d1, n_classes, alpha)
    n_clusters = min(n_clusters, len(set(map(tuple, z)))) if len(classes) > n_clusters else 0
    cluster_of_class = predictor.cluster_of_class_.tolist()
    if not oracle.can_cluster(n_clusters, len(classes)):
        assert cluster_of_class == [-1] * n_classes
        assert (predictor.n_clusters_, predictor.gamma_) == (0, 0)
        return oracle.standard_groups(scores, labels, n_classes)
    assert [y for y, m in enumerate(cluster_of_class) if m >= 0] == classes
    assert set(cluster_of_class) - {-1} == set(range(predictor.n_clusters_))
    assert predictor.gamma_ == float(gamma)
    well_apart = len({tuple(round(v, 9) for v in row) for row in z}) >= n_clusters
    assert predictor.n_clusters_ == n_clusters if well_apart else predictor.n_clusters_ >= 1
    return oracle.clustered_groups(*d2, n_classes, cluster_of_class)


# n_classes, calibration rows, how the data is made
CASES = {
    "2 classes": (2, 150, {}),
    "2 classes, float16": (2, 60, {"dtype": np.float16}),
    "10 classes": (10, 400, {"dtype": np.float32}),
    "10 classes, long tail": (10, 300, {"long_tail": True, "dtype": np.float32}),
    "10 classes, saturated": (10, 300, {"ties": "saturated", "dtype": np.float16}),
    "10 classes, quantised": (10, 300, {"ties": "quantised"}),
    "100 classes": (100, 1500, {"dtype": np.float32}),
    "100 classes, long tail": (100, 900, {"long_tail": True}),
    "100 classes, duplicated": (100, 900, {"ties": "duplicated", "dtype": np.float16}),
    "100 classes, quantised tail": (100, 900, {"long_tail": True, "ties": "quantised"}),
    "1000 classes": (1000, 200, {"dtype": np.float32}),
    "1000 classes, long tail": (1000, 500, {"long_tail": True, "dtype": np.float32}),
    "1000 classes, saturated": (1000, 200, {"long_tail": True, "ties": "saturated"}),
}
SHORT = (
    *("2 classes", "10 classes, long tail", "10 classes, saturated", "10 classes, quantised"),
    *("100 classes, long tail", "1000 classes, saturated"),
)


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=[pytest.mark.deep] * (each not in SHORT)) for each in CASES]
)
def test_thresholds_sets_and_p_values_are_the_papers(simulate, quietly, case):
    n_classes, n_rows, how = CASES[case]
    if n_classes > 10:
        n_rows //= size(short=2, deep=1)
    many = n_classes == 1000
    n_test = 18 if many else 60
    rows, labels = simulate(n_rows + n_test, n_classes, seed=5, **how)
    calibration, known = rows[:n_rows], labels[:n_rows].tolist()
    test = np.concatenate([rows[n_rows:], rows[: n_test // 3]])  # new rows, and some seen before
    coins = uniforms(SEED, RandomStream.EXACT, keys_of(test))
    methods = [(StandardPredictor, {}), (ClasswisePredictor, {})]
    for own in ({}, GIVEN) if many else ({}, GIVEN, {"gamma": 0.7}, {"n_clusters": 2}):
        methods.append((ClusteredPredictor, own))
    for score in (Softmax(), APS(), RAPS(randomize=False)) if many else SCORES:
        matrix = oracle.score_matrix(
            score.name,
            calibration,
            score_uniforms(score, calibration, RandomStream.CALIBRATION_SCORE),
        )
        scores = oracle.true_scores(matrix, known)
        no_ties = len(set(scores)) == len(scores)  # else the order within a tie is random
        predicted = oracle.score_matrix(score.name, test, score_uniforms(score, test))
        for (method, own), (alpha, meant) in itertools.product(methods, ALPHAS.items()):
            predictor = method(alpha=alpha, score=score, keep_top=False, random_state=SEED, **own)
            quietly(predictor, calibration, labels[:n_rows])
            groups = oracle_groups(predictor, scores, known, n_classes, meant)
            assert predictor.class_counts_.tolist() == oracle.class_counts(known, n_classes)
            assert predictor.thresholds_.tolist() == oracle.thresholds(groups, meant)
            expected = oracle.prediction_sets(predicted, groups, meant)
            assert oracle.ascending(predictor.predict_set(test)) == expected
            if alpha == 0.1:
                p = [[float(v) for v in row] for row in oracle.p_values(predicted[:5], groups)]
                assert predictor.predict_p(test[:5]).tolist() == p
            if alpha in (0.05, 0.3) and own in ({}, GIVEN) and no_ties:
                predictor.set_params(exact=True)
                quietly(predictor, calibration, labels[:n_rows])
                expected = oracle.exact_prediction_sets(predicted, groups, meant, coins)
                assert oracle.ascending(predictor.predict_set(test)) == expected


@pytest.mark.filterwarnings("ignore:alpha is 0.6")
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_every_set_can_keep_the_most_probable_class(simulate, quietly, score, exact):
    rows, labels = simulate(400, 10, seed=2, ties="quantised")
    parameters = {"alpha": 0.6, "score": score, "exact": exact, "random_state": SEED}
    paper = StandardPredictor(**parameters, keep_top=False).fit(rows, labels).predict_set(rows)
    sets = oracle.ascending(paper)
    filled = StandardPredictor(**parameters, keep_top=True).fit(rows, labels).predict_set(rows)
    assert oracle.ascending(filled) == oracle.with_top_class(sets, rows)
    assert [] in sets
    assert filled.sizes.min() == 1


METHODS = st.sampled_from(
    [
        (StandardPredictor, {}),
        (ClasswisePredictor, {}),
        (ClusteredPredictor, {}),
        (ClusteredPredictor, {"gamma": 0.5, "n_clusters": 2}),
        (InterpolatedPredictor, {"tau": 0.7}),
        (FuzzyPredictor, {"bandwidth": 0.4}),
        (MacroPredictor, {}),
        (PooledPredictor, {}),
        (GroupedPredictor, {"groups": list("aabbcc")}),
    ]
)
anything = given(
    method=METHODS,
    score=st.sampled_from(SCORES),
    exact=st.booleans(),
    ties=st.sampled_from([None, "saturated", "duplicated", "quantised"]),
    alpha=st.sampled_from([0.05, 0.1, 0.3]),
    seed=st.integers(0, 2**32),
)


def make(method, **parameters):
    cls, own = method
    parameters["exact"] &= "exact" in cls.supports
    return cls(**own, **parameters)


@settings(max_examples=examples(40))
@anything
def test_permuting_rows_with_their_ids_changes_nothing(
    simulate, quietly, method, score, exact, ties, alpha, seed
):
    rows, labels = simulate(250, 6, seed % 100, ties=ties)
    ids = np.random.default_rng(seed).choice(10**9, 250, replace=False)
    order = np.random.default_rng(seed + 1).permutation(250)
    parameters = {"score": score, "exact": exact, "alpha": alpha, "random_state": seed}
    a = quietly(make(method, **parameters), rows, labels, ids=ids)
    b = quietly(make(method, **parameters), rows[order], labels[order], ids=ids[order])
    assert a.thresholds_.tolist() == b.thresholds_.tolist()
    assert a.predict_set(rows, ids=ids)[order] == b.predict_set(rows[order], ids=ids[order])
    if method[0] is not InterpolatedPredictor:
        p = a.predict_p(rows, ids=ids)
        assert (p[order] == b.predict_p(rows[order], ids=ids[order])).all()


@settings(max_examples=examples(40))
@anything
def test_any_split_into_blocks_gives_the_identical_result(
    simulate, quietly, method, score, exact, ties, alpha, seed
):
    rows, labels = simulate(120, 6, seed % 100, ties=ties)
    cuts = np.sort(np.random.default_rng(seed).choice(np.arange(1, 120), 5, replace=False))
    parameters = {"score": score, "exact": exact, "alpha": alpha, "random_state": seed}
    whole = quietly(make(method, **parameters), rows, labels)
    expected = whole.predict_set(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BLOCK_ELEMENTS", 6 * (1 + seed % 50))
        cut = quietly(make(method, **parameters), rows, labels)
        assert cut.thresholds_.tolist() == whole.thresholds_.tolist()
        assert cut.predict_set(rows) == expected
        np.testing.assert_array_equal(
            oracle.p_values_of(cut, rows), oracle.p_values_of(whole, rows)
        )
    blocks, known = np.split(rows, cuts), np.split(labels, cuts)
    pairs = zip(blocks, known, strict=True)
    streamed = quietly(make(method, **parameters), pairs)
    assert streamed.thresholds_.tolist() == whole.thresholds_.tolist()
    assert streamed.predict_set(iter(blocks)) == expected
    assert streamed.predict_set(blocks) == expected
    apart = quietly(make(method, **parameters), iter(blocks), labels)
    assert apart.thresholds_.tolist() == whole.thresholds_.tolist()


@pytest.mark.parametrize(
    ("method", "score"),
    [
        (method, score)
        for method, score in itertools.product(method_names(), SCORES)
        if IS_DEEP or method == "standard" or score == APS()
    ],
    ids=str,
)
def test_one_thread_and_three_give_the_identical_result(
    simulate, quietly, monkeypatch, method, score
):
    rows, labels = simulate(size(1000, 2000), 20, seed=1, dtype=np.float32)
    monkeypatch.setattr(source, "BLOCK_ELEMENTS", 20 * 37)
    half, results = len(rows) // 2, []
    for threads in ("1", "3"):
        monkeypatch.setenv("EVENCOVER_THREADS", threads)
        exact = "exact" in PREDICTORS[method].supports
        predictor = make_predictor(method, score=score, exact=exact)
        quietly(predictor, rows[:half], labels[:half])
        sets, p = predictor.predict_set(rows), oracle.p_values_of(predictor, rows)
        report = predictor.evaluate(rows[half:], labels[half:]).to_dict()
        results.append((predictor.thresholds_.tolist(), sets.to_lists(), report, p))
    assert results[0][:3] == results[1][:3]
    np.testing.assert_array_equal(results[0][3], results[1][3])


@settings(max_examples=examples(20))
@given(
    method=st.sampled_from(["standard", "classwise", "grouped"]),
    score=st.sampled_from(SCORES),
    exact=st.booleans(),
    ties=st.sampled_from([None, "saturated", "duplicated", "quantised"]),
    seed=st.integers(0, 1000),
)
def test_sets_grow_as_alpha_falls(simulate, quietly, method, score, exact, ties, seed):
    rows, labels = simulate(150, 5, seed, ties=ties)
    own, smaller = {"groups": [0, 1, 0, 1, 1]} if method == "grouped" else {}, None
    for alpha in (0.9, 0.5, 0.3, 0.11, 0.1, 0.05, 0.01):
        parameters = {"alpha": alpha, "score": score, "exact": exact, "random_state": seed}
        predictor = make_predictor(method, **parameters, **own)
        mask = quietly(predictor, rows, labels).predict_set(rows).to_mask()
        if smaller is not None:
            assert (mask >= smaller).all()
        smaller = mask


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("score", SCORES, ids=repr)
@pytest.mark.parametrize("n_classes", [3, 200])
def test_calibration_and_prediction_use_the_same_number(simulate, score, n_classes):
    """The row whose score is the threshold is in its own set, and just k rows of N are covered."""
    rows, labels = simulate(564, n_classes, seed=4, dtype=np.float32)
    predictor = StandardPredictor(score=score, keep_top=False)
    if score.is_random:  # their numbers are drawn apart: take those of rows whose sets are wanted
        scores = true_label_scores(score, rows, labels, calibrating=False)
        predictor.fit_scores(scores, labels, n_classes)
    else:
        predictor.fit(rows, labels)
    covered = predictor.predict_set(rows).contains(labels)
    scores = oracle.true_scores(
        oracle.score_matrix(score.name, rows, score_uniforms(score, rows, seed=0)), labels
    )
    assert covered.tolist() == [s <= sorted(scores)[508] for s in scores]
    assert covered.sum() >= 509


@settings(max_examples=examples(40))
@anything
def test_the_set_is_where_the_p_value_exceeds_alpha(
    simulate, quietly, method, score, exact, ties, alpha, seed
):
    rows, labels = simulate(200, 6, seed % 100, ties=ties)
    parameters = {"exact": exact, "alpha": alpha, "keep_top": False, "random_state": seed}
    assume(method[0] not in (InterpolatedPredictor, PooledPredictor))  # see test_pooled.py
    predictor = make(method, score=score, **parameters)
    quietly(predictor, rows[:150], labels[:150])
    sets, p = predictor.predict_set(rows).to_mask(), predictor.predict_p(rows) > alpha
    has_ties = ties is not None or (score.name != "softmax" and not score.is_random)
    if exact and has_ties:  # sets break ties at random, p-values count them in full
        assert (sets <= p).all()
    else:
        assert (sets == p).all()


def test_exact_p_values_replace_the_one_by_the_rows_uniform(simulate):
    rows, labels = simulate(60, 4, seed=1)
    plain = StandardPredictor().fit(rows, labels).predict_p(rows)
    exact = StandardPredictor(exact=True).fit(rows, labels).predict_p(rows)
    coin = uniforms(0, RandomStream.EXACT, keys_of(rows))
    assert exact == pytest.approx(plain - coin[:, None] / 61, abs=1e-15)


@pytest.mark.parametrize("method", method_names())
def test_evaluating_a_stream_is_evaluating_the_sets(simulate, quietly, method):
    rows, labels = simulate(900, 15, seed=6, long_tail=True)
    predictor = quietly(make_predictor(method, score="raps"), rows[:600], labels[:600])
    test, known = rows[600:], labels[600:]
    sets = predictor.predict_set(test)
    expected = predictor.evaluate(test, known).to_dict()
    of_sets = evaluate(sets, known, 0.1).to_dict()
    assert {name: expected[name] for name in of_sets} == of_sets
    blocks = zip(np.split(test, [7, 100]), np.split(known, [7, 100]), strict=True)
    assert predictor.evaluate(blocks).to_dict() == expected


def test_logits_are_the_same_as_their_probabilities(simulate):
    rows, labels = simulate(500, 10)
    logits = 3 + np.log(rows)
    a = ClasswisePredictor(from_logits=True).fit(logits, labels)
    b = ClasswisePredictor().fit(rows, labels)
    assert a.thresholds_ == pytest.approx(b.thresholds_, abs=1e-13)
    assert a.predict_set(logits) == b.predict_set(rows)


@pytest.mark.parametrize("method", method_names())
def test_predictors_are_scikit_learn_citizens(simulate, quietly, method):
    predictor = make_predictor(method, alpha=0.2, score=RAPS(penalty=0.1), random_state=4)
    copy = clone(predictor)
    assert copy is not predictor
    assert copy.get_params() == predictor.get_params()
    assert copy.set_params(alpha=0.3).alpha == 0.3
    assert predictor.alpha == 0.2
    rows, labels = simulate(200, 5)
    fitted = quietly(predictor, rows, labels)
    assert fitted is predictor
    assert not hasattr(clone(fitted), "thresholds_")
    assert predictor.get_params()["score"] == RAPS(penalty=0.1)
    with pytest.raises(InputError, match="did you mean 'alpha'"):
        predictor.set_params(alhpa=0.1)


def test_constructor_only_stores_what_it_is_given():
    """Wrong parameters are found by fit, not by __init__, so that clone always works."""
    assert StandardPredictor(alpha=7, score="nonsense").get_params()["alpha"] == 7
    assert repr(ClusteredPredictor(alpha=0.2)) == "ClusteredPredictor(alpha=0.2)"


@pytest.mark.parametrize("method", method_names())
def test_a_predictor_has_one_fitted_attribute_and_few_public_names(simulate, quietly, method):
    predictor = make_predictor(method)
    with pytest.raises(NotFittedError):
        check_is_fitted(predictor)
    quietly(predictor, *simulate(400, 5, seed=1))
    check_is_fitted(predictor)
    assert vars(predictor).keys() == {*predictor.get_params(), "fit_"}
    public = [name for name in dir(predictor) if not name.startswith("_")]
    assert len(public) <= 46
    used = {"fit", "partial_fit", "predict_set", "predict_p", "evaluate", "explain", "rule"}
    assert used <= set(public)
