"""Coverage by size of set and in slabs, against row-by-row and exhaustive transcriptions."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evencover import InputError, PredictionSets, evaluate
from evencover.evaluation import worst_slab
from evencover.evaluation.conditional import lowest_between

STRATA = [(0, 0), (1, 1), (2, 2), (3, 5), (6, 10), (11, 20), (21, 50), (51, 100), (101, 200)]


@given(st.integers(1, 400), st.sampled_from([2, 12, 130]), st.integers(0, 100))
def test_size_stratified_coverage_is_the_minimum_over_strata_of_twenty_rows(
    n_rows, n_classes, seed
):
    rng = np.random.default_rng(seed)
    mask = rng.random((n_rows, n_classes)) < rng.choice([0.02, 0.3, 0.9], (n_rows, 1))
    labels = rng.integers(0, n_classes, n_rows)
    report = evaluate(PredictionSets.from_mask(mask), labels, 0.1)
    expected = {}
    for low, high in STRATA:
        hits = [row[y] for row, y in zip(mask, labels, strict=True) if low <= sum(row) <= high]
        if hits:
            expected[low] = (len(hits), sum(hits) / len(hits))
    assert {s.smallest: (s.rows, s.coverage) for s in report.strata} == expected
    judged = [coverage for rows, coverage in expected.values() if rows >= 20]
    assert report.to_dict()["size_stratified_coverage"] == min(judged, default=None)
    json.dumps(report.to_dict(), allow_nan=False)


def lowest_by_trial(position, is_covered, delta):
    """Cauchois et al. 2021, (13): try every pair of bounds that are positions of rows."""
    least = math.ceil(delta * len(position) - 1e-9)
    windows = [(position >= a) & (position <= b) for a in position for b in position]
    return min(is_covered[rows].mean() for rows in windows if rows.sum() >= least)


@given(st.integers(1, 40), st.floats(0.01, 0.9), st.booleans(), st.integers(0, 200))
def test_the_search_between_two_planes_is_exact(n, delta, is_tied, seed):
    rng = np.random.default_rng(seed)
    position = rng.integers(0, 6, n).astype(float) if is_tied else rng.standard_normal(n)
    is_covered = rng.random(n) < rng.random()
    coverage, low, high = lowest_between(position, is_covered, delta)
    assert coverage == pytest.approx(lowest_by_trial(position, is_covered, delta), abs=1e-12)
    inside = (position >= low) & (position <= high)
    assert is_covered[inside].mean() == pytest.approx(coverage, abs=1e-12)
    assert inside.sum() >= math.ceil(delta * n - 1e-9)


def sets_that_miss(is_missed):
    """Sets of class 0, which is the label unless the row is missed."""
    mask = np.tile([True, False], (len(is_missed), 1))
    return PredictionSets.from_mask(mask), is_missed.astype(int)


def test_a_slab_that_is_never_covered_is_found_in_its_direction():
    x = np.random.default_rng(0).uniform(-1, 1, (4000, 2))
    report = evaluate(*sets_that_miss(np.abs(x[:, 0] - 0.5) < 0.15), 0.1, features=x)
    slab = report.worst_slab
    assert report.worst_slab_coverage == slab.coverage < 0.1
    assert abs(slab.direction[0]) > 0.98
    assert 0.1 < slab.share < 0.16  # 15% of the rows are never covered
    assert report.to_dict()["worst_slab_coverage"] == slab.coverage


def test_rows_that_choose_the_slab_do_not_measure_it():
    """If coverage has nothing to do with the features, the worst of many slabs shows none."""
    rng = np.random.default_rng(1)
    x, is_missed = rng.standard_normal((3000, 5)), rng.random(3000) < 0.1
    chosen = min(lowest_between(x[:, column], ~is_missed, 0.1)[0] for column in range(5))
    slabs = [worst_slab(~is_missed, x, random_state=seed, n_directions=50) for seed in range(10)]
    assert np.mean([slab.coverage for slab in slabs]) == pytest.approx(0.9, abs=0.02)
    assert chosen < 0.86


def test_a_report_without_features_has_no_worst_slab():
    report = evaluate(*sets_that_miss(np.zeros(30, dtype=bool)), 0.1)
    assert np.isnan(report.worst_slab_coverage)
    assert report.to_dict()["worst_slab_coverage"] is None


@pytest.mark.parametrize(
    "features", [np.zeros(30), np.zeros((29, 2)), np.full((30, 2), np.nan), np.full((30, 1), "a")]
)
def test_features_are_one_row_of_finite_numbers_per_set(features):
    with pytest.raises(InputError, match="features"):
        evaluate(*sets_that_miss(np.zeros(30, dtype=bool)), 0.1, features=features)


def test_class_balance_is_that_of_table_1():
    """Rows of the rarest 5% of classes, divided by 5% of all rows."""
    labels = np.repeat(np.arange(40), [3, 5, *[10] * 37, 32])
    sets = PredictionSets.from_mask(np.eye(40, dtype=bool)[labels])
    assert evaluate(sets, labels, 0.1).class_balance == pytest.approx((3 + 5) / (410 * 2 / 40))
    even = np.repeat(np.arange(40), 7)
    assert evaluate(PredictionSets.from_mask(np.eye(40, dtype=bool)[even]), even).class_balance == 1


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # MAPIE's, of sizes that no set has
def test_strata_have_the_coverage_that_mapie_computes():
    """With two classes, each size of a set is a stratum, as in MAPIE."""
    mapie = pytest.importorskip("mapie.metrics.classification")
    rng = np.random.default_rng(0)
    for _ in range(20):
        mask, labels = rng.random((300, 2)) < rng.random(), rng.integers(0, 2, 300)
        report = evaluate(PredictionSets.from_mask(mask), labels)
        theirs = mapie.classification_ssc(labels, mask[:, :, None])[0]
        found = {stratum.smallest: stratum.coverage for stratum in report.strata}
        expected = {size: c for size, c in enumerate(theirs.tolist()) if not math.isnan(c)}
        assert found == pytest.approx(expected)


@pytest.mark.deep
@pytest.mark.parametrize("delta", [0.1, 0.25, 0.6])
def test_slabs_are_those_of_covmetrics(delta):
    slabs = pytest.importorskip("covmetrics.slab_metrics")
    rng = np.random.default_rng(1)
    x, directions = rng.standard_normal((400, 3)), rng.standard_normal((30, 3))
    is_covered = rng.random(400) < np.where(x[:, 0] > 0.5, 0.7, 0.95)
    lowest, *_ = slabs.wsc_all_numpy(x, is_covered.astype(float), delta, directions)
    ours = [lowest_between(x @ direction, is_covered, delta)[0] for direction in directions]
    np.testing.assert_allclose(ours, lowest, atol=1e-12)
