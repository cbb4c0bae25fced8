"""Quantiles: exact ranks, and infinities where the theory says so."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import oracle
import pytest
from depth import IS_DEEP
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evencover import InputError, quantiles
from evencover.quantiles import (
    ClassAlpha,
    GroupedScores,
    conformal_quantile,
    conformal_rank,
    conformal_ranks,
    exact_fraction,
    select,
)

WRITTEN_AND_MEANT = [
    (0.1, Fraction(1, 10)),
    (0.01, Fraction(1, 100)),
    (0.05, Fraction(1, 20)),
    (0.3, Fraction(3, 10)),
    (0.19, Fraction(19, 100)),  # 300 * 0.81 is 243.00000000000003
    (0.059, Fraction(59, 1000)),
    (0.123456, Fraction(123456, 10**6)),
    (1e-5, Fraction(1, 10**5)),
    (1 / 3, Fraction(1, 3)),
    (2 / 3, Fraction(2, 3)),
    (1 / 7, Fraction(1, 7)),
    (1 / 30, Fraction(1, 30)),
    (1 - 0.9, Fraction(1, 10)),
    (1 - 0.95, Fraction(1, 20)),
    (1 - 0.7, Fraction(3, 10)),
    (0.1 + 0.2, Fraction(3, 10)),
    ("1/3", Fraction(1, 3)),
    ("0.1", Fraction(1, 10)),
    (Fraction(1, 3), Fraction(1, 3)),
    (Decimal("0.059"), Fraction(59, 1000)),
    (np.float64(0.1), Fraction(1, 10)),
    (np.float32(0.1), Fraction(1, 10)),
    (np.float32(0.059), Fraction(59, 1000)),
    (np.float16(0.1), Fraction(1, 10)),
]


@pytest.mark.parametrize(("written", "meant"), WRITTEN_AND_MEANT)
def test_rank_is_exact_for_the_alpha_that_was_meant(written, meant):
    assert exact_fraction(written) == meant
    counts = [*range(2000), 9_999, 99_999, 10**6 - 1, 10**7 - 1]
    expected = [oracle.rank(n, meant) for n in counts]
    assert [conformal_rank(n, written) for n in counts] == expected
    assert conformal_ranks(np.array(counts), written).tolist() == expected


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, np.nan, np.inf, True, None, "x", "1/0", [0.1]])
def test_what_is_no_fraction_is_refused_by_its_name(value):
    with pytest.raises(InputError, match="'alpha'"):
        exact_fraction(value)
    with pytest.raises(InputError, match=r"'gamma' .*ClusteredPredictor"):
        exact_fraction(value, "gamma", "ClusteredPredictor")


@given(n=st.integers(0, 10**9), digits=st.integers(1, 15), data=st.data())
def test_any_decimal_is_taken_as_written(n, digits, data):
    alpha = Decimal(data.draw(st.integers(1, 10**digits - 1))).scaleb(-digits)
    assert conformal_rank(n, float(alpha)) == math.ceil((n + 1) * (1 - Fraction(alpha)))


@given(st.integers(0, 5000), st.integers(2, 1000), st.data())
def test_any_simple_fraction_is_recognised(n, denominator, data):
    alpha = Fraction(data.draw(st.integers(1, denominator - 1)), denominator)
    assert conformal_rank(n, float(alpha)) == oracle.rank(n, alpha)
    assert conformal_rank(n, str(alpha)) == oracle.rank(n, alpha)


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-2, 2), max_size=60),
    st.sampled_from([0.01, 0.05, 0.1, 0.3, 0.5, 0.9]),
)
def test_quantile_is_the_papers_definition(scores, alpha):
    meant = Fraction(str(alpha))
    assert conformal_quantile(scores, alpha) == oracle.conformal_quantile(scores, meant)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([0.5, np.inf]) | st.floats(-1, 1), min_size=1), st.data())
def test_selected_values_are_those_of_the_sorted_order(monkeypatch, values, data):
    """In any order of the values, also one in which a sample of them misleads."""
    monkeypatch.setattr(quantiles, "MANY_VALUES", data.draw(st.sampled_from([1, 10**9])))
    monkeypatch.setattr(quantiles, "ONE_VALUE_IN", data.draw(st.integers(1, 3)))
    monkeypatch.setattr(quantiles, "isqrt", lambda n: data.draw(st.integers(0, 2)))
    places = np.array(data.draw(st.lists(st.integers(0, len(values) - 1))), dtype=int)
    assert select(np.array(values), places).tolist() == np.sort(values)[places].tolist()


def test_a_rank_of_many_scores_is_selected_from_those_near_it():
    scores = np.random.default_rng(0).permutation(np.repeat(np.arange(50_000.0), 4))
    grouped = GroupedScores.one(scores)
    assert grouped.quantiles(0.1).tolist() == [45_000.0]
    assert "scores" not in vars(grouped)
    assert grouped.scores.tolist() == sorted(scores)
    assert grouped.quantiles(0.1).tolist() == [45_000.0]


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.7]) | st.floats(0, 1), st.integers(-1, 4))),
    st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.9]),
)
def test_groups_are_calibrated_apart_and_minus_one_belongs_to_none(pairs, alpha):
    scores = np.array([s for s, _ in pairs], dtype=float)
    groups = np.array([g for _, g in pairs], dtype=int)
    members = [[s for s, g in pairs if g == group] for group in range(5)]
    meant = Fraction(str(alpha))
    expected = [oracle.conformal_quantile(m, meant) for m in members]
    grouped = GroupedScores.sort(scores, groups, 5)
    assert grouped.quantiles(alpha).tolist() == expected
    if any(len(set(m)) < len(m) for m in members):
        return  # ties are broken at random: see the next test
    upper, lower, probability, _ = grouped.thresholds(alpha, exact=True)
    pairs_expected = [oracle.exact_pair(m, meant) for m in members]
    assert upper.tolist() == [q for q, _, _ in pairs_expected]
    assert lower.tolist() == [q for _, q, _ in pairs_expected]
    assert probability.tolist() == [float(p) for _, _, p in pairs_expected]


@pytest.mark.parametrize("alpha", [0.1, ClassAlpha.of([0.1, 0.05] * 5000, None, 10_000)])
def test_classes_with_as_many_scores_share_the_exact_arithmetic(monkeypatch, alpha):
    """So its time does not grow with the number of classes."""
    offsets, calls = np.arange(10_001) * 19, []
    monkeypatch.setattr(quantiles, "ceil", lambda value: calls.append(value) or math.ceil(value))
    grouped = GroupedScores(np.tile(np.arange(19.0), 10_000), offsets)
    thresholds = grouped.thresholds(alpha, exact=True)
    assert len(calls) < 5
    ranks = [18, 18] if alpha == 0.1 else [18, 19]  # of 19, the 18th and the 19th
    assert thresholds.upper[:2].tolist() == [rank - 1.0 for rank in ranks]
    assert thresholds.upper_probability.tolist() == pytest.approx([1.0] * 10_000)


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.4, 0.7] if IS_DEEP else [0.25, 0.4])
@pytest.mark.parametrize(
    "values", [(1, 1, 1, 1), (1, 2, 2, 2), (1, 2, 2, 3, 3, 3), (1, 1, 2, 3, 3), (1, 1, 2, 2, 2, 2)]
)
def test_exact_coverage_is_exact_whatever_the_ties(monkeypatch, values, alpha):
    """Each value in turn is the new one; over the draws its mean coverage is 1 - alpha.

    60 draws in the middle of equal steps are as good as all: every share of a tie among six
    values is a multiple of 1/60. Ties are left whichever value is the new one.
    """
    covered, draws = 0.0, (np.arange(60) + 0.5) / 60
    for place, new in enumerate(values):
        others = np.array(values[:place] + values[place + 1 :], dtype=float)
        for draw in draws:
            monkeypatch.setattr(quantiles, "uniforms", lambda *_, draw=draw: np.array([draw]))
            upper, lower, chance = GroupedScores(
                np.sort(others), np.array([0, len(others)])
            ).thresholds(alpha, exact=True)[:3]
            covered += chance[0] * (new <= upper[0]) + (1 - chance[0]) * (new <= lower[0])
    assert covered / len(draws) / len(values) == pytest.approx(1 - alpha)
