"""The C++ kernels give the same bits as the NumPy reference, on every instruction set here."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evencover._kernels import Draws, reference
from evencover._kernels.limit_table import LimitTable
from evencover.quantiles import GroupedScores, Thresholds
from evencover.scores import APS, RAPS, Softmax

native = pytest.importorskip(
    "evencover._kernels.native", reason="the C++ kernels were not built", exc_type=ImportError
)

SCORES = [
    Softmax(),
    APS(),
    APS(randomize=False),
    RAPS(),
    RAPS(penalty=0.3, k_reg=0),
    RAPS(randomize=False, penalty=0.001, k_reg=2),
]
INSTRUCTION_SETS = native._native.instruction_sets()
PLAIN = {"logits": False, "temperature": 1.0}


@pytest.fixture(params=INSTRUCTION_SETS, autouse=True)
def instruction_set(request, monkeypatch):
    monkeypatch.setattr(native, "INSTRUCTION_SET", request.param)
    return request.param


def assert_same(ours, expected):
    """Equal types, shapes and bits."""
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def softmax_rows(rng, n, k, dtype=np.float32, sharpness=3.0):
    logits = rng.normal(scale=sharpness, size=(n, k))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (p / p.sum(axis=1, keepdims=True)).astype(dtype)


def tied_rows(rng, n, k, dtype=np.float32):
    """Few distinct values, so that most classes are tied, and many exact zeros."""
    counts = rng.integers(0, 3, size=(n, k)) * rng.integers(0, 2, size=(n, k))
    counts[:, 0] += 1
    return (counts / counts.sum(axis=1, keepdims=True)).astype(dtype)


def saturated_rows(rng, n, k, dtype=np.float32):
    rows = np.zeros((n, k), dtype=dtype)
    rows[np.arange(n), rng.integers(0, k, size=n)] = 1
    return rows


def tiny_tail_rows(rng, n, k, dtype=np.float32):
    """Values far below 2**-52, subnormal ones too."""
    rows = np.exp(-rng.uniform(0, 700, size=(n, k)))
    rows /= rows.sum(axis=1, keepdims=True)
    return rows.astype(dtype)


MAKERS = [softmax_rows, tied_rows, saturated_rows, tiny_tail_rows]


def draws_of(rng, score, n, with_ids=False):
    """Random numbers from the rows' content and places, or from ids."""
    seed, first = int(rng.integers(2**63)), int(rng.integers(2**40))
    ids = rng.integers(0, 2**63, size=n).astype(np.uint64) if with_ids else None
    return Draws(seed, 1 if score.is_random else None, 2, ids, first)


def random_thresholds(rng, k, kind):
    """Threshold vectors as the methods make them, and stranger ones."""
    if kind == "standard":
        return Thresholds(np.full(k, rng.choice([0.0, 0.3, 0.9, 0.97, 1.0, 1.2, 5.0])))
    upper = rng.choice([0.1, 0.5, 0.9, 0.99, 0.9999, 1.0, 1.05], size=k) + rng.normal(size=k) * 1e-3
    if kind == "clustered":
        upper = np.array([0.85, 0.9, 0.95])[rng.integers(0, 3, size=k)]
    if kind == "infinite":
        upper[rng.random(k) < 0.5] = np.inf
        upper[rng.random(k) < 0.1] = -np.inf
    if kind == "never":
        upper[:] = -np.inf
    if kind == "always":
        upper[:] = np.inf
    if kind != "pair":
        return Thresholds(upper)
    upper[rng.random(k) < 0.3] = np.inf
    lower = upper - rng.random(k) * 0.1
    lower[np.isnan(lower) | (rng.random(k) < 0.2)] = np.inf
    lower[rng.random(k) < 0.2] = -np.inf
    return Thresholds(upper, lower, rng.random(k))


KINDS = ["standard", "classwise", "clustered", "infinite", "never", "always", "pair"]


