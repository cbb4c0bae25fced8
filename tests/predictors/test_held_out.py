"""Test rows that are unlike the calibration rows get a note; rows that are alike get none."""

import warnings

import numpy as np
import pytest
from depth import size
from scipy.stats import betabinom

from evencover import EvencoverWarning, StandardPredictor, load, save
from evencover.predictors import make_predictor
from evencover.predictors.held_out import chance_of_at_most, distance


def notes(predictor, *rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EvencoverWarning)
        predictor.evaluate(*rows)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("method", ["standard", "classwise", "clustered", "pooled", "fuzzy"])
@pytest.mark.parametrize("score", ["softmax", "aps"])
def test_rows_of_the_same_kind_get_no_note(simulate, quietly, method, score):
    """Two tests at 1 in 10,000 for each of the repetitions. False alarms: about 0.02% each."""
    for seed in range(size(short=3, deep=100)):
        rows, labels = simulate(3000, 10, seed=seed)
        fitted = quietly(make_predictor(method, score=score), rows[:1500], labels[:1500])
        assert notes(fitted, rows[1500:], labels[1500:]) == []


def test_other_class_frequencies_are_told(simulate):
    rows, labels = simulate(4000, 10)
    fitted = StandardPredictor().fit(rows[:2000], labels[:2000])
    keep = (labels < 5) | (np.arange(4000) % 5 == 0)
    keep[:2000] = False
    (said,) = notes(fitted, rows[keep], labels[keep])
    assert "class frequencies" in said
    classwise = make_predictor("classwise").fit(rows[:2000], labels[:2000])
    assert notes(classwise, rows[keep], labels[keep]) == []  # its guarantee does not depend on them


def test_refuted_coverage_is_told(simulate, tmp_path):
    rows, labels = simulate(4000, 10)
    fitted = StandardPredictor().fit(rows[:2000], labels[:2000])
    harder = np.where(np.arange(4000)[:, None] % 3, rows, np.roll(rows, 1, axis=1))
    save(fitted, tmp_path / "m.safetensors")
    for predictor in (fitted, load(tmp_path / "m.safetensors")):
        (shortfall,) = notes(predictor, harder[2000:], labels[2000:])
        assert "significantly below" in shortfall


def test_the_chance_of_a_shortfall_is_beta_binomial():
    for covered, n, n_calibration in [(80, 100, 500), (900, 1000, 99), (9, 10, 20)]:
        law = betabinom(n, 0.9 * (n_calibration + 1), 0.1 * (n_calibration + 1))
        found = chance_of_at_most(covered, n, n_calibration, 0.1)
        assert found == pytest.approx(law.cdf(covered), rel=1e-6)
    near = chance_of_at_most(89_900, 100_001, 10_000, 0.1)
    law = betabinom(100_001, 9000.9, 1000.1)
    assert near == pytest.approx(law.cdf(89_900), rel=0.02)


def test_distances_are_beyond_noise():
    """Equal distributions, many kinds, few rows: 1 in 10,000 at most. 200 pairs: 2%."""
    rng = np.random.default_rng(3)
    share = rng.dirichlet(np.ones(50))
    for _ in range(200):
        assert distance(rng.multinomial(300, share), rng.multinomial(200, share)) is None
    other = rng.dirichlet(np.ones(50))
    found = distance(rng.multinomial(100_000, share), rng.multinomial(100_000, other))
    assert found == pytest.approx(np.abs(share - other).sum() / 2, abs=0.02)


def test_warnings_point_at_the_line_that_called(simulate):
    rows, labels = simulate(60, 4)
    few = labels < 3
    with pytest.warns(EvencoverWarning, match="no calibration examples") as caught:
        StandardPredictor().fit(rows[few], labels[few])
    with pytest.warns(EvencoverWarning, match="Clustering is not possible") as clustering:
        make_predictor("clustered").fit(rows, labels)
    assert {each.filename for each in [*caught, *clustering]} == {__file__}
