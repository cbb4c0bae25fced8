"""Prediction sets over HTTP (starlette, uvicorn), with a monitor of their coverage."""

from __future__ import annotations

import asyncio
import gc
import hmac
import math
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from inspect import isawaitable
from itertools import pairwise
from threading import Lock
from typing import Any

import h11
import numpy as np
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Histogram, exposition
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

import evencover
from evencover.arrays import Array
from evencover.errors import InputError, one_line
from evencover.monitoring import Snapshot
from evencover.monitoring.database import StateError
from evencover.serving import bodies
from evencover.serving.bodies import JSON, Limits, RequestError, encode
from evencover.serving.service import Loaded, Service
from evencover.sets import PredictionSets

RELOAD_SECONDS = 2.0
STATE_SECONDS = 30.0  # that a request waits for the state
SCRAPE_SECONDS = 2.0  # that metrics wait for the monitor; else they show its last findings
MAX_HEAD = 2**16  # bytes of a request's head
MOST_BODIES = 100  # that are received or answered at a time
SMALL_BODY = 2**15  # bytes of a body whose answer takes less time than to pass it to a thread
Endpoint = Callable[[Any], Any]  # a request to a value for JSON or a Response, or a coroutine
SET_SIZES = np.array([0, 1, 2, 5, 10, 20, 50, 100, 1000])  # upper limits of the histogram


class Metrics:
    """Prometheus metrics: of requests and sets as they come, of coverage as it was last read."""

    def __init__(self, service: Service) -> None:
        self.registry: Any = CollectorRegistry()
        text, how = "Requests by path and status.", {"registry": self.registry}
        self.requests = Counter("evencover_requests", text, ["path", "status"], **how)
        text = "Time to answer a request."
        self.seconds = Histogram("evencover_request_seconds", text, ["path"], **how)
        self.accepted = Counter("evencover_accepted_rows", "Rows that need no review.", **how)
        text = "Requests with an unexpected error, status 422."
        self.failures = Counter("evencover_failures", text, **how)
        self.found: Snapshot | None = None  # the findings of the monitor
        self._service, self._lock = service, Lock()
        self._sizes, self._sum_of_sizes = np.zeros(len(SET_SIZES) + 1, dtype=np.int64), 0
        self.registry.register(self)

    def count(self, sets: PredictionSets) -> None:
        """Count sets that were computed."""
        sizes, accepted = SET_SIZES.searchsorted(sets.sizes), int(sets.accepted.sum())
        with self._lock:
            self._sizes += np.bincount(sizes, minlength=len(self._sizes))
            self._sum_of_sizes += len(sets.indices)
        self.accepted.inc(accepted)

    def collect(self) -> Iterator[Any]:
        """Yield the sizes of sets and the gauges to Prometheus."""
        names, counts = [*map(str, map(float, SET_SIZES.tolist())), "+Inf"], self._sizes.cumsum()
        buckets, text = [*zip(names, counts.tolist(), strict=True)], "Classes in a set."
        yield HistogramMetricFamily("evencover_set_size", text, buckets, self._sum_of_sizes)
        for name, text, values, *labels in self._gauges():
            family = GaugeMetricFamily(f"evencover_{name}", text, labels=labels)
            for of, value in (values if labels else {(): values}).items():
                family.add_metric(of, math.nan if value is None else value)
            yield family

    def _gauges(self) -> Iterator[tuple[Any, ...]]:
        """Yield the name, the text, the value or values by label, and the names of labels."""
        health, found = self._service.health(), self.found
        yield "degraded", "1 if /healthz reports a problem.", health["status"] != "ok"
        yield "queued_rows", "Rows that wait to be recorded.", health["queued_rows"]
        yield "dropped_rows", "Rows that were not recorded.", health["dropped_rows"]
        if found is None:
            return
        recent, parts = found.recent(), dict[tuple[str, str], float]()
        for of, part in recent.items():
            low, high = part["interval"]
            parts |= {(of, "low"): low, (of, "high"): high, (of, "coverage"): part["coverage"]}
        answers, alarms = found.answers(), {(name,): on.alarm for name, on in found.tests().items()}
        yield "expired_rows", "Rows that were removed without a label.", found.expired
        yield "labeled_rows", "Labeled rows that were counted.", recent["all"]["rows"]
        yield "coverage", "Overall coverage of the labeled rows.", recent["all"]["coverage"]
        text = "Coverage of recent labels, with 95% limits."
        yield "recent_coverage", text, parts, "of", "value"
        text = "Accuracy of the answers to labeled rows."
        yield "answer_accuracy", text, answers and answers["accuracy"]
        yield "waiting_labels", "Labels that wait for their row.", found.waiting
        yield "alarm_level", "E-value at which one class more is in alarm.", found.alarm_level
        yield "classes_in_alarm", "Classes likely below target coverage.", len(found.alarms)
        yield "alarm", "1 if a test of coverage has an alarm.", alarms, "test"


