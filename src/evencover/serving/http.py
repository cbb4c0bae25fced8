"""Prediction sets over HTTP, with a monitor of their coverage."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import evencover
from evencover.arrays import import_pyarrow
from evencover.errors import InputError, needs, one_line
from evencover.monitoring import CoverageMonitor, Store, coverage_table, summary
from evencover.monitoring.monitor import SIZE_EDGES
from evencover.monitoring.store import StoreError
from evencover.monitoring.summary import STRONGEST
from evencover.persistence import load
from evencover.predictors.base import BasePredictor
from evencover.predictors.rule import SetRule
from evencover.predictors.state import digest
from evencover.report.page import watch_html
from evencover.serving import open_inference
from evencover.serving.requests import ARROW, JSON, Limits, RequestError, Rows, read_rows
from evencover.sets import PredictionSets

CACHE_SECONDS = 1.0  # for a summary, which takes longer to make than to ask for
RELOAD_SECONDS = 2.0


class Answer(NamedTuple):
    """The body of a response with its content type and other headers."""

    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


# OpenAPI ------------------------------------------------------------------------------------------


def openapi(about: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Describe the endpoints of a service for the model in `about`."""
    n_classes, text, integer = about["n_classes"], {"type": "string"}, {"type": "integer"}
    row = _list({"type": "number"}, n_classes, n_classes)
    row["description"] = f"The {about['reads']} of the classes."
    value = {"anyOf": [text, {"type": "integer", "format": "int64"}]}
    grouped = ["groups"] if about["needs_groups"] else []

    def post(summary: str, names: list[str], required: list[str], answer: dict[str, Any]) -> Any:
        columns = {n: _list(row if n == "rows" else value, 1, limits.rows) for n in names}
        body = {JSON: {"schema": _object(columns, required)}}
        error = {JSON: {"schema": _object({"error": text}, ["error"])}}
        responses = {s: {"description": why, "content": error} for s, why in ERRORS.items()}
        responses["200"] = {"description": summary, "content": answer}
        request = {"required": True, "content": body}
        return {"post": {"summary": summary, "requestBody": request, "responses": responses}}

    def get(summary: str, content_type: str = JSON) -> Any:
        schema = {"type": "object"} if content_type == JSON else text
        answer = {"description": summary, "content": {content_type: {"schema": schema}}}
        return {"get": {"summary": summary, "responses": {"200": answer}}}

    sets = {"sets": _list(_list(integer)), "names": _list(_list(text)), "sizes": _list(integer)}
    sets_answer = {
        JSON: {"schema": _object({**sets, "model": text}, ["sets", "sizes", "model"])},
        ARROW: {"schema": {"type": "string", "format": "binary"}},
    }
    counted = {"counted": integer, "repeated": integer, "waiting": integer}
    labels = post(
        "Count labels of served rows, by id, or of rows that come with them.",
        ["ids", "labels", "time", "rows", *grouped],
        ["labels"],
        {JSON: {"schema": _object(counted, list(counted))}},
    )
    labels["post"]["security"] = [{"token": []}]
    sets_of_rows = post(
        "Return the prediction set of each row, the most probable class first.",
        ["rows", "ids", *grouped],
        ["rows", *grouped],
        sets_answer,
    )
    del sets_of_rows["post"]["responses"]["401"], sets_of_rows["post"]["responses"]["403"]
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "evencover",
            "version": evencover.__version__,
            "description": "The Open Inference Protocol v2 is served under /v2.",
        },
        "paths": {
            "/v1/sets": sets_of_rows,
            "/v1/labels": labels,
            "/v1/coverage": get("The monitor's findings for every class."),
            "/v1/coverage.csv": get("Coverage by class and period.", "text/csv"),
            "/v1/model": get("The model."),
            "/healthz": get("Whether the service is up."),
            "/metrics": get("Metrics for Prometheus.", "text/plain"),
            "/": get("The live page.", "text/html"),
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


RETRY_SECONDS = 5.0  # between attempts to record rows while the database cannot be used
ERRORS = {
    "400": "The body cannot be read.",
    "401": "The token is missing or wrong.",
    "403": "The service was started without a token and takes no labels.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is neither JSON nor Arrow, or has a content encoding.",
    "422": "The rows are not as they must be.",
    "503": "Too many requests at once, or the labels cannot be stored now; try again.",
}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    about = {"type": "object", "properties": properties, "required": required}
    return {**about, "additionalProperties": False}


def _list(items: Any, low: int | None = None, high: int | None = None) -> dict[str, Any]:
    limits = {} if low is None else {"minItems": low, "maxItems": high}
    return {"type": "array", "items": items, **limits}


# The service --------------------------------------------------------------------------------------


@dataclass
class Loaded:
    """Keep a model with its rule and monitor for the whole of a request."""

    predictor: BasePredictor
    monitor: CoverageMonitor
    stamp: tuple[int, int, int]
    rule: SetRule | None  # None: it depends on the groups of the rows

    def rule_for(self, groups: list[Any] | None) -> SetRule:
        """Return the rule for rows with these groups."""
        if self.rule is not None and groups is None:
            return self.rule
        return self.predictor.rule(groups=groups)


class Service:
    """Answer requests with the current model, and record rows and labels for its monitor.

    Parameters
    ----------
    model
        The file of the model; `reload` checks whether there is a new one.
    state
        Where the monitor's state is kept: a SQLite file, ``postgresql://...`` or a `Store`; None
        keeps it in memory.
    options
        `false_alarm` and `tolerance` of a new monitor.
    """

    def __init__(self, model: Path, state: Store | Any = None, **options: Any) -> None:
        self.model, self.options = Path(model), options
        self.store = state if isinstance(state, Store) else Store(state)
        self._cache: dict[str, tuple[float, Any]] = {}
        self._computing = threading.Lock()
        self.problem: str | None = None  # why the last task in the background failed
        self.unrecorded: str | None = None  # why the last rows were not recorded
        self.n_unrecorded, self._retry_at = 0, 0.0
        self.now = self._load(self._stamp(), load(self.model))

    def sets(self, given: Rows) -> tuple[PredictionSets, str]:
        """Return the sets of rows, the most probable class first, and the model's digest.

        While the database is unavailable, rows are not recorded.
        """
        loaded = self.now
        assert given.rows is not None
        rule = loaded.rule_for(given.groups)
        sets = rule.predict_set(given.rows, given.ids)
        if time.monotonic() >= self._retry_at:
            try:
                loaded.monitor.served(given.rows, given.ids, sets, rule)
                self.unrecorded = None
                return sets, loaded.monitor.model
            except StoreError as error:
                self.unrecorded = one_line(error)
                self._retry_at = time.monotonic() + RETRY_SECONDS
        self.n_unrecorded += len(sets)
        return sets, loaded.monitor.model

    def labels(self, given: Rows) -> dict[str, Any]:
        """Count labels of served rows, or of the given rows; return once they are stored."""
        monitor, loaded = self.now.monitor, self.now
        with _unavailable():
            if given.rows is None:
                found = monitor.label(given.ids, given.labels, time=given.time)
            else:
                rule = loaded.rule_for(given.groups)
                more: Any = {"ids": given.ids, "time": given.time}
                found = monitor.label_rows(given.rows, given.labels, rule, **more)
        self._cache.clear()
        return found._asdict()

    def coverage(self) -> dict[str, Any]:
        """Return the monitor's summary."""
        return dict(self._recent("coverage", summary))

    def page(self) -> str:
        """Return the live page."""
        title = f"Coverage of {self.model.name}"
        return str(self._recent("page", lambda monitor: watch_html(monitor, title, refresh=10)))

    def table(self) -> str:
        """Return coverage by class and period as CSV."""
        return str(self._recent("table", coverage_table))

    def describe(self) -> dict[str, Any]:
        """Describe the model."""
        loaded = self.now
        predictor = loaded.predictor
        names = predictor.class_names_
        return {
            "model": loaded.monitor.model,
            "file": self.model.name,
            "method": predictor.method,
            "score": predictor.score_.name,
            "alpha": str(predictor.class_alpha),
            "exact": predictor.exact,
            "reads": "logits" if predictor.from_logits else "probabilities",
            "guarantee": predictor.guarantee_text,
            "n_classes": predictor.n_classes_,
            "n_calibration": predictor.n_calibration_,
            "needs_groups": loaded.rule is None,
            "class_names": None if names is None else list(names),
        }

    def _recent(self, name: str, make: Callable[[CoverageMonitor], Any]) -> Any:
        with self._computing, _unavailable():
            then, value = self._cache.get(name, (0.0, None))
            if value is None or time.monotonic() - then > CACHE_SECONDS:
                value = make(self.now.monitor)
                self._cache[name] = (time.monotonic(), value)
        return value

    def reload(self) -> bool:
        """Reload the model if its file has changed; return whether it is another model.

        Requests use the old model meanwhile, and labels of its rows still count for it.
        """
        if self._stamp() == self.now.stamp:
            return False
        stamp, predictor = self._stamp(), load(self.model)
        if digest(predictor) == self.now.monitor.model:
            self.now.stamp = stamp
            return False
        self.now = self._load(stamp, predictor)
        self._cache.clear()
        return True

    def _load(self, stamp: tuple[int, int, int], predictor: BasePredictor) -> Loaded:
        monitor = CoverageMonitor(predictor, store=self.store, name=self.model.name, **self.options)
        needs_groups = "row groups" in predictor.needs
        return Loaded(predictor, monitor, stamp, None if needs_groups else predictor.rule())

    def _stamp(self) -> tuple[int, int, int]:
        try:
            about = self.model.stat()
        except OSError as error:
            raise InputError(f"Cannot read '{self.model}': {error.strerror or error}.") from error
        return about.st_mtime_ns, about.st_size, about.st_ino


# The application ----------------------------------------------------------------------------------


@contextmanager
def _unavailable() -> Iterator[None]:
    """Answer with status 503 while the database cannot be used."""
    try:
        yield
    except StoreError as error:
        raise RequestError(503, f"{error} Try again later.") from error


class Metrics:
    """Prometheus metrics of requests, sets, coverage and models."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: Any = CollectorRegistry()

        def add(kind: Any, name: str, about: str, *labels: str, **more: Any) -> Any:
            return kind(f"evencover_{name}", about, labels, registry=self.registry, **more)

        self.requests = add(Counter, "requests", "Requests by path and status.", "path", "status")
        self.seconds = add(Histogram, "request_seconds", "Time to answer a request.", "path")
        self.rows = add(Counter, "rows", "Rows whose sets were computed.")
        self.sizes = add(
            Histogram, "set_size", "Classes in a set.", buckets=(SIZE_EDGES[1:] - 1).tolist()
        )
        self.empty = add(Counter, "empty_sets", "Sets without a class.")
        self.unrecorded = add(Gauge, "unrecorded_rows", "Rows that the database did not take.")
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
        for size in sets.sizes.tolist():
            self.sizes.observe(size)

    def text(self, service: Service) -> Answer:
        """Return the page for Prometheus."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        found = service.coverage()
        coverage = found["coverage"]
        self.unrecorded.set(service.n_unrecorded)
        self.labeled.set(found["rows"])
        self.covered.set(round(found["rows"] * (coverage or 0)))
        self.coverage.set(float("nan") if coverage is None else coverage)
        self.waiting.set(found["waiting"])
        for test in TESTS:
            self.alarms.labels(test).set(found[test]["alarm"])
        self.level.set(found["alarm_level"]["class"])
        self.classes.set(sum(each["alarm"] for each in found["classes"]))
        self.e_values.clear()
        self.class_coverage.clear()
        for each in found["classes"][:STRONGEST]:
            if each["rows"]:
                self.e_values.labels(str(each["class"])).set(
                    max(each["e_value"], each["shift_e_value"] or 0)
                )
                self.class_coverage.labels(str(each["class"])).set(each["coverage"])
        return Answer(generate_latest(self.registry), CONTENT_TYPE_LATEST)


TESTS = ("below_target", "overall", "score_shift")


def require_extra() -> None:
    """Raise, before anything is loaded, if the framework is not installed."""
    for library in ("prometheus_client", "starlette", "uvicorn"):
        try:
            import_module(library)
        except ImportError:
            raise needs("Services", library, "serve") from None


def make_app(
    service: Service,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    watch: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Any:
    """Make the application; `watch` reloads a changed model, `note` prints messages."""
    require_extra()
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    limits, metrics = limits or Limits(), Metrics()
    slots = asyncio.Semaphore(limits.requests)

    async def with_body(request: Any, function: Callable[[bytes, Any], Any]) -> Any:
        """Call a function with the body and the headers, on a thread: other requests go on."""
        if slots.locked():
            raise RequestError(503, "Too many requests at once; try again.")
        async with slots:
            body = await _body(request, limits)
            return await asyncio.to_thread(function, body, request.headers)

    async def sets(request: Any) -> Answer:
        def answer(body: bytes, headers: Any) -> Answer:
            content_type = headers.get("content-type", "")
            given = read_rows(body, content_type, limits, with_labels=False)
            found = service.sets(given)
            metrics.count(found[0])
            return _arrow(*found) if ARROW in headers.get("accept", "") else _sets(*found)

        return await with_body(request, answer)

    async def labels(request: Any) -> Answer:
        def answer(body: bytes, headers: Any) -> Answer:
            content_type = headers.get("content-type", "")
            return _json(service.labels(read_rows(body, content_type, limits, with_labels=True)))

        _check_token(request.headers.get("authorization", ""), token)
        return await with_body(request, answer)

    async def infer(request: Any) -> Answer:
        def answer(body: bytes, headers: Any) -> Answer:
            about = _named(request, service)
            length = headers.get(open_inference.HEAD_LENGTH)
            given, wanted = open_inference.read(body, length, about, limits)
            found, model = service.sets(given)
            metrics.count(found)
            return Answer(*open_inference.write(found, wanted, about["name"], model))

        return await with_body(request, answer)

    async def server(request: Any) -> Answer:
        return _json(open_inference.SERVER | {"version": evencover.__version__})

    async def live(request: Any) -> Answer:
        return _json({"live": True})

    async def ready(request: Any) -> Answer:
        return _json({"ready": True})

    async def named(request: Any) -> Answer:
        return _json(open_inference.metadata(_named(request, service)))

    async def named_ready(request: Any) -> Answer:
        return _json({"name": _named(request, service)["name"], "ready": True})

    async def coverage(request: Any) -> Answer:
        return _json(await asyncio.to_thread(service.coverage))

    async def table(request: Any) -> Answer:
        text = await asyncio.to_thread(service.table)
        return Answer(text.encode("utf-8", "replace"), "text/csv; charset=utf-8")

    async def model(request: Any) -> Answer:
        return _json(service.describe())

    async def healthz(request: Any) -> Answer:
        problem = service.problem or service.unrecorded
        status = {"status": "ok"} if problem is None else {"status": "degraded"}
        return _json(status | {"model": service.now.monitor.model, "problem": problem})

    async def prometheus(request: Any) -> Answer:
        return await asyncio.to_thread(metrics.text, service)

    async def page(request: Any) -> Answer:
        text = await asyncio.to_thread(service.page)
        return Answer(text.encode("utf-8", "replace"), "text/html; charset=utf-8")

    async def description(request: Any) -> Answer:
        return _json(openapi(service.describe(), limits))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(_maintain(service, metrics, watch=watch, note=note))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            service.store.close()

    endpoints: dict[str, tuple[str, Callable[[Any], Awaitable[Answer]]]] = {
        "/v1/sets": ("POST", sets),
        "/v1/labels": ("POST", labels),
        "/v1/coverage": ("GET", coverage),
        "/v1/coverage.csv": ("GET", table),
        "/v1/model": ("GET", model),
        "/healthz": ("GET", healthz),
        "/metrics": ("GET", prometheus),
        "/openapi.json": ("GET", description),
        "/": ("GET", page),
        "/v2": ("GET", server),
        "/v2/health/live": ("GET", live),
        "/v2/health/ready": ("GET", ready),
    }
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        endpoints |= {path: ("GET", named), f"{path}/ready": ("GET", named_ready)}
        endpoints[f"{path}/infer"] = ("POST", infer)
    routes = [
        Route(path, _endpoint(path, function, metrics), methods=[method])
        for path, (method, function) in endpoints.items()
    ]

    def failed(request: Any, error: Any) -> Any:
        """Answer requests for other paths or methods, and those that fail, with JSON as well."""
        status = getattr(error, "status_code", 500)
        message = getattr(error, "detail", "The service failed.")
        return JSONResponse({"error": message}, status, getattr(error, "headers", None))

    handlers: Any = {HTTPException: failed, Exception: failed}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


def _endpoint(
    path: str, function: Callable[[Any], Awaitable[Answer]], metrics: Metrics
) -> Callable[[Any], Awaitable[Any]]:
    """Wrap a function: errors become a status and a message, and every request is measured."""
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response

    async def endpoint(request: Any) -> Any:
        begun, status = time.perf_counter(), 500
        try:
            answer = await function(request)
            status = 200
        except InputError as error:
            status = getattr(error, "status", 422)
            answer = _json({"error": " ".join(str(error).split())})
        except ClientDisconnect:
            status, answer = 400, _json({"error": "The client went away."})
        finally:
            metrics.requests.labels(path, status).inc()
            metrics.seconds.labels(path).observe(time.perf_counter() - begun)
        # A rejected body may not have been read to its end: the connection cannot be used again.
        headers = {"connection": "close"} if status in (408, 413) else dict(answer.headers)
        return Response(answer.body, status, headers=headers, media_type=answer.content_type)

    return endpoint


async def _body(request: Any, limits: Limits) -> bytes:
    """Receive a body within the limits of time and size."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError(415, "The body must not have a content encoding.")
    length = request.headers.get("content-length", "0")
    limits.check_bytes(int(length) if length.isdecimal() else 0)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                limits.check_bytes(len(body))
    except TimeoutError:
        raise RequestError(408, f"The body must arrive in {limits.seconds:g} seconds.") from None
    return bytes(body)


def _named(request: Any, service: Service) -> dict[str, Any]:
    """Describe the model that a path of the Open Inference Protocol names; 404 for any other."""
    about = service.describe() | {"name": service.model.stem}
    asked = request.path_params
    if asked["name"] != about["name"] or asked.get("version", about["model"]) != about["model"]:
        raise RequestError(404, f"The model must be {about['name']!r}, version {about['model']!r}.")
    return about


def _sets(sets: PredictionSets, model: str) -> Answer:
    names = {} if sets.class_names is None else {"names": sets.to_lists(names=True)}
    sizes = sets.sizes.tolist()
    return _json({"sets": sets.to_lists(), **names, "sizes": sizes, "model": model})


def _arrow(sets: PredictionSets, model: str) -> Answer:
    pa = import_pyarrow()
    classes, starts = pa.array(sets.indices, pa.int32()), pa.array(sets.indptr, pa.int32())
    members = pa.ListArray.from_arrays(starts, classes)
    table = pa.table({"set": members, "size": pa.array(sets.sizes, pa.int64())})
    table = table.replace_schema_metadata({"model": model})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Answer(bytes(sink.getvalue()), ARROW)


def _check_token(given: str, token: str | None) -> None:
    if token is None:
        raise RequestError(403, ERRORS["403"])
    expected = f"Bearer {token}".encode()
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected):
        raise RequestError(401, "The header 'Authorization: Bearer TOKEN' is missing or wrong.")


async def _maintain(
    service: Service, metrics: Metrics, *, watch: bool, note: Callable[[str], None]
) -> None:
    """Reload a changed model; on an error keep the current one, show it in `/healthz`, retry."""
    while watch:
        await asyncio.sleep(RELOAD_SECONDS)
        try:
            if await asyncio.to_thread(service.reload):
                metrics.reloads.inc()
                note(f"loaded a new model: {service.now.monitor.model}")
            service.problem = None
        except Exception as error:  # a file half written, a full disk, no permission
            metrics.failures.inc()
            service.problem = one_line(error)
            note(service.problem)


def _json(value: Any) -> Answer:
    return Answer(json.dumps(value, allow_nan=False).encode(), JSON)
