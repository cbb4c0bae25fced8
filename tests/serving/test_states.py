"""States of server processes: kills under load."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException

import numpy as np
import pytest
from depth import size
from serving.service import Server

from evencover import CoverageMonitor

for library in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

KILLS, CONNECTIONS, BATCH = size(short=1, deep=25), 8, size(short=3, deep=10)
LABELS = size(short=30, deep=20_000)


@contextmanager
def state_in(kind, folder):
    """Where a state is kept: a file, or a database server of the test's own."""
    if kind == "sqlite":
        yield str(folder / "watch.db")
        return
    pytest.importorskip("psycopg")
    from postgresql import postgresql

    with postgresql() as address:
        yield address


KINDS = [("sqlite", 1), pytest.param("postgresql", 2, marks=pytest.mark.deep)]


class Clients:
    """Connections that ask for sets and send labels until they are acknowledged."""

    def __init__(self, data):
        self.data, self.lock, self.next = data, threading.Lock(), 0
        self.served, self.labeled = [], []  # acknowledged, by the first row of their batch
        self.doubtful = []  # (path, first row): not acknowledged when the server was killed

    def content(self, path, first):
        numbers = np.arange(first, first + BATCH)
        ids = [f"row {n}" for n in numbers]
        if path == "/v1/sets":
            return {"ids": ids, "rows": self.data.rows[numbers % 600].tolist()}
        return {"ids": ids, "labels": self.data.labels[numbers % 600].tolist()}

    def run(self, server):
        """Send what is in doubt again, then new rows, until the server is gone."""
        try:
            while True:
                with self.lock:
                    if self.doubtful:
                        path, first = self.doubtful.pop()
                    else:
                        path, first = "/v1/sets", self.next
                        self.next += BATCH
                self.send(server, path, first)
        except (OSError, HTTPException, json.JSONDecodeError):
            return

    def send(self, server, path, first):
        try:
            status, found = server.ask("POST", path, self.content(path, first))
        except (OSError, HTTPException, json.JSONDecodeError):
            with self.lock:
                self.doubtful.append((path, first))
            raise
        assert status == 200, found
        if path == "/v1/sets":
            with self.lock:
                self.served.append(first)
            self.send(server, "/v1/labels", first)
        else:  # it waits if its rows were in the queue of a server that was killed
            with self.lock:
                self.labeled.append(first)


@pytest.mark.parametrize(("kind", "n_servers"), KINDS)
def test_every_acknowledged_label_survives_kills_exactly_once(
    kind, n_servers, folder, data, fitted
):
    rng, clients = np.random.default_rng(5), Clients(data)
    with state_in(kind, folder) as state:
        for _ in range(KILLS):
            servers = [Server(folder, "--state", state) for _ in range(n_servers)]
            assert all(server.is_up() for server in servers)
            killers = [
                threading.Timer(rng.uniform(0.02, 0.6), server.process.kill) for server in servers
            ]
            for killer in killers:
                killer.start()
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                list(pool.map(clients.run, servers * (CONNECTIONS // n_servers)))
            for killer, server in zip(killers, servers, strict=True):
                killer.join()
                server.end(signal.SIGKILL)
        server = Server(folder, "--state", state)
        try:
            while clients.doubtful:
                clients.send(server, *clients.doubtful.pop())
            while len(clients.labeled) * BATCH < LABELS:
                clients.next += BATCH
                clients.send(server, "/v1/sets", clients.next - BATCH)
            for first in clients.labeled:  # those that were recorded are left out
                server.ask("POST", "/v1/sets", clients.content("/v1/sets", first))
        finally:
            server.end()
        acknowledged = np.repeat(clients.labeled, BATCH) + np.tile(
            np.arange(BATCH), len(clients.labeled)
        )
        assert len(acknowledged) == len(np.unique(acknowledged)) > KILLS
        assert sorted(clients.labeled) == sorted(clients.served)
        monitor = CoverageMonitor(fitted, state=state)
        found = monitor.snapshot()
        with monitor.state.reading() as run:
            sql = "SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS ids FROM labels WHERE model <> 0"
            assert run(sql) == [(len(acknowledged), len(acknowledged))]
        ids = [f"row {n}" for n in acknowledged]
        rows, labels = data.rows[acknowledged % 600], data.labels[acknowledged % 600]
        covered = fitted.predict_set(rows, ids=ids).contains(labels)
        counts = [np.bincount(part, minlength=5) for part in (labels, labels[covered])]
        np.testing.assert_array_equal(found.rows, counts[0])
        np.testing.assert_array_equal(found.covered, counts[1])
        assert found.totals == (len(acknowledged), covered.sum())
        by_period = [(row.rows, row.covered) for row in found.periods if row.class_index < 0]
        assert tuple(np.sum(by_period, axis=0)) == found.totals
        monitor.state.close()
