"""tritonclient's HTTP client for asyncio, with what it leaves to be desired put right."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["http_client_class"]

_CHUNK_BYTES = 2**20


def http_client_class(lib: Any) -> Any:
    """A subclass of ``InferenceServerClient``, which needs aiohttp to be imported.

    It reads every answer to its end, so that a connection whose answer nobody looked at, as after
    ``is_model_ready``, serves the next call. It sends large requests in pieces, where aiohttp would warn. And it asks
    for answers as they are, where aiohttp would ask for compressed ones: compressing 1 MiB takes the server 50 ms.

    Args:
        lib: ``tritonclient.http.aio``.
    """
    body = _body_class(importlib.import_module("aiohttp.payload").Payload)

    class HttpClient(lib.InferenceServerClient):  # type: ignore[misc]  # the base is known at run time alone
        async def _get(self, request_uri: str, headers: Any, query_params: Any) -> Any:
            response = await super()._get(request_uri, _uncompressed(headers), query_params)
            await response.read()
            return response

        async def _post(self, request_uri: str, request_body: Any, headers: Any, query_params: Any) -> Any:
            content = body(request_body) if len(request_body) > _CHUNK_BYTES else request_body
            response = await super()._post(request_uri, content, _uncompressed(headers), query_params)
            await response.read()
            return response

    return HttpClient


def _body_class(base: Any) -> Any:
    class Body(base):  # type: ignore[misc]  # the base is known at run time alone
        """A request's body that makes room for others, and for what does not fit into the socket, after each piece.

        Args:
            content: Bytes, or text to encode.
        """

        def __init__(self, content: bytes | str) -> None:
            super().__init__(content.encode() if isinstance(content, str) else content)
            self._size = len(self._value)

        def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
            return str(self._value, encoding, errors)

        async def write(self, writer: Any) -> None:
            view = memoryview(self._value)
            for start in range(0, len(view), _CHUNK_BYTES):
                await writer.write(view[start : start + _CHUNK_BYTES])

    return Body


def _uncompressed(headers: Mapping[str, str] | None) -> dict[str, str]:
    asked = dict(headers or {})
    if not any(name.lower() == "accept-encoding" for name in asked):
        asked["Accept-Encoding"] = "identity"
    return asked
