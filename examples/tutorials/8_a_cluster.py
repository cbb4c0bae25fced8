"""
8. A cluster
============

The same calls work on one core and on many machines, and give the same bytes. This page cuts the
data into files as a data pipeline would, and calibrates, predicts and evaluates on a dask cluster.
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
# Workers
# -------
# On your cluster: ``Client("tcp://scheduler:8786")``. Here it is two workers inside this process,
# which is enough to see how it goes.

import logging

from dask.distributed import Client, LocalCluster

logging.getLogger("distributed").setLevel(logging.ERROR)
here_only = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **here_only)
client = Client(cluster)
print(len(client.scheduler_info()["workers"]), "workers")

# %%
# ``executor=`` is the only thing that changes. Each file goes to a worker, which sends back a
# score and a label for each row; the rows themselves stay where they are.

import numpy as np

from evencover import ClusteredPredictor

pattern = str(here / "calibration" / "*.parquet")
far = ClusteredPredictor(alpha=0.1).fit(pattern, executor=client)
near = ClusteredPredictor(alpha=0.1).fit(pattern)
print("the same bits:", np.array_equal(far.thresholds_, near.thresholds_))

# %%
# Sets, in a folder
# -----------------
# Sets are written by the workers, one file for each part of the input. If the driver is killed
# halfway, the same call makes only what is missing.

from evencover import predict_to_folder

predict_to_folder(far, str(here / "new" / "*.parquet"), here / "sets", executor=client)
print(sorted(path.name for path in (here / "sets").iterdir()))
for row in pq.read_table(here / "sets" / "part-00000.parquet").slice(0, 2).to_pylist():
    print(row)

# %%
# Evaluate: counts are merged on the workers, and about a hundred bytes a class come back.

report = far.evaluate(str(here / "new" / "*.parquet"), executor=client)
print(f"coverage {report.marginal_coverage:.3f}, {report.avg_size:.2f} labels a set")
client.close()
cluster.close()

# %%
# In a shell
# ----------
# .. code-block:: shell
#
#    evencover calibrate 'calibration/*.parquet' -o model.safetensors --dask tcp://scheduler:8786
#    evencover predict   model.safetensors 'new/*.parquet' -o sets --dask tcp://scheduler:8786
#
# ``--dask local`` uses this machine's cores as processes. What is moved, what happens when a
# worker dies, and how far it goes: :doc:`/cluster`. Dask's own connections carry pickled code:
# use TLS on a network that is not yours alone.
