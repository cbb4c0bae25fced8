"""Connections on which no request arrives are closed: the server itself would wait for ever."""

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
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

import evencover
from evencover.arrays import Array
from evencover.engine.blocks import Part, known_ids
from evencover.errors import InputError, needs
from evencover.monitoring import CoverageMonitor, summary
from evencover.monitoring.monitor import Counts
from evencover.monitoring.store import read_state
from evencover.persistence import load
from evencover.predictors.base import BasePredictor, few_rows
from evencover.predictors.fitting import align_to_calibration
from evencover.predictors.rule import SetRule
from evencover.predictors.state import digest
from evencover.randomness import row_ids
from evencover.report.page import watch_html
from evencover.sets import PredictionSets, decreasing_within_rows
from evencover.validation import are_json_numbers, parse_json


def with_patience(seconds: float) -> Any:
    """The server's protocol, for connections that bring the head of a request in so many seconds.

    Counted from the opening of a connection, and from the end of each answer. Without it somebody
    who opens connections and sends nothing, or half a line, keeps everybody else out: they count
    among those that are under way. What comes after the head has a limit of its own.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type, unused-ignore]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, self._close_if_idle)

        def connection_lost(self, exc: Exception | None) -> None:
            self._late.cancel()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._late.cancel()
            self._late = self.loop.call_later(seconds, self._close_if_idle)

        def _close_if_idle(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Protocol


class Metrics:
    """Counts of requests and rows, how long they took, and what the monitor says."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: Any = CollectorRegistry()
        of: Any = {"registry": self.registry}
        self.requests = Counter(
            "evencover_requests", "Requests by address and status.", ["path", "status"], **of
        )
        self.seconds = Histogram(
            "evencover_request_seconds", "Time to answer a request.", ["path"], **of
        )
        self.rows = Counter("evencover_rows", "Rows whose sets were made.", **of)
        self.labelled = Gauge("evencover_labelled_rows", "Labelled rows that were counted.", **of)
        self.covered = Gauge("evencover_covered_rows", "Those whose set held their label.", **of)
        self.alarms = Gauge(
            "evencover_alarm", "1 if a question about coverage has an alarm.", ["question"], **of
        )
        self.classes = Gauge("evencover_classes_in_alarm", "Classes that break the promise.", **of)
        self.reloads = Counter("evencover_model_reloads", "New models taken up.", **of)
        self.failures = Counter(
            "evencover_model_reload_failures", "New models that could not be read.", **of
        )

    def text(self, service: Service) -> tuple[bytes, str]:
        """The page for Prometheus, and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        found = service.coverage()
        self.labelled.set(found["rows"])
        self.covered.set(sum(round(c["rows"] * (c["coverage"] or 0)) for c in found["classes"]))
        for question in ("promise", "overall", "change"):
            self.alarms.labels(question).set(found[question]["alarm"])
        self.classes.set(sum(each["alarm"] for each in found["classes"]))
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
FIELDS = ("rows", "ids", "groups", "labels")


class RefusedError(Exception):
    """The request is not answered: a status, and a sentence that says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Rows:
    """The rows of a request; what is not there is None."""

    rows: Array
    ids: list[Any] | None = None
    groups: list[Any] | None = None
    labels: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)


def read_rows(body: bytes, kind: str, *, most_rows: int, with_labels: bool) -> Rows:
    """The rows in a body of this content type; `RefusedError` if they cannot be."""
    kind = kind.partition(";")[0].strip().lower()
    if kind not in (JSON, ARROW):
        raise RefusedError(415, f"The content type must be {JSON} or {ARROW}. Got {kind!r}.")
    allowed = FIELDS[: 4 if with_labels else 3]
    found = _from_arrow(body, allowed) if kind == ARROW else _from_json(body, allowed)
    if "rows" not in found or (with_labels and "labels" not in found):
        missing = "rows" if "rows" not in found else "labels"
        raise RefusedError(422, f"The body must hold {missing!r}, one entry per row.")
    n_rows = len(found["rows"])
    if not 1 <= n_rows <= most_rows:
        status = 413 if n_rows else 422
        raise RefusedError(status, f"There must be 1 to {most_rows} rows. Got {n_rows}.")
    for name in FIELDS[1:]:
        if name in found and len(found[name]) != n_rows:
            raise RefusedError(
                422, f"{name!r} must have one entry per row. Got {len(found[name])} for {n_rows}."
            )
    return Rows(_matrix(found.pop("rows")), **found)