class Application:
    """A service over HTTP: an endpoint is a function from a request to a value for JSON.

    Sets are computed on the threads of the event loop. Whatever reads the state runs on one thread
    of its own, and the service writes on another, so that sets never wait for a database.

    Parameters
    ----------
    service
        What answers.
    token
        The token for sets and labels; without it sets are open, and there are no labels.
    limits
        Limits of requests.
    watch
        Reload the model when its file changes.
    note
        Print a message.
    """

    def __init__(
        self,
        service: Service,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        watch: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.service, self.token, self.limits = service, token, limits or Limits()
        self.watch, self.note, self.metrics = watch, note, Metrics(service)
        self._slots = asyncio.Semaphore(MOST_BODIES)
        self._reader = ThreadPoolExecutor(1, "evencover-reader")

    def asgi(self) -> Any:
        """Return the application for a server, or for more routes."""
        about = {"name": "evencover", "version": evencover.__version__}
        post: dict[str, Endpoint] = {"/v1/sets": self.sets, "/v1/labels": self.labels}
        get: dict[str, Endpoint] = {
            "/v1/coverage": lambda _: self._read(self._findings),
            "/v1/model": lambda _: self.service.now.describe(),
            "/healthz": lambda _: self.service.health(),
            "/metrics": self.prometheus,
            "/v2": lambda _: about | {"extensions": ["binary_tensor_data"]},
            "/v2/health/live": lambda _: {"live": True},
            "/v2/health/ready": lambda _: {"ready": True},
        }
        for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            get[path] = lambda request: bodies.metadata(self._named(request).describe())
            get[f"{path}/ready"] = lambda request: {
                "name": self._named(request).name,
                "ready": True,
            }
            post[f"{path}/infer"] = self.infer
        routes = [
            Route(path, partial(self._answer, path, endpoint), methods=[method])
            for method, endpoints in (("POST", post), ("GET", get))  # the frequent ones first
            for path, endpoint in endpoints.items()
        ]
        # Requests for other paths or methods, and those that fail, are answered with JSON, too.
        handlers: Any = {HTTPException: _http_error, Exception: _http_error}
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(self._reload())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await asyncio.to_thread(self.service.close)
            self._reader.shutdown(wait=False)

    async def _reload(self) -> None:
        """Reload a changed model; on an error keep the current one, show it, and try again."""
        while self.watch:
            await asyncio.sleep(RELOAD_SECONDS)
            try:
                if await asyncio.to_thread(self.service.reload):
                    self.note(f"loaded a new model: {self.service.now.version}")
                self.service.problem = None
            except Exception as error:  # a file half written, a full disk, no permission
                self.service.problem = one_line(error)
                self.note(self.service.problem)

    async def _answer(self, path: str, endpoint: Endpoint, request: Any) -> Any:
        """Answer a request with JSON: errors become a status, and every request is measured."""
        begun, status = time.perf_counter(), 500
        try:
            answer = endpoint(request)
            answer = await answer if isawaitable(answer) else answer
            status = 200
        except StateError as error:
            status, answer = 503, {"error": f"{one_line(error)} Try again later."}
        except InputError as error:
            status, answer = getattr(error, "status", 422), {"error": " ".join(str(error).split())}
        except ClientDisconnect:
            status, answer = 400, {"error": "The client went away."}
        finally:
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - begun)
        # A rejected body may not have been read to its end: the connection cannot be used again.
        headers = {"connection": "close"} if status in (408, 413) else None
        is_done = isinstance(answer, Response)
        return answer if is_done else Response(encode(answer), status, headers, JSON)

    async def _read(self, function: Callable[[], Any], seconds: float | None = None) -> Any:
        """Call a function that may wait for the database, on the thread for that."""
        reading = asyncio.get_running_loop().run_in_executor(self._reader, function)
        return await _in_time(reading, seconds or STATE_SECONDS)

    async def _compute(self, request: Any, function: Callable[[bytes], Any]) -> Any:
        """Receive a body, and call a function with it; on a thread if that takes long."""
        headers = dict(request.scope["headers"])  # one look, which takes a fifth of starlette's
        expected, sent = f"Bearer {self.token}", headers.get(b"authorization", b"")
        if self.token is not None and not hmac.compare_digest(sent, expected.encode()):
            raise RequestError(401, "The header 'Authorization: Bearer TOKEN' is missing or wrong.")
        if self._slots.locked():
            raise RequestError(503, "Too many requests at once; try again.")
        async with self._slots:
            body = await self._body(request, headers)
            try:
                if len(body) <= SMALL_BODY:
                    return function(body)
                return await asyncio.to_thread(function, body)
            except InputError:
                raise
            except Exception as error:
                self.metrics.failures.inc()
                self.note(f"unexpected error: {type(error).__name__}: {one_line(error)}")
                raise InputError(
                    f"The request failed unexpectedly: {type(error).__name__}."
                ) from error

    async def _body(self, request: Any, headers: dict[bytes, bytes]) -> bytes:
        """Receive a body within the limits of time and size.

        A body that is too large is received and dropped: many clients send all of it before they
        read the answer. Those that expect to be asked for it get the answer at once.
        """
        limits = self.limits
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise RequestError(415, "The body must not have a content encoding.")
        length = headers.get(b"content-length", b"0")
        is_large = length.isdigit() and int(length) > limits.body
        chunks, size = [], 0
        try:
            async with asyncio.timeout(limits.seconds):
                if not (is_large and b"expect" in headers):
                    async for chunk in request.stream():
                        size += len(chunk)
                        if size <= limits.body:
                            chunks.append(chunk)
        except TimeoutError:
            if size <= limits.body and not is_large:
                message = f"The body must arrive in {limits.seconds:g} seconds."
                raise RequestError(408, message) from None
        if is_large or size > limits.body:
            raise RequestError(413, f"The body must have at most {limits.body} bytes.")
        return b"".join(chunks)

    # ---- sets and labels -------------------------------------------------------------------------

    async def sets(self, request: Any) -> Any:
        """Return the sets of the rows in a body."""

        def compute(body: bytes) -> Any:
            _require_json(request)
            loaded = self.service.now
            rows, ids = bodies.read_rows(body, loaded.monitor.model, self.limits)
            sets = self.service.sets(rows, ids, loaded)
            self.metrics.count(sets)
            name_bytes = int(loaded.name_bytes[sets.indices].sum())
            self.limits.check_answer(28 * len(sets.indices) + 10 * len(sets) + name_bytes)
            answer = {"sets": sets.to_lists()}
            if sets.class_names is not None:
                answer["names"] = sets.to_lists(names=True)
            answer["probabilities"] = _probabilities(loaded, rows, sets)
            answer |= {"sizes": sets.sizes.tolist(), "accepted": sets.accepted.tolist()}
            answer |= sets.answer_columns()
            return Response(encode(answer | {"model": loaded.version}), media_type=JSON)

        return await self._compute(request, compute)

    async def labels(self, request: Any) -> Any:
        """Count the labels in a body; answer once they are stored."""

        def compute(body: bytes) -> Any:
            _require_json(request)
            return self.service.labels(*bodies.read_labels(body, self.limits))

        if self.token is None:
            raise RequestError(403, "The service was started without a token and takes no labels.")
        stored = asyncio.wrap_future(await self._compute(request, compute))
        return (await _in_time(stored, STATE_SECONDS))._asdict()

    async def infer(self, request: Any) -> Any:
        """Return the sets of the tensors in a body."""

        def compute(body: bytes) -> Any:
            loaded = self._named(request)
            about = loaded.reads, loaded.monitor.model.n_classes, self.limits
            rows, ids, wanted = bodies.read_tensors(
                body, request.headers.get(bodies.HEAD_LENGTH), *about
            )
            sets = self.service.sets(rows, ids, loaded)
            self.metrics.count(sets)
            self.limits.check_answer(bodies.answer_bytes(sets, wanted))
            content, kind, headers = bodies.write_tensors(sets, wanted, loaded.name, loaded.version)
            return Response(content, headers=headers, media_type=kind)

        return await self._compute(request, compute)

    def _findings(self) -> Any:
        return Response(encode(self.service.snapshot().summary()), media_type=JSON)

    def _named(self, request: Any) -> Loaded:
        """Return the model that a path names; 404 for any other."""
        loaded, asked = self.service.now, request.path_params
        named = loaded.name, loaded.version
        if (asked["name"], asked.get("version", loaded.version)) != named:
            raise RequestError(404, f"The model must be {named[0]!r}, version {named[1]!r}.")
        return loaded

    async def prometheus(self, request: Any) -> Any:
        """Return metrics, those of the monitor as of the last time that the state could be read."""
        with suppress(StateError):
            self.metrics.found = await self._read(self.service.snapshot, SCRAPE_SECONDS)
        figures = exposition.generate_latest(self.metrics.registry)
        return Response(figures, media_type=exposition.CONTENT_TYPE_LATEST)


