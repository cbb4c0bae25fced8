"""Methods beyond the paper's, against plain transcriptions of their formulas, and their limits."""

from fractions import Fraction

import numpy as np
import oracle
import pytest
from depth import IS_DEEP
from scoring import score_matrix, true_label_scores

from evencover import (
    APS,
    PAS,
    RAPS,
    SAPS,
    ClasswisePredictor,
    FuzzyPredictor,
    GroupedPredictor,
    InputError,
    InterpolatedPredictor,
    MacroPredictor,
    PooledPredictor,
    RC3PPredictor,
    Softmax,
    StandardPredictor,
)
from evencover.predictors import fuzzy, make_predictor
from evencover.predictors.fuzzy import largest_within, weighted_quantiles
from evencover.quantiles import Thresholds
from evencover.randomness import RandomStream, random_order, uniforms

ALPHAS = {0.05: Fraction(1, 20), 0.1: Fraction(1, 10), 0.35: Fraction(35, 100)}
SCORES = [Softmax(), APS(), RAPS(penalty=0.1, k_reg=2), SAPS(), PAS()]
CASES = {
    "plain": {},
    "long tail": {"long_tail": True},
    "quantised": {"ties": "quantised"},
    "saturated tail": {"long_tail": True, "ties": "saturated"},
}

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


@pytest.fixture(params=CASES)
def data(request, simulate):
    return simulate(260, 12, seed=4, **CASES[request.param])


def oracle_matrix(score, rows, labels, use=RandomStream.CALIBRATION_SCORE):
    """All scores by the oracle, PAS with the prevalences of `labels`."""
    if score.name == "pas":
        counts = [max(n, 1) for n in oracle.class_counts(labels, rows.shape[1])]
        return [oracle.pas_row(row, counts) for row in rows]
    keys = np.array(oracle.row_keys(rows), dtype=np.uint64)
    u = uniforms(0, use, keys) if score.is_random else np.ones(len(rows))
    if score.name == "raps":
        return oracle.score_matrix("raps", rows, u, penalty=0.1, k_reg=2)
    return oracle.score_matrix(score.name, rows, u)


def oracle_ranks(rows):
    orders = [oracle.decreasing_order([float(p) for p in row]) for row in rows]
    return [[order.index(y) + 1 for y in range(len(order))] for order in orders]


