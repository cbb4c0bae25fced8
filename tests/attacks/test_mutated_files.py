"""Damaged files of every kind are read or refused in one sentence: nothing dies, hangs, swells."""

import pytest
from attacks.mutator import attack
from attacks.seeds import ENDINGS, seeds_of
from depth import size

# In the full form a million in all; readers of tables and stores take longer than those of arrays.
MILLION = {
    **{"model": 250_000, "npy": 160_000, "jsonl": 160_000, "csv": 140_000, "npz": 100_000},
    **{"safetensors": 80_000, "arrow": 70_000, "parquet": 50_000, "hdf5": 30_000, "zarr": 4_000},
}
FEW = {**dict.fromkeys(ENDINGS, 60), "model": 100, "hdf5": 40, "zarr": 12}


@pytest.mark.parametrize("kind", ENDINGS)
def test_mutants_are_read_or_refused(kind, tmp_path):
    (tmp_path / "seeds").mkdir()
    seeds = seeds_of(kind, tmp_path / "seeds")
    numbers = range(size(short=FEW[kind], deep=MILLION[kind]))
    n_all, n_read, n_refused, troubles = attack(kind, seeds, ENDINGS[kind], tmp_path, numbers)
    assert not troubles, "\n".join(f"{trouble.number}: {trouble.what}" for trouble in troubles)
    assert n_read + n_refused == n_all == len(numbers)
    assert min(n_read, n_refused) > 0  # seeds that nobody can read would prove nothing
