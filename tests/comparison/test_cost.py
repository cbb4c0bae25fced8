"""The cost counts labels: those that sets list, and what it takes to hold those they miss."""

from dataclasses import replace

import numpy as np
import pytest
from scoring import score_matrix

from evencover import Softmax, Thresholds, compare
from evencover.comparison.cost import Trial
from evencover.comparison.trials import ScoredRows
from evencover.data import as_source
from evencover.predictors import make_predictor

ALPHA = 0.2


@pytest.fixture(scope="module")
def data(simulate):
    return simulate(400, 5, seed=3)


def scored(data, **more):
    return ScoredRows(as_source(*data), [Softmax()], random_state=0, **more)


def cost_of(rows, predictor, is_test):
    (outcome,) = rows.measure([Trial(predictor, is_test)])
    return outcome.cost


def by_hand(scores, labels, is_test, limits, keep_top=False):
    """The definition, row by row."""
    members, top = scores <= limits, scores.argmin(axis=1)
    held = members.mean(axis=0)
    if keep_top:
        members[np.arange(len(top)), top] = True
    size = members[is_test].sum(axis=1).mean()
    missing = 0.0
    for y in np.unique(labels[is_test]):
        rows = np.flatnonzero(is_test & (labels == y))
        wanted = [(scores[:, y] <= scores[i, y]).mean() for i in rows]
        is_kept = keep_top & (top[rows] == y)
        missing += np.mean(np.where(is_kept, 0, np.maximum(np.array(wanted) - held[y], 0)))
    return size + missing / ALPHA


@pytest.mark.parametrize("keep_top", [False, True])
@pytest.mark.parametrize("method", ["standard", "classwise", "pooled"])
def test_it_is_its_definition(data, method, keep_top):
    rows = scored(data)
    predictor = make_predictor(method, alpha=ALPHA, keep_top=keep_top)
    rows.calibrate(predictor, np.arange(200))
    is_test = np.arange(400) >= 200
    scores = score_matrix(Softmax(), data.rows)
    expected = by_hand(scores, data.labels, is_test, predictor.thresholds_, keep_top)
    assert cost_of(rows, predictor, is_test) == pytest.approx(expected)


def test_the_quantile_of_each_class_has_the_lowest_cost(data):
    """Moving one class's threshold away from its own 1 - alpha quantile costs, either way."""
    rows = scored(data)
    predictor = make_predictor("classwise", alpha=ALPHA, keep_top=False)
    rows.calibrate(predictor, np.arange(400))
    everyone = np.ones(400, dtype=bool)
    scores = score_matrix(Softmax(), data.rows)

    def cost(thresholds):
        predictor.fit_ = replace(predictor.fit_, thresholds=Thresholds(thresholds))
        return cost_of(rows, predictor, everyone)

    best = predictor.thresholds_.copy()
    for y in range(5):
        own = np.sort(scores[data.labels == y, y])
        for share in (0.4, 0.6, 0.97):
            moved = best.copy()
            moved[y] = own[int(share * len(own))]
            assert cost(moved) > cost(best)


def test_sets_of_everything_cost_every_label(data):
    rows = scored(data)
    predictor = make_predictor("standard", alpha=ALPHA)
    rows.calibrate(predictor, np.arange(200))
    predictor.fit_ = replace(predictor.fit_, thresholds=Thresholds(np.full(5, np.inf)))
    assert cost_of(rows, predictor, np.arange(400) >= 200) == 5.0


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_every_method_and_score_has_a_cost(data):
    found = compare(*data, methods="all", scores="all", n_splits=2)
    for candidate in found.candidates:
        assert np.isfinite(candidate.costs).all()
        assert (np.array(candidate.costs) >= candidate.values("avg_size") - 1e-9).all()
