"""``evencover serve``: prediction sets over HTTP, with a monitor."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path

from evencover.cli.console import note
from evencover.cli.options import FalseAlarm, ModelFile, Retention, Switch, Tolerance, open_state
from evencover.errors import InputError

TOKEN = "EVENCOVER_TOKEN"
MAX_HEAD = 2**16  # bytes of a request's head


def run(
    model: ModelFile,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    state: str | None = None,
    retention: Retention = None,
    token_file: Path | None = None,
    watch: Switch = False,
    false_alarm: FalseAlarm = None,
    tolerance: Tolerance = None,
    max_body: int = 16 * 2**20,
    max_rows: int = 10_000,
    max_values: int = 4 * 2**20,
    timeout: float = 10.0,
    max_requests: int = 100,
    max_connections: int = 1000,
) -> None:
    """Serve prediction sets over HTTP and monitor their coverage.

    POST /v1/sets, POST /v1/labels (with a token), GET /v1/coverage, /v1/model, /healthz, /metrics,
    /openapi.json, a live page at /, and the Open Inference Protocol under /v2.

    Parameters
    ----------
    host
        Network interface; the default accepts local connections only.
    port
        Port; 0 selects a free one.
    state
        SQLite file or postgresql://... for the monitor; default: memory.
    token_file
        File with the token for sending labels; or set EVENCOVER_TOKEN.
    watch
        Reload the model when the file changes.
    max_body
        Maximum size of a request body in bytes, also unpacked.
    max_rows
        Maximum rows per request.
    max_values
        Maximum rows x classes per request.
    timeout
        Seconds to receive a body, or to close an idle connection.
    max_requests
        Maximum concurrent requests with a body; others get status 503.
    max_connections
        Maximum open connections; further requests get status 503.
    """
    from evencover.serving.http import Service, make_app, require_extra
    from evencover.serving.requests import Limits

    require_extra()
    import uvicorn

    if not 0 <= port < 2**16:
        raise InputError(f"'--port' must be from 0 to 65535. Got {port}.")
    if not 0 < timeout <= 86_400:
        raise InputError(f"'--timeout' must be above 0 and at most 86400 seconds. Got {timeout}.")
    if min(max_body, max_rows, max_values, max_requests, max_connections) < 1:
        raise InputError("Every '--max-...' option must be at least 1.")
    asked = {"false_alarm": false_alarm, "tolerance": tolerance}
    options = {name: value for name, value in asked.items() if value is not None}
    store = open_state(state, retention)
    app = make_app(
        Service(model, store, **options),
        token=_token(token_file),
        limits=Limits(max_body, max_rows, max_values, timeout, max_requests),
        watch=watch,
        note=note,
    )
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        http="h11",  # httptools reads request heads of any size
        h11_max_incomplete_event_size=MAX_HEAD,
        ws="none",
        limit_concurrency=max_connections,
        timeout_keep_alive=max(1, int(timeout)),
        timeout_graceful_shutdown=max(1, int(timeout)),
        server_header=False,
    )
    listening = _listening(host, port, timeout)
    print(f"evencover: http://{host}:{listening.getsockname()[1]}", flush=True)
    server = uvicorn.Server(config)
    try:
        server.run(sockets=[listening])
    except BaseException as stop:  # after a clean stop, uvicorn raises the signal again
        if isinstance(stop, Exception) or not server.should_exit:
            raise
    note("stopped" if state is None else f"stopped; the state is in {store.name}")


def _listening(host: str, port: int, timeout: float) -> socket.socket:
    try:
        listening = socket.create_server((host, port), backlog=2048)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # the system closes connections that do not read
            option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(1000 * timeout))
            listening.setsockopt(*option)
        return listening
    except OSError as error:
        raise InputError(
            f"Cannot listen at {host}:{port}: {error.strerror or error}; choose another --port."
        ) from error


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read '{path}': {getattr(error, 'strerror', error)}.") from None
    if not token:
        raise InputError(f"'{path}' must contain a token. Got an empty file.")
    return token
