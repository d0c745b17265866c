"""Connections of the front's own process: their clients may not stall, or send endless headers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["FrontProtocol"]

HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 30.0


class FrontProtocol(HttpToolsProtocol):
    """Limits the size of a request's headers, and the time for them to come; bodies have limits in their routes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and refuse headers that are too long."""
        super().data_received(data)
        if self._head_timer is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._end_head()
                self.send_400_response(f"the headers are longer than {HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """Its headers have come."""
        self._end_head()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self, *_: Any) -> None:
        self._head_timer = None
        self.transport.close()
