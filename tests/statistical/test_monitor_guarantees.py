"""False alarms of the monitor, looked at after every label, with all classes at the boundary.

Labels come round after round, one of each class in turn. The bets of all counts that can occur are
computed once with the package's own functions; the runs look them up and add up the restarts by the
formula. While every class meets the target, the first alarm of any kind is one of `any_class`,
which is looked at after every single label. Seeds are fixed; the rates asserted are bounds that
theory gives, so a false failure of a correct monitor has a probability below 1e-3.
"""

from functools import cache

import numpy as np
import pytest
from depth import size

from evencover.monitoring.evidence import (
    Urn,
    _log_drawn,
    block_of,
    raised,
    shortfall_log_e,
    since_restarts,
    urn_log_e,
    with_restarts,
)
from evencover.predictors import make_predictor

LEVEL, PROMISED = 0.05, 0.88
CLASSES, LABELS = size(short=40, deep=200), size(short=150, deep=1000)
RUNS = size(short=30, deep=200)
# The bound holds for the mean of many runs; this is what RUNS of them may show in excess of it.
SLACK = 3.1 * np.sqrt(LEVEL * (1 - LEVEL) / RUNS)


def of_all_counts(function):
    """A table [rows, hits] of a function of hits and misses."""
    rows, hits = np.tril_indices(LABELS + 1)
    found = np.full((LABELS + 1, LABELS + 1), -np.inf)
    found[rows, hits] = function(hits, rows - hits)
    return found


@cache
def below_target():
    """The bet against the target, by rows and hits since a restart and before it."""
    table = of_all_counts(lambda hits, misses: shortfall_log_e(hits, misses, PROMISED))
    return lambda rows, hits, n_before, before: table[rows, hits]


@cache
def shifted(rank, n):
    """The same for the urn, whose denominator depends on the labels before the restart, too."""
    start, balls = np.float64(rank), np.float64(n + 1)
    fair = of_all_counts(lambda hits, misses: _log_drawn(hits, misses, start, balls))

    def of_urn(hits, misses):
        return urn_log_e(hits, misses, np.full(len(hits), rank), np.full(len(hits), n))

    with np.errstate(invalid="ignore"):  # of counts that cannot occur
        bets = of_all_counts(of_urn) + fair

    def bet(rows, hits, n_before, before):
        given = fair[rows + n_before, hits + before] - fair[n_before, before]
        return bets[rows, hits] - np.maximum(fair[rows, hits], given)

    return bet


def evidence(bet, hits):
    """Log evidence (LABELS + 1, classes) after each round, from hits (LABELS, classes)."""
    total = np.concatenate([np.zeros_like(hits[:1], dtype=np.int64), hits.cumsum(axis=0)])
    starts = np.unique(block_of(np.arange(LABELS)), return_index=True)[1]
    found = np.full(total.shape, 1 / (len(starts) + 1))
    for j, start in enumerate(starts.tolist(), 1):
        found[:start] += 1 / (j * (j + 1))
        rows = np.arange(LABELS + 1 - start)[:, None]
        log_e = bet(rows, total[start:] - total[start], start, total[start])
        found[start:] += np.exp(log_e) / (j * (j + 1))
    return np.log(found)


def paths(bet, rng, coverage):
    """Log evidence (LABELS + 1, CLASSES) of one run, after each round."""
    return evidence(bet, rng.random((LABELS, CLASSES)) < coverage)