def sets_within(matrix, limits):
    return [[y for y, q in enumerate(limits) if row[y] <= q] for row in matrix]


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.name)
@pytest.mark.parametrize("tau", [0, 0.3, 0.5, 0.99, 1] if IS_DEEP else [0, 0.3, 1])
def test_interpolated_is_its_formula(data, score, tau):
    matrix = oracle_matrix(score, data.rows, data.labels)
    predicted = oracle_matrix(score, data.rows, data.labels, RandomStream.SCORE)
    true = oracle.true_scores(matrix, data.labels)
    largest = {"softmax": 1, "aps": 1, "raps": 1 + 0.1 * 10, "saps": 1 + 0.2 * 11, "pas": 0}
    for alpha, meant in ALPHAS.items():
        fitted = InterpolatedPredictor(alpha=alpha, score=score, tau=tau, keep_top=False).fit(*data)
        expected = oracle.interpolated_thresholds(
            true, data.labels, 12, meant, tau, largest[score.name]
        )
        assert fitted.thresholds_ == pytest.approx(expected, rel=1e-12)
        sets = sets_within(predicted, fitted.thresholds_)
        assert oracle.ascending(fitted.predict_set(data.rows)) == sets


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.name)
def test_rc3p_is_its_formula(data, score):
    matrix, ranks = oracle_matrix(score, data.rows, data.labels), oracle_ranks(data.rows)
    predicted = oracle_matrix(score, data.rows, data.labels, RandomStream.SCORE)
    true = oracle.true_scores(matrix, data.labels)
    for alpha, meant in ALPHAS.items():
        fitted = RC3PPredictor(alpha=alpha, score=score, keep_top=False).fit(*data)
        limits = oracle.rc3p_limits(
            true, oracle.true_scores(ranks, data.labels), data.labels, 12, meant
        )
        assert fitted.thresholds_.tolist() == [q for q, _ in limits]
        assert fitted.rank_limits_.tolist() == [k for _, k in limits]
        expected = [
            [y for y, (q, k) in enumerate(limits) if s[y] <= q and r[y] <= k]
            for s, r in zip(predicted, ranks, strict=True)
        ]
        assert oracle.ascending(fitted.predict_set(data.rows)) == expected


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.name)
def test_macro_is_its_formula(data, score):
    matrix = oracle_matrix(score, data.rows, data.labels)
    predicted = oracle_matrix(score, data.rows, data.labels, RandomStream.SCORE)
    true = oracle.true_scores(matrix, data.labels)
    weights = oracle.macro_weights(data.labels, 12)
    for alpha, meant in ALPHAS.items():
        fitted = MacroPredictor(alpha=alpha, score=score, keep_top=False).fit(*data)
        threshold = oracle.macro_threshold(true, data.labels, 12, meant)
        assert fitted.thresholds_.tolist() == [threshold] * 12
        assert oracle.ascending(fitted.predict_set(data.rows)) == sets_within(
            predicted, [threshold] * 12
        )
    p = [
        [
            float(
                min(1, max(weights) + sum(w for t, w in zip(true, weights, strict=True) if t >= s))
            )
            for s in row
        ]
        for row in predicted[:6]
    ]
    assert fitted.predict_p(data.rows[:6]).tolist() == p


@pytest.mark.parametrize("bandwidth", [0.02, 0.3, np.inf])
def test_fuzzy_is_its_formula(data, bandwidth):
    true = oracle.true_scores(oracle.score_matrix("softmax", data.rows), data.labels)
    order = random_order(0, RandomStream.SPLIT, np.arange(260)).tolist()
    held_out, learning = order[:52], order[52:]
    for alpha, meant in ALPHAS.items():
        fitted = FuzzyPredictor(alpha=alpha, bandwidth=bandwidth, keep_top=False).fit(*data)
        limits = oracle.fuzzy_limits(
            [true[i] for i in learning], data.labels[learning], 12, bandwidth, meant
        )
        limits = [min(limit, 1.0) for limit in limits]
        assert fitted.fit_.state.class_limits.tolist() == limits
        excess = [true[i] - limits[data.labels[i]] for i in held_out]
        offset = oracle.conformal_quantile(excess, meant)
        assert fitted.fit_.derived.tolist() == sorted(excess)
        mask = [
            [1 - p - q <= offset for p, q in zip(row, limits, strict=True)] for row in data.rows
        ]
        assert fitted.predict_set(data.rows).to_mask().tolist() == mask


def test_weighted_quantiles_do_not_depend_on_how_they_are_counted(simulate):
    """Bins, and classes at a time: more rows than bins, more classes than are held at once."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 300, 900) * (rng.random(900) < 0.7)
    scores = np.round(rng.random(900), 3)
    for bandwidth in (0.01, 1.0, np.inf):
        ours = weighted_quantiles(scores, labels, 300, bandwidth, 0.1)
        assert ours.tolist() == oracle.fuzzy_limits(
            scores.tolist(), labels.tolist(), 300, bandwidth, Fraction(1, 10)
        )


@pytest.mark.parametrize("bandwidth", [0.03, 1.0, np.inf])
def test_far_classes_and_bins_do_not_change_quantiles(bandwidth, monkeypatch):
    """2,000 classes are several times those held at once, and most are beyond the reach."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(6, 2000)
    counts[7] = 20_000
    labels = np.repeat(np.arange(2000), counts)
    scores = rng.random(len(labels)) * (0.2 + labels % 9)
    ours = weighted_quantiles(scores, labels, 2000, bandwidth, 0.1)
    monkeypatch.setattr(fuzzy, "REACH", np.inf)
    monkeypatch.setattr(fuzzy, "N_BINS", 7)
    assert ours.tolist() == weighted_quantiles(scores, labels, 2000, bandwidth, 0.1).tolist()


