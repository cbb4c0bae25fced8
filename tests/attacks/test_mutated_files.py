"""Damaged files of every kind are read or refused in one sentence: nothing dies, hangs, swells."""

import subprocess
import sys

import pytest
from attacks import guided
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


@pytest.mark.deep
@pytest.mark.parametrize("kind", guided.KINDS)
def test_new_paths_are_read_or_refused(kind):
    """Guided by the branches of our own code, where the mutator goes by chance."""
    pytest.importorskip("atheris")
    command = [sys.executable, guided.__file__, kind, "30000", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert " cov: " in done.stderr
