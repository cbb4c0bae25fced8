"""
8. Run on a cluster
===================

The same calls work on one core and on many machines, with bit-identical results. This tutorial
splits the data into files, as a data pipeline would, and uses a dask cluster.
"""

# sphinx_gallery_thumbnail_path = '_static/cluster.svg'

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evencover.data import load_languages

probabilities, labels, names = load_languages()
folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
for part in range(4):
    which = "calibration" if part < 2 else "new"
    (here / which).mkdir(exist_ok=True)
    rows = slice(part, None, 4)
    table = pa.table({"probs": list(probabilities[rows]), "label": labels[rows]})
    pq.write_table(table, here / which / f"{part}.parquet")
print(sorted(str(path.relative_to(here)) for path in here.rglob("*.parquet")))

# %%
# Connect
# -------
# On your cluster, use ``Client("tcp://scheduler:8786")``. This tutorial runs two workers in one
# process.

import logging

from dask.distributed import Client, LocalCluster

logging.getLogger("distributed").setLevel(logging.ERROR)
here_only = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **here_only)
client = Client(cluster)
print(len(client.scheduler_info()["workers"]), "workers")

# %%
# Calibrate
# ---------
# Pass ``executor=``; all else stays the same. Each worker reads a file and returns one score and
# one label per row.

import numpy as np

from evencover import ClusteredPredictor

files = str(here / "calibration" / "*.parquet")
far = ClusteredPredictor(alpha=0.1).fit(files, executor=client)
near = ClusteredPredictor(alpha=0.1).fit(files)
print("bit-identical:", np.array_equal(far.thresholds_, near.thresholds_))

# %%
# Predict
# -------
# Each worker writes the sets of one input file. After an interruption, the same call writes only
# the missing files.

from evencover import predict_to_folder

predict_to_folder(far, str(here / "new" / "*.parquet"), here / "sets", executor=client)
print(sorted(path.name for path in (here / "sets").iterdir()))
for row in pq.read_table(here / "sets" / "part-00000.parquet").slice(0, 2).to_pylist():
    print(row)

# %%
# Evaluate
# --------
# Workers merge their counts and return about a hundred bytes per class.

report = far.evaluate(str(here / "new" / "*.parquet"), executor=client)
print(f"coverage {report.marginal_coverage:.3f}, set size {report.avg_size:.2f}")
client.close()
cluster.close()

# %%
# Command line
# ------------
# .. code-block:: shell
#
#    evencover calibrate 'calibration/*.parquet' -o model.safetensors --dask tcp://scheduler:8786
#    evencover predict   model.safetensors 'new/*.parquet' -o sets --dask tcp://scheduler:8786
#
# ``--dask local`` starts processes on this machine. :doc:`/howto/cluster` covers data transfer,
# failures and scaling. Dask connections carry pickled code: use TLS on shared networks.