def test_the_largest_score_within_an_offset_is_the_largest():
    rng = np.random.default_rng(1)
    limits, offsets = rng.random(2000), rng.normal(size=2000) * 10.0 ** rng.integers(-17, 1, 2000)
    largest = largest_within(limits, offsets)
    assert (largest - limits <= offsets).all()
    assert (np.nextafter(largest, np.inf) - limits > offsets)[np.abs(largest) > 1e-9].all()
    assert largest_within(np.ones(2), np.array([np.inf, -np.inf])).tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("score", "exact"),
    [
        *((score, False) for score in SCORES),
        *((score, True) for score in (SCORES if IS_DEEP else [APS()])),
    ],
    ids=str,
)
def test_one_group_is_standard_and_every_class_its_own_is_classwise(data, score, exact):
    how = {"score": score, "exact": exact}
    for groups, method in (
        (["all"] * 12, "standard"),
        (range(12), "classwise"),
        (list("abcdefghijkl"), "classwise"),
        (None, "classwise"),
    ):
        grouped = GroupedPredictor(groups=groups, **how).fit(*data)
        other = make_predictor(method, **how).fit(*data)
        assert grouped.thresholds_.tolist() == other.thresholds_.tolist()
        assert grouped.predict_set(data.rows) == other.predict_set(data.rows)
        assert grouped.predict_p(data.rows).tolist() == other.predict_p(data.rows).tolist()


def test_groups_of_classes_share_the_threshold_of_their_rows(data):
    names = ["b", "a", "a", "c"] * 3
    fitted = GroupedPredictor(groups=names).fit(*data)
    true = oracle.true_scores(oracle.score_matrix("softmax", data.rows), data.labels)
    for y, name in enumerate(names):
        own = [s for s, label in zip(true, data.labels, strict=True) if names[label] == name]
        assert fitted.thresholds_[y] == oracle.conformal_quantile(own, Fraction(1, 10))
        scores = 1 - data.rows[:5, y]
        p = [(1 + sum(t >= s for t in own)) / (len(own) + 1) for s in scores]
        assert fitted.predict_p(data.rows[:5])[:, y].tolist() == p


def test_pas_with_equal_prevalences_is_softmax_and_classwise_always(data):
    for score in (PAS([3] * 12), PAS([0.1] * 12)):
        for method in ("standard", "clustered"):
            adjusted = make_predictor(method, score=score).fit(*data)
            plain = make_predictor(method).fit(*data)
            assert adjusted.predict_set(data.rows) == plain.predict_set(data.rows)
    adjusted, plain = ClasswisePredictor(score="pas").fit(*data), ClasswisePredictor().fit(*data)
    assert adjusted.predict_set(data.rows) == plain.predict_set(data.rows)
    assert adjusted.predict_p(data.rows).tolist() == plain.predict_p(data.rows).tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_pas_is_its_formula_and_reads_rows_once_for_all_methods(simulate, dtype):
    rows, labels = simulate(50, 9, seed=3, long_tail=True, dtype=dtype)
    prevalence = [5, 1, 2, 8, 13, 1, 1, 0.5, 3]
    expected = [oracle.pas_row(row, prevalence) for row in rows]
    score = PAS(prevalence)
    assert score_matrix(score, rows).tolist() == expected
    assert true_label_scores(score, rows, labels).tolist() == oracle.true_scores(expected, labels)
    counts = np.maximum(np.bincount(labels, minlength=9), 1)
    auto = oracle.true_scores([oracle.pas_row(row, counts) for row in rows], labels)
    assert true_label_scores(PAS(), rows, labels).tolist() == auto