def compare_all(rng, rows, logits=False, temperature=1.0, scores=SCORES, kinds=KINDS):
    """Run every kernel on the same rows."""
    n, k = rows.shape
    options = {"logits": logits, "temperature": temperature}
    labels = rng.integers(0, k, size=n)
    groups_of_scores = rng.integers(0, 3, size=50)
    groups = GroupedScores.sort(np.round(rng.random(50), 2), groups_of_scores, 4)
    group_of_class = rng.integers(-1, 4, size=k)
    thresholds = [random_thresholds(rng, k, kind) for kind in kinds]
    limited = [t._replace(rank_limit=rng.integers(1, k + 1, size=k)) for t in thresholds]
    for kernel, arguments in [("true_label_ranks", (labels,)), ("rank_matrix", ())]:
        ours = getattr(native, kernel)(rows, *arguments, **options)
        assert_same(ours, getattr(reference, kernel)(rows, *arguments, **options))
    for score in scores:
        draws = draws_of(rng, score, n, with_ids=bool(rng.integers(2)))
        compare_kernels(score, rows, draws, labels, groups, group_of_class, options)
        compare_sets(score, rows, draws, labels, [*thresholds, limited[-1]], options)
        for vectors in [
            thresholds,
            [t for t in thresholds if t.lower is None],
            thresholds[:1],
            [*thresholds[:2], *limited[-2:], thresholds[-1]],
            limited[:2],
        ]:
            ours = native.set_sizes(score, rows, draws, vectors, **options)
            assert_same(ours, reference.set_sizes(score, rows, draws, vectors, **options))


def compare_kernels(score, rows, draws, labels, groups, group_of_class, options):
    for kernel, arguments in [
        ("true_label_scores", (draws, labels)),
        ("score_matrix", (draws,)),
        ("p_values", (draws, groups, group_of_class)),
        ("p_values", (draws._replace(coin_use=None), groups, group_of_class)),
    ]:
        ours = getattr(native, kernel)(score, rows, *arguments, **options)
        assert_same(ours, getattr(reference, kernel)(score, rows, *arguments, **options))


def compare_sets(score, rows, draws, labels, thresholds, options):
    for each in thresholds:
        for allow_empty in (True, False):
            more = {"allow_empty": allow_empty, **options}
            for kernel, arguments in [
                ("prediction_sets", (draws, each)),
                ("set_coverage", (draws, labels, each)),
            ]:
                assert_same(
                    *(
                        getattr(k, kernel)(score, rows, *arguments, **more)
                        for k in (native, reference)
                    )
                )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("k", [2, 3, 15, 16, 17, 100, 1000])
def test_probabilities(make, dtype, k):
    rng = np.random.default_rng(k)
    compare_all(rng, make(rng, 8, k, dtype))


@pytest.mark.parametrize("k", [4500, 10_000])
def test_many_classes(k):
    rng = np.random.default_rng(k)
    rows = np.concatenate([make(rng, 2, k) for make in MAKERS])
    compare_all(rng, rows, scores=[Softmax(), APS(), RAPS()])


def test_many_rows_so_that_the_guessed_cut_moves():
    rng = np.random.default_rng(0)
    rows = np.concatenate([softmax_rows(rng, 150, 300, sharpness=s) for s in (0.1, 2, 8, 0.5)])
    compare_all(rng, rng.permutation(rows), scores=[APS(), RAPS()])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 17, 511, 512, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.5])
def test_logits(dtype, k, temperature):
    rng = np.random.default_rng(k)
    rows = rng.normal(scale=8, size=(6, k)).astype(dtype)
    rows[1, rng.random(k) < 0.5] = -np.inf  # masked classes
    rows[1, 0] = 0
    rows[2] *= 100  # beyond exp's range
    rows[3] = np.round(rows[3])  # ties
    rows[4] = 5
    compare_all(rng, rows, True, temperature, [Softmax(), APS(), RAPS()])


def test_exp_over_its_whole_range():
    x = -np.concatenate([np.linspace(0, 760, 20_000), np.geomspace(1e-320, 1, 2000)])
    rows = np.stack([np.zeros_like(x), x], axis=1)
    for dtype in (np.float64, np.float32):
        arguments = (Softmax(), rows.astype(dtype), Draws())
        options = {"logits": True, "temperature": 1.0}
        assert_same(
            native.score_matrix(*arguments, **options),
            reference.score_matrix(*arguments, **options),
        )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_small_matrix(data):
    k = data.draw(st.integers(2, 40))
    n = data.draw(st.integers(0, 4))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    weights = data.draw(
        st.lists(
            st.lists(st.integers(0, 4), min_size=k, max_size=k).map(lambda w: [w[0] + 1, *w[1:]]),
            min_size=n,
            max_size=n,
        )
    )
    rows = np.array(weights, dtype=np.float64).reshape(n, k)
    rows = (rows / rows.sum(axis=1, keepdims=True)).astype(dtype)
    for name in INSTRUCTION_SETS:
        native.INSTRUCTION_SET = name
        compare_all(rng, rows, scores=[Softmax(), APS(), RAPS(penalty=0.05, k_reg=1)])
        # Thresholds that are scores themselves: the comparison decides in the last bit.
        for score in SCORES:
            draws = draws_of(rng, score, n)
            scores, _ = reference.score_matrix(score, rows, draws, **PLAIN)
            if n:
                each = Thresholds(scores[rng.integers(n)].copy())
                arguments = (score, rows, draws, each)
                assert_same(
                    native.prediction_sets(*arguments, allow_empty=True, **PLAIN),
                    reference.prediction_sets(*arguments, allow_empty=True, **PLAIN),
                )


