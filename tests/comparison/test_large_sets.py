"""Caps in comparisons: each is a fit's own, they compare like methods, and one is suggested."""

from dataclasses import replace

import numpy as np
import pytest

from evencover import (
    APS,
    PAS,
    RAPS,
    InputError,
    PooledPredictor,
    Softmax,
    TopK,
    compare,
    recommend,
)
from evencover.comparison.splits import Split, calibration_split
from evencover.comparison.trials import ScoredRows, try_all
from evencover.data import as_source
from evencover.evaluation.suppliers import Suppliers
from evencover.predictors import caps, make_predictor, method_names

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")

SEED, SHARE = 3, 0.05
SCORES = [Softmax(), APS(), RAPS(k_reg=2, randomize=False), PAS()]


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(600, 40, seed=2)


@pytest.fixture(scope="module")
def confused():
    """60 classes, three of which the model mostly overlooks, so they are in most sets."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(60), 40)
    rows = 1e-3 * rng.random((len(labels), 60))
    is_seen = (labels > 2) | (rng.random(len(labels)) < 0.3)
    rows[np.arange(len(labels)), labels] += 4 * rng.random(len(labels)) * is_seen
    rows[:, 3] += rng.random(len(labels)) * ~is_seen
    return rows / rows.sum(axis=1, keepdims=True), labels


def top_k(rows):
    classes = np.argsort(-rows, axis=1, kind="stable")[:, :12]
    return TopK(classes, np.take_along_axis(rows, classes, axis=1), n_classes=rows.shape[1])


@pytest.mark.parametrize(("kind", "n_sampled"), [(np.asarray, 60), (top_k, 5000)])
def test_a_capped_trial_is_the_predictor_fitted_on_its_rows(confused, kind, n_sampled, monkeypatch):
    monkeypatch.setattr(caps, "MOST_ROWS", n_sampled)
    rows, labels = kind(confused[0]), confused[1]
    scored = ScoredRows(
        as_source(rows, labels, ids=np.arange(2400)), SCORES, random_state=SEED, with_ranks=True
    )
    splits = [Split.of(0.5, n, calibration_split(labels, SEED, n), len(labels)) for n in range(2)]
    settings = [
        make_predictor(method, score=score, max_share=SHARE)
        for method in method_names()
        for score in scored.test_scores
    ]
    n_capped = 0
    for setting, outcomes in zip(settings, try_all(scored, settings, splits, SEED), strict=True):
        for split, outcome in zip(splits, outcomes, strict=True):
            if split.repetition and setting.score.is_random:
                continue  # labels are scored once, with the numbers of the first seed
            plain = replace(setting, random_state=SEED + split.repetition)
            chosen = split.calibration
            plain.fit(rows[chosen], labels[chosen], ids=chosen)
            for mine, other in zip(plain.fit_.caps, outcome.predictor.fit_.caps, strict=True):
                np.testing.assert_array_equal(mine, other)
            np.testing.assert_array_equal(plain.thresholds_, outcome.predictor.thresholds_)
            n_capped += plain.is_capped_.sum()
    assert n_capped


def test_samples_of_many_splits_are_small_enough_together(monkeypatch):
    monkeypatch.setattr(caps, "MOST_ROWS", 4096)
    monkeypatch.setattr(caps, "LEAST_ROWS", 512)
    monkeypatch.setattr(caps, "MOST_NUMBERS", 1 << 20)
    monkeypatch.setattr(caps, "FEWEST_ROWS", 16)
    halves = {n: np.sort(np.random.default_rng(n).permutation(9000)[:4500]) for n in range(10)}
    alone = caps.sampled_of({0: halves[0]}, 1000)
    assert len(alone[0]) == 1048
    together = caps.sampled_of(halves, 1000)
    assert {len(rows) for rows in together.values()} == {524}
    assert len(np.unique(np.concatenate(list(together.values())))) * 1000 <= 1.25 * (1 << 20)
    assert set(together[0]) < set(alone[0])


def test_caps_compare_like_methods_and_standard_has_none(confused):
    result = compare(
        *confused, methods=["standard", "pooled"], scores=["softmax"], n_splits=2,
        max_share=[None, 0.2, 0.1],
    )  # fmt: skip
    assert [candidate.name for candidate in result.candidates] == [
        "standard + softmax",
        "pooled + softmax",
        "pooled + softmax, max_share 0.2",
        "pooled + softmax, max_share 0.1",
    ]
    assert [row["max_share"] for row in result.rows()] == [None, None, 0.2, 0.1]
    by_split = result.to_pandas("splits").set_index(["method", "score", "split"])["max_share"]
    assert sorted(by_split["pooled", "softmax", 1].dropna()) == [0.1, 0.2]
    sizes = [candidate.mean("avg_size") for candidate in result.candidates]
    assert sizes[0] < sizes[3] < sizes[2] < sizes[1]
    alone = compare(
        *confused, methods=[PooledPredictor(max_share=0.1)], scores=["softmax"], n_splits=2
    )
    assert alone.candidates[0].mean("avg_size") == sizes[3]
    assert alone.candidates[0].max_share == 0.1


def test_the_few_classes_with_most_labels_are_named_with_the_price_of_a_cap(confused):
    both = {"methods": ["standard", "pooled"], "scores": ["softmax"], "n_splits": 2}
    result = compare(*confused, **both)
    assert result.best.method == "pooled"
    capped = compare(*confused, **both, max_share=0.1)
    of_pooled = capped.candidates[1]
    assert result.large_sets == result.best.suppliers.sentence(
        None, 60,
        *((c.mean("avg_size"), c.mean("shortfall")) for c in (result.best, of_pooled)),
    )  # fmt: skip
    assert "class 1" in result.large_sets
    assert result.large_sets in result.reason.splitlines()
    assert capped.large_sets == ""


def test_recommend_suggests_a_cap_and_takes_one(confused):
    advice = recommend(*confused)
    assert advice.method == "pooled"
    assert "max_share=0.1" in advice.reason
    capped = recommend(*confused, max_share=0.1)
    assert "max_share=0.1" not in capped.reason
    sizes = [found.expected_sizes for found in (advice, capped)]
    assert sizes[1]["pooled"] < sizes[0]["pooled"]
    assert sizes[1]["standard"] == sizes[0]["standard"]


def test_even_sets_get_no_advice(simulate):
    assert compare(*simulate(600, 8, seed=2), n_splits=2, scores=["softmax"]).large_sets == ""


def test_few_suppliers_are_at_most_a_twentieth_of_the_classes():
    labels = np.ones(40)
    labels[[3, 7]] = 15, 25
    wrong = labels.copy()
    found = Suppliers.of(labels, wrong)
    assert found.classes.tolist() == [7, 3]
    assert found.share == 40 / 78
    assert len(Suppliers.of(labels[:39], wrong[:39]).classes) == 0
    labels[7] = 22  # 37 of 75 labels
    assert len(Suppliers.of(labels, wrong).classes) == 0


@pytest.mark.parametrize("share", [0, 1.5, "much", [None, 2]])
def test_wrong_caps_are_errors_before_any_row_is_read(share):
    for function in (compare, recommend):
        with pytest.raises(InputError, match="max_share"):
            function("no such file.npz", max_share=share)


def test_recommend_takes_one_cap_and_none_alone_is_no_cap(data):
    with pytest.raises(InputError, match="max_share"):
        recommend(*data, max_share=[None, 0.1])
    result = compare(
        *data, methods=[PooledPredictor(max_share=0.1)], scores=["softmax"], n_splits=2,
        max_share=[None],
    )  # fmt: skip
    assert [candidate.max_share for candidate in result.candidates] == [0.1]


def test_a_numeric_floor_excludes_caps(data):
    with pytest.raises(InputError, match=r"'floor' and 'max_share'"):
        compare(*data, floor=0.8, max_share=0.1)
    with pytest.raises(InputError, match=r"'floor' and 'max_share'"):
        compare(*data, methods=[PooledPredictor(floor=0.8)], max_share=0.1, n_splits=2)
