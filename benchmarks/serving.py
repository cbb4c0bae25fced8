"""Measure the speed of the service: ``python -m benchmarks.serving``; needs evencover[serve].

A server process and a load generator in this one, on one machine (loopback), with a fixed number of
requests on one connection and on 8. One row as JSON and 1000 rows as binary tensors, compared with
`predict_set` in this process on the same rows. Then labels by id and the monitor's findings with
10,000 classes and a million labeled rows. Writes results/serving.json and .md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import RESULTS, write_results
from evencover import BasePredictor, ClasswisePredictor, CoverageMonitor, PooledPredictor, save
from evencover.monitoring.state import Served
from evencover.sets import PredictionSets

CONNECTIONS, CLASSES, ROWS = 8, 1000, 1000
MONITORED, LABELED, PERIODS, LOOKS = 10_000, 1_000_000, 30, 40
LOOKED = {"findings": "/v1/coverage", "metrics": "/metrics"}
TOKEN = "benchmark"
BARE = "the same body, bare starlette"
BARE_SERVER = """
import socket
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def answer(request):
    await request.body()
    return Response(b'{"sets": [[1]]}', media_type="application/json")

listening = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
app = Starlette(routes=[Route("/v1/sets", answer, methods=["POST"])])
config = uvicorn.Config(app, http="h11", log_level="warning", access_log=False)
uvicorn.Server(config).run(sockets=[listening])
"""


def made(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate probabilities of an accurate model in float32, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, n_rows)
    logits = rng.normal(size=(n_rows, CLASSES))
    logits[np.arange(n_rows), labels] += rng.normal(9, 2, size=n_rows)
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32), labels


def json_body(rows: np.ndarray) -> bytes:
    """Encode one row with its id."""
    content = {"rows": rows.astype(float).round(9).tolist(), "ids": list(range(len(rows)))}
    return json.dumps(content).encode()


def tensor_body(rows: np.ndarray) -> tuple[bytes, str]:
    """Encode many rows with ids for the Open Inference Protocol; also return its header."""
    texts = [str(row).encode() for row in range(len(rows))]
    ids = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    inputs = [
        {
            "name": name,
            "shape": list(shape),
            "datatype": datatype,
            "parameters": {"binary_data_size": size},
        }
        for name, shape, datatype, size in (
            ("probabilities", rows.shape, "FP32", rows.nbytes),
            ("ids", rows.shape[:1], "BYTES", len(ids)),
        )
    ]
    names = "sizes", "members", "starts"
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in names]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    body = head + rows.tobytes() + ids
    return body, f"Inference-Header-Content-Length: {len(head)}\r\n"


def post(path: str, body: bytes, more: str = "", method: str = "POST") -> bytes:
    """Return a request as bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKEN}\r\n{more}"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def one_connection(port: int, request: bytes, times: int) -> tuple[list[float], int]:
    """Send requests on one connection: the seconds of each, and the number of errors."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds, errors = [], 0
    for _ in range(times):
        begun = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        seconds.append(time.perf_counter() - begun)
        errors += not head.startswith(b"HTTP/1.1 200")
    writer.close()
    return seconds, errors


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far (Linux), independent of the load."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(
    port: int, sent: bytes, requests: int, connections: int, pid: int
) -> dict[str, float]:
    """Run all connections concurrently, each without a pause."""
    await one_connection(port, sent, 3)  # the first requests load lazy imports
    begun, used = time.perf_counter(), cpu_seconds(pid)
    each = requests // connections
    found = await asyncio.gather(*(one_connection(port, sent, each) for _ in range(connections)))
    took = time.perf_counter() - begun
    seconds = np.concatenate([part for part, _ in found])
    return {
        "connections": connections,
        "requests": len(seconds),
        "errors": sum(errors for _, errors in found),
        "per_second": len(seconds) / took,
        "p50_ms": 1000 * float(np.quantile(seconds, 0.5)),
        "p99_ms": 1000 * float(np.quantile(seconds, 0.99)),
        "cpu_ms": 1000 * (cpu_seconds(pid) - used) / len(seconds),
    }


def port_of(server: subprocess.Popen[str]) -> int:
    """Wait for a server; return its port."""
    assert server.stdout is not None
    return int(server.stdout.readline().rpartition(":")[2])


def hostile(port: int) -> list[dict[str, float | str]]:
    """Measure other requests while a client sends shapes whose product took 41 seconds."""
    ids = {"name": "ids", "shape": [2**31 - 1] * 100_000, "datatype": "BYTES", "data": ["a"]}
    attack = post("/v2/models/model/infer", json.dumps({"inputs": [ids]}).encode())
    look = post("/healthz", b"", method="GET")

    async def both() -> tuple[list[float], list[float]]:
        attacker = asyncio.create_task(one_connection(port, attack, 200))
        seconds, _ = await one_connection(port, look, 200)
        return seconds, (await attacker)[0]

    names = "GET /healthz, next to a hostile client", "a hostile request"
    return [
        {
            "request": name,
            "connections": 1,
            "requests": len(seconds),
            "errors": 0,
            "per_second": len(seconds) / sum(seconds),
            "p50_ms": 1000 * float(np.quantile(seconds, 0.5)),
            "p99_ms": 1000 * float(np.quantile(seconds, 0.99)),
            "cpu_ms": math.nan,
        }
        for name, seconds in zip(names, asyncio.run(both()), strict=True)
    ]


def alone(predictor: BasePredictor, rows: np.ndarray, times: int) -> tuple[float, float]:
    """Measure milliseconds of `predict_set` for the same rows: processor time and wall time."""
    ids = np.arange(len(rows))
    begun, clock = time.process_time(), time.perf_counter()
    for _ in range(times):
        predictor.predict_set(rows, ids=ids)
    used, took = time.process_time() - begun, time.perf_counter() - clock
    return 1000 * used / times, 1000 * took / times


def measure(requests: int) -> list[dict[str, float | str]]:
    """Start the server, send requests, and stop it."""
    predictor = PooledPredictor(score="aps").fit(*made(20_000, seed=1))
    rows, _ = made(ROWS, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        save(predictor, Path(folder) / "model.safetensors")
        command = [sys.executable, "-m", "evencover", "serve", "model.safetensors", "--port", "0"]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=folder, env=dict(os.environ)
        )
        bare = subprocess.Popen([sys.executable, "-c", BARE_SERVER], stdout=-1, text=True)
        try:
            port, bare_port = map(port_of, (server, bare))
            one_row = post("/v1/sets", json_body(rows[:1]))
            many = post("/v2/models/model/infer", *tensor_body(rows))
            kinds = {
                "one row, JSON": (one_row, requests, rows[:1]),
                BARE: (one_row, requests, rows[:1]),
                f"{ROWS} rows, binary tensors": (many, requests // 20, rows),
            }
            found: list[dict[str, float | str]] = []
            for name, (sent, n_requests, _) in kinds.items():
                at, pid = (bare_port, bare.pid) if name == BARE else (port, server.pid)
                for connections in (1, CONNECTIONS):
                    n_own = max(CONNECTIONS, n_requests // (1 if connections > 1 else 4))
                    one = load(at, sent, n_own, connections, pid)
                    found.append({"request": name, **asyncio.run(one)})
            found += hostile(port)
        finally:
            for process in (server, bare):
                process.terminate()
                process.wait(timeout=20)
    alone(predictor, rows, 3)
    for each in found:
        part = kinds.get(str(each["request"]), kinds[BARE])[2]
        times = alone(predictor, part, 2000 if len(part) == 1 else 100)
        each["predict_set_cpu_ms"], each["predict_set_ms"] = times
    return found


def monitored(folder: Path, labels: int) -> None:
    """Write a model of many classes, and a state with a million labeled rows and others to come."""
    rng = np.random.default_rng(3)
    classes = np.repeat(np.arange(MONITORED), 20)
    predictor = ClasswisePredictor().fit_scores(rng.random(len(classes)), classes, MONITORED)
    save(predictor, folder / "many.safetensors")
    monitor = CoverageMonitor(predictor, state=folder / "watch.db")
    for period in range(PERIODS):
        n_rows, day = LABELED // PERIODS, f"2026-01-{period + 1:02}"
        classes, keys = rng.integers(0, MONITORED, n_rows), rng.integers(0, 2**63, n_rows)
        is_hit = rng.random(n_rows) < 0.92
        served = rows_of(rng, monitor.model.key, keys, day, classes, is_hit)
        monitor.state.update([served], classes.tolist())
    for start in range(0, labels, 10_000):
        keys = np.arange(start, min(start + 10_000, labels))
        monitor.state.record([rows_of(rng, monitor.model.key, keys, "2026-02-01")])
    monitor.state.close()


def rows_of(
    rng: np.random.Generator,
    model: int,
    keys: np.ndarray,
    day: str,
    classes: np.ndarray | int = 0,
    is_hit: np.ndarray | bool = False,
) -> Served:
    """Return served rows with sets of 5 classes, among them those of `classes` that are hits."""
    n_rows = len(keys)
    members = rng.integers(0, MONITORED, (n_rows, 5))
    members[:, 0] = np.where(is_hit, classes, members[:, 0])
    starts = np.arange(0, 5 * n_rows + 1, 5)
    sets = PredictionSets.from_csr(starts, members.ravel(), MONITORED)
    return Served(model, day, keys, keys, np.full(n_rows, time.time()), sets, sets)


def memory(pid: int) -> float:
    """Megabytes of memory that a process has now (Linux)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def watch(port: int, pid: int, labels: int) -> list[dict[str, float | str]]:
    """Post labels by id one by one, and look at the findings now and then, after a new label."""
    rng = np.random.default_rng(4)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(sent: bytes) -> tuple[float, bytes]:
        begun = time.perf_counter()
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        return time.perf_counter() - begun, await reader.readexactly(length)

    looks = {name: post(path, b"", method="GET") for name, path in LOOKED.items()}
    await ask(looks["findings"])  # the first one reads everything
    seconds: dict[str, list[float]] = {"one label by id": [], **{name: [] for name in looks}}
    used, sizes = dict.fromkeys(seconds, 0.0), []
    every = max(1, labels // LOOKS)
    for start in range(0, labels, every):
        before = cpu_seconds(pid)
        for n in range(start, min(labels, start + every)):
            label = int(rng.integers(0, MONITORED))
            content = json.dumps({"ids": [n], "labels": [label]}).encode()
            took, answer = await ask(post("/v1/labels", content))
            assert json.loads(answer)["counted"] == 1
            seconds["one label by id"].append(took)
        used["one label by id"] += cpu_seconds(pid) - before
        for name, look in looks.items():
            n += 1  # a label that the findings do not have
            content = json.dumps({"ids": [f"later {n}"], "labels": [0]}).encode()
            await ask(post("/v1/labels", content))
            before = cpu_seconds(pid)
            seconds[name].append((await ask(look))[0])
            used[name] += cpu_seconds(pid) - before
        sizes.append(memory(pid))
    writer.close()
    warm = sizes[len(sizes) // 4 :]
    return [
        {
            "request": f"{name}, {MONITORED:,} classes, {LABELED:,} labeled rows",
            "requests": len(each),
            "p50_ms": 1000 * float(np.median(each)),
            "p99_ms": 1000 * float(np.quantile(each, 0.99)),
            "cpu_ms": 1000 * used[name] / len(each),
            "first_mb": warm[0],
            "last_mb": warm[-1],
        }
        for name, each in seconds.items()
    ]


def measure_monitor(labels: int) -> list[dict[str, float | str]]:
    """Start the server on a large state, post labels, and end it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        monitored(folder, labels)
        command = [sys.executable, "-m", "evencover", "serve", "many.safetensors", "--port", "0"]
        server = subprocess.Popen(
            [*command, "--state", "watch.db"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | {"EVENCOVER_TOKEN": TOKEN},
        )
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().rpartition(":")[2])
            return asyncio.run(watch(port, server.pid, labels))
        finally:
            server.terminate()
            server.wait(timeout=60)


def monitor_table(found: list[dict[str, float | str]]) -> str:
    """The figures of the monitor as Markdown."""
    lines = [
        "",
        "One connection, SQLite (`synchronous=FULL`); the findings after a label that they did not "
        "have. Memory after a quarter of the requests, and in the end.",
        "",
        "| request | requests | p50 ms | p99 ms | processor, server ms | memory, MB |",
        f"|{'---|' * 6}",
    ]
    lines += [
        f"| {each['request']} | {each['requests']} | {each['p50_ms']:.1f} | {each['p99_ms']:.1f} "
        f"| {each['cpu_ms']:.1f} | {each['first_mb']:.0f}, {each['last_mb']:.0f} |"
        for each in found
    ]
    return "\n".join(lines) + "\n"


def table(found: list[dict[str, float | str]]) -> str:
    """Format the results as Markdown."""
    lines = [
        "# Speed of the service",
        "",
        f"{CLASSES} classes, POOLED with APS, 1 and {CONNECTIONS} connections that send requests "
        "without a pause, server and load generator on the same two cores (loopback). On "
        f"{CONNECTIONS} connections a request waits for up to {CONNECTIONS - 1} others, so its "
        "latency includes waiting. The last four columns are milliseconds of one "
        "request: of the server's processor time, of `predict_set` called directly on the same "
        "rows, and the "
        "overhead: the server's processor time beyond that of `predict_set`, for reading, sorting "
        "each set by probability, counting for drift and writing. Load of the "
        f"machine: {os.getloadavg()[0]:.1f}; above 2, use only the processor times.",
        "",
        "| request | connections | requests | errors | per second | p50 ms | p99 ms | "
        "processor, server | processor, `predict_set` | clock, `predict_set` | overhead |",
        f"|{'---|' * 11}",
    ]
    for each in found:
        overhead = float(each["cpu_ms"]) - float(each["predict_set_cpu_ms"])
        lines.append(
            f"| {each['request']} | {each['connections']} | {each['requests']} | {each['errors']} "
            f"| {each['per_second']:.0f} | {each['p50_ms']:.1f} | {each['p99_ms']:.1f} | "
            f"{each['cpu_ms']:.2f} | {each['predict_set_cpu_ms']:.3f} | "
            f"{each['predict_set_ms']:.3f} | {overhead:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print and write; the exit code is 1 if there was an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--labels", type=int, default=10_000)
    options = parser.parse_args()
    found = measure(options.requests)
    watched = measure_monitor(options.labels)
    text = table(found) + monitor_table(watched)
    write_results(options.out, "serving", {"sets": found, "monitor": watched}, text)
    return int(any(each["errors"] for each in found))


if __name__ == "__main__":
    sys.exit(main())