@pytest.mark.parametrize("score", SCORES, ids=repr)
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_thresholds_next_to_a_score(score, shift):
    rng = np.random.default_rng(5)
    for make in MAKERS:
        rows = make(rng, 30, 60)
        draws = draws_of(rng, score, 30)
        scores, _ = reference.score_matrix(score, rows, draws, **PLAIN)
        for i in range(30):
            limit = scores[i, rng.integers(60)]
            limit = np.nextafter(limit, np.inf * shift) if shift else limit
            arguments = (score, rows, draws, Thresholds(np.full(60, limit)))
            assert_same(
                native.prediction_sets(*arguments, allow_empty=True, **PLAIN),
                reference.prediction_sets(*arguments, allow_empty=True, **PLAIN),
            )


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
        compare_all(np.random.default_rng(2), rows, scores=[Softmax(), APS()])


def test_no_rows():
    rng = np.random.default_rng(0)
    compare_all(rng, np.empty((0, 5), dtype=np.float32))
    compare_all(rng, np.empty((0, 5)), logits=True)


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
            compare_all(rng, rows)
        for off in np.linspace(-1.5, 1.5, 61) * tolerance:
            rows = np.full((1, 4), 0.25, dtype=dtype)
            rows[0, 1] += dtype(off)
            arguments = (APS(), rows, Draws(), np.array([1]))
            assert_same(
                native.true_label_scores(*arguments, **PLAIN),
                reference.true_label_scores(*arguments, **PLAIN),
            )


