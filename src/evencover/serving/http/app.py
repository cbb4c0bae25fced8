"""The ASGI application: addresses, limits, the token, and work that goes on beside requests."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from evencover.errors import InputError, needs
from evencover.serving.http.metrics import Metrics
from evencover.serving.http.openapi import openapi
from evencover.serving.http.requests import ARROW, JSON, RefusedError, Rows, read_rows
from evencover.serving.http.service import Limits, Service
from evencover.sets import PredictionSets

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
    from evencover._arrow import import_pyarrow

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
