"""States of server processes: kills under load, replicas, and labels that come weeks later."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException

import numpy as np
import pytest
from depth import size
from serving.service import BEARER, Server

from evencover import ClasswisePredictor, CoverageMonitor, PooledPredictor, save

for library in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(library)
pytestmark = pytest.mark.filterwarnings("default", "ignore::evencover.EvencoverWarning")

KILLS, CONNECTIONS, BATCH = size(short=1, deep=8), 8, 3


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


KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.deep)]


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


@pytest.mark.parametrize("kind", KINDS)
def test_every_acknowledged_label_survives_kills_exactly_once(kind, folder, data, fitted):
    rng, clients = np.random.default_rng(5), Clients(data)
    with state_in(kind, folder) as state:
        for _ in range(KILLS):
            server = Server(folder, "--state", state)
            assert server.is_up()
            killer = threading.Timer(rng.uniform(0.02, 0.6), server.process.kill)
            killer.start()
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                list(pool.map(clients.run, [server] * CONNECTIONS))
            killer.join()
            server.end(signal.SIGKILL)
        server = Server(folder, "--state", state)
        try:
            while clients.doubtful:
                clients.send(server, *clients.doubtful.pop())
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
            sql = "SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS ids FROM served WHERE label > ''"
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


def simulated_week(week, n_rows, n_classes, drifted):
    """Rows and labels of a week; from the fifth on some classes look like their neighbors."""
    rng = np.random.default_rng([11, week])
    labels = rng.integers(0, n_classes, n_rows)
    logits = rng.normal(size=(n_rows, n_classes))
    looks = labels.copy()
    if week >= 5:
        moved = np.isin(labels, drifted) & (rng.random(n_rows) < 0.7)
        looks[moved] = (labels[moved] + 1) % n_classes
    logits[np.arange(n_rows), looks] += 4
    rows = np.exp(logits)
    return rows / rows.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize(
    "method", [ClasswisePredictor, pytest.param(PooledPredictor, marks=pytest.mark.deep)]
)
def test_eight_weeks_with_labels_two_weeks_late_name_the_drifted_classes(serve, tmp_path, method):
    """By id alone, through HTTP: in the first week whose labels show them, and no others."""
    n_classes, drifted = size(short=20, deep=40), [3, 10, 17]
    n_rows = 60 * n_classes
    fitted = method(alpha=0.1).fit(*simulated_week(0, 8 * n_rows, n_classes, drifted))
    save(fitted, tmp_path / "weekly.safetensors")
    client = serve(path=tmp_path / "weekly.safetensors", state=tmp_path / "weekly.db")
    weeks, named = {}, {}
    for now in range(1, 11):
        if now <= 8:
            weeks[now] = simulated_week(now, n_rows, n_classes, drifted)
            ids = [f"week {now} row {n}" for n in range(n_rows)]
            sent = {"rows": weeks[now][0].tolist(), "ids": ids}
            assert client.post("/v1/sets", json=sent).status_code == 200
        if now > 2:
            week = now - 2
            ids = [f"week {week} row {n}" for n in range(n_rows)]
            sent = {"ids": ids, "labels": weeks[week][1].tolist()}
            sent["time"] = [f"2026-01-{7 * week:02}" if week < 5 else f"2026-02-{week:02}"] * n_rows
            found = client.post("/v1/labels", json=sent, headers=BEARER).json()
            assert (found["counted"], found["waiting"]) == (n_rows, 0)
            shown = client.get("/v1/coverage").json()
            named[week] = {each["index"] for each in shown["classes"] if each["alarm"]}
            begun = {each["since"] for each in shown["classes"] if each["alarm"]}
    assert named[1] == named[2] == named[3] == named[4] == set()
    assert named[5] == set(drifted)
    assert named[8] == set(drifted)
    assert begun <= {"2026-01-28", "2026-02-05"}  # the block in which the fall is may begin earlier
    assert [p["rows"] for p in shown["periods"]] == [n_rows] * 8
