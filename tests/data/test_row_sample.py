"""The sample of whole rows is random, bounded, and independent of how rows are split."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evencover.data.fingerprint import Sampler, SampleSize
from evencover.data.source import Block

N = 3000
ROWS = np.random.default_rng(0).dirichlet(np.ones(300), N).astype(np.float32)
LABELS = np.sort(np.random.default_rng(1).integers(0, 300, N))


def sampled(parts, n_rows=None, parallel=False):
    """Sample consecutive parts of the rows, one after the other or each by itself."""
    sampler, fingerprints, start = Sampler(n_rows), [], 0
    for size in parts:
        sampler = Sampler(n_rows) if parallel else sampler
        rows = slice(start, start + size)
        sampler.add(sampler.of(Block(start, ROWS[rows], LABELS[rows])))
        fingerprints.append(sampler.result())
        start += size
    if parallel:
        sampler = Sampler(n_rows)
        for fingerprint in fingerprints:
            sampler.add(fingerprint)
    return sampler.result().rows


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    cuts=st.sets(st.integers(1, N - 1), max_size=8),
    is_known=st.booleans(),
    parallel=st.booleans(),
)
def test_it_does_not_depend_on_blocks_partitions_or_a_known_length(cuts, is_known, parallel):
    sizes = np.diff([0, *sorted(cuts), N])
    found = sampled(sizes, N if is_known else None, parallel)
    for ours, expected in zip(found[1:], sampled([N])[1:], strict=True):
        assert (ours == expected).all()


@pytest.mark.parametrize("stride", [1, 7])
def test_rows_keep_their_labels_and_are_drawn_from_the_whole_file(monkeypatch, stride):
    monkeypatch.setattr("evencover.data.fingerprint.KEPT_CLASSES", 300 // stride)
    found = sampled([1000, 2000], N)
    assert found.size.stride == stride
    assert len(found.labels) == min(found.size.n_rows, (LABELS % stride == 0).sum()) < N
    rows = ROWS[:, ::stride]
    place = [int(np.flatnonzero((rows == row).all(axis=1))[0]) for row in found.numbers]
    assert (LABELS[place] == found.labels).all()
    assert (ROWS[place].argmax(axis=1) == found.top).all()
    assert not (found.labels % stride).any()
    assert len(set(place)) == len(place)
    assert np.histogram(place, 6, (0, N))[0].min() > len(place) / 10
    assert (np.diff(place) > 0).mean() == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("n_classes", [2, 100, 1000, 10_000, 100_000])
def test_it_is_bounded_and_has_enough_rows(n_classes):
    for n_rows in (None, 5000, 10**6):
        size = SampleSize.of(n_classes, n_rows)
        assert size.n_rows * n_classes / size.stride <= 1 << 20
        assert 128 <= size.n_rows <= 2048
        assert n_rows is None or size.n_rows <= n_rows / size.stride


def test_labels_of_no_class_are_left_out():
    sampler = Sampler()
    sampler.add(sampler.of(Block(0, ROWS[:100], np.full(100, 300))))
    assert len(sampler.result().rows.labels) == 0
