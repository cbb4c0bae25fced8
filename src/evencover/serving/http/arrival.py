"""Connections on which no request arrives are closed: the server itself would wait for ever."""

from __future__ import annotations

from typing import Any


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
