"""A temperature that is learnt, from rows that then do not calibrate; and several in compare."""

import numpy as np
import pytest

from evencover import InputError, StandardPredictor, load, save
from evencover.cli.info import of_model
from evencover.predictors import make_predictor
from evencover.predictors.temperature import COLDEST, HOTTEST, likeliest_temperature


@pytest.fixture(scope="module")
def data(simulate):
    rows, labels = simulate(1000, 5)
    return np.log(rows), labels


def loss(logits, labels, temperature):
    z = logits / temperature
    own = z[np.arange(len(z)), labels]
    return np.mean(np.log(np.exp(z).sum(axis=1)) - own)


def test_it_is_the_likeliest(data):
    logits, labels = data
    found = likeliest_temperature(logits, labels)
    grid = np.exp(np.linspace(-3, 3, 6001))
    losses = [loss(logits, labels, temperature) for temperature in grid]
    assert found == pytest.approx(grid[np.argmin(losses)], rel=2e-3)
    assert likeliest_temperature(3 * logits, labels) == pytest.approx(3 * found)


def test_there_are_limits():
    sure = np.array([[5.0, 0.0], [0.0, 5.0]])
    assert likeliest_temperature(sure, np.array([0, 1])) == COLDEST
    assert likeliest_temperature(sure, np.array([1, 0])) == HOTTEST


@pytest.mark.parametrize("method", ["standard", "classwise", "pooled", "rc3p"])
def test_the_other_rows_calibrate_at_it(data, tmp_path, method):
    logits, labels = data
    ids = np.arange(1000) + 77
    made = {"score": "aps", "from_logits": True, "random_state": 3}
    fitted = make_predictor(method, temperature="fit", **made).fit(logits, labels, ids=ids)
    assert fitted.n_calibration_ == 800
    order = np.random.default_rng(0).permutation(1000)  # only the ids say which rows are apart
    again = make_predictor(method, temperature="fit", **made)
    again.fit(logits[order], labels[order], ids=ids[order])
    np.testing.assert_array_equal(fitted.thresholds_, again.thresholds_)
    save(fitted, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert loaded.temperature_ == fitted.temperature_ != 1
    assert loaded.predict_set(logits[:50], ids=ids[:50]) == fitted.predict_set(
        logits[:50], ids=ids[:50]
    )
    assert of_model(loaded)["temperature"] == fitted.temperature_
    with pytest.raises(InputError, match="cannot be updated"):
        loaded.partial_fit(logits[:5], labels[:5], ids=ids[:5])


def test_thresholds_are_those_of_the_rows_that_calibrate(data):
    logits, labels = data
    fitted = StandardPredictor(from_logits=True, temperature="fit").fit(logits, labels)
    z = logits / fitted.temperature_
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    scores = 1 - p[np.arange(1000), labels]
    kept = np.isclose(
        scores[:, None], fitted._groups.scores.scores[None, :], rtol=0, atol=1e-12
    ).any(1)
    assert kept.sum() == 800
    assert fitted.thresholds_[0] == pytest.approx(np.sort(scores[kept])[720], abs=1e-12)
    apart = ~kept
    assert fitted.temperature_ == pytest.approx(
        likeliest_temperature(logits[apart], labels[apart]), rel=1e-6
    )


def test_bad_ways_to_ask_are_refused(data, simulate):
    logits, labels = data
    learn = StandardPredictor(from_logits=True, temperature="fit")
    for call, words in (
        (lambda: StandardPredictor(temperature="fit").fit(*simulate(50, 4)), "logits"),
        (lambda: learn.fit(iter([(logits, labels)])), "iterator"),
        (lambda: learn.fit_scores([0.5], [0], 2), "scores"),
        (lambda: learn.fit(logits[:4], labels[:4]), "at least 5 rows"),
        (lambda: StandardPredictor(temperature="warm").fit(*simulate(50, 4)), "'temperature'"),
    ):
        with pytest.raises(InputError, match=words):
            call()
