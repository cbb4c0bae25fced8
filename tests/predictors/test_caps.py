"""The price of a class: `max_share` caps the thresholds that would put it into too many sets."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import product
from math import floor

import numpy as np
import pytest
from depth import IS_DEEP
from scoring import score_matrix

from evencover import (
    PAS,
    RAPS,
    ClasswisePredictor,
    ClusteredPredictor,
    InputError,
    PooledPredictor,
    RC3PPredictor,
    StandardPredictor,
    TopK,
    load,
    save,
)
from evencover._kernels import random_bits
from evencover.data import readers
from evencover.predictors import PREDICTORS, caps, make_predictor, method_names
from evencover.predictors.held_out import chance_of_at_most
from evencover.randomness import RandomStream
from evencover.report.verdict import usual_spread, verdict

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

K, N = 14, 700
SHARE = 0.12
SCORES = ["softmax", "aps", RAPS(k_reg=1), PAS()]


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(N, K, seed=4)


def made(method, **parameters):
    own = {"gamma": 0.4, "n_clusters": 2} if method == "clustered" else {}
    exact = parameters.pop("exact", False) and "exact" in PREDICTORS[method].supports
    return make_predictor(method, **own, exact=exact, **parameters)


def rounded_down(scores):
    """Scores, none larger than it was, whose distance to 1 is a float32."""
    nearest = (scores - 1).astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return 1 + np.where(nearest > scores - 1, below, nearest).astype(np.float64)


def capped_as_written(thresholds, standard, scores, labels, max_share):
    """The rule, class by class: thresholds, and which are capped."""
    result, is_capped = thresholds.copy(), np.zeros(len(thresholds), dtype=bool)
    for y in range(len(thresholds)):
        others = np.sort(scores[labels != y, y])
        share = Fraction(int((others <= thresholds[y]).sum()), len(others))
        if share > Fraction(str(max_share)) and thresholds[y] > standard[y]:
            rank = floor(Fraction(str(max_share)) * len(others))
            cap = others[rank - 1] if rank else -np.inf
            result[y], is_capped[y] = max(standard[y], cap), True
    return result, is_capped


@pytest.mark.parametrize("method", sorted({*method_names()} - {"rc3p"}))  # it has its own test
@pytest.mark.parametrize("score", ["softmax", RAPS(randomize=False, k_reg=1)], ids=str)
def test_thresholds_are_capped_as_the_rule_is_written(data, method, score):
    free, capped = (
        made(method, score=score, max_share=share).fit(*data) for share in (None, SHARE)
    )
    standard = StandardPredictor(score=score).fit(*data).thresholds_
    scores = rounded_down(score_matrix(free.score_, data.rows, calibrating=True))
    expected, is_capped = capped_as_written(free.thresholds_, standard, scores, data.labels, SHARE)
    np.testing.assert_array_equal(capped.thresholds_, expected)
    np.testing.assert_array_equal(capped.is_capped_, is_capped)
    shares = [(scores[data.labels != y, y] <= q).mean() for y, q in enumerate(free.thresholds_)]
    np.testing.assert_array_equal(capped.share_, shares)
    assert capped.is_capped_.any() or method in ("standard", "macro", "interpolated")


@pytest.mark.parametrize(("method", "exact"), list(product(method_names(), [False, True])))
def test_a_share_of_one_changes_no_bit(data, method, exact):
    for score in SCORES if IS_DEEP else SCORES[1::2]:
        free, whole = (
            made(method, score=score, exact=exact, max_share=share).fit(*data)
            for share in (None, 1)
        )
        for first, second in zip(free.fit_.thresholds, whole.fit_.thresholds, strict=True):
            np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(free.guarantees_, whole.guarantees_)
        assert free.predict_set(data.rows[:50]) == whole.predict_set(data.rows[:50])
        assert free.guarantee_text == whole.guarantee_text
        assert not whole.is_capped_.any()


@pytest.mark.parametrize("method", method_names())
@pytest.mark.parametrize("ties", [None, "quantised"])
def test_sets_only_shrink_and_other_classes_stay_as_they_are(simulate, method, ties):
    data = simulate(N, K, seed=5, ties=ties)
    for score, exact in product(SCORES if IS_DEEP else ["aps", PAS()], [False, True]):
        free, capped = (
            made(method, score=score, exact=exact, max_share=share).fit(*data)
            for share in (None, 0.05)
        )
        before = free.predict_set(data.rows[:200]).to_mask()
        after = capped.predict_set(data.rows[:200]).to_mask()
        assert (after <= before).all()
        kept = ~capped.is_capped_
        for first, second in zip(free.fit_.thresholds, capped.fit_.thresholds, strict=True):
            assert (first is None) == (second is None)
            if first is not None:
                np.testing.assert_array_equal(first[kept], second[kept])
        np.testing.assert_array_equal(free.guarantees_[kept], capped.guarantees_[kept])
        assert (capped.guarantees_[~kept] == 0).all()
        chances = [fitted.fit_.thresholds.upper_probability for fitted in (free, capped)]
        np.testing.assert_array_equal(*chances)  # of a pair, it stays
        lower = capped.fit_.thresholds.lower
        assert lower is None or (lower <= capped.thresholds_).all()


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_standard_is_never_capped(data, score):
    for parameters in ({}, {"exact": True}, {"confidence": 0.9}, {"alpha": [0.1] * 7 + [0.3] * 7}):
        fitted = StandardPredictor(score=score, max_share=0.001, **parameters).fit(*data)
        assert not fitted.is_capped_.any()
        assert fitted.share_.max() > 0.001


@pytest.mark.parametrize(
    "parameters", [{"confidence": 0.9}, {"alpha": [0.1] * 7 + [0.3] * 7}], ids=str
)
def test_no_threshold_falls_below_the_one_of_standard(data, parameters):
    """With the same alpha of each class, and the same confidence."""
    capped = ClasswisePredictor(max_share=0.001, **parameters).fit(*data)
    standard = StandardPredictor(**parameters).fit(*data)
    assert capped.is_capped_.any()
    expected = standard.thresholds_[capped.is_capped_]
    np.testing.assert_array_equal(capped.thresholds_[capped.is_capped_], expected)


def test_shares_of_rc3p_count_the_rows_that_its_rank_limits_admit(data):
    free = RC3PPredictor(alpha=0.3).fit(*data)
    capped = RC3PPredictor(alpha=0.3, max_share=0.25).fit(*data)
    ranks = 1 + np.argsort(np.argsort(-data.rows, axis=1, kind="stable"), axis=1)
    scores = rounded_down(score_matrix(free.score_, data.rows))
    scores[ranks > free.rank_limits_] = np.inf
    standard = StandardPredictor(alpha=0.3).fit(*data).thresholds_
    finite = np.minimum(free.thresholds_, 2)
    expected, is_capped = capped_as_written(finite, standard, scores, data.labels, 0.25)
    assert 0 < is_capped.sum() < K
    np.testing.assert_array_equal(capped.is_capped_, is_capped)
    np.testing.assert_array_equal(capped.thresholds_[is_capped], expected[is_capped])
    np.testing.assert_array_equal(capped.rank_limits_, free.rank_limits_)


def test_of_top_k_rows_only_those_that_list_a_class_count(data):
    classes = np.argsort(-data.rows, axis=1, kind="stable")[:, :4]
    rows = TopK(classes, np.take_along_axis(data.rows, classes, axis=1), n_classes=K)
    fitted = ClasswisePredictor(alpha=0.02, max_share=SHARE).fit(rows, data.labels)
    free = ClasswisePredictor(alpha=0.02).fit(rows, data.labels)
    is_listed = (classes[:, :, None] == np.arange(K)).any(axis=1)
    scores = rounded_down(np.where(is_listed, 1 - data.rows, np.inf))
    reached = np.minimum(free.thresholds_, 2)  # +inf admits no row that lacks the class
    assert np.isinf(free.thresholds_).any()
    shares = [(scores[data.labels != y, y] <= q).mean() for y, q in enumerate(reached)]
    np.testing.assert_array_equal(fitted.share_, shares)
    standard = StandardPredictor(alpha=0.02).fit(rows, data.labels).thresholds_
    expected, is_capped = capped_as_written(reached, standard, scores, data.labels, SHARE)
    np.testing.assert_array_equal(fitted.is_capped_, is_capped)
    np.testing.assert_array_equal(fitted.thresholds_[is_capped], expected[is_capped])


# ---- the sample ----------------------------------------------------------------------------------


@pytest.fixture
def small_samples(monkeypatch):
    """Samples of 60 rows, so that few rows take part."""
    monkeypatch.setattr(caps, "MOST_ROWS", 60)
    return 60


def limits(fitted):
    return np.stack(fitted.fit_.caps[:3])


@pytest.mark.usefixtures("small_samples")
def test_the_sample_does_not_depend_on_blocks_workers_or_order(data, monkeypatch):
    ids = [f"row {number}" for number in range(N)]
    predictor = ClasswisePredictor(score="aps", max_share=SHARE)
    whole = limits(predictor.fit(*data, ids=ids))
    by_index = limits(predictor.fit(*data))
    monkeypatch.setattr(readers, "BLOCK_ELEMENTS", 37 * K)
    np.testing.assert_array_equal(limits(predictor.fit(*data)), by_index)
    with ThreadPoolExecutor(2) as executor:
        np.testing.assert_array_equal(limits(predictor.fit(*data, executor=executor)), by_index)
    order = np.random.default_rng(0).permutation(N)
    mixed = predictor.fit(data.rows[order], data.labels[order], ids=[ids[row] for row in order])
    np.testing.assert_array_equal(limits(mixed), whole)
    assert (whole != by_index).any()


def test_the_sample_are_the_rows_with_the_smallest_hashes(data, small_samples):
    ids = np.arange(N, dtype=np.uint64) * 7
    fitted = ClasswisePredictor(max_share=SHARE).fit(*data, ids=ids)
    hashes = random_bits(0, int(RandomStream.CAPS), fitted.fit_.rows.ids)
    chosen = np.argsort(hashes)[:small_samples]
    scores = rounded_down(1 - data.rows[chosen])
    for y, cap in enumerate(fitted.fit_.caps.cap):
        others = np.sort(scores[data.labels[chosen] != y, y])
        assert cap == others[floor(0.12 * len(others)) - 1]


def test_probabilities_below_the_precision_of_float32_near_1_keep_their_order():
    """A class is not said to be in sets whose rows give it a thousandth of its least share."""
    labels = np.repeat(np.arange(4), 50)
    rows = 1e-12 * np.random.default_rng(0).random((200, 4))
    rows[np.arange(200), labels] = 1
    rows[0, :2] = 1e-9, 1  # the class's odd one
    fitted = ClasswisePredictor(alpha=0.02, max_share=0.1).fit(rows, labels)
    assert fitted.thresholds_[0] == 1 - 1e-9
    assert fitted.share_[0] == 0
    assert not fitted.is_capped_[0]
    in_half = rows.copy()
    in_half[50:125, 0] = np.geomspace(2e-9, 1e-7, 75).astype(np.float32)
    capped = ClasswisePredictor(alpha=0.02, max_share=0.1).fit(in_half, labels)
    assert capped.share_[0] == 0.5
    assert (1 - in_half[50:, 0] <= capped.thresholds_[0]).mean() == 0.1


def test_the_number_of_sampled_rows_falls_with_the_classes(monkeypatch):
    for name, usual in {"MOST_ROWS": 4096, "LEAST_ROWS": 512, "MOST_NUMBERS": 1 << 24}.items():
        monkeypatch.setattr(caps, name, usual)
    assert [caps.sample_size(k) for k in (10, 4096, 6624, 100_000)] == [4096, 4096, 2532, 512]


def test_rows_with_unknown_labels_are_not_sampled(data):
    labels = np.where(np.arange(N) % 3 == 0, "unheard of", data.labels.astype(str))
    names = [str(k) for k in range(K)]
    known = labels != "unheard of"
    fitted, without = (
        ClasswisePredictor(max_share=SHARE).fit(
            data.rows[rows], labels[rows], class_names=names, ids=np.arange(N)[rows],
            labels_are="names",
        )
        for rows in (slice(None), known)
    )  # fmt: skip
    np.testing.assert_array_equal(limits(fitted), limits(without))


# ---- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["pooled", "clustered", "rc3p"])
def test_a_saved_model_keeps_its_caps(data, tmp_path, method):
    fitted = made(method, max_share=0.05).fit(*data)
    save(fitted, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert fitted.is_capped_.any()
    for first, second in zip(fitted.fit_.caps, loaded.fit_.caps, strict=True):
        np.testing.assert_array_equal(first, second)
    assert loaded.predict_set(data.rows) == fitted.predict_set(data.rows)
    with pytest.raises(ValueError, match="read-only"):
        loaded.is_capped_[0] = True


@pytest.mark.parametrize("score", ["aps", PAS()], ids=str)
def test_another_alpha_and_new_rows_keep_the_limits_of_the_first_calibration(data, score):
    rows, labels = data
    first = PooledPredictor(score=score, max_share=0.05).fit(rows[:500], labels[:500])
    assert first.is_capped_.any()
    same = first.with_alpha(0.1)
    for kept, before in zip(same.fit_.thresholds, first.fit_.thresholds, strict=True):
        np.testing.assert_array_equal(kept, before)
    np.testing.assert_array_equal(same.is_capped_, first.is_capped_)
    stricter, free = first.with_alpha(0.02), PooledPredictor(score=score, alpha=0.02)
    free.fit(rows[:500], labels[:500])
    standard = StandardPredictor(score=score, alpha=0.02).fit(rows[:500], labels[:500])
    highest = np.maximum(
        standard.thresholds_, first.score_.from_base(limits(first)[0], np.arange(K))
    )
    is_lowered = free.thresholds_ > highest
    assert is_lowered.any()
    np.testing.assert_array_equal(stricter.thresholds_[is_lowered], highest[is_lowered])
    np.testing.assert_array_equal(stricter.is_capped_, is_lowered)
    updated = first.with_alpha(0.1).partial_fit(rows[500:], labels[500:])
    for fitted in (same, stricter, updated):
        np.testing.assert_array_equal(limits(fitted)[:2], limits(first)[:2])
        assert np.isnan(fitted.share_).all()
    free = PooledPredictor(score=score).fit(*data)
    kept = ~updated.is_capped_
    np.testing.assert_array_equal(updated.thresholds_[kept], free.thresholds_[kept])
    assert (updated.thresholds_ <= free.thresholds_).all()


# ---- words ---------------------------------------------------------------------------------------


def named(data, **parameters):
    names = [f"no. {k}" for k in range(K)]
    return PooledPredictor(max_share=0.05, **parameters).fit(*data, class_names=names)


def test_capped_classes_are_named_with_their_price(data):
    fitted = named(data, alpha=0.05)
    capped = np.flatnonzero(fitted.is_capped_)
    worst = capped[fitted.share_[capped].argmax()]
    price = f"Covering 'no. {worst}' at 95% would put it into {fitted.share_[worst]:.0%} of"
    assert price in fitted.guarantee_text
    assert f"{len(capped)} of {K} classes are capped at max_share = 0.05." in fitted.guarantee_text
    assert fitted.fit_.capped_shares == {f"no. {y}": fitted.share_[y] for y in capped}
    report = fitted.evaluate(data.rows[:300], data.labels[:300])
    explanation = fitted.explain(report, int(worst))
    assert explanation.origin.startswith(price)
    assert explanation.cause == explanation.origin  # not what the method would say
    assert explanation.guarantee == 0
    free = np.flatnonzero(~fitted.is_capped_)[0]
    assert "Covering" not in fitted.explain(report, int(free)).origin
    columns = report.class_columns()
    np.testing.assert_array_equal(columns["is_capped"], fitted.is_capped_)
    np.testing.assert_array_equal(columns["share_of_other_sets"], fitted.share_)
    assert report.to_dict()["is_capped"] == fitted.is_capped_.tolist()


def test_models_with_the_caps_of_an_earlier_calibration_say_so(data):
    fitted = named(data)
    for later in (fitted.with_alpha(0.05), fitted.partial_fit(*data)):
        assert "Caps are those of the first calibration" in later.guarantee_text
        assert set(later.fit_.capped_shares.values()) == {None}
        report = later.evaluate(data.rows[:300], data.labels[:300])
        assert set(report.to_dict()["share"]) == {None}


def test_lower_coverage_because_of_caps_is_no_shift(simulate):
    """The mean may then miss its target on the calibration distribution itself."""
    rows, labels = simulate(24_000, K, seed=4)
    fitted = PooledPredictor(max_share=0.01).fit(rows[:12_000], labels[:12_000])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = fitted.evaluate(rows[12_000:], labels[12_000:])
    assert chance_of_at_most(int(report.class_covered.sum()), 12_000, 12_000, 0.1) < 1e-4
    assert report.data_warnings == ()
    why = verdict(report, usual_spread(fitted, report))["average"]
    assert "Capped classes are covered less" in why


def test_without_caps_reports_have_no_columns_for_them(data):
    report = PooledPredictor().fit(*data).evaluate(data.rows[:300], data.labels[:300])
    assert not {"is_capped", "share_of_other_sets"} & report.class_columns().keys()
    assert "capped" not in PooledPredictor().fit(*data).guarantee_text


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "share", [0, -0.1, 1.5, True, float("nan"), "much", [0.1], np.array([0.1, 0.2])], ids=str
)
def test_a_share_is_a_number_above_0_and_at_most_1(data, share):
    with pytest.raises(InputError, match="max_share"):
        ClasswisePredictor(max_share=share).fit(*data)


def test_a_guaranteed_number_and_a_price_exclude_each_other(data):
    with pytest.raises(InputError, match=r"'floor' and 'max_share'"):
        ClusteredPredictor(floor=0.8, max_share=0.1).fit(*data)
    PooledPredictor(floor="auto", max_share=0.1).fit(*data)


def test_rows_that_can_be_read_once_cannot_be_capped(data):
    with pytest.raises(InputError, match="'max_share' reads the rows several times"):
        PooledPredictor(max_share=0.1).fit(iter([tuple(data)]))


def test_scores_of_labels_alone_cannot_be_capped(data):
    scores = 1 - data.rows[np.arange(N), data.labels]
    with pytest.raises(InputError, match="max_share"):
        PooledPredictor(max_share=0.1).fit_scores(scores, data.labels, K)


def test_classes_that_have_all_sampled_rows_to_themselves_are_not_capped():
    rows = np.random.default_rng(1).dirichlet(np.ones(3), 30)
    fitted = ClasswisePredictor(max_share=0.1).fit(rows, np.zeros(30, dtype=int))
    assert not fitted.is_capped_[0]
    assert fitted.share_[0] == 0
