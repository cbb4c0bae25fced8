"""``evencover serve``: prediction sets over HTTP, with a monitor."""

from __future__ import annotations

import os

from evencover.cli.console import note
from evencover.cli.options import ModelFile, Retention, Switch, open_state
from evencover.errors import InputError, needs


def run(
    model: ModelFile,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    state: str | None = None,
    retention: Retention = None,
    watch: Switch = False,
    max_body: int = 16 * 2**20,
    max_rows: int = 10_000,
    timeout: float = 10.0,
    max_connections: int = 1000,
) -> None:
    """Serve prediction sets over HTTP and monitor their coverage.

    POST /v1/sets, POST /v1/labels (needs a token), GET /v1/coverage, /v1/model, /healthz, /metrics
    and the Open Inference Protocol under /v2. The environment variable EVENCOVER_TOKEN sets the
    token for sets and labels.

    Parameters
    ----------
    host
        Network interface; the default accepts local connections only.
    port
        Port; 0 selects a free one.
    state
        SQLite file or postgresql://... for the monitor; default: memory.
    watch
        Reload the model when the file changes.
    max_body
        Maximum size of a request body in bytes.
    max_rows
        Maximum rows per request.
    timeout
        Seconds for a request to arrive, and between requests.
    max_connections
        Maximum open connections; further requests get status 503.
    """
    try:
        from evencover.serving.bodies import Limits
        from evencover.serving.http import Application, listen, make_server
    except ImportError as error:
        raise needs("Services", error.name or "starlette", "serve") from None
    from evencover.serving.service import Service

    if not 0 <= port < 2**16:
        raise InputError(f"'--port' must be from 0 to 65535. Got {port}.")
    if not 0 < timeout <= 86_400:
        raise InputError(f"'--timeout' must be above 0 and at most 86400 seconds. Got {timeout}.")
    if min(max_body, max_rows, max_connections) < 1:
        raise InputError("Every '--max-...' option must be at least 1.")
    service = Service(model, open_state(state, retention))
    limits, token = Limits(max_body, max_rows, timeout), os.environ.get("EVENCOVER_TOKEN") or None
    application = Application(service, token=token, limits=limits, watch=watch, note=note)
    server = make_server(application.asgi(), timeout=timeout, connections=max_connections)
    listening = listen(host, port, timeout)
    print(f"evencover: http://{host}:{listening.getsockname()[1]}", flush=True)
    try:
        server.run(sockets=[listening])
    except BaseException as stop:  # after a clean stop, uvicorn raises the signal again
        if isinstance(stop, Exception) or not server.should_exit:
            raise
    if service.writer.n_dropped:
        note(f"{service.writer.n_dropped:,} rows were not recorded.")
    note("stopped" if state is None else f"stopped; the state is in {service.state.name}")
