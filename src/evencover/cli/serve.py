"""``evencover serve``: prediction sets over HTTP, with a monitor."""

from __future__ import annotations

import os
import socket
from contextlib import nullcontext
from pathlib import Path

from evencover.cli.console import note
from evencover.cli.options import FalseAlarm, ModelFile, Switch, Tolerance
from evencover.errors import InputError
from evencover.output.atomic import only_writer, reject_existing

TOKEN = "EVENCOVER_TOKEN"


def run(
    model: ModelFile,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    state: Path | None = None,
    token_file: Path | None = None,
    watch: Switch = False,
    false_alarm: FalseAlarm = None,
    tolerance: Tolerance = None,
    max_body: int = 16 * 2**20,
    max_rows: int = 10_000,
    timeout: float = 10.0,
    max_requests: int = 100,
) -> None:
    """Answer requests for prediction sets, and watch their coverage as labels come in.

    POST /v1/sets, POST /v1/labels (with a token), GET /v1/coverage, /v1/model, /healthz, /metrics,
    /openapi.json, and a live page at /.

    Parameters
    ----------
    host
        The address to listen at; by default this machine only.
    port
        The port to listen at; 0 takes any that is free.
    state
        Where the monitor's counts are kept (JSON); without it they are lost when the service ends.
    token_file
        File with the token that whoever sends labels must have; or the environment variable
        EVENCOVER_TOKEN. Without a token no labels are taken.
    watch
        Pick up a new model when the file changes, without dropping a request.
    max_body
        The largest body of a request, in bytes.
    max_rows
        The most rows in a request.
    timeout
        Seconds in which the body of a request must arrive.
    max_requests
        How many requests may be under way at once; others are told to try again (503).
    """
    from evencover.serving.http import Limits, Service, make_app, require_extra

    require_extra()
    import uvicorn

    if min(max_body, max_rows, max_requests) < 1 or timeout <= 0 or not 0 <= port < 2**16:
        raise InputError("Limits must be above 0, and the port from 0 to 65535.")
    asked = {"false_alarm": false_alarm, "tolerance": tolerance}
    options = {name: value for name, value in asked.items() if value is not None}
    # Nobody else may write to the state while the service counts.
    lock = nullcontext() if state is None else only_writer(reject_existing(state, force=True))
    with lock:
        app = make_app(
            Service(model, state, **options),
            token=_token(token_file),
            limits=Limits(max_body, max_rows, timeout),
            watch=watch,
            note=note,
        )
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            limit_concurrency=max_requests,
            timeout_keep_alive=max(1, int(timeout)),
            timeout_graceful_shutdown=max(1, int(timeout)),
            server_header=False,
        )
        listening = _listening(host, port)
        print(f"evencover: http://{host}:{listening.getsockname()[1]}", flush=True)
        server = uvicorn.Server(config)
        try:
            server.run(sockets=[listening])
        except BaseException as stop:  # asked to end, and done: uvicorn raises the signal once more
            if isinstance(stop, Exception) or not server.should_exit:
                raise
    note("stopped" if state is None else f"stopped; the state is in {state}")


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=2048)
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
        raise InputError(f"'{path}' must hold a token. Got an empty file.")
    return token
