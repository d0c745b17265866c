"""Kept-alive HTTP connections to one server, in one event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES
from pytriton.client.http_connection import HttpConnection
from pytriton.client.http_message import HttpResponse, RequestWriter
from pytriton.client.url import TritonUrl

__all__ = ["HttpPool"]


class HttpPool:
    """Gives each request a connection of its own for as long as it takes.

    Args:
        url: The server.
        limit: Most connections; further requests wait for each other.
        tls: None does not encrypt.
        max_response_bytes: As of :class:`ResponseReader`.
    """

    def __init__(
        self,
        url: TritonUrl,
        limit: int,
        tls: ssl.SSLContext | None,
        max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
    ) -> None:
        self._host = url.hostname.strip("[]")
        self._port = url.port
        self._tls = tls
        self._max_response_bytes = max_response_bytes
        self._writer = RequestWriter(url)
        self._places = asyncio.Semaphore(limit)
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()

    async def request(self, method: bytes, uri: str, headers: Mapping[str, object], body: bytes) -> HttpResponse:
        """Send a request and wait for the response.

        Args:
            method: Such as ``b"POST"``.
            uri: Below the server's path, without a slash at its beginning; quoted.
            headers: Without Host and Content-Length.
            body: May be empty.

        Raises:
            OSError: The connection could not be made, or ended early.
            PyTritonClientValueError: As :meth:`RequestWriter.head`.
            PyTritonClientInferenceServerError: As :meth:`ResponseReader.feed`.
        """
        head = self._writer.head(method, uri, headers, len(body))
        async with self._places:
            connection = await self._connection()
            try:
                response = await connection.send(head, body)
            except BaseException:
                connection.abort()  # else the answer would be that to the next request
                raise
            if connection.is_open:
                self._idle.append(connection)
            else:
                connection.abort()
            return response

    async def close(self) -> None:
        """End all connections; whoever waits for a response gets ConnectionError."""
        self._idle.clear()
        for connection in [*self._open]:
            connection.abort()
        while self._open:
            await asyncio.sleep(0)

    async def _connection(self) -> HttpConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._open, self._max_response_bytes),
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=self._host if self._tls else None,
        )
        return connection