@pytest.mark.parametrize("urn", [False, True])
def test_the_lookup_is_the_monitors_evidence(urn):
    hits = np.random.default_rng(8).random((LABELS, 3)) < [0.9, 0.7, 0.99]
    found = evidence(shifted(19, 20) if urn else below_target(), hits)
    for n in (1, LABELS // 3, LABELS):
        counts = np.zeros((block_of(np.array([n - 1]))[0] + 1, 2), dtype=np.int64)
        np.add.at(counts, block_of(np.arange(n)), np.stack([hits[:n, 1], ~hits[:n, 1]], axis=-1))
        later, before = since_restarts(counts, np.array([0]))
        if urn:
            each = np.full(len(counts), 19), np.full(len(counts), 20)
            log_e = urn_log_e(*later.T, *each, tuple(before.T))
        else:
            log_e = shortfall_log_e(*later.T, PROMISED)
        assert found[n, 1] == pytest.approx(with_restarts(log_e, np.array([0]))[0][0])


def alarm_after_any_label(log_e):
    """Whether the mean e-value reaches the bar after any label, of any class in its turn."""
    e_values = np.exp(log_e)
    gains = np.diff(e_values, axis=0).ravel()
    return (1 + gains.cumsum() / CLASSES).max() >= 1 / LEVEL


def test_classes_at_the_boundary_raise_few_alarms():
    rng = np.random.default_rng(1)
    alarms = [alarm_after_any_label(paths(below_target(), rng, PROMISED)) for _ in range(RUNS)]
    assert np.mean(alarms) <= LEVEL + SLACK


def test_most_alarms_name_classes_below_target():
    """A tenth of the classes fell to 80%; the mean share of false names, at any of many looks."""
    rng = np.random.default_rng(2)
    n_broken = CLASSES // 10
    coverage = np.r_[np.full(n_broken, 0.8), np.full(CLASSES - n_broken, PROMISED)]
    looks = np.unique(np.linspace(1, LABELS, 50).astype(int))
    false_shares = np.zeros((RUNS, len(looks)))
    found = np.zeros(RUNS)
    for run in range(RUNS):
        log_e = paths(below_target(), rng, coverage)
        for place, look in enumerate(looks):
            named = raised(log_e[look], LEVEL)
            false_shares[run, place] = named[n_broken:].sum() / max(1, named.sum())
        found[run] = raised(log_e[-1], LEVEL)[:n_broken].mean()
    assert false_shares.mean(axis=0).max() <= LEVEL + SLACK
    assert found.mean() > size(short=0.02, deep=0.99)  # it does find them


def test_noise_of_few_calibration_rows_is_no_change():
    """CLASSWISE with 20 rows: coverage is Beta(19, 2), off the promise in many classes."""
    rng = np.random.default_rng(4)
    off = np.zeros(RUNS)
    alarms = np.zeros(RUNS, dtype=bool)
    for run in range(RUNS):
        coverage = rng.beta(19, 2, size=CLASSES)
        off[run] = (coverage < 0.9).mean()
        alarms[run] = alarm_after_any_label(paths(shifted(19, 20), rng, coverage))
    assert off.mean() == pytest.approx(0.39, abs=0.03)
    assert alarms.mean() <= LEVEL + SLACK


@pytest.mark.parametrize(
    "method",
    ["pooled", *(pytest.param(m, marks=pytest.mark.deep) for m in ("standard", "clustered"))],
)
@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
def test_methods_that_share_rows_raise_few_alarms_of_change(method):
    """Calibrated anew in every run, with 5 to 40 rows per class; nothing changes after that.

    Their thresholds depend on all rows. The limit that a class is watched at does not: it is a
    score of its own at a rank that only the number of its rows decides.
    """
    rng = np.random.default_rng(7)
    sizes = np.array([5, 12, 20, 40])[np.arange(CLASSES) % 4]
    labels = np.repeat(np.arange(CLASSES), sizes)
    hardness = rng.uniform(0.3, 3, size=CLASSES)
    log_e = np.zeros((LABELS + 1, CLASSES))
    alarms = np.zeros(size(short=4, deep=60), dtype=bool)
    for run in range(len(alarms)):
        scores = rng.random(len(labels)) ** (1 / hardness[labels])
        fitted = make_predictor(method, random_state=run).fit_scores(scores, labels, CLASSES)
        urn = Urn.of(fitted)
        new = rng.random((LABELS, CLASSES)) ** (1 / hardness)
        for n in np.unique(sizes):
            own = np.flatnonzero(sizes == n)
            bet = shifted(int(urn.ranks[own[0]]), int(n))
            log_e[:, own] = evidence(bet, (new <= urn.limits)[:, own])
        alarms[run] = alarm_after_any_label(log_e)
    assert alarms.mean() <= LEVEL + 3.1 * np.sqrt(LEVEL * (1 - LEVEL) / len(alarms))


def test_a_fall_since_calibration_is_named_and_false_names_are_few():
    """A tenth of the classes, calibrated on 100 rows, fell by 30 points."""
    rng = np.random.default_rng(5)
    n_broken = CLASSES // 10
    shares, found = [], []
    for _ in range(RUNS):
        coverage = rng.beta(91, 10, size=CLASSES)
        coverage[:n_broken] -= 0.3
        named = raised(paths(shifted(91, 100), rng, coverage)[-1], LEVEL)
        shares.append(named[n_broken:].sum() / max(1, named.sum()))
        found.append(named[:n_broken].mean())
    assert np.mean(shares) <= LEVEL + SLACK
    assert np.mean(found) > 0.9


def test_limits_hold_at_all_times():
    """The share of runs in which the true coverage ever leaves the limits of one class."""
    from evencover.monitoring.evidence import coverage_limits

    rng = np.random.default_rng(6)
    looks = np.unique(np.geomspace(1, LABELS, size(short=12, deep=60)).astype(int))
    hits = (rng.random((LABELS, RUNS * 4)) < 0.93).cumsum(axis=0)[looks - 1]
    out = np.zeros(RUNS * 4, dtype=bool)
    for n, each in zip(looks, hits, strict=True):
        low, high = coverage_limits(each, n - each, LEVEL).T
        out |= (low > 0.93) | (high < 0.93)
    assert out.mean() <= LEVEL + SLACK / 2
