"""What POOLED asks of the kernels: the same bits from both, and what plain Python says."""

from math import erfc, inf, sqrt

import numpy as np
import pytest
from kernels.same_bits import same_bits

from evencover._kernels import HeldOut, reference_pooling
from evencover.predictors.pooling import TABLE_REACH, _normal_table, normal_score


def counts_of(rng, n_classes, n_bins):
    """Some classes have no rows, some have many."""
    size = rng.integers(0, 60, n_classes) * rng.integers(0, 2, n_classes)
    shapes = rng.dirichlet(np.ones(n_bins), n_classes)
    return np.array([rng.multinomial(n, p) for n, p in zip(size, shapes, strict=True)], dtype=float)


@pytest.mark.parametrize("n_clusters", [1, 2, 4, 7, 8, 13])
@pytest.mark.parametrize("n_bins", [3, 16, 20])
def test_soft_clusters(n_clusters, n_bins):
    for n_classes in (1, 4, 63, 65, 130):
        rng = np.random.default_rng([n_clusters, n_bins, n_classes])
        counts = counts_of(rng, n_classes, n_bins)
        start = rng.dirichlet(np.ones(n_clusters), n_classes)
        (weights,) = same_bits(
            "soft_clusters", counts, start, np.full(n_bins, 0.3), most_steps=9, tolerance=1e-4
        )
        np.testing.assert_allclose(weights.sum(axis=1), 1)


def test_soft_clusters_are_those_of_a_plain_transcription():
    rng = np.random.default_rng(0)
    counts, start = counts_of(rng, 30, 5), rng.dirichlet(np.ones(3), 30)
    weights = start
    for _ in range(4):
        shape = weights.T @ counts + 0.3
        shape /= shape.sum(axis=1, keepdims=True)
        size = (weights.sum(axis=0) + 1) / 33
        likelihood = np.exp(counts @ np.log(shape).T) * size
        weights = likelihood / likelihood.sum(axis=1, keepdims=True)
    (found,) = same_bits(
        "soft_clusters", counts, start, np.full(5, 0.3), most_steps=4, tolerance=0.0
    )
    np.testing.assert_allclose(found, weights, rtol=1e-9)


