"""Sizes under many vectors of thresholds at once."""

from itertools import product

import numpy as np
import pytest
from depth import IS_DEEP, size
from kernels.cases import KINDS, MAKERS, PLAIN, SCORES, draws_of, random_thresholds, softmax_rows
from kernels.compare import ask, assert_same, same_bits

from evencover._kernels import Draws, ThresholdTable, is_member, reference
from evencover.scores import APS, Softmax


@pytest.mark.parametrize(
    ("maker", "score"),
    [
        (maker, score)
        for maker, score in product(MAKERS, SCORES)
        if IS_DEEP or maker is softmax_rows or score in (Softmax(), APS())
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),  # the same on every worker
)
def test_hundreds_of_vectors_at_once(score, maker):
    rng = np.random.default_rng(5)
    given = (score.kernel, maker(rng, size(20, 40), 40), draws_of(rng, score, size(20, 40)))
    vectors = [random_thresholds(rng, 40, KINDS[t % len(KINDS)]) for t in range(size(80, 200))]
    vectors += vectors[:20]  # equal thresholds
    table = ThresholdTable(vectors)
    assert_same(same_bits("set_sizes", *given, table, **PLAIN), [sizes_one_by_one(given, vectors)])


def sizes_one_by_one(given, vectors):
    starts = [
        ask(reference.prediction_sets, *given, v, keep_top=False, **PLAIN)[0] for v in vectors
    ]
    return np.diff(starts).T


@pytest.mark.parametrize("kind", ["infinite", "pair"])
def test_infinite_thresholds_depend_on_the_draw_of_the_row(kind):
    rng = np.random.default_rng(6)
    draws = Draws(6, 1, 2)
    given = (APS().kernel, softmax_rows(rng, 30, 9), draws)
    vectors = [random_thresholds(rng, 9, kind) for _ in range(17)]
    table = ThresholdTable(vectors)
    assert_same(same_bits("set_sizes", *given, table, **PLAIN), [sizes_one_by_one(given, vectors)])
    draw = reference.row_numbers(given[1], draws)[1]
    within = [is_member(np.full((30, 9), np.inf), each, draw) for each in vectors]
    assert (table.n_infinite(draw) == np.stack(within).sum(axis=2).T).all()
    assert (np.ptp(table.n_infinite(draw), axis=0) > 0).any() == (kind == "pair")


def test_more_classes_than_sixteen_bits_count():
    rng = np.random.default_rng(7)
    rows = rng.random((2, 40_000)).astype(np.float32) + 0.5
    rows /= rows.sum(axis=1, keepdims=True)
    vectors = [random_thresholds(rng, 40_000, kind) for kind in KINDS]
    vectors.append(vectors[0]._replace(upper=np.full(40_000, 2.0)))
    given = (Softmax().kernel, rows, Draws(0, None, 2))
    [sizes] = same_bits("set_sizes", *given, ThresholdTable(vectors), **PLAIN)
    assert sizes[:, -1].tolist() == [40_000, 40_000]
