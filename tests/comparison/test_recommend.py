"""recommend(): a comparison on one split, as sentences with numbers."""

import numpy as np
import pytest

from evencover import InputError, compare, recommend
from evencover.comparison.splits import calibration_split
from evencover.predictors import make_predictor

pytestmark = pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")


def rows_of(simulate, counts):
    """Rows with so many examples of each class."""
    rows, labels = simulate(60 * len(counts) + 5 * sum(counts), len(counts), seed=1)
    chosen = [np.flatnonzero(labels == index)[:n] for index, n in enumerate(counts)]
    assert [len(each) for each in chosen] == list(counts)
    kept = np.concatenate(chosen)
    return rows[kept], labels[kept]


def test_the_method_with_the_lowest_cost_is_recommended(simulate):
    rows, labels = simulate(900, 6, seed=2)
    advice = recommend(rows, labels)
    costs = {each.method: each.mean("cost") for each in advice.comparison.candidates}
    assert costs[advice.method] == min(costs.values())
    split = compare(rows, labels, scores=["softmax"], n_splits=2)
    assert [candidate.costs[0] for candidate in split.candidates] == list(costs.values())
    assert advice.reason.startswith(advice.comparison.reason)
    first = str(advice).splitlines()[0]
    assert first == f"Recommended: {advice.method} + softmax"


def test_it_may_be_standard():
    """Classes that are all alike need no thresholds of their own."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(2000, 300)), rng.integers(0, 300, 2000)
    logits[np.arange(2000), labels] += 3
    rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    advice = recommend(rows, labels)
    assert advice.method == "standard"


def test_the_advice_counts_what_is_missing(simulate):
    counts = [0, 0, 40, *[150] * 4]
    advice = recommend(*rows_of(simulate, counts))
    assert advice.class_counts.tolist() == counts
    assert advice.n_missing == 260
    assert "2 smallest none. 260 more labels" in advice.reason
    assert recommend(*rows_of(simulate, counts), alpha=0.05).n_missing == 760
    assert "more labels would" not in recommend(*rows_of(simulate, [100] * 3)).reason


@pytest.mark.parametrize("per_class", [10, 20])
def test_it_says_how_large_sets_will_be(simulate, per_class):
    """Also those of CLASSWISE, which half of the examples would make far larger."""
    rows, labels = simulate(6000, 30, seed=1)
    chosen = calibration_split(labels, 0, 0, per_class)
    advice = recommend(rows[chosen], labels[chosen])
    assert list(advice.expected_sizes) == ["standard", "classwise", "clustered", "pooled"]
    for method, size in advice.expected_sizes.items():
        fitted = make_predictor(method).fit(rows[chosen], labels[chosen], ids=chosen)
        new = np.delete(rows, chosen, axis=0)
        assert size == pytest.approx(fitted.predict_set(new).sizes.mean(), rel=0.1)
    size = advice.expected_sizes[advice.method]
    assert f"Expect {size:.1f} labels per set" in advice.reason


def test_alpha_may_differ_by_class_and_a_floor_enlarges_sets(simulate):
    rows, labels = simulate(600, 6, seed=1)
    plain, floored = recommend(rows, labels), recommend(rows, labels, floor=0.895)
    assert floored.expected_sizes[floored.method] > plain.expected_sizes[floored.method]
    careful = recommend(rows, labels, alpha={0: 0.01, "default": 0.1})
    assert careful.expected_sizes["standard"] > plain.expected_sizes["standard"]


def test_unsuitable_data_are_rejected(simulate):
    rows, labels = simulate(60, 6)
    with pytest.raises(InputError, match="labels"):
        recommend(rows)
    with pytest.raises(InputError, match="4 rows"):
        recommend(rows[:3], labels[:3])
    with pytest.raises(InputError, match="'alpha'"):
        recommend(rows, labels, alpha=1.5)