def test_soft_clusters_stop_when_nothing_changes():
    counts, start = np.array([[9.0, 0.0], [0.0, 9.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    few, many = (
        same_bits("soft_clusters", counts, start, np.full(2, 0.1), most_steps=n, tolerance=2.0)[0]
        for n in (1, 50)
    )
    np.testing.assert_array_equal(few, many)


def test_the_logarithm_is_right_to_the_last_digits():
    x = np.concatenate([np.geomspace(1e-300, 1e300, 4001), 1 + np.linspace(-0.3, 0.4, 4001)])
    np.testing.assert_allclose(reference_pooling.log_positive(x), np.log(x), rtol=4e-16, atol=1e-15)


@pytest.mark.parametrize("n_clusters", [1, 4, 5, 12])
def test_mixtures(n_clusters):
    rng = np.random.default_rng(n_clusters)
    weights = rng.dirichlet(np.ones(n_clusters), 30)
    functions = np.sort(rng.random((n_clusters, 257)), axis=1)
    classes = rng.integers(0, 30, 500)
    u = np.concatenate([[-0.5, 0.0, 1.0, 1.5], rng.random(496)])
    (levels,) = same_bits("mixture_levels", weights, functions, classes, u)
    edges = np.linspace(0, 1, 257)
    expected = [
        sum(w * np.interp(x, edges, f) for w, f in zip(weights[y], functions, strict=True))
        for y, x in zip(classes, u, strict=True)
    ]
    np.testing.assert_allclose(levels, expected, rtol=1e-12)
    bins = np.sort(rng.integers(0, 9, 500)).astype(np.int16)
    (masses,) = same_bits("mixture_masses", weights, classes, bins, 10)
    np.testing.assert_allclose(masses.sum(axis=1), weights[classes].sum(axis=0))
    np.testing.assert_allclose(masses[:, 4], weights[classes[bins == 4]].sum(axis=0))
    same_bits("mixture_masses", weights, classes, rng.permutation(bins), 10)


def held_out(rng, n_classes, n_points=128):
    own, held = rng.integers(0, 30, (2, n_classes))
    own[0] = held[1] = 0
    return HeldOut(
        rng.integers(0, n_points, own.sum()).astype(np.int16),
        np.concatenate([[0], np.cumsum(own)]),
        rng.random(held.sum()),
        np.concatenate([[0], np.cumsum(held)]),
        n_points,
        0.9,
        np.array([0.5, 30.0, 300.0, inf]),
        np.array([0.9, 0.85, 2.0, 0.0]),
    )


def plain_loss(rows, y, strength, target, expected):
    """The pinball loss of one class, number by number."""
    own = rows.own_points[rows.own_offsets[y] : rows.own_offsets[y + 1]]
    n = max(len(own), 1)
    levels = [
        e if strength == inf else (sum(own <= j) + strength * e) / (n + strength)
        for j, e in enumerate(expected)
    ]
    point = min(sum(level < target for level in levels), len(levels) - 1)
    before = levels[point - 1] if point else 0.0
    share = min(max((target - before) / max(levels[point] - before, 1e-12), 0.0), 1.0)
    threshold = (point + share) / len(levels)
    held = rows.held_ranks[rows.held_offsets[y] : rows.held_offsets[y + 1]]
    return sum(max(0.9 * (r - threshold), -0.1 * (r - threshold)) for r in held)


def test_losses_under_soft_clusters():
    rng = np.random.default_rng(2)
    rows = held_out(rng, 40)
    weights, functions = rng.dirichlet(np.ones(3), 40), np.sort(rng.random((3, 128)), axis=1)
    (losses,) = same_bits("cluster_losses", rows, weights, functions)
    for s, (strength, target) in enumerate(zip(rows.strengths, rows.targets, strict=True)):
        for y in (0, 1, 2, 20):
            wanted = plain_loss(rows, y, strength, target, weights[y] @ functions)
            assert losses[s, y] == pytest.approx(wanted, abs=1e-9)


def test_losses_under_normal_priors():
    rng = np.random.default_rng(3)
    rows, mean, deviation = held_out(rng, 40), rng.normal(size=40), 0.2 + rng.random(40)
    mean[3] = 30.0  # beyond the table
    scores = normal_score(np.arange(1, 129) / 128)
    (losses,) = same_bits(
        "normal_losses", rows, mean, deviation, scores, _normal_table(), TABLE_REACH
    )
    for s, (strength, target) in enumerate(zip(rows.strengths, rows.targets, strict=True)):
        for y in (0, 1, 2, 3, 20):
            expected = [erfc((mean[y] - z) / deviation[y] / sqrt(2)) / 2 for z in scores]
            wanted = plain_loss(rows, y, strength, target, expected)
            assert losses[s, y] == pytest.approx(wanted, abs=1e-5)


def test_rows_by_class_and_bin():
    rng = np.random.default_rng(4)
    u, classes = np.concatenate([[0.0, 1.0], rng.random(498)]), rng.integers(0, 9, 500)
    bins, counts = same_bits("bin_counts", u, classes, 10, 256, 16)
    np.testing.assert_array_equal(bins, np.minimum(np.floor(u * 256), 255))
    assert counts[3, 5] == ((classes == 3) & (bins // 16 == 5)).sum()
    assert counts[9].sum() == 0


def test_moments_by_class():
    rng = np.random.default_rng(5)
    values, classes = rng.normal(size=300), rng.integers(0, 7, 300)
    n, mean, squares = same_bits("class_moments", values, classes, 8)
    own = values[classes == 2]
    assert (n[2], n[7], mean[7], squares[7]) == (len(own), 0, 0, 0)
    assert mean[2] == pytest.approx(own.mean())
    assert squares[2] == pytest.approx(((own - own.mean()) ** 2).sum())


@pytest.mark.parametrize("n", [1, 7, 8, 9, 127, 128, 129, 500, 1000, 4097])
def test_a_weighted_line(n):
    """Its sums are taken in NumPy's order, whatever their length."""
    rng = np.random.default_rng(n)
    x, y, noise = rng.normal(size=n), rng.normal(size=n), rng.random(n)
    same_bits("weighted_line", x, y, noise, 0.25, False)
    if n > 2:
        centre_x, centre_y, slope, squares = same_bits("weighted_line", x, y, noise, 0.25, True)
        weight = np.sqrt(1 / (0.25 + noise))
        wanted = np.polyfit(x, y, 1, w=weight)
        assert slope == pytest.approx(wanted[0], abs=1e-9)
        left = weight * (y - np.polyval(wanted, x))
        assert squares == pytest.approx((left**2).sum())
        assert centre_y == pytest.approx(np.polyval(wanted, centre_x))
