"""A real dask cluster of two worker processes, and labelled rows in several Parquet files."""

import warnings
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evencover.engine.dask import local_cluster

N_ROWS, N_CLASSES = 15_000, 400
# Uneven on purpose: a file of one row, one of two blocks (10,485 rows make one).
BOUNDS = [0, 500, 12_500, 12_501, 15_000]


@pytest.fixture(scope="session")
def client():
    distributed = pytest.importorskip("distributed")
    with local_cluster(2) as cluster, distributed.Client(cluster) as connected:
        yield connected


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
        pq.write_table(pa.table(columns), folder / f"rows-{number}.parquet", row_group_size=1_500)
    return folder


@pytest.fixture(autouse=True)
def _no_warnings_of_ours():
    from evencover import EvencoverWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvencoverWarning)
        yield
