"""Promises for one calibration: the rank, who has it, and where it is said."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import oracle
import pytest

from evencover import (
    ClasswisePredictor,
    ClusteredPredictor,
    EvencoverWarning,
    GroupedPredictor,
    InputError,
    StandardPredictor,
    compare,
    load,
    save,
)
from evencover.cli.info import of_model
from evencover.quantiles import conformal_ranks, least_rows
from evencover.report.content import report_content

LEVELS = [
    (Fraction(1, 10), Fraction(9, 10)),
    (Fraction(1, 20), Fraction(99, 100)),
    (Fraction(3, 10), Fraction(1, 2)),
    (Fraction(1, 2), Fraction(3, 4)),  # ties: P(Binomial(2, 1/2) >= 2) is 1/4 exactly
]


def confident_rank(n, alpha, confidence):
    return int(conformal_ranks(np.array([n]), alpha, confidence)[0])


@pytest.mark.parametrize(("alpha", "confidence"), LEVELS)
def test_the_rank_is_the_oracles(alpha, confidence):
    counts = np.array([0, 1, 2, 3, 5, 9, 22, 40])
    expected = [oracle.confident_rank(n, alpha, confidence) for n in counts.tolist()]
    assert conformal_ranks(counts, alpha, confidence).tolist() == expected


def test_a_tie_is_decided_exactly_where_floats_cannot():
    # 1 - confidence is the very chance of rank k, or less than it by one part in 10^30.
    n, k, alpha = 200, 188, Fraction(1, 10)
    tail = sum(Fraction(9**j) * oracle.math.comb(n, j) / Fraction(10**n) for j in range(k, n + 1))
    assert confident_rank(n, alpha, 1 - tail) == k
    assert confident_rank(n, alpha, 1 - tail * (1 - Fraction(1, 10**30))) == k + 1


@pytest.mark.parametrize(("alpha", "confidence"), LEVELS)
def test_the_least_number_of_rows_is_where_thresholds_become_finite(alpha, confidence):
    n = least_rows(alpha, confidence)
    assert confident_rank(n, alpha, confidence) == n
    assert confident_rank(n - 1, alpha, confidence) == n
    assert least_rows(0.1, 0.9) == 22


def two_classes(n_of_each, seed=0):
    labels = np.repeat([0, 1], n_of_each)
    return np.random.default_rng(seed).random(len(labels)), labels


def test_too_few_rows_are_infinite_and_a_warning_says_how_many_it_takes():
    scores, labels = two_classes([21, 22])
    said = r"1 of 2 classes .* alpha = 0.1, which takes 22; they are always"
    with pytest.warns(EvencoverWarning, match=said):
        fitted = ClasswisePredictor(confidence=0.9).fit_scores(scores, labels, 2)
    assert fitted.thresholds_.tolist() == [np.inf, scores[21:].max()]


@pytest.mark.parametrize(
    "predictor",
    [
        StandardPredictor(confidence=0.9),
        ClasswisePredictor(confidence=0.9),
        ClusteredPredictor(confidence=0.9, gamma=0.5, n_clusters=2),
        GroupedPredictor(confidence=0.9, groups=[0, 0, 1, 1]),
    ],
    ids=lambda predictor: predictor.method,
)
def test_models_keep_it_and_info_and_the_page_say_it(simulate, tmp_path, predictor):
    rows, labels = simulate(800, 4)
    (rows, test_rows), (labels, test_labels) = np.split(rows, 2), np.split(labels, 2)
    predictor.fit(rows, labels)
    usual = replace(predictor, confidence=None).fit(rows, labels)
    assert (predictor.thresholds_ >= usual.thresholds_).all()
    assert (predictor.thresholds_ > usual.thresholds_).any()
    save(predictor, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.thresholds_, predictor.thresholds_)
    about = of_model(loaded)
    assert about["confidence"] == 0.9
    assert "90% of all calibration sets" in about["guarantee"]
    assert "calibrations" not in of_model(usual).get("guarantee") or usual.method == "classwise"
    content = report_content(loaded, test_rows, test_labels)
    assert "90% of all calibration sets" in content["guarantee"]
    groups = content["groups"]
    assert groups["rank"] == conformal_ranks(np.array(groups["rows"]), 0.1, 0.9).tolist()


@pytest.mark.parametrize(
    "predictor",
    [
        *(StandardPredictor(confidence=c) for c in (0, 1, -0.5, "often", True, float("nan"))),
        StandardPredictor(confidence=0.9, exact=True),
    ],
    ids=repr,
)
def test_a_bad_confidence_is_refused(predictor):
    with pytest.raises(InputError, match="'confidence'"):
        predictor.fit_scores([0.5], [0], 2)


def test_compare_takes_predictors_with_a_confidence(simulate):
    methods = [StandardPredictor(), StandardPredictor(confidence=0.9)]
    found = compare(*simulate(1200, 5), methods=methods, scores=["softmax"], n_splits=2)
    plain, sure = found.candidates
    assert sure.mean("avg_size") > plain.mean("avg_size")
