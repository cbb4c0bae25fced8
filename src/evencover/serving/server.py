"""The server (uvicorn): a listening socket, and time limits for clients that are slow."""

from __future__ import annotations

import math
import socket
from typing import Any

from evencover.errors import InputError

MAX_HEAD = 2**16  # bytes of a request's head


def _timed_protocol() -> Any:
    """Return uvicorn's protocol with a time limit for request heads; it has one for the rest."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class TimedProtocol(H11Protocol):  # type: ignore[misc]
        timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.await_head()

        def connection_lost(self, error: Exception | None) -> None:
            self.stop_waiting()
            super().connection_lost(error)

        def await_head(self) -> None:
            """Wait for a head, also for one that has begun; no longer for a complete one."""
            if self.conn.their_state is not h11.IDLE:
                self.stop_waiting()
            elif self.timer is None:
                self.timer = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

        def stop_waiting(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return TimedProtocol


def make_server(app: Any, *, timeout: float, connections: int) -> Any:
    """Make a server that closes slow, idle and surplus connections."""
    import uvicorn

    seconds = max(1, math.ceil(timeout))
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            http=_timed_protocol(),  # of h11: httptools reads request heads of any size
            h11_max_incomplete_event_size=MAX_HEAD,
            ws="none",
            limit_concurrency=connections,
            timeout_keep_alive=seconds,
            timeout_graceful_shutdown=seconds,
            server_header=False,
        )
    )


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