def _refuse_other(name: str, allowed: tuple[str, ...]) -> None:
    if name not in allowed:
        raise RefusedError(
            422,
            f"The body may hold {', '.join(map(repr, allowed))}. Got {name!r}; send the numbers of "
            "the classes, probabilities or logits as the model was calibrated with, as 'rows'.",
        )


def _from_json(body: bytes, allowed: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = parse_json(body, "the body")
    except InputError as error:
        raise RefusedError(422, str(error)) from None
    except (ValueError, RecursionError):
        raise RefusedError(400, "The body is not JSON.") from None
    if not isinstance(content, dict):
        raise RefusedError(422, "The body must be an object with 'rows'.")
    for name, values in content.items():
        _refuse_other(name, allowed)
        if not isinstance(values, list):
            raise RefusedError(422, f"{name!r} must be a list, one entry per row.")
        if name != "rows" and not _is_plain(values):
            raise RefusedError(422, f"{name!r} must hold texts, or whole numbers, and not both.")
    return content


def _is_plain(values: list[Any]) -> bool:
    """Texts, or whole numbers of 64 bits."""
    if all(type(value) is int for value in values):
        return all(-(2**63) <= value < 2**63 for value in values)
    if not all(isinstance(value, str) for value in values):
        return False
    try:  # half a surrogate pair is no text
        "".join(values).encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_arrow(body: bytes, allowed: tuple[str, ...]) -> dict[str, Any]:
    from evencover.arrays import import_pyarrow

    pa = import_pyarrow()
    try:
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        raise RefusedError(400, "The body is not an Arrow stream.") from None
    found: dict[str, Any] = {}
    for name in table.column_names:
        _refuse_other(name, allowed)
        if name in found:
            raise RefusedError(422, f"The body must hold {name!r} once.")
        found[name] = table[name]
        if name != "rows":
            found[name] = found[name].to_pylist()
            if not _is_plain(found[name]):
                raise RefusedError(422, f"{name!r} must hold texts, or whole numbers.")
    return found


def _matrix(values: Any) -> Array:
    """Rows of numbers; the predictor says what else is wrong with them."""
    sentence = "Every row must be a list with one number for each class."
    if isinstance(values, list):
        if not all(isinstance(row, list) and are_json_numbers(row) for row in values):
            raise RefusedError(422, sentence)
        try:
            rows = np.array(values)
        except (ValueError, OverflowError, RecursionError):
            raise RefusedError(422, sentence) from None
    else:
        from evencover.arrays import matrix_from_arrow

        try:
            rows = matrix_from_arrow(values, "the body")
        except InputError as error:
            raise RefusedError(422, str(error)) from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise RefusedError(422, sentence)
    return rows


def openapi(about: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Describe the endpoints of a service whose model is as `about` says."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "evencover", "version": evencover.__version__},
        "paths": {
            "/v1/sets": {
                "post": _post(
                    "The prediction set of each row, the most probable class first.",
                    _body_schema(about, limits, with_labels=False),
                    "Sets",
                )
            },
            "/v1/labels": {
                "post": _post(
                    "Labelled rows, which the monitor counts as covered or not.",
                    _body_schema(about, limits, with_labels=True),
                    "Counted",
                )
                | {"security": [{"token": []}]}
            },
            "/v1/coverage": {"get": _get("What the monitor says of every class.")},
            "/v1/model": {"get": _get("What the model is.")},
            "/healthz": {"get": _get("Whether the service is up.")},
            "/metrics": {"get": _get("Figures for Prometheus.", "text/plain")},
            "/": {"get": _get("The live page.", "text/html")},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Refused": _object({"error": {"type": "string"}}, ["error"]),
                "Sets": _object(
                    {
                        "sets": _list(_list({"type": "integer"})),
                        "names": _list(_list({"type": "string"})),
                        "sizes": _list({"type": "integer"}),
                        "model": {"type": "string"},
                    },
                    ["sets", "sizes", "model"],
                ),
                "Counted": _object(
                    {
                        "counted": {"type": "integer"},
                        "repeated": {"type": "integer"},
                        "model": {"type": "string"},
                    },
                    ["counted", "repeated", "model"],
                ),
            },
        },
    }


