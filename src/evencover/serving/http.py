"""Prediction sets over HTTP, with a monitor that counts labeled rows as they come in."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

import evencover
from evencover.arrays import Array, import_pyarrow, matrix_from_arrow
from evencover.errors import InputError, needs
from evencover.monitoring import CoverageMonitor, summary
from evencover.monitoring.monitor import Counts
from evencover.monitoring.store import read_state
from evencover.persistence import load
from evencover.predictors.base import BasePredictor
from evencover.predictors.rule import SetRule
from evencover.predictors.state import digest
from evencover.randomness import row_ids
from evencover.report.page import watch_html
from evencover.sets import PredictionSets
from evencover.validation import are_json_numbers, parse_json

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
FIELDS = ("rows", "ids", "groups", "labels")
MAX_IDS = 100_000  # of labeled rows that are remembered, so that a repeated request counts once
SERVICE = "service "  # how its name begins among the inputs of its state
CACHE_SECONDS = 1.0  # for a summary, which takes longer to make than to ask for
INLINE_BYTES = 1 << 15  # a body up to this size is not worth a thread
SAVE_SECONDS, RELOAD_SECONDS = 5.0, 2.0

Answer = tuple[bytes, str]  # the body and its content type


# Requests -----------------------------------------------------------------------------------------


class RequestError(InputError):
    """A request that is rejected with another status than 422."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """The largest body (bytes), the most rows, and the seconds in which a body must arrive."""

    body: int = 16 * 2**20
    rows: int = 10_000
    seconds: float = 10.0


@dataclass(frozen=True)
class Rows:
    """The rows of a request, with the fields that came with them."""

    rows: Array
    ids: list[Any] | None = None
    groups: list[Any] | None = None
    labels: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)


def read_rows(body: bytes, content_type: str, *, max_rows: int, with_labels: bool) -> Rows:
    """Read the rows in a body; raise InputError if they are not as they must be."""
    content_type = content_type.partition(";")[0].strip().lower()
    if content_type not in (JSON, ARROW):
        message = f"The content type must be {JSON} or {ARROW}. Got {content_type!r}."
        raise RequestError(415, message)
    found = _read_arrow(body) if content_type == ARROW else _read_json(body)
    allowed = FIELDS[: 4 if with_labels else 3]
    for name, values in found.items():
        if name not in allowed:
            raise InputError(
                f"The body may contain {', '.join(map(repr, allowed))}. Got {name!r}; send "
                "probabilities or logits, as the model was calibrated with, as 'rows'."
            )
        if name != "rows" and not _are_ids(values):
            raise InputError(f"{name!r} must be texts, or integers of 64 bits.")
    for name in ("rows", "labels") if with_labels else ("rows",):
        if name not in found:
            raise InputError(f"The body must contain {name!r}, one entry per row.")
    rows = _matrix(found.pop("rows"), max_rows)
    for name, values in found.items():
        if len(values) != len(rows):
            raise InputError(
                f"{name!r} must have one entry per row. Got {len(values)} for {len(rows)}."
            )
    return Rows(rows, **found)


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        content = parse_json(body, "the body")
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise RequestError(400, "The body is not JSON.") from None
    if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
        raise InputError("The body must be an object of lists, such as 'rows'.")
    return content


def _read_arrow(body: bytes) -> dict[str, Any]:
    pa = import_pyarrow()
    try:
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        raise RequestError(400, "The body is not an Arrow stream.") from None
    if len(set(table.column_names)) < table.num_columns:
        raise InputError("Every column of the body must be there once.")
    return {n: table[n] if n == "rows" else table[n].to_pylist() for n in table.column_names}


def _are_ids(values: list[Any]) -> bool:
    """Check for texts, or integers of 64 bits."""
    if all(type(value) is int for value in values):
        return all(-(2**63) <= value < 2**63 for value in values)
    try:  # half a surrogate pair is no text
        "".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _matrix(values: Any, max_rows: int) -> Array:
    """Return rows of numbers; the rule checks the numbers themselves."""
    if not 1 <= len(values) <= max_rows:
        message = f"There must be 1 to {max_rows} rows. Got {len(values)}."
        raise RequestError(413 if len(values) else 422, message)
    rows = np.empty(0)
    if not isinstance(values, list):
        rows = matrix_from_arrow(values, "the body")
    elif all(isinstance(row, list) and are_json_numbers(row) for row in values):
        with suppress(ValueError, OverflowError):  # lists of several lengths, huge integers
            rows = np.array(values)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise InputError("'rows' must have one list of numbers per row, all of one length.")
    return rows


# OpenAPI ------------------------------------------------------------------------------------------


def openapi(about: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Describe the endpoints of a service whose model is as `about` says."""
    n_classes, text, integer = about["n_classes"], {"type": "string"}, {"type": "integer"}
    row = _list({"type": "number"}, n_classes, n_classes)
    row["description"] = f"The {about['reads']} of the classes."
    value = {"anyOf": [text, {"type": "integer", "format": "int64"}]}
    grouped = ["groups"] if about["needs_groups"] else []

    def post(summary: str, required: list[str], answer: dict[str, Any]) -> Any:
        names = ["rows", "ids", *required[1:]]
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
    counted = {"counted": integer, "repeated": integer, "model": text}
    labels = post(
        "Count labeled rows as covered or not.",
        ["rows", *grouped, "labels"],
        {JSON: {"schema": _object(counted, list(counted))}},
    )
    labels["post"]["security"] = [{"token": []}]
    sets_of_rows = post(
        "Return the prediction set of each row, the most probable class first.",
        ["rows", *grouped],
        sets_answer,
    )
    del sets_of_rows["post"]["responses"]["401"], sets_of_rows["post"]["responses"]["403"]
    return {
        "openapi": "3.0.3",
        "info": {"title": "evencover", "version": evencover.__version__},
        "paths": {
            "/v1/sets": sets_of_rows,
            "/v1/labels": labels,
            "/v1/coverage": get("The monitor's findings for every class."),
            "/v1/model": get("The model."),
            "/healthz": get("Whether the service is up."),
            "/metrics": get("Metrics for Prometheus.", "text/plain"),
            "/": get("The live page.", "text/html"),
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


ERRORS = {
    "400": "The body cannot be read.",
    "401": "The token is missing or wrong.",
    "403": "The service was started without a token and takes no labels.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is neither JSON nor Arrow.",
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
    """A model with its monitor; requests that began with it end with it."""

    predictor: BasePredictor
    monitor: CoverageMonitor
    stamp: tuple[int, int, int]
    counted: OrderedDict[int, None] = field(default_factory=OrderedDict)
    is_dirty: bool = False
    rule: SetRule | None = field(init=False)

    def __post_init__(self) -> None:
        needs_groups = "row groups" in self.predictor.needs
        self.rule = None if needs_groups else self.predictor.rule()
        # A state grows from day to day, so its content does not identify it; this name does, and
        # `monitor --merge` rejects a state that it has merged before.
        if not any(name.startswith(SERVICE) for name in self.monitor.counts.inputs):
            self.monitor.counts.inputs |= {f"{SERVICE}{uuid4().hex}"}


class Service:
    """Answer requests with the current model, and count rows for its monitor.

    Parameters
    ----------
    model
        The file of the model; `reload` checks whether there is a new one.
    state
        The file of the monitor's state; None keeps it in memory only.
    options
        `false_alarm` and `tolerance` of a new monitor.
    """

    def __init__(self, model: Path, state: Path | None = None, **options: Any) -> None:
        self.model, self.state, self.options = Path(model), state, options
        # Counts change under the first, which is never held while a file is written: requests for
        # sets wait for it. Writers take the second before it, those who send labels the third.
        self._lock, self._file_lock, self._label_lock = (threading.Lock() for _ in range(3))
        self._cache: dict[str, tuple[float, Any]] = {}
        self.now = self._load()

    def sets(self, given: Rows) -> tuple[PredictionSets, str]:
        """Return the sets of rows, the most probable class first, and the model's digest."""
        loaded, groups = self.now, given.groups
        rule = loaded.rule if groups is None else None
        rule = loaded.predictor.rule(groups=groups) if rule is None else rule
        sets = rule.predict_set(given.rows, given.ids)
        top_classes = given.rows.argmax(axis=1)
        with self._lock:
            loaded.monitor.observe_sets(sets.sizes, top_classes)
            loaded.is_dirty = True
        return sets, loaded.monitor.model

    def labels(self, given: Rows) -> dict[str, Any]:
        """Count labeled rows; they are in the file when this returns."""
        with self._label_lock:  # so that a request that is sent twice at once counts once
            loaded = self.now
            keys = [] if given.ids is None else row_ids(given.ids, len(given)).tolist()
            places = {key: row for row, key in reversed([*enumerate(keys)])}  # the first of each
            new = sorted(row for key, row in places.items() if key not in loaded.counted)
            new = new if keys else list(range(len(given)))
            if new:
                self._add(loaded, self._counted(loaded, given, new))
                loaded.counted.update(dict.fromkeys(keys[row] for row in new if keys))
                while len(loaded.counted) > MAX_IDS:
                    loaded.counted.popitem(last=False)
                self._cache.clear()
        n_repeated = len(given) - len(new)
        return {"counted": len(new), "repeated": n_repeated, "model": loaded.monitor.model}

    def _add(self, loaded: Loaded, part: Counts) -> None:
        """Write the counts, then add them; if they cannot be written, the client tries again."""
        with self._file_lock:
            ahead = loaded.monitor.empty()
            with self._lock:
                ahead.counts = loaded.monitor.counts + part
            try:
                self._write(loaded, ahead)
            except InputError as error:
                raise RequestError(503, f"{error} Send the labels again later.") from error
            with self._lock:
                loaded.monitor.counts += part

    @staticmethod
    def _counted(loaded: Loaded, given: Rows, kept: list[int]) -> Counts:
        """Return what some of the rows add to the counts; raise if one of them is bad."""
        labels, ids, groups = (
            None if values is None else [values[n] for n in kept]
            for values in (given.labels, given.ids, given.groups)
        )
        monitor = loaded.monitor.empty()
        return monitor.update(given.rows[kept], labels, ids=ids, groups=groups).counts

    def coverage(self) -> dict[str, Any]:
        """Return the monitor's findings."""
        return dict(self._recent("coverage", summary))

    def page(self) -> str:
        """Return the live page."""
        title = f"Coverage of {self.model.name}"
        return str(self._recent("page", lambda monitor: watch_html(monitor, title, refresh=10)))

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
            "alpha": str(predictor.alpha),
            "exact": predictor.exact,
            "reads": "logits" if predictor.from_logits else "probabilities",
            "guarantee": predictor.guarantee_text,
            "n_classes": predictor.n_classes_,
            "n_calibration": predictor.n_calibration_,
            "needs_groups": loaded.rule is None,
            "class_names": None if names is None else list(names),
        }

    def _recent(self, name: str, make: Callable[[CoverageMonitor], Any]) -> Any:
        then, value = self._cache.get(name, (0.0, None))
        if value is None or time.monotonic() - then > CACHE_SECONDS:
            value = make(self._copy_of(self.now))
            self._cache[name] = (time.monotonic(), value)
        return value

    def _copy_of(self, loaded: Loaded) -> CoverageMonitor:
        with self._lock:
            return loaded.monitor + loaded.monitor.empty()

    def save(self) -> None:
        """Write the monitor's state, if it has changed."""
        with self._file_lock:
            loaded = self.now
            if not loaded.is_dirty:
                return
            loaded.is_dirty = False  # before the copy: what comes later is new again
            try:
                self._write(loaded, self._copy_of(loaded))
            except InputError:
                loaded.is_dirty = True
                raise

    def _write(self, loaded: Loaded, monitor: CoverageMonitor) -> None:
        if self.state is not None:
            is_old = loaded is not self.now  # labels that came while the model was replaced
            monitor.save(self._state_of(monitor.model) if is_old else self.state)

    def reload(self) -> bool:
        """Load the model again if its file has changed; return whether it is another model.

        Requests go on with the old one meanwhile. The old model's state is kept under a name of
        its own; the new model starts a new state, or goes on with the one it had before.
        """
        if self._stamp() == self.now.stamp:
            return False
        stamp, predictor = self._stamp(), load(self.model)
        with self._file_lock:
            old = self.now
            if digest(predictor) == old.monitor.model:
                old.stamp = stamp
                return False
            kept = None if self.state is None else self._state_of(digest(predictor))
            new = Loaded(predictor, CoverageMonitor.open(kept, predictor, **self.options), stamp)
            if self.state is not None and kept is not None:
                self._copy_of(old).save(self._state_of(old.monitor.model))
                new.monitor.save(self.state)
                kept.unlink(missing_ok=True)
            self.now = new
            self._cache.clear()
        return True

    def _load(self) -> Loaded:
        stamp, predictor = self._stamp(), load(self.model)
        if self.state is not None and self.state.exists():
            model = read_state(self.state).get("model")
            if model != digest(predictor):  # the model was replaced while nothing was running
                os.replace(self.state, self._state_of(str(model)))
                with suppress(FileNotFoundError):
                    os.replace(self._state_of(digest(predictor)), self.state)
        monitor = CoverageMonitor.open(self.state, predictor, **self.options)
        return Loaded(predictor, monitor, stamp)

    def _state_of(self, model: str) -> Path:
        """Return the file of the state of another model than the current one."""
        assert self.state is not None
        return self.state.with_name(f"{self.state.stem}.{model[:8]}{self.state.suffix}")

    def _stamp(self) -> tuple[int, int, int]:
        try:
            about = self.model.stat()
        except OSError as error:
            raise InputError(f"Cannot read '{self.model}': {error.strerror or error}.") from error
        return about.st_mtime_ns, about.st_size, about.st_ino


# The application ----------------------------------------------------------------------------------


class Metrics:
    """Prometheus metrics of requests, rows, coverage and models."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: Any = CollectorRegistry()

        def add(kind: Any, name: str, about: str, *labels: str) -> Any:
            return kind(f"evencover_{name}", about, labels, registry=self.registry)

        self.requests = add(Counter, "requests", "Requests by path and status.", "path", "status")
        self.seconds = add(Histogram, "request_seconds", "Time to answer a request.", "path")
        self.rows = add(Counter, "rows", "Rows whose sets were computed.")
        self.labeled = add(Gauge, "labelled_rows", "Labeled rows that were counted.")
        self.covered = add(Gauge, "covered_rows", "Labeled rows whose set contains the label.")
        self.alarms = add(Gauge, "alarm", "1 if a test of coverage has an alarm.", "question")
        self.classes = add(Gauge, "classes_in_alarm", "Classes below the guaranteed coverage.")
        self.reloads = add(Counter, "model_reloads", "New models loaded.")
        self.failures = add(Counter, "model_reload_failures", "Models or states that failed.")

    def text(self, service: Service) -> Answer:
        """Return the page for Prometheus."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        found = service.coverage()
        self.labeled.set(found["rows"])
        self.covered.set(sum(round(c["rows"] * (c["coverage"] or 0)) for c in found["classes"]))
        for question in ("promise", "overall", "change"):
            self.alarms.labels(question).set(found[question]["alarm"])
        self.classes.set(sum(each["alarm"] for each in found["classes"]))
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


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
    """Make the application; `watch` reloads a changed model, `note` gets messages on the way."""
    require_extra()
    from starlette.applications import Starlette
    from starlette.routing import Route

    limits, metrics = limits or Limits(), Metrics()

    async def sets(request: Any) -> Answer:
        given = await _rows(request, limits, with_labels=False)
        arrow = ARROW in request.headers.get("accept", "")
        answer = await _run(given.rows.nbytes, lambda: _sets_answer(service, given, arrow=arrow))
        metrics.rows.inc(len(given))
        return answer

    async def labels(request: Any) -> Answer:
        _check_token(request.headers.get("authorization", ""), token)
        given = await _rows(request, limits, with_labels=True)
        return _json(await asyncio.to_thread(service.labels, given))

    async def coverage(request: Any) -> Answer:
        return _json(await asyncio.to_thread(service.coverage))

    async def model(request: Any) -> Answer:
        return _json(service.describe())

    async def healthz(request: Any) -> Answer:
        return _json({"status": "ok", "model": service.now.monitor.model})

    async def prometheus(request: Any) -> Answer:
        return await asyncio.to_thread(metrics.text, service)

    async def page(request: Any) -> Answer:
        text = await asyncio.to_thread(service.page)
        return text.encode("utf-8", "replace"), "text/html; charset=utf-8"

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
            await asyncio.to_thread(service.save)

    endpoints: dict[str, tuple[str, Callable[[Any], Awaitable[Answer]]]] = {
        "/v1/sets": ("POST", sets),
        "/v1/labels": ("POST", labels),
        "/v1/coverage": ("GET", coverage),
        "/v1/model": ("GET", model),
        "/healthz": ("GET", healthz),
        "/metrics": ("GET", prometheus),
        "/openapi.json": ("GET", description),
        "/": ("GET", page),
    }
    routes = [
        Route(path, _endpoint(path, function, metrics), methods=[method])
        for path, (method, function) in endpoints.items()
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _endpoint(
    path: str, function: Callable[[Any], Awaitable[Answer]], metrics: Metrics
) -> Callable[[Any], Awaitable[Any]]:
    """Wrap a function: errors become a status and a message, and every request is measured."""
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response

    async def endpoint(request: Any) -> Any:
        begun, status = time.perf_counter(), 500
        try:
            content, content_type = await function(request)
            status = 200
        except InputError as error:
            status = getattr(error, "status", 422)
            content, content_type = _json({"error": " ".join(str(error).split())})
        except ClientDisconnect:
            status, (content, content_type) = 400, _json({"error": "The client went away."})
        finally:
            metrics.requests.labels(path, status).inc()
            metrics.seconds.labels(path).observe(time.perf_counter() - begun)
        # A rejected body may not have been read to its end: the connection cannot be used again.
        headers = {"connection": "close"} if status in (408, 413) else None
        return Response(content, status, headers=headers, media_type=content_type)

    return endpoint


async def _run(n_bytes: int, work: Callable[[], Any]) -> Any:
    """Do small work at once, and large work on a thread, so that other requests need not wait."""
    return work() if n_bytes <= INLINE_BYTES else await asyncio.to_thread(work)


async def _rows(request: Any, limits: Limits, *, with_labels: bool) -> Rows:
    too_large = RequestError(413, f"The body must have at most {limits.body} bytes.")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limits.body:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body:
                    raise too_large
    except TimeoutError:
        raise RequestError(408, f"The body must arrive in {limits.seconds:g} seconds.") from None
    given, content_type = bytes(body), request.headers.get("content-type", "")
    options: Any = {"max_rows": limits.rows, "with_labels": with_labels}
    rows: Rows = await _run(len(body), lambda: read_rows(given, content_type, **options))
    return rows


def _sets_answer(service: Service, given: Rows, *, arrow: bool) -> Answer:
    sets, model = service.sets(given)
    if not arrow:
        names = {} if sets.class_names is None else {"names": sets.to_lists(names=True)}
        sizes = sets.sizes.tolist()
        return _json({"sets": sets.to_lists(), **names, "sizes": sizes, "model": model})
    pa = import_pyarrow()
    classes, starts = pa.array(sets.indices, pa.int32()), pa.array(sets.indptr, pa.int32())
    members = pa.ListArray.from_arrays(starts, classes)
    table = pa.table({"set": members, "size": pa.array(sets.sizes, pa.int64())})
    table = table.replace_schema_metadata({"model": model})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue()), ARROW


def _check_token(given: str, token: str | None) -> None:
    if token is None:
        raise RequestError(403, ERRORS["403"])
    expected = f"Bearer {token}".encode()
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected):
        raise RequestError(401, "The header 'Authorization: Bearer TOKEN' is missing or wrong.")


async def _maintain(
    service: Service, metrics: Metrics, *, watch: bool, note: Callable[[str], None]
) -> None:
    """Save the state every few seconds, and reload a changed model."""
    saved = time.monotonic()
    while True:
        await asyncio.sleep(min(SAVE_SECONDS, RELOAD_SECONDS))
        try:
            if time.monotonic() - saved >= SAVE_SECONDS:
                await asyncio.to_thread(service.save)
                saved = time.monotonic()
            if watch and await asyncio.to_thread(service.reload):
                metrics.reloads.inc()
                note(f"loaded a new model: {service.now.monitor.model}")
        except InputError as error:  # a file half written, a full disk: go on with what is loaded
            metrics.failures.inc()
            note(str(error))


def _json(value: Any) -> Answer:
    return json.dumps(value, allow_nan=False).encode(), JSON
