"""Connections of the app's own process: clients may not stall, send endless headers, or leave answers unread."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["AppProtocol"]

HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 30.0
UNREAD_TIMEOUT_S = 60.0  # for a client to read what the connection's buffer has, which is some hundred kilobytes


class AppProtocol(HttpToolsProtocol):
    """Limits the size of a request's headers, the time for them to come, and the time for an answer to be read.

    Bodies have limits in their routes.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._end_head()
        self._end_unread()
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

    def pause_writing(self) -> None:
        """The buffer is full, and the client has to read."""
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(UNREAD_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._end_unread()
        super().resume_writing()

    def _end_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

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
