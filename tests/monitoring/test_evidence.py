"""E-values of counts against naive transcriptions, and what e-values must be: fair bets."""

from fractions import Fraction
from itertools import combinations, product
from math import comb, exp, log

import numpy as np
import pytest

from evencover.monitoring.evidence import (
    SHORTFALLS,
    coverage_limits,
    raised,
    shortfall_log_e,
    urn_log_e,
)


def counts(*values):
    return np.array(values, dtype=np.int64)


def naive_bets(hits, misses, promised):
    """What one unit of money on each shortfall has become, row by row."""
    bets = []
    for shortfall in SHORTFALLS.tolist():
        theta, money = promised * (1 - shortfall), 1.0
        for is_hit in [True] * hits + [False] * misses:
            money *= theta / promised if is_hit else (1 - theta) / (1 - promised)
        bets.append(money)
    return bets


@pytest.mark.parametrize(("hits", "misses"), [(0, 0), (1, 0), (0, 1), (17, 3), (5, 9)])
@pytest.mark.parametrize("promised", [0.88, 0.5, 0.99])
def test_the_e_value_is_the_mean_of_the_bets(hits, misses, promised):
    found = shortfall_log_e(counts(hits), counts(misses), promised)[0]
    assert exp(found) == pytest.approx(np.mean(naive_bets(hits, misses, promised)), rel=1e-12)


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("coverage", [0.88, 0.95])
def test_a_bet_against_a_kept_promise_wins_nothing_on_average(n, coverage):
    hits = np.arange(n + 1)
    e_values = np.exp(shortfall_log_e(hits, n - hits, 0.88))
    chances = [comb(n, h) * coverage**h * (1 - coverage) ** (n - h) for h in hits]
    mean = float(np.dot(chances, e_values))
    assert mean == pytest.approx(1, rel=1e-9) if coverage == 0.88 else mean < 1


def drawn(hits, misses, balls_for_hits, balls):
    """The chance of a sequence from an urn, ball by ball, in exact arithmetic."""
    chance = Fraction(1)
    for t, is_hit in enumerate([True] * hits + [False] * misses):
        next_hit = (balls_for_hits + min(t, hits)) / (balls + t)
        chance *= next_hit if is_hit else 1 - next_hit
    return chance


def naive_urn(hits, misses, rank, n):
    fair, balls = drawn(hits, misses, Fraction(rank), n + 1), Fraction(n + 1)
    fewer = [Fraction(rank) * (1 - Fraction(shortfall)) for shortfall in SHORTFALLS.tolist()]
    return float(sum(drawn(hits, misses, own, balls) / fair for own in fewer) / len(fewer))


@pytest.mark.parametrize(("hits", "misses"), [(0, 0), (3, 1), (0, 4), (12, 0), (20, 6)])
@pytest.mark.parametrize(("rank", "n"), [(19, 20), (1, 1), (90, 99)])
def test_the_urn_is_drawn_ball_by_ball(hits, misses, rank, n):
    found = urn_log_e(counts(hits), counts(misses), counts(rank), counts(n))[0]
    assert exp(found) == pytest.approx(naive_urn(hits, misses, rank, n), rel=1e-9)


def test_the_urn_is_what_exchangeable_scores_do():
    """All orders of 3 calibration scores and 3 new ones, the limit being the second smallest."""
    mean, n_orders = 0.0, 0
    for calibration in combinations(range(6), 3):
        limit = sorted(calibration)[1]
        hits = sum(score <= limit for score in set(range(6)) - set(calibration))
        mean += exp(urn_log_e(counts(hits), counts(3 - hits), counts(2), counts(3))[0])
        n_orders += 1
    assert mean / n_orders == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize(("rank", "n"), [(1, 1), (5, 5), (19, 20), (181, 200)])
@pytest.mark.parametrize("n_rows", [3, 40, 1000])
def test_more_hits_are_never_more_evidence_of_a_fall(rank, n, n_rows):
    """So ties and classes that got easier, which only add hits, raise no false alarms."""
    hits = np.arange(n_rows + 1)
    log_e = urn_log_e(hits, n_rows - hits, np.full(len(hits), rank), np.full(len(hits), n))
    assert (np.diff(log_e) < 0).all()


def naive_ebh(e_values, level):
    for k in range(len(e_values), 0, -1):
        largest = sorted(range(len(e_values)), key=lambda i: -e_values[i])[:k]
        if min(e_values[i] for i in largest) >= len(e_values) / (k * level):
            return {*largest}
    return set()


def test_e_bh_names_the_largest_set_that_its_definition_allows():
    rng = np.random.default_rng(3)
    n_named = []
    for _ in range(200):
        e_values = np.exp(rng.normal(2, 3, size=12))
        named = raised(np.log(e_values), 0.2)
        assert {*np.flatnonzero(named).tolist()} == naive_ebh(e_values.tolist(), 0.2)
        n_named.append(int(named.sum()))
    assert 0 in n_named
    assert max(n_named) > 3


def test_limits_are_the_promises_that_no_bet_refuses():
    hits, misses = counts(0, 45, 90, 10, 0), counts(0, 5, 10, 0, 7)
    low, high = coverage_limits(hits, misses, 0.1).T
    assert (low[0], high[0]) == (0, 1)
    for y in range(1, 5):
        for limit, side in ((high[y], 1e-6), (low[y], -1e-6)):
            inside, outside = limit - side, limit + side
            own, other = (hits, misses) if side > 0 else (misses, hits)
            inside, outside = (inside, outside) if side > 0 else (1 - inside, 1 - outside)
            if 0 < outside < 1:
                assert shortfall_log_e(own[[y]], other[[y]], outside)[0] >= log(20)
            if 0 < inside < 1:
                assert shortfall_log_e(own[[y]], other[[y]], inside)[0] < log(20)


def test_what_came_before_a_restart_is_no_evidence_of_a_shift():
    """In the history of all labels the bet after a restart is fair, however one stops.

    Calibration scores and ten new ones are exchangeable. Stop at once after six labels if they
    were good, and else go on to ten: what an unlucky calibration needs. Fresh urns alone gain.
    """
    rank, n, before, after = 9, 9, 6, 4
    sequences = np.array([*product([0, 1], repeat=before + after)])
    fair = [float(drawn(h, before + after - h, Fraction(rank), n + 1)) for h in range(11)]
    chances = np.array(fair)[sequences.sum(axis=1)]
    early, late = sequences[:, :before].sum(axis=1), sequences[:, before:].sum(axis=1)
    n_late = np.where(early <= before - 2, after, 0)
    late = np.minimum(late, n_late)
    urn = late, n_late - late, np.full(len(late), rank), np.full(len(late), n)
    knowing, fresh = (
        chances @ np.exp(urn_log_e(*urn, earlier)) for earlier in ((early, before - early), None)
    )
    assert chances.sum() == pytest.approx(1)
    assert knowing <= 1 < fresh
