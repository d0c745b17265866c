"""The bodies of requests, within limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pytriton.rest.errors import RestError

__all__ = ["ClientDisconnectedError", "Headers", "Receive", "headers_of", "read_body"]

Receive = Callable[[], Awaitable[Any]]
Headers = Mapping[bytes, bytes]


class ClientDisconnectedError(Exception):
    """The client went away; nobody reads an answer."""


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """The headers of a request by lower-case name; of several of one name the last."""
    return dict(scope["headers"])


async def read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """All of a body.

    Args:
        receive: Of ASGI.
        headers: Of the request.
        limit: In bytes.

    Raises:
        RestError: It is longer.
        ClientDisconnectedError: It did not come to its end.
    """
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body  # type: ignore[no-any-return]
    parts = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def _too_large(limit: int) -> RestError:
    text = f"the body is longer than {limit} bytes, the front's max_body_bytes"
    return RestError(413, "BODY_TOO_LARGE", text, headers={"Connection": "close"})
