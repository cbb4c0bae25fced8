"""Scattered calibration rows split and rank as rows in memory do."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from evencover import (
    ClasswisePredictor,
    ClusteredPredictor,
    EvencoverWarning,
    InputError,
    StandardPredictor,
)
from evencover.data.fingerprint import Fingerprint
from evencover.engine.scattered import ScatteredRows, ScoredPart
from evencover.engine.workers import Workers
from evencover.predictors.calibration import CalibrationRows
from evencover.randomness import places


@pytest.fixture(scope="module")
def workers():
    with ThreadPoolExecutor(2) as pool:
        yield Workers(pool)


def scatter(rows, workers, bounds, ids):
    parts = [
        ScoredPart(
            a, rows.scores[a:b], rows.labels[a:b], None if ids is None else ids[a:b], Fingerprint()
        )
        for a, b in pairwise(bounds)
    ]
    return ScatteredRows(workers, parts)


@pytest.fixture(params=["places", "ids", "few ids"])
def both(request, workers):
    rng = np.random.default_rng(5)
    n_rows = 500
    labels = rng.integers(0, 7, n_rows)
    scores = np.round(rng.random(n_rows), 2)  # many ties
    ids = {
        "places": None,
        "ids": rng.integers(0, 2**63, n_rows).astype(np.uint64),
        "few ids": rng.integers(0, 4, n_rows).astype(np.uint64),  # one patient, many rows
    }[request.param]
    rows = CalibrationRows(scores, labels, places(0, n_rows) if ids is None else ids)
    return rows, scatter(rows, workers, [0, 1, 200, n_rows], ids)


@pytest.mark.parametrize("n_first", [0, 1, 123, 250, 499])
def test_a_split_takes_the_same_rows(both, n_first):
    here, there = both
    classes = np.arange(7)
    ranks = np.array([[1] * 7, [5] * 7, [20] * 7, [1000] * 7])
    for mine, theirs in zip(there.split(n_first, 9), here.split(n_first, 9), strict=True):
        mine, theirs = mine.by(classes), theirs.by(classes)
        assert mine.counts.tolist() == theirs.counts.tolist()
        assert mine.at_ranks(ranks).tolist() == theirs.at_ranks(ranks).tolist()


def test_groups_leave_out_classes_of_none(both):
    here, there = both
    groups = np.array([0, -1, 1, 0, -1, 1, 0])
    ranks = np.array([0, 77])
    assert there.by(groups).counts.tolist() == here.by(groups).counts.tolist()
    assert there.by(groups).at_ranks(ranks).tolist() == here.by(groups).at_ranks(ranks).tolist()


@pytest.mark.parametrize(
    ("exact", "ties"), [(False, None), (False, "saturated"), (False, "quantised"), (True, None)]
)
def test_thresholds_without_gathering_are_the_same_bits(simulate, quietly, exact, ties):
    rows, labels = simulate(900, 12, seed=2, long_tail=True, ties=ties)
    ids = [f"patient {row // 3}" for row in range(900)]
    for make in (StandardPredictor, ClasswisePredictor, ClusteredPredictor):
        own = {"n_clusters": 2, "gamma": 0.4} if make is ClusteredPredictor else {}
        here = quietly(make(exact=exact, **own), rows, labels, ids=ids)
        there = quietly(make(exact=exact, **own), rows, labels, ids=ids, gather=False)
        for name in ("thresholds_", "lower_thresholds_", "upper_probability_", "class_counts_"):
            mine, theirs = getattr(there, name), getattr(here, name)
            assert mine is theirs is None or mine.tobytes() == theirs.tobytes()
        assert there.n_calibration_ == 900
        assert there.fingerprints_ == here.fingerprints_


def test_clusters_that_are_impossible_are_impossible_there_too(simulate):
    rows, labels = simulate(60, 5)
    for gather in (True, False):
        with pytest.warns(EvencoverWarning, match="Clustering is not possible"):
            predictor = ClusteredPredictor(n_clusters=30).fit(rows, labels, gather=gather)
        assert predictor.n_clusters_ == 0
        assert len(set(predictor.thresholds_.tolist())) == 1


def test_a_stream_can_not_be_read_several_times(simulate):
    rows, labels = simulate(60, 5)
    with pytest.raises(InputError, match="may be read several times"):
        StandardPredictor().fit(iter([(rows, labels)]), gather=False)


def test_gather_is_yes_or_no(simulate):
    rows, labels = simulate(60, 5)
    with pytest.raises(InputError, match="'gather' parameter of fit must be True or False"):
        StandardPredictor().fit(rows, labels, gather="never")