BAD = [np.nan, -np.nan, np.inf, -np.inf, -1e-7, -1.0, 2.0, 1.5, 60000.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", BAD, ids=repr)
@pytest.mark.parametrize("score", [Softmax(), APS()], ids=repr)
def test_the_first_bad_row_is_named(dtype, value, score):
    rng = np.random.default_rng(8)
    for k in (3, 50, 4500):
        for column in (0, k // 2, k - 1):
            rows = tied_rows(rng, 6, k, dtype)
            rows[[4, 2], column] = value
            for logits in (False, True):
                compare_bad(score, rows, logits=logits, temperature=1.0)


def compare_bad(score, rows, **options):
    n, k = rows.shape
    draws, labels = Draws(0, 1, 2), np.zeros(n, dtype=np.int64)
    thresholds = Thresholds(np.full(k, 0.9))
    groups = GroupedScores.sort(np.array([0.5]), np.array([0]), 1)
    for kernel, arguments, more in [
        ("true_label_scores", (draws, labels), {}),
        ("score_matrix", (draws,), {}),
        ("prediction_sets", (draws, thresholds), {"allow_empty": True}),
        ("set_coverage", (draws, labels, thresholds), {"allow_empty": True}),
        ("set_sizes", (draws, [thresholds]), {}),
        ("p_values", (draws, groups, np.zeros(k, dtype=np.int64)), {}),
    ]:
        with np.errstate(all="ignore"):
            expected = getattr(reference, kernel)(score, rows, *arguments, **options, **more)
        assert_same(getattr(native, kernel)(score, rows, *arguments, **options, **more), expected)


@pytest.mark.parametrize("k", [3, 2047, 2049, 4097, 8193])
def test_ones_everywhere_do_not_wrap_around_to_a_sum_of_one(k):
    rows = np.ones((2, k), dtype=np.float32)
    for kernels in (native, reference):
        _, bad = kernels.true_label_scores(APS(), rows, Draws(), np.array([0, 1]), **PLAIN)
        assert bad == 0


def test_every_half_is_read_exactly():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    rows = np.stack([np.zeros_like(halves), halves], axis=1)
    good = np.isfinite(rows[:, 1])
    options = {"logits": True, "temperature": 1.0}
    assert_same(
        native.score_matrix(Softmax(), rows[good], Draws(), **options),
        reference.score_matrix(Softmax(), rows[good], Draws(), **options),
    )
    for row in rows[~good]:
        compare_bad(Softmax(), row[None], **options)


def test_known_answers_of_philox():
    # Random123's kat_vectors for philox4x32 with 10 rounds.
    for counter, key, answer in [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]:  # fmt: skip
        words = [int(word, 16) for word in counter.split()]
        low, high = (int(word, 16) for word in key.split())
        expected = [int(word, 16) for word in answer.split()]
        assert native._native.philox(words, low | high << 32) == expected
    assert native.random_bits(0, 0, np.array([0]))[0] == 0x6627E8D5E169C58D


@given(
    seed=st.integers(0, 2**64 - 1),
    use=st.integers(0, 9),
    ids=st.lists(st.integers(0, 2**64 - 1), max_size=5),
)
def test_random_numbers(seed, use, ids):
    ids = np.array(ids, dtype=np.uint64)
    assert_same([native.random_bits(seed, use, ids)], [reference.random_bits(seed, use, ids)])
    assert_same([native.uniforms(seed, use, ids)], [reference.uniforms(seed, use, ids)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 3, 15, 16, 17, 31, 32, 33, 1000])
def test_keys_of_rows(dtype, k):
    rng = np.random.default_rng(k)
    rows = (rng.normal(size=(9, k)) * 100).astype(dtype)
    rows[2, rng.random(k) < 0.5] = -np.inf
    rows[3] = 0
    rows[4] = -rows[3]
    if dtype == np.float64:
        rows[5] *= 1e300  # beyond float32
    draws = Draws(first=2**40)
    assert_same([native.row_keys(rows, draws)], [reference.row_keys(rows, draws)])
    assert_same(
        native.row_numbers(rows, Draws(5, 1, 2)), reference.row_numbers(rows, Draws(5, 1, 2))
    )


@dataclass(frozen=True)
class Doubled(APS):
    def formula(self, at):
        return 2 * super().formula(at)


def test_a_score_of_the_user_runs_on_the_reference():
    rng = np.random.default_rng(4)
    compare_all(rng, softmax_rows(rng, 5, 20), scores=[Doubled()])


def test_several_threads_at_once():
    rng = np.random.default_rng(6)
    rows = softmax_rows(rng, 400, 200)
    thresholds = random_thresholds(rng, 200, "pair")
    arguments = (APS(), rows, Draws(6, 1, 2), thresholds)
    expected = reference.prediction_sets(*arguments, allow_empty=True, **PLAIN)
    results = []

    def work():
        for _ in range(20):
            results.append(native.prediction_sets(*arguments, allow_empty=True, **PLAIN))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    for result in results:
        assert_same(result, expected)


def test_labels_out_of_range_are_refused():
    rows = np.full((1, 2), 0.5)
    for label in (-1, 2):
        with pytest.raises(ValueError, match="class indices"):
            native.true_label_scores(APS(), rows, Draws(), np.array([label]), **PLAIN)


@pytest.mark.parametrize("score", SCORES, ids=str)
@pytest.mark.parametrize("maker", MAKERS)
def test_hundreds_of_vectors_at_once(score, maker):
    """So many that scores reach more limits than the table lists, and some a few of them."""
    rng = np.random.default_rng(5)
    rows = maker(rng, 60, 40)
    draws = draws_of(rng, score, 60)
    thresholds = [random_thresholds(rng, 40, KINDS[t % len(KINDS)]) for t in range(200)]
    thresholds += thresholds[:20]  # equal limits
    table = LimitTable(thresholds)
    expected = reference.set_sizes(score, rows, draws, thresholds, **PLAIN)
    assert_same(native.set_sizes(score, rows, draws, table, **PLAIN), expected)
    assert_same(reference.set_sizes(score, rows, draws, table, **PLAIN), expected)


def test_more_vectors_than_a_table_takes(monkeypatch):
    monkeypatch.setattr("evencover._kernels.limit_table.MOST_VECTORS", 5)
    rng = np.random.default_rng(6)
    rows, draws = softmax_rows(rng, 30, 9), Draws(6, 1, 2)
    thresholds = [random_thresholds(rng, 9, KINDS[t % len(KINDS)]) for t in range(17)]
    assert_same(
        native.set_sizes(APS(), rows, draws, thresholds, **PLAIN),
        reference.set_sizes(APS(), rows, draws, thresholds, **PLAIN),
    )


def test_more_classes_than_sixteen_bits_count():
    rng = np.random.default_rng(7)
    rows = rng.random((2, 40_000)).astype(np.float32) + 0.5
    rows /= rows.sum(axis=1, keepdims=True)
    thresholds = [random_thresholds(rng, 40_000, kind) for kind in KINDS]
    thresholds.append(Thresholds(np.full(40_000, 2.0)))
    sizes, _ = native.set_sizes(Softmax(), rows, Draws(0, None, 2), thresholds, **PLAIN)
    assert sizes[:, -1].tolist() == [40_000, 40_000]
    expected, _ = reference.set_sizes(Softmax(), rows, Draws(0, None, 2), thresholds, **PLAIN)
    np.testing.assert_array_equal(sizes, expected)