def test_pas_limits_of_softmax_scores_are_exact():
    """Whatever the limit, a class is within it in one scale if and only if it is in the other."""
    rng = np.random.default_rng(5)
    prevalence = np.exp(rng.normal(size=400) * 6)
    score = PAS(prevalence)
    p = np.concatenate([rng.random(200), rng.random(100) ** 30, 1 - rng.random(98) ** 30, [0, 1]])
    base = 1 - p
    exact = score.from_base(base, np.arange(400))
    for wobble in (-1, 0, 1):  # limits at a class's own score, and next to it
        upper = exact.copy() if wobble == 0 else np.nextafter(exact, wobble * np.inf)
        limits = score.base_thresholds(Thresholds(upper))
        assert ((base <= limits.upper) == (exact <= upper)).all()
    infinite = score.base_thresholds(Thresholds(np.full(400, np.inf)))
    assert (infinite.upper == np.inf).all()
    never = score.base_thresholds(Thresholds(np.full(400, -np.inf)))
    assert (never.upper == -np.inf).all()


@pytest.mark.parametrize("score", [Softmax(), APS(), RAPS(), RAPS(penalty=2, k_reg=1), SAPS()])
def test_no_score_is_above_the_maximum(simulate, score):
    rows = simulate(300, 7, ties="quantised").rows
    scores = score_matrix(score, rows)
    assert scores.max() <= score.maximum(7)
    assert scores.max() > score.maximum(7) - 0.3


@pytest.mark.parametrize("prevalence", ["rare", [[1, 2]], None, [1, 0, 2], [1, np.nan], [1, 2]])
def test_prevalences_are_positive_numbers(prevalence):
    rows = np.full((4, 3), 1 / 3)
    with pytest.raises(InputError, match="'prevalence'"):
        StandardPredictor(score=PAS(prevalence)).fit(rows, [0, 1, 2, 0])


def test_prevalences_of_calibration_need_calibration():
    with pytest.raises(InputError, match="'prevalence'"):
        score_matrix(PAS(), [[0.5, 0.5]])


GOOD, LABELS = np.full((20, 4), 0.25), np.arange(20) % 4


@pytest.mark.parametrize(
    ("predictor", "name"),
    [
        (InterpolatedPredictor(tau=-0.1), "tau"),
        (InterpolatedPredictor(tau=1.5), "tau"),
        (InterpolatedPredictor(tau="half"), "tau"),
        (PooledPredictor(floor=1.2), "floor"),
        (PooledPredictor(floor="high"), "floor"),
        (PooledPredictor(strength=-1), "strength"),
        (PooledPredictor(strength="much"), "strength"),
        (PooledPredictor(shared=1.5), "shared"),
        (PooledPredictor(split="hold"), "holdout"),
        (FuzzyPredictor(bandwidth=0), "bandwidth"),
        (FuzzyPredictor(bandwidth=np.nan), "bandwidth"),
        (FuzzyPredictor(holdout=1.0), "holdout"),
        (FuzzyPredictor(holdout=0), "holdout"),
        (GroupedPredictor(groups=[0, 1]), "groups"),
        (GroupedPredictor(groups=["a", 1, None, 2]), "groups"),
        *((make_predictor(m, exact=True), "exact") for m in ("interpolated", "rc3p", "macro")),
    ],
    ids=repr,
)
def test_bad_parameters_are_refused(predictor, name):
    with pytest.raises(InputError, match=f"'{name}'"):
        predictor.fit(GOOD, LABELS)


@pytest.mark.parametrize("ranks", [None, [1, 3]])
def test_rc3p_needs_ranks(ranks):
    with pytest.raises(InputError, match="'ranks'"):
        RC3PPredictor().fit_scores([0.1, 0.2], [0, 1], 2, ranks=ranks)
