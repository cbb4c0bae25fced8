"""A real dask cluster of two worker processes, and labelled rows in several Parquet files."""

import warnings
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evencover.data import readers as source
from evencover.engine.executors import local_cluster

N_ROWS, N_CLASSES = 6_000, 100
# Uneven on purpose: a file of one row, one of two blocks (4000 rows make one).
BOUNDS = [0, 200, 5_000, 5_001, 6_000]
BLOCK_ELEMENTS = 4_000 * N_CLASSES


@pytest.fixture(scope="session")
def client():
    distributed = pytest.importorskip("distributed")
    # Not the default of this process, as a command's is not: nothing may rely on there being one.
    with (
        local_cluster(2) as cluster,
        distributed.Client(cluster, set_as_default=False) as connected,
    ):
        connected.register_plugin(small_blocks())
        yield connected


def small_blocks():
    """What every worker does when it starts: few rows shall be several blocks there too."""
    from distributed import WorkerPlugin

    class SmallBlocks(WorkerPlugin):  # local, so that it travels to the workers as a whole
        def setup(self, worker):
            source.BLOCK_ELEMENTS = BLOCK_ELEMENTS

    return SmallBlocks()


def use_small_blocks():
    """What every process of a pool does when it starts."""
    source.BLOCK_ELEMENTS = BLOCK_ELEMENTS


@pytest.fixture(autouse=True)
def _small_blocks_here(monkeypatch):
    monkeypatch.setattr(source, "BLOCK_ELEMENTS", BLOCK_ELEMENTS)


@pytest.fixture(scope="session")
def table(simulate):
    return simulate(N_ROWS, N_CLASSES, seed=7, dtype=np.float32)


@pytest.fixture(scope="session")
def parts(table, tmp_path_factory):
    """The rows as a folder of Parquet files."""
    return write_parts(tmp_path_factory.mktemp("parts"), table, BOUNDS)


def write_parts(folder, data, bounds):
    for number, (start, stop) in enumerate(pairwise(bounds)):
        rows = data.rows[start:stop]
        columns = {
            "probs": pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1]),
            "labels": data.labels[start:stop],
        }
        pq.write_table(pa.table(columns), folder / f"rows-{number}.parquet", row_group_size=600)
    return folder


@pytest.fixture(autouse=True)
def _no_warnings_of_ours():
    from evencover import EvencoverWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        yield
