"""Both kernels name the first row that holds no probabilities, and accept what is nearly one."""

from itertools import product

import numpy as np
import pytest
from depth import IS_DEEP, size
from kernels.cases import DTYPES, PLAIN, tied_rows
from kernels.compare import all_same_bits, ask, native, same_bits

from evencover._kernels import BadRow, Draws, Thresholds, ThresholdTable, reference
from evencover.scores import APS, Softmax

pytestmark = pytest.mark.usefixtures("quick_reference")
BAD = [np.nan, -np.nan, np.inf, -np.inf, -1e-7, -1.0, 2.0, 1.5, 60000.0]


def same_everywhere(score, rows, **options):
    """Every kernel gives the same answer; return those of the reference."""
    n, k = rows.shape
    given, labels = (score.kernel, rows, Draws(0, 1, 2)), np.zeros(n, dtype=np.int64)
    thresholds = Thresholds(np.full(k, 0.9))
    groups = (np.array([0.5]), np.array([0, 1]), np.zeros(k, dtype=np.int64))
    with np.errstate(all="ignore"):
        return [
            same_bits("true_label_ranks", rows, labels, **options),
            same_bits("rank_matrix", rows, **options),
            same_bits("true_label_scores", *given, labels, **options),
            same_bits("score_matrix", *given, **options),
            same_bits("prediction_sets", *given, thresholds, keep_top=False, **options),
            same_bits("set_coverage", *given, labels, thresholds, keep_top=False, **options),
            same_bits("set_sizes", *given, ThresholdTable([thresholds]), **options),
            same_bits("p_values", *given, *groups, **options),
        ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", BAD, ids=repr)
def test_the_first_bad_row_is_named(dtype, value):
    rng = np.random.default_rng(8)
    wide = (50, 4500) if IS_DEEP or dtype == np.float32 else (50,)
    for score, k in [(Softmax(), 3), *product((Softmax(), APS()), wide)]:
        for column in (0, k // 2, k - 1) if k < 4500 or IS_DEEP else (k - 1,):
            rows = tied_rows(rng, 6, k, dtype)
            rows[[4, 2], column] = value
            for answer in same_everywhere(score, rows, **PLAIN):
                assert answer == ["bad row", 2]
            if k < 4500 or not np.isfinite(value):  # as logits most of these are good
                same_everywhere(score, rows, logits=True)


@pytest.mark.parametrize("bad_row", [0, 9, 22])
def test_a_bad_row_is_counted_from_the_first_slice(monkeypatch, bad_row):
    monkeypatch.setattr(reference, "SLICE_ELEMENTS", 4 * 6)
    rows = np.full((23, 6), 1 / 6)
    rows[bad_row, 2] = np.nan
    for answer in same_everywhere(APS(), rows, **PLAIN):
        assert answer == ["bad row", bad_row]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_may_be_minus_infinity_and_no_other_infinity(value):
    rows = np.zeros((3, 4))
    rows[0, 1] = -np.inf
    rows[2, 3] = value
    for answer in same_everywhere(APS(), rows, logits=True):
        assert answer == ["bad row", 2]


@pytest.mark.filterwarnings("ignore:Rows whose sum is off 1 by the rounding")
def test_values_at_the_edge_of_what_is_allowed():
    rng = np.random.default_rng(3)
    for dtype, tolerance in [(np.float16, 1e-2), (np.float32, 1e-3), (np.float64, 1e-3)]:
        above_one = np.zeros((1, 9), dtype=dtype)
        above_one[0, 3] = np.nextafter(dtype(1), dtype(2))
        minus_zero = np.full((1, 9), -0.0, dtype=dtype)
        minus_zero[0, 3] = 0.5
        minus_zero[0, 5] = 0.5
        minus_zero[0, 7] = 0
        for rows in (above_one, minus_zero):
            all_same_bits(rng, rows)
        for off in np.linspace(-1.5, 1.5, size(13, 61)) * tolerance:
            rows = np.full((1, 4), 0.25, dtype=dtype)
            rows[0, 1] += dtype(off)
            same_bits("true_label_scores", APS().kernel, rows, Draws(), np.array([1]), **PLAIN)


@pytest.mark.parametrize("k", [3, 2047, 2049, 4097, 8193])
def test_ones_everywhere_do_not_wrap_around_to_a_sum_of_one(k):
    rows, labels = np.ones((2, k), dtype=np.float32), np.array([0, 1])
    for kernels in (native, reference):
        with pytest.raises(BadRow) as caught:
            ask(kernels.true_label_scores, APS().kernel, rows, Draws(), labels, **PLAIN)
        assert caught.value.row == 0


def test_every_half_is_read_exactly():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    rows = np.stack([np.zeros_like(halves), halves], axis=1)
    good = np.isfinite(rows[:, 1])
    options = {"logits": True}
    same_bits("score_matrix", Softmax().kernel, rows[good], Draws(), **options)
    for row in rows[~good][:: size(67, 1)]:
        same_bits("score_matrix", Softmax().kernel, row[None], Draws(), **options)


@pytest.mark.filterwarnings("ignore:Rows whose sum is off 1 by the rounding")
@pytest.mark.parametrize("digits", [2, 3, 4, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounded_rows_are_normalized_by_both_kernels_alike(dtype, digits):
    rng = np.random.default_rng(digits)
    n_rejected = 0
    for k in (3, 40, 700):
        rows = np.round(rng.dirichlet(np.full(k, 0.5), size(8, 24)), digits).astype(dtype)
        for score in (Softmax(), APS()):
            good = rows[[is_good_alone(score, row) for row in rows]]
            n_rejected += len(rows) - len(good)
            for answer in same_everywhere(score, good, **PLAIN):
                assert bad_row(answer) is None
    assert n_rejected == 0 or digits < 4


def bad_row(answer):
    """The row that an answer names as bad, if it does."""
    return answer[1] if isinstance(answer[0], str) else None


def is_good_alone(score, row):
    """Whether both kernels accept a row by itself."""
    given = (score.kernel, row[None], Draws(), np.array([0]))
    return bad_row(same_bits("true_label_scores", *given, **PLAIN)) is None


def coarse_rows(n, k, seed=4):
    """float32 rows, some of which were bfloat16; most sums are between 1e-3 and 1e-2 off 1."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(k), n) * (1 + rng.uniform(-12e-3, 12e-3, (n, 1)))
    rows = rows.astype(np.float32)
    was = rng.random(n) < 0.6
    rows[was] = (rows[was].view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return rows


@pytest.mark.parametrize("k", [3, 40, 4500])
@pytest.mark.parametrize("score", [Softmax(), APS()], ids=lambda score: score.name)
def test_a_row_is_accepted_or_refused_whatever_its_neighbours(score, k):
    rows = coarse_rows(48, k)
    alone = [is_good_alone(score, row) for row in rows]
    assert 5 < sum(alone) < 43
    for begin, end in [(0, 48), (7, 30), (0, 7), (30, 48), (1, 48)][: size(2, 5)]:
        good = alone[begin:end]
        expected = good.index(False) if False in good else None
        for answer in same_everywhere(score, rows[begin:end], **PLAIN):
            assert bad_row(answer) == expected
