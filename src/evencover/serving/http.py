"""Prediction sets over HTTP, with a monitor of their coverage."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import evencover
from evencover.arrays import Array
from evencover.errors import InputError, needs, one_line
from evencover.monitoring.database import StateError
from evencover.monitoring.evidence import SIZE_EDGES
from evencover.monitoring.snapshot import STRONGEST
from evencover.serving import open_inference
from evencover.serving.requests import JSON, Limits, RequestError, encode, read_rows, request_types
from evencover.serving.service import Loaded, Service
from evencover.sets import PredictionSets

RELOAD_SECONDS = 2.0
STATE_SECONDS = 30.0  # that a request waits for the state
SCRAPE_SECONDS = 2.0  # that metrics wait for the monitor; else they show its last findings
TESTS = ("below_target", "overall", "score_shift")
ERRORS = {
    "400": "The body cannot be read.",
    "401": "The token is missing or wrong.",
    "403": "The service was started without a token and takes no labels.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large, or the answer would be.",
    "415": "The body is not JSON, or has a content encoding.",
    "422": "The rows are not as they must be.",
    "503": "Too many requests at once, or the state cannot be used now; try again.",
}
HTML, CSV = "text/html; charset=utf-8", "text/csv; charset=utf-8"


class Endpoint(NamedTuple):
    """A path with the method of `Application` that answers it."""

    path: str
    name: str
    summary: str
    method: str = "GET"
    content_type: str = JSON


ENDPOINTS = (
    Endpoint("/v1/sets", "sets", "Return the set of each row, the top class first.", "POST"),
    Endpoint("/v1/labels", "labels", "Count labels of served rows, by id, or of rows.", "POST"),
    Endpoint("/v1/coverage", "coverage", "The monitor's findings for every class."),
    Endpoint("/v1/coverage.csv", "table", "Coverage by class and period.", content_type=CSV),
    Endpoint("/v1/model", "model", "The model."),
    Endpoint("/healthz", "health", "Whether the service records rows and reloads its model."),
    Endpoint("/metrics", "prometheus", "Metrics for Prometheus.", content_type="text/plain"),
    Endpoint("/", "page", "The live page.", content_type=HTML),
)
MODEL_PATHS = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
PROTOCOL = (
    Endpoint("/openapi.json", "description", "This description."),
    Endpoint("/v2", "server", "The server."),
    Endpoint("/v2/health/live", "ready", "Whether the server is up."),
    Endpoint("/v2/health/ready", "ready", "Whether the server is ready."),
    *(Endpoint(path, "metadata", "The tensors of the model.") for path in MODEL_PATHS),
    *(Endpoint(f"{path}/ready", "model_ready", "The model is ready.") for path in MODEL_PATHS),
    *(Endpoint(f"{path}/infer", "infer", "Return sets.", "POST") for path in MODEL_PATHS),
)


def openapi(model: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Describe the endpoints of a service for a model; bodies are described by their types."""
    from msgspec import defstruct
    from msgspec.json import schema_components

    counts = [(name, int) for name in ("counted", "corrected", "repeated", "waiting")]
    sets: list[Any] = [("sets", list[list[int]]), ("sizes", list[int]), ("accepted", list[bool])]
    sets += [("probabilities", list[list[float]]), ("model", str)]
    sets.append(("names", list[list[str]] | None, None))
    answers = {
        "/v1/sets": defstruct("SetsAnswer", sets),
        "/v1/labels": defstruct("LabelsAnswer", counts),
    }
    error = defstruct("Error", [("error", str)])
    types = [*request_types().values(), *answers.values(), error]
    references, schemas = schema_components(types, ref_template="#/components/schemas/{name}")
    reference = dict(zip(types, references, strict=True))
    rows = schemas["Sets"]["properties"]["rows"]
    rows |= {"maxItems": limits.rows, "description": f"The {model['reads']} of each row."}
    [numbers] = [kind for kind in rows["items"]["anyOf"] if kind["type"] == "array"]
    numbers |= {"minItems": model["n_classes"], "maxItems": model["n_classes"]}
    failed = {JSON: {"schema": reference[error]}}
    paths = {}
    for endpoint in ENDPOINTS:
        path, kind = endpoint.path, endpoint.content_type.partition(";")[0]
        plain = {"type": "object"} if kind == JSON else {"type": "string"}
        schema = reference[answers[path]] if path in answers else plain
        responses = {
            "200": {"description": endpoint.summary, "content": {kind: {"schema": schema}}}
        }
        operation: dict[str, Any] = {"summary": endpoint.summary, "responses": responses}
        if path in answers:
            body = {JSON: {"schema": reference[request_types()[path]]}}
            operation["requestBody"] = {"required": True, "content": body}
            operation["security"] = [{"token": []}]
        if path not in ("/v1/model", "/healthz", "/metrics"):
            for status, why in ERRORS.items():
                responses[status] = {"description": why, "content": failed}
        paths[path] = {endpoint.method.lower(): operation}
    info = {"title": "evencover", "version": evencover.__version__}
    return {
        "openapi": "3.1.0",
        "info": info | {"description": "The Open Inference Protocol v2 is served under /v2."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class Metrics:
    """Prometheus metrics of requests, sets, coverage and models."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: Any = CollectorRegistry()

        def add(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            return kind(f"evencover_{name}", text, labels, registry=self.registry, **options)

        self.requests = add(Counter, "requests", "Requests by path and status.", "path", "status")
        self.seconds = add(Histogram, "request_seconds", "Time to answer a request.", "path")
        self.rows = add(Counter, "rows", "Rows whose sets were computed.")
        self.sizes = add(
            Histogram, "set_size", "Classes in a set.", buckets=(SIZE_EDGES[1:] - 1).tolist()
        )
        self.empty = add(Counter, "empty_sets", "Sets without a class.")
        self.accepted = add(Counter, "accepted_rows", "Rows that need no review.")
        self.queued = add(Gauge, "queued_rows", "Rows that wait to be recorded.")
        self.dropped = add(Gauge, "dropped_rows", "Rows that were not recorded.")
        self.expired = add(Gauge, "expired_rows", "Rows that were removed without a label.")
        self.labeled = add(Gauge, "labeled_rows", "Labeled rows that were counted.")
        self.covered = add(Gauge, "covered_rows", "Labeled rows whose set contains the label.")
        self.coverage = add(Gauge, "coverage", "Overall coverage of the labeled rows.")
        self.waiting = add(Gauge, "waiting_labels", "Labels that wait for their row.")
        self.alarms = add(Gauge, "alarm", "1 if a test of coverage has an alarm.", "test")
        self.level = add(Gauge, "alarm_level", "E-value at which one class more is in alarm.")
        self.classes = add(Gauge, "classes_in_alarm", "Classes likely below target coverage.")
        of_class = "of the 20 classes with the strongest evidence."
        self.e_values = add(Gauge, "class_e_value", f"E-value {of_class}", "class")
        self.class_coverage = add(Gauge, "class_coverage", f"Coverage {of_class}", "class")
        self.reloads = add(Counter, "model_reloads", "New models loaded.")
        self.failures = add(Counter, "model_reload_failures", "Models that failed to load.")

    def count(self, sets: PredictionSets) -> None:
        """Count sets that were computed."""
        self.rows.inc(len(sets))
        self.empty.inc(int((sets.sizes == 0).sum()))
        self.accepted.inc(int(sets.accepted.sum()))
        for size in sets.sizes.tolist():
            self.sizes.observe(size)

    def show(self, summary: dict[str, Any]) -> None:
        """Show the findings of the monitor."""
        coverage = summary["coverage"]
        self.expired.set(summary["expired"])
        self.labeled.set(summary["rows"])
        self.covered.set(round(summary["rows"] * (coverage or 0)))
        self.coverage.set(float("nan") if coverage is None else coverage)
        self.waiting.set(summary["waiting"])
        for test in TESTS:
            self.alarms.labels(test).set(summary[test]["alarm"])
        self.level.set(summary["alarm_level"]["class"])
        self.classes.set(sum(row["alarm"] for row in summary["classes"]))
        self.e_values.clear()
        self.class_coverage.clear()
        for row in summary["classes"][:STRONGEST]:
            if row["rows"]:
                e_value = max(row["e_value"], row["shift_e_value"] or 0)
                self.e_values.labels(str(row["class"])).set(e_value)
                self.class_coverage.labels(str(row["class"])).set(row["coverage"])


def require_extra() -> None:
    """Raise, before anything is loaded, if the framework is not installed."""
    for library in ("jinja2", "msgspec", "prometheus_client", "starlette", "uvicorn"):
        try:
            import_module(library)
        except ImportError:
            raise needs("Services", library, "serve") from None


class Answer(NamedTuple):
    """The body of a response with its content type and other headers."""

    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


class Application:
    """A service over HTTP: every endpoint is a method.

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
        require_extra()
        self.service, self.token, self.limits = service, token, limits or Limits()
        self.watch, self.note, self.metrics = watch, note, Metrics()
        self._slots = asyncio.Semaphore(self.limits.requests)
        self._reader = ThreadPoolExecutor(1, "evencover-reader")

    def asgi(self) -> Any:
        """Return the application for a server, or for more routes."""
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        def failed(request: Any, error: Any) -> Any:
            """Answer requests for other paths or methods, and those that fail, with JSON, too."""
            status = getattr(error, "status_code", 500)
            message = getattr(error, "detail", "The service failed.")
            return JSONResponse({"error": message}, status, getattr(error, "headers", None))

        routes = [
            Route(endpoint.path, partial(self._answer, endpoint), methods=[endpoint.method])
            for endpoint in (*ENDPOINTS, *PROTOCOL)
        ]
        handlers: Any = {HTTPException: failed, Exception: failed}
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
                    self.metrics.reloads.inc()
                    self.note(f"loaded a new model: {self.service.now.version}")
                self.service.problem = None
            except Exception as error:  # a file half written, a full disk, no permission
                self.metrics.failures.inc()
                self.service.problem = one_line(error)
                self.note(self.service.problem)

    async def _answer(self, endpoint: Endpoint, request: Any) -> Any:
        """Call the method of an endpoint: errors become a status, and every request is measured."""
        from starlette.requests import ClientDisconnect
        from starlette.responses import Response

        begun, status = time.perf_counter(), 500
        try:
            content = await getattr(self, endpoint.name)(request)
            status = 200
        except StateError as error:
            status, content = 503, {"error": f"{one_line(error)} Try again later."}
        except InputError as error:
            status = getattr(error, "status", 422)
            content = {"error": " ".join(str(error).split())}
        except ClientDisconnect:
            status, content = 400, {"error": "The client went away."}
        finally:
            self.metrics.requests.labels(endpoint.path, status).inc()
            self.metrics.seconds.labels(endpoint.path).observe(time.perf_counter() - begun)
        answer = _encoded(content, endpoint.content_type)
        # A rejected body may not have been read to its end: the connection cannot be used again.
        headers = {"connection": "close"} if status in (408, 413) else dict(answer.headers)
        return Response(answer.body, status, headers=headers, media_type=answer.content_type)

    async def _read(self, function: Callable[[], Any], seconds: float | None = None) -> Any:
        """Call a function that may wait for the database, on the thread for that."""
        reading = asyncio.get_running_loop().run_in_executor(self._reader, function)
        return await _in_time(reading, seconds or STATE_SECONDS)

    async def _compute(self, request: Any, function: Callable[[bytes], Any]) -> Any:
        """Receive a body, and call a function with it on a thread: other requests go on."""
        self._check_token(request)
        if self._slots.locked():
            raise RequestError(503, "Too many requests at once; try again.")
        async with self._slots:
            return await asyncio.to_thread(function, await self._body(request))

    async def _body(self, request: Any) -> bytes:
        """Receive a body within the limits of time and size."""
        limits = self.limits
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestError(415, "The body must not have a content encoding.")
        length = request.headers.get("content-length", "0")
        limits.check_body(int(length) if length.isdecimal() else 0)
        body = bytearray()
        try:
            async with asyncio.timeout(limits.seconds):
                async for chunk in request.stream():
                    body += chunk
                    limits.check_body(len(body))
        except TimeoutError:
            message = f"The body must arrive in {limits.seconds:g} seconds."
            raise RequestError(408, message) from None
        return bytes(body)

    def _check_token(self, request: Any) -> None:
        expected, sent = f"Bearer {self.token}", request.headers.get("authorization", "")
        sent = sent.encode("utf-8", "surrogateescape")
        if self.token is not None and not hmac.compare_digest(sent, expected.encode()):
            raise RequestError(401, "The header 'Authorization: Bearer TOKEN' is missing or wrong.")

    # ---- sets and labels -------------------------------------------------------------------------

    async def sets(self, request: Any) -> Any:
        """Return the sets of the rows in a body."""

        def compute(body: bytes) -> Any:
            _require_json(request)
            loaded = self.service.now
            rows = loaded.numbered(read_rows(body, "/v1/sets", self.limits))
            sets = self.service.sets(rows, loaded)
            self.metrics.count(sets)
            name_bytes = int(loaded.name_bytes[sets.indices].sum())
            self.limits.check_answer(28 * len(sets.indices) + 10 * len(sets) + name_bytes)
            answer = {"sets": sets.to_lists()}
            if sets.class_names is not None:
                answer["names"] = sets.to_lists(names=True)
            assert rows.rows is not None
            answer["probabilities"] = _probabilities(loaded, rows.rows, sets)
            answer |= {"sizes": sets.sizes.tolist(), "accepted": sets.accepted.tolist()}
            return _encoded(answer | {"model": loaded.version})

        return await self._compute(request, compute)

    async def labels(self, request: Any) -> Any:
        """Count the labels in a body; answer once they are stored."""

        def compute(body: bytes) -> Any:
            _require_json(request)
            return self.service.labels(read_rows(body, "/v1/labels", self.limits))

        if self.token is None:
            raise RequestError(403, ERRORS["403"])
        stored = asyncio.wrap_future(await self._compute(request, compute))
        return (await _in_time(stored, STATE_SECONDS))._asdict()

    async def infer(self, request: Any) -> Any:
        """Return the sets of the tensors in a body."""

        def compute(body: bytes) -> Answer:
            loaded = self._named(request)
            model = self.service.describe(loaded)
            length = request.headers.get(open_inference.HEAD_LENGTH)
            rows, wanted = open_inference.read(body, length, model["reads"], self.limits)
            sets = self.service.sets(rows, loaded)
            self.metrics.count(sets)
            n_bytes = open_inference.answer_bytes(sets, wanted, loaded.name_bytes)
            self.limits.check_answer(n_bytes)
            return Answer(*open_inference.write(sets, wanted, model["name"], loaded.version))

        return await self._compute(request, compute)

    def _named(self, request: Any) -> Loaded:
        """Return the model that a path names; 404 for any other."""
        loaded, name, asked = self.service.now, self.service.model.stem, request.path_params
        if asked["name"] != name or asked.get("version", loaded.version) != loaded.version:
            raise RequestError(404, f"The model must be {name!r}, version {loaded.version!r}.")
        return loaded

    # ---- the monitor -----------------------------------------------------------------------------

    async def coverage(self, request: Any) -> Any:
        """Return the findings of the monitor."""
        return await self._read(self.service.coverage)

    async def table(self, request: Any) -> Any:
        """Return coverage by class and period as CSV."""
        return await self._read(self.service.table)

    async def page(self, request: Any) -> Any:
        """Return the live page."""
        return await self._read(self.service.page)

    async def prometheus(self, request: Any) -> Answer:
        """Return metrics, those of the monitor as of the last time that the state could be read."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        with suppress(StateError):
            self.metrics.show(await self._read(self.service.coverage, SCRAPE_SECONDS))
        health = self.service.health()
        self.metrics.queued.set(health["queued_rows"])
        self.metrics.dropped.set(health["dropped_rows"])
        return Answer(generate_latest(self.metrics.registry), CONTENT_TYPE_LATEST)

    async def health(self, request: Any) -> Any:
        """Return the status, without asking the database."""
        return self.service.health()

    # ---- descriptions ----------------------------------------------------------------------------

    async def model(self, request: Any) -> Any:
        """Describe the model."""
        return self.service.describe()

    async def description(self, request: Any) -> Any:
        """Describe the endpoints (OpenAPI)."""
        return openapi(self.service.describe(), self.limits)

    async def server(self, request: Any) -> Any:
        """Describe the server."""
        return open_inference.SERVER | {"version": evencover.__version__}

    async def ready(self, request: Any) -> Any:
        """Return that the server is up, which means that it is ready."""
        return {"live": True, "ready": True}

    async def metadata(self, request: Any) -> Any:
        """Describe the tensors of the model."""
        return open_inference.metadata(self.service.describe(self._named(request)))

    async def model_ready(self, request: Any) -> Any:
        """Return that the model is ready."""
        self._named(request)
        return {"name": self.service.model.stem, "ready": True}


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
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise RequestError(415, f"The content type must be {JSON}. Got {kind!r}.")


def _encoded(value: Any, content_type: str = JSON) -> Answer:
    if isinstance(value, Answer):
        return value
    if isinstance(value, str):
        return Answer(value.encode("utf-8", "replace"), content_type)
    return Answer(encode(value), JSON)