def _body_schema(about: dict[str, Any], limits: Limits, *, with_labels: bool) -> dict[str, Any]:
    n_classes = about["n_classes"]
    row = _list({"type": "number"}) | {"minItems": n_classes, "maxItems": n_classes}
    row |= {"description": f"The {about['reads']} of the classes."}
    some = {"minItems": 1, "maxItems": limits.rows}
    text_or_number = {"anyOf": [{"type": "string"}, {"type": "integer", "format": "int64"}]}
    fields = {"rows": _list(row) | some, "ids": _list(text_or_number) | some}
    required = ["rows"]
    if about["needs_groups"]:
        fields["groups"] = _list(text_or_number) | some
        required.append("groups")
    if with_labels:
        fields["labels"] = _list(text_or_number) | some
        required.append("labels")
    return _object(fields, required)


def _post(summary: str, body: dict[str, Any], answer: str) -> dict[str, Any]:
    refusals = {
        "400": "The body cannot be read.",
        "401": "The token is missing or wrong.",
        "403": "The service was started without a token and takes no labels.",
        "408": "The body did not arrive in time.",
        "413": "The body is too large.",
        "415": "The body is neither JSON nor Arrow.",
        "422": "The rows are not what they must be.",
        "503": "Too many requests at once, or the labels cannot be kept now; ask again.",
    }
    if answer == "Sets":
        del refusals["401"], refusals["403"]
    content = {JSON: {"schema": {"$ref": f"#/components/schemas/{answer}"}}}
    if answer == "Sets":
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON: {"schema": body}}},
        "responses": {
            "200": {"description": summary, "content": content},
            **{
                status: {
                    "description": why,
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Refused"}}},
                }
                for status, why in refusals.items()
            },
        },
    }


def _get(summary: str, kind: str = JSON) -> dict[str, Any]:
    schema = {"type": "object"} if kind == JSON else {"type": "string"}
    content = {kind: {"schema": schema}}
    return {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}},
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


MOST_IDS = 100_000  # of labelled rows that are remembered, so that a repeated request counts once
SERVICE = "service "  # how its name begins among the inputs of its state
KEPT_SECONDS = 1.0  # for which a summary is given again: making it takes longer than asking for it


@dataclass(frozen=True)
class Limits:
    """What a request may take: bytes, rows, and seconds until it has arrived."""

    body: int = 16 * 2**20
    rows: int = 10_000
    seconds: float = 10.0


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

    def sets(self, given: Rows) -> PredictionSets:
        """What `predict_set` gives, on this thread: a few rows are not worth starting others."""
        if few_rows(self.predictor, given.rows) is not None:
            return self.predictor.predict_set(given.rows, ids=given.ids, groups=given.groups)
        source = align_to_calibration(self.predictor, given.rows)
        rule = self.rule or self.predictor.rule(groups=given.groups)
        if self.rule is not None:
            self.predictor._check_groups(given.groups)
        blocks = Part(source, known_ids(source, given.ids)).blocks()
        return PredictionSets.concatenate(rule.sets(block, ids) for block, ids in blocks)


