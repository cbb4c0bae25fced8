"""Clusters that cannot do the work say so in one sentence, in time: processes set up wrong."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

import evencover
from evencover import InputError, StandardPredictor
from evencover.data import as_source
from evencover.engine import executors
from evencover.engine.executors import dask_client, submitter

SCHEDULER = """
import asyncio
from distributed import Scheduler
async def go():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()
asyncio.run(go())
"""
WORKER = """
import asyncio, sys
{before}
from distributed import Worker
async def go():
    async with Worker(sys.argv[1], nthreads=1, dashboard=False) as worker:
        print(worker.address, flush=True)
        await worker.finished()
asyncio.run(go())
"""
LACKING = "sys.modules['evencover'] = None"
OTHER = "import evencover; evencover.__version__ = '0.0.1'"


@contextmanager
def process(program, *arguments):
    """A process that prints its address when it is ready."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture(scope="module")
def scheduler():
    with process(SCHEDULER) as (child, address):
        yield child, address


@pytest.fixture
def short_waits(monkeypatch):
    monkeypatch.setattr(executors, "SECONDS", 2)


def refused_within(seconds, words, function):
    begun = time.monotonic()
    with pytest.raises(InputError, match=words) as caught:
        function()
    assert time.monotonic() - begun < seconds
    assert "\n" not in str(caught.value)


def reach(address):
    with dask_client(address) as client:
        submitter(client, abs)


@pytest.mark.usefixtures("short_waits")
def test_an_address_without_a_scheduler_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        for address, words in {
            "nonsense://x": "nonsense://x",
            port: f"No Dask scheduler .*{port}",
            "tls://127.0.0.1:1": "distributed.comm.tls",
        }.items():
            refused_within(20, words, partial(reach, address))


@pytest.mark.usefixtures("short_waits")
def test_no_workers_and_unfit_ones_are_told(scheduler):
    _, address = scheduler
    refused_within(20, f"Every worker .* from {address}", lambda: reach(address))
    for program, found in {LACKING: "import of evencover", OTHER: "Got evencover 0.0.1"}.items():
        with process(WORKER.format(before=program), address) as (_, worker):
            words = f"evencover {evencover.__version__} .*{found}.* from {worker}"
            refused_within(20, words, lambda: reach(address))


@pytest.mark.deep  # waits for dask's own limits
def test_a_scheduler_that_dies_is_told(tmp_path):
    rows = np.full((200_000, 20), 0.05, dtype=np.float32)
    np.save(tmp_path / "p.npy", rows)
    labels = np.arange(len(rows)) % 20
    with (
        process(SCHEDULER) as (child, address),
        process(WORKER.format(before=""), address),
        dask_client(address) as client,
    ):
        submitter(client, abs)
        threading.Timer(0.3, os.kill, (child.pid, signal.SIGKILL)).start()

        def work():
            for _ in range(1000):
                StandardPredictor().fit(tmp_path / "p.npy", labels, executor=client)

        # It may die while the workers are asked for their version, which each fit does first.
        refused_within(60, "scheduler was lost|Every worker must have", work)


def test_a_worker_that_sees_another_file_is_named(client, tmp_path):
    np.save(tmp_path / "p.npy", np.full((50, 2), 0.5))
    source = as_source(tmp_path / "p.npy", np.arange(50) % 2)
    os.utime(tmp_path / "p.npy", ns=(1, 1))
    with pytest.raises(InputError, match=r"must not change .*worker tcp://127"):
        StandardPredictor().fit(source, executor=client)
    (tmp_path / "p.npy").unlink()
    with pytest.raises(InputError, match=r"no such file .*worker tcp://127"):
        StandardPredictor().fit(source, executor=client)


def test_a_local_cluster_listens_on_this_machine_only(client):
    info = client.scheduler_info()
    assert info["address"].startswith("tcp://127.0.0.1:")
    assert client.dashboard_link.startswith("http://127.0.0.1:")
    with open("/proc/net/tcp") as file:
        listening = [line.split() for line in file if line.split()[3] == "0A"]
    port = int(client.dashboard_link.split(":")[2].split("/")[0])
    hosts = {
        words[1].split(":")[0] for words in listening if int(words[1].split(":")[1], 16) == port
    }
    assert hosts == {"0100007F"}
