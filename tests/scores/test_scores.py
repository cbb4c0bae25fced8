"""Scores: the paper's formulas, the same number wherever it is computed."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scoring import score_matrix, true_label_scores

from evencover import InputError
from evencover._kernels import Native
from evencover.randomness import RandomStream, uniforms
from evencover.scores import (
    APS,
    PAS,
    RAPS,
    SAPS,
    SCORES,
    Softmax,
    make_score,
    score_names,
)

ALL = [
    *(Softmax(), APS(), APS(randomize=False), RAPS(), RAPS(randomize=False)),
    *(SAPS(), SAPS(randomize=False)),
]
TIES = [None, "saturated", "duplicated", "quantised"]


def row_uniforms(score, rows, seed):
    keys = np.array(oracle.row_keys(rows), dtype=np.uint64)
    return uniforms(seed, RandomStream.SCORE, keys) if score.is_random else np.ones(len(rows))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("n_classes", [2, 10, 100, 1000])
def test_scores_are_the_oracles_bit_for_bit(simulate, n_classes, ties, dtype):
    rows = simulate(12, n_classes, ties=ties, dtype=dtype).rows
    for score in ALL:
        expected = oracle.score_matrix(score.name, rows, row_uniforms(score, rows, 3))
        assert score_matrix(score, rows, random_state=3).tolist() == expected


@pytest.mark.parametrize("score", ALL, ids=repr)
def test_scores_are_the_papers_formula_up_to_rounding(simulate, score):
    rows = simulate(8, 50, seed=1).rows
    u = row_uniforms(score, rows, 0)
    matrix = score_matrix(score, rows)
    for i, row in enumerate(rows):
        for y in range(0, 50, 7):
            exact = oracle.exact_score(score.name, row, y, u[i])
            assert abs(Fraction(matrix[i, y]) - exact) < Fraction(60, 2**52)


def test_mass_ahead_does_not_lose_small_probabilities():
    """Summed in float32, 5,000 probabilities of 2**-26 behind a large one would vanish."""
    row = np.full(5001, 2.0**-26, dtype=np.float32)
    row[0] = 1 - 5000 * 2.0**-26
    last = score_matrix(APS(randomize=False), row[None])[0, -1]
    assert last == pytest.approx(float(sum(map(Fraction, row.tolist()))), abs=1e-15)


@pytest.mark.parametrize("score", ALL, ids=repr)
@given(
    n_classes=st.integers(2, 40),
    n_rows=st.integers(1, 20),
    seed=st.integers(0, 2**64 - 1),
    ties=st.sampled_from(TIES),
    dtype=st.sampled_from(["f2", "f4", "f8"]),
    from_logits=st.booleans(),
)
def test_true_label_and_matrix_agree_bit_for_bit(
    simulate, score, n_classes, n_rows, seed, ties, dtype, from_logits
):
    rows, labels = simulate(n_rows, n_classes, seed % 1000, ties=ties, dtype=dtype)
    if from_logits:
        rows = (rows * 9 - 4).astype(dtype)
    how = {"random_state": seed, "from_logits": from_logits}
    for ids, calibrating in [(None, True), (None, False), (np.arange(n_rows) * 977 + 5, True)]:
        more = {**how, "ids": ids, "calibrating": calibrating}
        single = true_label_scores(score, rows, labels, **more)
        assert (
            single.tolist() == score_matrix(score, rows, **more)[np.arange(n_rows), labels].tolist()
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_logits_go_through_a_stable_softmax(dtype):
    logits = (np.random.default_rng(2).normal(size=(40, 300)) * 20).astype(dtype)
    logits[0] += 10_000
    logits[1, 3] = -np.inf
    scores = score_matrix(Softmax(), logits, from_logits=True)
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True).astype(np.float64)
    assert np.abs(scores - (1 - softmax(shifted, axis=1))).max() < 2e-15
    assert scores[1, 3] == 1.0


@pytest.mark.parametrize("score", ALL, ids=repr)
def test_a_score_is_rebuilt_from_its_description(score):
    assert make_score(score.to_dict()) == score
    assert make_score(score) is score


def test_scores_have_names():
    assert {name: type(make_score(name.upper())) for name in SCORES} == SCORES
    assert score_names() == list(SCORES) == ["softmax", "aps", "raps", "saps", "pas"]
    assert all(10 < len(cls.summary) < 80 for cls in SCORES.values())


@dataclass(frozen=True)
class Halved(Softmax):
    def formula(self, at):
        return super().formula(at) / 2


@dataclass(frozen=True)
class Dearer(RAPS):
    def formula(self, at):
        return super().formula(at) + self.penalty


def test_only_formulas_that_nobody_changed_run_in_cpp():
    assert Softmax().kernel.native == Native(needs_order=False)
    assert APS().kernel.native == Native()
    assert RAPS(penalty=2, k_reg=3).kernel.native == Native(penalty=2.0, k_reg=3)
    assert SAPS(penalty=2).kernel.native == Native(penalty=2.0, by_rank=True)
    for score in (Halved(), Dearer(), PAS([1, 2])):
        assert score.kernel.native is None
    rows = [[0.5, 0.25, 0.25]]
    assert score_matrix(Halved(), rows).tolist() == [[0.25, 0.375, 0.375]]
    plain = score_matrix(RAPS(randomize=False), rows)
    assert (score_matrix(Dearer(randomize=False), rows) == plain + 0.01).all()


def test_what_the_labels_decide_is_filled_in():
    assert APS().with_counts(np.array([3, 0])) == APS()
    assert PAS().with_counts(np.array([3, 0])) == PAS((3, 1))
    with pytest.raises(InputError, match="'prevalence'"):
        PAS([1, 2]).with_counts(np.array([1, 1, 1]))
