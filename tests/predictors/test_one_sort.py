"""Fits sort the scores once, and their results do not depend on threads or blocks."""

import numpy as np
import pytest
from scipy.stats import norm

from evencover import PooledPredictor, _kernels, quantiles
from evencover.predictors import make_predictor, normal_model, pooled

N_ROWS, K = 4000, 40
METHODS = {
    "standard": {},
    "standard exact": {"exact": True},
    "classwise": {},
    "clustered": {"gamma": 0.5, "n_clusters": 3},
    "interpolated": {},
    "fuzzy": {},
    "macro": {},
    "rc3p": {},
    "grouped": {"groups": np.arange(K) // 4},
    "pooled": {},
    "pooled holdout": {"split": "holdout"},
    "pooled exact": {"exact": True},
}


@pytest.fixture
def n_sorted(monkeypatch):
    """How many scores were sorted: many numbers of those of the test, and not in order."""
    scores = set(example()[0].tolist())
    sizes = []

    def spy(sort):
        def counted(values, *others, **options):
            keys = values if isinstance(values, tuple) else (values,)
            for key in map(np.asarray, keys):
                if key.dtype == float and len(key) > 2 * K and (np.diff(key) < 0).any():
                    sizes.append(len(key) if scores.issuperset(key.tolist()) else 0)
            return sort(values, *others, **options)

        return counted

    for name in ("sort", "argsort", "lexsort", "unique"):
        monkeypatch.setattr(np, name, spy(getattr(np, name)))
    monkeypatch.setattr(_kernels, "ascending", spy(_kernels.ascending))
    monkeypatch.setattr(quantiles, "MANY_VALUES", N_ROWS + 1)  # selecting sorts a sample of more
    return sizes


def example():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(N_ROWS) % K)
    scores = norm.cdf(np.linspace(-1, 1, K)[labels] + rng.normal(size=N_ROWS))
    return 1 - (1 - scores), labels  # as of probabilities


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("floor", [None, 0.8, "auto"])
@pytest.mark.parametrize("method", METHODS)
def test_no_score_is_sorted_twice(n_sorted, method, floor):
    scores, labels = example()
    predictor = make_predictor(method.split()[0], floor=floor, **METHODS[method])
    predictor.fit_scores(scores, labels, K, ranks=1 + np.arange(N_ROWS) % 3)
    assert sum(n_sorted) <= N_ROWS
    assert sum(n_sorted) > 0 or (method == "standard" and floor is None)  # the count would notice


@pytest.mark.filterwarnings("ignore::evencover.EvencoverWarning")
@pytest.mark.parametrize("method", ["standard", "pooled"])
def test_capped_fits_sort_no_score_twice(n_sorted, method):
    scores, labels = example()
    rows = np.repeat(scores[:, None] / (K - 1), K, axis=1)
    rows[np.arange(N_ROWS), labels] = 1 - scores
    make_predictor(method, score="softmax", exact=True, max_share=0.1).fit(rows, labels)
    assert sum(n_sorted) == N_ROWS


@pytest.mark.parametrize("threads", ["1", "2", "5"])
@pytest.mark.parametrize("at_once", [7, 300])
@pytest.mark.parametrize("split", ["crossfit", "holdout"])
def test_threads_and_blocks_change_no_threshold(monkeypatch, threads, at_once, split):
    scores, labels = example()
    once = PooledPredictor(split=split).fit_scores(scores, labels, K)
    monkeypatch.setenv("EVENCOVER_THREADS", threads)
    monkeypatch.setattr(pooled, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(normal_model, "ROWS_AT_ONCE", at_once)
    again = PooledPredictor(split=split).fit_scores(scores, labels, K)
    assert again.thresholds_.tolist() == once.thresholds_.tolist()


def test_the_class_line_is_that_of_all_classes_one_by_one():
    """Weighted least squares and the variance around it, with an entry per class."""
    rng = np.random.default_rng(0)
    n = rng.integers(0, 9, 300)
    within = 0.8
    means = rng.normal(2 - 0.7 * np.log1p(n), np.sqrt(0.5 + within / np.maximum(n, 1)))
    line, between = normal_model._class_line(n, means, within)
    seen = n > 0
    x, y, w = np.log1p(n[seen]), means[seen], 1 / (between + within / n[seen])
    center, mean = np.average(x, weights=w), np.average(y, weights=w)
    information = w @ (x - center) ** 2
    slope = w @ ((x - center) * (y - mean)) / information
    assert w @ (y - mean - slope * (x - center)) ** 2 == pytest.approx(len(x) - 2, rel=1e-8)
    slope *= 1 - 4 / (slope**2 * information)
    expected = mean + slope * (np.log1p(np.maximum(n, 1)) - center)
    np.testing.assert_allclose(line, expected, rtol=1e-12)