async def _in_time(awaitable: Any, seconds: float) -> Any:
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        raise StateError(f"The state did not answer in {seconds:g} seconds.") from None


def _probabilities(loaded: Loaded, rows: Array, sets: PredictionSets) -> list[list[float]]:
    """Return the probabilities of the sets' classes."""
    row_of_class = np.repeat(np.arange(len(sets)), sets.sizes)
    values = loaded.rule.scoring.probabilities(rows, row_of_class, sets.indices).tolist()
    return [values[start:stop] for start, stop in pairwise(sets.indptr.tolist())]


def _require_json(request: Any) -> None:
    headers = dict(request.scope["headers"])
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if kind != JSON:
        raise RequestError(415, f"The content type must be {JSON}. Got {kind!r}.")


def _http_error(request: Any, error: Any) -> Any:
    status, message = getattr(error, "status_code", 500), getattr(error, "detail", None)
    headers = getattr(error, "headers", None)
    return Response(encode({"error": message or "The service failed."}), status, headers, JSON)


# The server ---------------------------------------------------------------------------------------


class TimedProtocol(H11Protocol):  # type: ignore[misc]
    """uvicorn's protocol with a time limit for request heads; it has one for the rest."""

    timer: Any = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, also for one that has begun."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, error: Exception | None) -> None:
        """Wait no longer."""
        self._await_head(is_open=False)
        super().connection_lost(error)

    def _await_head(self, is_open: bool = True) -> None:
        is_waiting = is_open and self.conn.their_state is h11.IDLE
        if is_waiting and self.timer is None:
            self.timer = self.loop.call_later(self.timeout_keep_alive, self.transport.close)
        elif not is_waiting and self.timer is not None:
            self.timer.cancel()
            self.timer = None


def make_server(app: Any, *, timeout: float, connections: int) -> Any:
    """Make a server that closes slow, idle and surplus connections."""
    seconds = max(1, math.ceil(timeout))
    gc.freeze()  # else Python looks for garbage in all libraries again and again
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        http=TimedProtocol,  # of h11: httptools reads request heads of any size
        h11_max_incomplete_event_size=MAX_HEAD,
        ws="none",
        limit_concurrency=connections,
        timeout_keep_alive=seconds,
        timeout_graceful_shutdown=seconds,
        server_header=False,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int, timeout: float) -> socket.socket:
    """Open the socket; the system closes connections that do not read for `timeout` seconds."""
    try:
        listening = socket.create_server((host, port), backlog=2048)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(1000 * timeout))
            listening.setsockopt(*option)
        return listening
    except OSError as error:
        raise InputError(
            f"Cannot listen at {host}:{port}: {error.strerror or error}; choose another --port."
        ) from error
