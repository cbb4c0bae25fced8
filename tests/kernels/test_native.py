"""The C++ kernels give the same bits as the NumPy reference, on every instruction set here."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pytest
from depth import IS_DEEP, examples, size
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.cases import DTYPES, MAKERS, PLAIN, SCORES, draws_of, random_thresholds, softmax_rows
from kernels.compare import all_same_bits, ask, assert_same, native, same_bits

from evencover._kernels import Draws, Thresholds, reference
from evencover.scores import APS, RAPS, SAPS, Softmax

pytestmark = pytest.mark.usefixtures("quick_reference")
THREE = [Softmax(), APS(), RAPS()]


# The numbers of classes lie around those that fill vector registers.
DEEP_SIZES = [2, 3, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 255, 257, 1000, 1023, 3000]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("k", DEEP_SIZES if IS_DEEP else [2, 15, 16, 17, 1000])
def test_probabilities(make, dtype, k):
    for seed in range(size(1, 5 if k < 1000 else 2)):
        rng = np.random.default_rng([seed, k])
        scores = SCORES if IS_DEEP or k == 17 else THREE
        all_same_bits(rng, make(rng, size(5, 8), k, dtype), scores=scores)


@pytest.mark.parametrize("k", [4500, 4095, 4097, 10_000, 70_000] if IS_DEEP else [4500])
def test_many_classes(k):
    rng = np.random.default_rng(k)
    rows = np.concatenate([make(rng, size(1, 2), k) for make in MAKERS])
    all_same_bits(rng, rows, scores=THREE)


def test_many_rows_so_that_the_guessed_cut_moves():
    rng = np.random.default_rng(0)
    rows = np.concatenate([softmax_rows(rng, 100, 200, sharpness=s) for s in (0.1, 2, 8, 0.5)])
    kinds = ["standard", "classwise", "infinite", "pair"]
    all_same_bits(rng, rng.permutation(rows), scores=[APS(), RAPS()], kinds=kinds)


DEEP_LOGITS = [*product([2, 17, 511, 512, 513, 1000, 5000], [8, 800, 10, 2.3, 0.08])]
LOGITS = [(2, 8), (17, 10), (511, 8), (512, 2.3), (1000, 10)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("k", "scale"), DEEP_LOGITS if IS_DEEP else LOGITS)
def test_logits(dtype, k, scale):
    for seed in range(size(1, 3 if k < 1000 else 1)):
        rng = np.random.default_rng([seed, k])
        scores = SCORES if IS_DEEP else THREE
        all_same_bits(rng, strange_logits(rng, k, dtype, scale), True, scores)


def strange_logits(rng, k, dtype, scale):
    rows = rng.normal(scale=scale, size=(6, k)).astype(dtype)
    rows[1, rng.random(k) < 0.5] = -np.inf  # masked classes
    rows[1, 0] = 0
    rows[2] = np.clip(rows[2].astype(float) * 100, -6e4, 6e4)  # beyond exp, within float16
    rows[3] = np.round(rows[3])  # ties
    rows[4] = 5
    return rows


@pytest.mark.parametrize("rows_at_once", [1, 5, 22, 23])
def test_the_reference_may_see_a_few_rows_at_a_time(monkeypatch, rows_at_once):
    monkeypatch.setattr(reference, "SLICE_ELEMENTS", rows_at_once * 6)
    rng = np.random.default_rng(rows_at_once)
    all_same_bits(rng, softmax_rows(rng, 23, 6), scores=[APS(), SAPS()])


def test_exp_over_its_whole_range():
    x = -np.concatenate([np.linspace(0, 760, 20_000), np.geomspace(1e-320, 1, 2000)])
    rows = np.stack([np.zeros_like(x), x], axis=1)
    for dtype in (np.float64, np.float32):
        given = (Softmax().kernel, rows.astype(dtype), Draws())
        same_bits("score_matrix", *given, logits=True)


@st.composite
def small_matrices(draw):
    k, n = draw(st.integers(2, 40)), draw(st.integers(0, 4))
    weight = st.lists(st.integers(0, 4), min_size=k, max_size=k)
    weights = draw(st.lists(weight, min_size=n, max_size=n))
    rows = np.array(weights, dtype=np.float64).reshape(n, k)
    rows[:, 0] += 1
    dtype = draw(st.sampled_from(DTYPES))
    return (rows / rows.sum(axis=1, keepdims=True)).astype(dtype)


@settings(max_examples=examples(20))
@given(small_matrices(), st.integers(0, 2**32))
def test_any_small_matrix(rows, seed):
    rng = np.random.default_rng(seed)
    all_same_bits(rng, rows, scores=[Softmax(), APS(), RAPS(penalty=0.05, k_reg=1)])
    if not len(rows):
        return
    # Thresholds that are scores themselves: the comparison decides in the last bit.
    for score in SCORES:
        given = (score.kernel, rows, draws_of(rng, score, len(rows)))
        scores = ask(reference.score_matrix, *given, **PLAIN)
        thresholds = Thresholds(scores[rng.integers(len(rows))].copy())
        same_bits("prediction_sets", *given, thresholds, keep_top=False, **PLAIN)


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_thresholds_next_to_a_score(score):
    rng = np.random.default_rng(5)
    for make in MAKERS:
        given = (score.kernel, make(rng, 30, 60), draws_of(rng, score, 30))
        scores = ask(reference.score_matrix, *given, **PLAIN)
        for limit in scores[np.arange(30), rng.integers(60, size=30)]:
            for near in (np.nextafter(limit, -np.inf), limit, np.nextafter(limit, np.inf)):
                thresholds = Thresholds(np.full(60, near))
                same_bits("prediction_sets", *given, thresholds, keep_top=False, **PLAIN)


def test_any_memory_layout(tmp_path):
    rng = np.random.default_rng(1)
    base = softmax_rows(rng, 12, 40)
    wide = np.zeros((24, 60), dtype=np.float32)
    wide[::2, 10:50] = base
    wide[1::2] = 7  # would be seen
    structured = np.zeros(12, dtype=[("tag", np.int8), ("p", np.float32, 40)])
    structured["p"] = base
    np.save(tmp_path / "rows.npy", base)
    layouts = [
        wide[::2, 10:50],
        np.asfortranarray(base),
        base[::-1][::-1],
        base[::-1],
        np.repeat(base, 2, axis=1)[:, ::2],
        np.flip(base, axis=1),
        np.broadcast_to(base[0], (5, 40)),
        structured["p"],
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
    ]
    for rows in layouts:
        all_same_bits(np.random.default_rng(2), rows, scores=[Softmax(), APS()])


def test_no_rows():
    rng = np.random.default_rng(0)
    all_same_bits(rng, np.empty((0, 5), dtype=np.float32))
    all_same_bits(rng, np.empty((0, 5)), logits=True)


@dataclass(frozen=True)
class Doubled(APS):
    def formula(self, at):
        return 2 * super().formula(at)


def test_a_score_of_the_user_runs_on_the_reference():
    rng = np.random.default_rng(4)
    all_same_bits(rng, softmax_rows(rng, 5, 20), scores=[Doubled()])


def test_several_threads_at_once():
    rng = np.random.default_rng(6)
    rows = softmax_rows(rng, 400, 200)
    arguments = (APS().kernel, rows, Draws(6, 1, 2), random_thresholds(rng, 200, "pair"))
    expected = ask(reference.prediction_sets, *arguments, keep_top=False, **PLAIN)
    with ThreadPoolExecutor(4) as pool:
        work = partial(ask, native.prediction_sets, *arguments, keep_top=False, **PLAIN)
        for asked in [pool.submit(work) for _ in range(80)]:
            assert_same(asked.result(), expected)


def test_labels_out_of_range_are_refused():
    rows = np.full((1, 2), 0.5)
    for label in (-1, 2):
        with pytest.raises(ValueError, match="class indices"):
            ask(native.true_label_scores, APS().kernel, rows, Draws(), np.array([label]), **PLAIN)