class Service:
    """Answers requests with the model of now, and counts for its monitor.

    Parameters
    ----------
    model
        The file of the model; `reload` looks whether there is a new one.
    state
        Where the monitor's state is kept; None keeps it in memory only.
    options
        `false_alarm` and `tolerance` of a new monitor.
    """

    def __init__(self, model: Path, state: Path | None = None, **options: Any) -> None:
        self.model, self.state, self.options = Path(model), state, options
        # Counts change under the first, which is never held while a file is written: requests for
        # sets wait for it. Writers take the second before it, those who send labels the third.
        self._lock, self._file_lock, self._label_lock = (threading.Lock() for _ in range(3))
        self._kept: dict[str, tuple[float, Any]] = {}
        self.now = self._load()

    # ---- requests ------------------------------------------------------------------------------

    def sets(self, given: Rows) -> tuple[PredictionSets, str]:
        """The sets of rows, the most probable class first, and the model's digest."""
        loaded = self.now
        sets = loaded.sets(given)
        top_classes = given.rows.argmax(axis=1)
        with self._lock:
            loaded.monitor.observe_sets(sets.sizes, top_classes)
            loaded.is_dirty = True
        rows = np.repeat(np.arange(len(given)), sets.sizes)
        values = given.rows[rows, sets.indices].astype(np.float64)
        classes = sets.indices[decreasing_within_rows(sets.sizes, values)]
        names = loaded.predictor.class_names_
        listed = PredictionSets.from_sizes(sets.sizes, classes, sets.n_classes, names)
        return listed, loaded.monitor.model

    def labels(self, given: Rows) -> dict[str, Any]:
        """Count labelled rows; what was counted is in the file when this returns."""
        with self._label_lock:  # so that a request that is sent twice at once counts once
            loaded = self.now
            new = self._not_counted(loaded, given)
            if new.any():
                part = self._counted(loaded, given, np.flatnonzero(new).tolist())
                self._add(loaded, part)
                self._remember(loaded, given, new)
                self._kept.clear()
        n_new = int(new.sum())
        return {"counted": n_new, "repeated": len(given) - n_new, "model": loaded.monitor.model}

    def _add(self, loaded: Loaded, part: Counts) -> None:
        """Count what is on disk; nothing, if it cannot be written: the client asks again."""
        with self._file_lock:
            ahead = loaded.monitor.empty()
            with self._lock:
                ahead.counts = loaded.monitor.counts + part
            try:
                self._write(loaded, ahead)
            except InputError as error:
                raise RefusedError(503, f"{error} Send the labels again later.") from error
            with self._lock:
                loaded.monitor.counts += part

    @staticmethod
    def _counted(loaded: Loaded, given: Rows, kept: list[int]) -> Counts:
        """What some of the rows add to the counts; a bad row, and nothing is counted."""
        labels, ids, groups = (
            None if values is None else [values[n] for n in kept]
            for values in (given.labels, given.ids, given.groups)
        )
        return (
            loaded.monitor.empty().update(given.rows[kept], labels, ids=ids, groups=groups).counts
        )

    def coverage(self) -> dict[str, Any]:
        """All that the monitor has to say."""
        return dict(self._recent("coverage", summary))

    def page(self) -> str:
        """The live page."""
        title = f"Coverage of {self.model.name}"
        return str(self._recent("page", lambda monitor: watch_html(monitor, title, refresh=10)))

    def describe(self) -> dict[str, Any]:
        """What the model is."""
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
            "guarantee": predictor.promise,
            "n_classes": predictor.n_classes_,
            "n_calibration": predictor.n_calibration_,
            "needs_groups": "row groups" in predictor.needs,
            "class_names": None if names is None else list(names),
        }

    def _recent(self, what: str, make: Any) -> Any:
        then, value = self._kept.get(what, (0.0, None))
        if value is None or time.monotonic() - then > KEPT_SECONDS:
            value = make(self._copy_of(self.now))
            self._kept[what] = (time.monotonic(), value)
        return value

    # ---- rows that come twice --------------------------------------------------------------------

    def _not_counted(self, loaded: Loaded, given: Rows) -> Array:
        """Which rows have an id that was not counted lately, nor twice here."""
        if given.ids is None:
            return np.ones(len(given), dtype=bool)
        keys = row_ids(given.ids, len(given)).tolist()
        seen: set[int] = set()
        new = np.ones(len(given), dtype=bool)
        for place, key in enumerate(keys):
            new[place] = key not in loaded.counted and key not in seen
            seen.add(key)
        return new

    def _remember(self, loaded: Loaded, given: Rows, new: Array) -> None:
        if given.ids is None:
            return
        keys = row_ids(given.ids, len(given))[new].tolist()
        loaded.counted.update(dict.fromkeys(keys))
        while len(loaded.counted) > MOST_IDS:
            loaded.counted.popitem(last=False)

    # ---- files -----------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the monitor's state, if there is anything new."""
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

    def _copy_of(self, loaded: Loaded) -> CoverageMonitor:
        with self._lock:
            return loaded.monitor + loaded.monitor.empty()

    def _write(self, loaded: Loaded, monitor: CoverageMonitor) -> None:
        if self.state is not None:
            is_old = loaded is not self.now  # labels that came while a new model was taken up
            monitor.save(self._state_of(monitor.model) if is_old else self.state)

    def reload(self) -> bool:
        """Take up a new model if the file has changed; requests go on with the old one meanwhile.

        The state of the old model is kept under a name of its own, and a new one begins; or that
        of the new model goes on, if it was here before.
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
            monitor = _signed(CoverageMonitor.open(kept, predictor, **self.options))
            if self.state is not None and kept is not None:
                self._copy_of(old).save(self._state_of(old.monitor.model))
                monitor.save(self.state)
                kept.unlink(missing_ok=True)
            self.now = Loaded(predictor, monitor, stamp)
            self._kept.clear()
        return True

    def _load(self) -> Loaded:
        stamp, predictor = self._stamp(), load(self.model)
        if self.state is not None and self.state.exists():
            model = read_state(self.state).get("model")
            if model != digest(predictor):  # the model was replaced while nothing was running
                os.replace(self.state, self._state_of(str(model)))
                with suppress(FileNotFoundError):
                    os.replace(self._state_of(digest(predictor)), self.state)
        monitor = _signed(CoverageMonitor.open(self.state, predictor, **self.options))
        return Loaded(predictor, monitor, stamp)

    def _state_of(self, model: str) -> Path:
        """Where the state of an earlier model is kept."""
        assert self.state is not None
        return self.state.with_name(f"{self.state.stem}.{model[:8]}{self.state.suffix}")

    def _stamp(self) -> tuple[int, int, int]:
        """What changes when the file does."""
        try:
            about = self.model.stat()
        except OSError as error:
            raise InputError(f"Cannot read '{self.model}': {error.strerror or error}.") from error
        return about.st_mtime_ns, about.st_size, about.st_ino


def _signed(monitor: CoverageMonitor) -> CoverageMonitor:
    """The monitor with the name of a service among what it has counted.

    A state grows from day to day, so it cannot be told by its content; by this name it is refused
    where it was merged before.
    """
    if not any(name.startswith(SERVICE) for name in monitor.counts.inputs):
        monitor.counts.inputs |= {f"{SERVICE}{uuid4().hex}"}
    return monitor


INLINE_BYTES = 1 << 15  # a body up to this size is not worth a thread
SAVE_SECONDS, LOOK_SECONDS = 5.0, 2.0

Answer = tuple[bytes, str]


def require_extra() -> None:
    """Refuse, before anything is loaded, if the framework is not installed."""
    try:
        import prometheus_client
        import starlette
        import uvicorn
    except ImportError as error:
        raise needs("Services", str(error.name), "serve") from None
    assert prometheus_client
    assert starlette
    assert uvicorn


def make_app(
    service: Service,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    watch: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Any:
    """The application; `watch` takes up new models, `note` is told what happens meanwhile."""
    require_extra()
    from starlette.applications import Starlette
    from starlette.routing import Route

    limits, metrics = limits or Limits(), Metrics()

    async def sets(request: Any) -> Answer:
        given = await _rows(request, limits, with_labels=False)
        wants_arrow = ARROW in request.headers.get("accept", "")
        answer = await _beside(given, lambda: _sets_answer(service, given, arrow=wants_arrow))
        metrics.rows.inc(len(given))
        return answer

    async def labels(request: Any) -> Answer:
        _check_token(request.headers.get("authorization", ""), token)
        given = await _rows(request, limits, with_labels=True)
        return _json(await asyncio.to_thread(service.labels, given))

    async def coverage(request: Any) -> Answer:
        return _json(await asyncio.to_thread(service.coverage))

    async def about_model(request: Any) -> Answer:
        return _json(service.describe())

    async def healthz(request: Any) -> Answer:
        return _json({"status": "ok", "model": service.now.monitor.model})

    async def figures(request: Any) -> Answer:
        return await asyncio.to_thread(metrics.text, service)

    async def page(request: Any) -> Answer:
        text = await asyncio.to_thread(service.page)
        return text.encode("utf-8", "replace"), "text/html; charset=utf-8"

    async def description(request: Any) -> Answer:
        return _json(openapi(service.describe(), limits))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        beside = asyncio.create_task(_work_beside(service, metrics, watch=watch, note=note))
        try:
            yield
        finally:
            beside.cancel()
            with suppress(asyncio.CancelledError):
                await beside
            await asyncio.to_thread(service.save)

    posts = {"/v1/sets": sets, "/v1/labels": labels}
    gets = {
        "/v1/coverage": coverage,
        "/v1/model": about_model,
        "/healthz": healthz,
        "/metrics": figures,
        "/openapi.json": description,
        "/": page,
    }
    routes = [
        Route(path, _answering(path, function, metrics), methods=[method])
        for method, functions in (("POST", posts), ("GET", gets))
        for path, function in functions.items()
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _answering(
    path: str, function: Callable[[Any], Awaitable[Answer]], metrics: Metrics
) -> Callable[[Any], Awaitable[Any]]:
    """An endpoint: what is refused is answered with its status and one sentence."""
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response

    async def endpoint(request: Any) -> Any:
        begun, status = time.perf_counter(), 500
        try:
            content, kind = await function(request)
            status = 200
        except RefusedError as refused:
            status, (content, kind) = refused.status, _json({"error": refused.sentence})
        except InputError as error:
            status, (content, kind) = 422, _json({"error": " ".join(str(error).split())})
        except ClientDisconnect:
            status, (content, kind) = 400, _json({"error": "The client went away."})
        finally:
            metrics.requests.labels(path, status).inc()
            metrics.seconds.labels(path).observe(time.perf_counter() - begun)
        # A refused body may not have been read to its end: the connection cannot be used again.
        headers = {"connection": "close"} if status in (408, 413) else None
        return Response(content, status, headers=headers, media_type=kind)

    return endpoint


async def _rows(request: Any, limits: Limits, *, with_labels: bool) -> Rows:
    body = await _body(request, limits)
    kind = request.headers.get("content-type", "")

    def read() -> Rows:
        return read_rows(body, kind, most_rows=limits.rows, with_labels=with_labels)

    return read() if len(body) <= INLINE_BYTES else await asyncio.to_thread(read)


async def _body(request: Any, limits: Limits) -> bytes:
    sentence = f"The body must have at most {limits.body} bytes."
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limits.body:
        raise RefusedError(413, sentence)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body:
                    raise RefusedError(413, sentence)
    except TimeoutError:
        raise RefusedError(408, f"The body must arrive in {limits.seconds:g} seconds.") from None
    return bytes(body)


async def _beside(given: Rows, work: Callable[[], Answer]) -> Answer:
    """Do the work here if it is small, else on a thread, so that others are answered meanwhile."""
    return work() if given.rows.nbytes <= INLINE_BYTES else await asyncio.to_thread(work)


def _sets_answer(service: Service, given: Rows, *, arrow: bool) -> Answer:
    sets, model = service.sets(given)
    if arrow:
        return _arrow(sets, model), ARROW
    answer: dict[str, Any] = {"sets": sets.to_lists()}
    if sets.class_names is not None:
        answer["names"] = sets.to_lists(names=True)
    return _json({**answer, "sizes": sets.sizes.tolist(), "model": model})


def _arrow(sets: PredictionSets, model: str) -> bytes:
    from evencover.arrays import import_pyarrow

    pa = import_pyarrow()
    classes = pa.array(sets.indices, pa.int32())
    listed = pa.ListArray.from_arrays(pa.array(sets.indptr, pa.int32()), classes)
    table = pa.table({"set": listed, "size": pa.array(sets.sizes, pa.int64())})
    table = table.replace_schema_metadata({"model": model})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _check_token(given: str, token: str | None) -> None:
    if token is None:
        raise RefusedError(403, "The service was started without a token and takes no labels.")
    expected = f"Bearer {token}".encode()
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected):
        raise RefusedError(401, "The header 'Authorization: Bearer TOKEN' is missing or wrong.")


async def _work_beside(
    service: Service, metrics: Metrics, *, watch: bool, note: Callable[[str], None]
) -> None:
    """Save what is new every few seconds, and take up a new model."""
    saved = time.monotonic()
    while True:
        await asyncio.sleep(min(SAVE_SECONDS, LOOK_SECONDS))
        try:
            if time.monotonic() - saved >= SAVE_SECONDS:
                await asyncio.to_thread(service.save)
                saved = time.monotonic()
            if watch and await asyncio.to_thread(service.reload):
                metrics.reloads.inc()
                note(f"took up a new model: {service.now.monitor.model}")
        except InputError as error:  # a file half written, a disk that is full: what is there stays
            metrics.failures.inc()
            note(str(error))


def _json(value: Any) -> Answer:
    return json.dumps(value, allow_nan=False).encode(), JSON
