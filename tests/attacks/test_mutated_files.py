"""Damaged files of every kind are read or refused in one sentence: nothing dies, hangs, swells."""

import pytest
from attacks.mutator import attack
from attacks.seeds import ENDINGS, seeds_of
from depth import size

# In the full form a million in all; readers of tables and stores take longer than those of arrays.
N_MUTANTS = {
    **dict.fromkeys(ENDINGS, size(short=60, deep=120_000)),
    "hdf5": size(short=40, deep=60_000),
    "zarr": size(short=12, deep=30_000),
    "model": size(short=100, deep=200_000),
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_mutants_are_read_or_refused(kind, tmp_path):
    (tmp_path / "seeds").mkdir()
    seeds = seeds_of(kind, tmp_path / "seeds")
    numbers = range(N_MUTANTS[kind])
    n_all, n_read, n_refused, troubles = attack(kind, seeds, ENDINGS[kind], tmp_path, numbers)
    assert not troubles, "\n".join(f"{trouble.number}: {trouble.what}" for trouble in troubles)
    assert n_read + n_refused == n_all == len(numbers)
    assert min(n_read, n_refused) > 0  # seeds that nobody can read would prove nothing
