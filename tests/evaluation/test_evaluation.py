"""Evaluation: the paper's metrics, their noise floor, and exact intervals."""

import json
import math
from fractions import Fraction

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from evencover import CoverageReport, InputError, PredictionSets, evaluate
from evencover.evaluation.metrics import METRICS, Confusions
from evencover.evaluation.statistics import clopper_pearson

ALPHAS = {0.01: Fraction(1, 100), 0.1: Fraction(1, 10), 0.3: Fraction(3, 10), "1/3": Fraction(1, 3)}


def random_sets(n_rows, n_classes, seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((n_rows, n_classes)) < rng.random(n_classes)
    labels = rng.integers(0, max(1, n_classes * 3 // 4), n_rows)  # a quarter has no test rows
    mask[np.arange(n_rows), labels] |= rng.random(n_rows) < 0.8
    return PredictionSets.from_mask(mask), labels


@given(
    n_rows=st.integers(1, 120),
    n_classes=st.sampled_from([2, 5, 30]),
    seed=st.integers(0, 1000),
    alpha=st.sampled_from(list(ALPHAS)),
)
def test_metrics_are_the_papers(n_rows, n_classes, seed, alpha):
    sets, labels = random_sets(n_rows, n_classes, seed)
    report = evaluate(sets, labels, alpha)
    lists, known, meant = sets.to_lists(), labels.tolist(), ALPHAS[alpha]
    for name, value in oracle.metrics(lists, known, n_classes, meant).items():
        assert getattr(report, name) == pytest.approx(float(value), rel=1e-12, abs=1e-11), name
    coverage = oracle.class_coverage(lists, known, n_classes)
    assert [None if math.isnan(c) else c for c in report.class_coverage] == [
        None if c is None else float(c) for c in coverage
    ]
    assert report.class_counts.tolist() == oracle.class_counts(known, n_classes)
    floor = oracle.noise_floor(known, n_classes, meant)
    assert report.covgap_noise_floor == pytest.approx(float(floor), rel=1e-9)


def covering(hits, misses, n_classes=1):
    """Sets of class 0 alone: so many rows covered, so many not."""
    mask = np.zeros((hits + misses, n_classes + 1), dtype=bool)
    mask[:hits, 0] = True
    return PredictionSets.from_mask(mask), np.zeros(hits + misses, dtype=int)


@pytest.mark.parametrize(
    ("alpha", "hits", "misses", "undercovered"),
    [
        (0.1, 8, 2, 1.0),  # 0.8 <= 0.9 - 0.1, though not in floating point
        (0.1, 81, 19, 0.0),
        (0.3, 6, 4, 1.0),
        ("1/3", 17, 13, 1.0),  # 17/30 = 2/3 - 1/10
        ("1/3", 171, 129, 0.0),
        (0.95, 0, 10, 0.0),  # nothing is below a negative limit
    ],
)
def test_undercovered_means_ten_points_below_or_more(alpha, hits, misses, undercovered):
    assert evaluate(*covering(hits, misses), alpha).frac_undercovered == undercovered


def test_classes_without_test_rows_are_skipped_and_counted():
    mask = np.array([[True, False, False], [False, True, False]])
    report = evaluate(PredictionSets.from_mask(mask), [0, 0], 0.1)
    assert report.n_classes_evaluated == 1
    assert report.covgap == pytest.approx(40)
    assert np.isnan(report.class_coverage[1:]).all()
    assert report.class_coverage_interval[1].tolist() == [0, 1]
    assert "skipped" in str(report)
    assert report.to_dict()["class_coverage"] == [0.5, None, None]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_size_quantiles_are_sizes_that_a_share_of_rows_does_not_exceed(sizes):
    mask = np.arange(9) < np.array(sizes)[:, None]
    report = evaluate(PredictionSets.from_mask(mask), np.zeros(len(sizes), dtype=int))
    for share, size in report.size_quantiles.items():
        level = Fraction(int(share), 100)
        assert size == oracle.quantile(level, sizes)
    assert report.avg_size == pytest.approx(sum(sizes) / len(sizes))


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=6))
def test_intervals_are_clopper_pearson(pairs):
    hits, trials = [a for a, _ in pairs], [a + b for a, b in pairs]
    for limits, k, n in zip(clopper_pearson(hits, trials), hits, trials, strict=True):
        if n == 0:
            assert limits.tolist() == [0, 1]
        else:
            exact = binomtest(k, n).proportion_ci(0.95, method="exact")
            assert limits == pytest.approx([exact.low, exact.high], abs=1e-9)


def test_the_report_can_be_read_by_people_and_machines():
    sets, labels = random_sets(200, 5, 4)
    report = evaluate(sets, labels, 0.1, class_names=list("abcde"))
    numbers = report.to_dict()
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert report.class_columns()["coverage"].tolist()[:3] == report.class_coverage.tolist()[:3]
    assert "CovGap" in [name for name, _, _ in report.summary()]
    assert max(map(len, str(report).splitlines())) <= 80


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=200))
def test_the_most_frequent_are_those_that_are_shown(pairs):
    true, first = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    every = Confusions.of(true, first, 9)
    few = every.most_frequent()
    assert [few.of_class(index) for index in range(9)] == [every.of_class(i) for i in range(9)]
    assert len(few.pairs) <= 5 * 9
    assert (np.diff(few.pairs) > 0).all()


def test_every_metric_of_the_list_is_in_the_report():
    features = np.random.default_rng(0).random((300, 3))
    report = evaluate(*random_sets(300, 6, 5), 0.1, features=features)
    names = [metric.name for metric in METRICS]
    assert list(report.metrics()) == names
    assert len(set(names)) == len({metric.title for metric in METRICS}) == len(names)
    assert report.metrics().items() <= report.to_dict().items()
    for metric in METRICS:
        assert metric.of(report) == getattr(report, metric.name)
        assert isinstance(getattr(CoverageReport, metric.name).__doc__, str)


def test_unsuitable_input_is_rejected():
    sets = PredictionSets.from_mask([[True, False]])
    for arguments, words in (
        (([[0]], [0]), "'sets'"),
        ((sets[:0], []), "one row"),
        ((sets, [0], 1.5), "'alpha'"),
        ((sets, [0, 1]), "'labels'"),
    ):
        with pytest.raises(InputError, match=words):
            evaluate(*arguments)


def test_frames_of_a_report_have_its_classes_and_its_metrics():
    mask = np.array([[True, False], [True, True], [True, False]])
    report = evaluate(PredictionSets.from_mask(mask, ["x", "y"]), ["x", "x", "y"])
    classes, metrics = report.to_pandas(), report.to_pandas("metrics")
    assert classes["name"].tolist() == ["x", "y"]
    assert classes["coverage"].tolist() == [1.0, 0.0]
    assert metrics.loc["avg_size", "value"] == report.avg_size
    assert set(metrics.index) == set(report.metrics())
    with pytest.raises(InputError, match="splits"):
        report.to_pandas("splits")
