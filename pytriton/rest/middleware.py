"""What every request passes before its route: its id, the log, the metrics, access and limits. All is pure ASGI."""

from __future__ import annotations

import hmac
import json
import logging
import random
import re
import time
from asyncio import CancelledError
from collections.abc import Iterable, Mapping

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytriton.rest.config import RestConfig
from pytriton.rest.errors import RETRY_AFTER_S, RestError, send_error
from pytriton.rest.metrics import FrontMetrics
from pytriton.rest.openai.errors import refuse
from pytriton.rest.permits import KeyRing, Permit

__all__ = ["ACCESS_LOGGER", "bearer", "has_token", "request_id", "stack", "trace_headers"]

ACCESS_LOGGER = "pytriton.rest.access"
LOGGER = logging.getLogger(ACCESS_LOGGER)

HEALTH = "/health"
UNLIMITED = HEALTH, "/metrics", "/pages"  # what watches a busy front
OPEN = HEALTH, "/pages/static", "/pages/about"  # what needs no token
CLIENT_WENT_AWAY, FAILED = 499, 500
EXPOSED = ("X-Request-ID", "Retry-After")

REQUEST_ID = re.compile(rb"[!-~]{1,128}")
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
TRACESTATE = re.compile(rb"[ -~]{1,512}")

Headers = Iterable[tuple[bytes, bytes]]


def stack(
    config: RestConfig, metrics: FrontMetrics, keys: KeyRing, operator_token: str | None = None
) -> list[Middleware]:
    """The middleware of an application, the outermost first.

    Args:
        config: Options of the front.
        metrics: Where requests are counted.
        keys: The API keys.
        operator_token: The server's access token, which opens the front too.
    """
    layers = [Middleware(Observer, metrics, config.access_log)]
    if config.root_path:
        layers.append(Middleware(RootPath, config.root_path))
    if config.cors:  # before access: a browser asks without the token whether it may send it
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=[*config.cors],
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=EXPOSED,
            )
        )
    if config.access_token is not None or config.api_keys is not None:
        layers.append(Middleware(Access, config.access_token, operator_token, keys))
    layers.append(Middleware(RequestLimit, config.max_requests))
    return layers


def request_id(scope: Scope) -> str:
    """The id of a request, as its response has it; for the server's log and for errors."""
    return str(scope["state"]["request_id"])


def trace_headers(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """``traceparent`` and ``tracestate`` of a request, to be sent on; empty unless the first is well-formed."""
    parent, state = headers.get(b"traceparent"), headers.get(b"tracestate", b"")
    if parent is None or not TRACEPARENT.fullmatch(parent):
        return {}
    found = {"traceparent": parent.decode()}
    return found | {"tracestate": state.decode()} if TRACESTATE.fullmatch(state) else found


class Observer:
    """Gives each request an id, counts it, logs it when it is answered, and answers it if a route failed.

    Args:
        app: The next application.
        metrics: Where requests are counted.
        logs: Whether each is logged, to ``pytriton.rest.access``.
    """

    def __init__(self, app: ASGIApp, metrics: FrontMetrics, logs: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._logs = logs
        self._routes: dict[object, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Observe one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = time.perf_counter()
        number = _given_id(scope["headers"]) or f"{random.getrandbits(128):032x}"
        scope.setdefault("state", {})["request_id"] = number
        status = received_bytes = sent_bytes = 0

        async def counted_receive() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", number.encode())]}
            else:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        self._metrics.begin()
        try:
            await self._app(scope, counted_receive, counted_send)
        except CancelledError:
            status = status or CLIENT_WENT_AWAY
            raise
        except BaseException:  # which the server logs
            if not status:
                await send_error(
                    counted_send, RestError(FAILED, "INTERNAL", "the front failed; its log has the reason")
                )
            raise
        finally:
            status = status or CLIENT_WENT_AWAY
            duration_s = time.perf_counter() - began
            self._metrics.end(*self._target(scope, status), status, duration_s, received_bytes, sent_bytes)
            if self._logs:
                client, path = scope.get("client"), json.dumps(scope["path"])
                where = f"{client[0]}:{client[1]}" if client else "-"
                milliseconds = duration_s * 1000
                LOGGER.info("%s %s %s %d %.1f ms %s", where, scope["method"], path, status, milliseconds, number)

    def _target(self, scope: Scope, status: int) -> tuple[str, str]:
        """The route and the model of an answered request; names that the client made up are none."""
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return "", ""
        if endpoint not in self._routes:
            routes = {getattr(route, "endpoint", None): route for route in reversed(scope["app"].routes)}
            self._routes[endpoint] = getattr(routes.get(endpoint), "path", "")
        model = scope["state"].get("model") or scope.get("path_params", {}).get("model", "")
        return self._routes[endpoint], "" if status == 404 else str(model)


class RootPath:
    """Serves below the path that a reverse proxy knows the front by, whether or not the proxy removes it.

    Args:
        app: The next application.
        root_path: Such as ``/models``.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Put the path into the scope of one request."""
        if scope["type"] == "http":
            root, path = self._root_path, scope["path"]
            scope["root_path"] = root + scope.get("root_path", "")
            scope["path"] = path if path == root or path.startswith(f"{root}/") else root + path
        await self._app(scope, receive, send)


class Access:
    """Refuses requests without a token or an API key; health and the files of the pages, without data, need none.

    Args:
        app: The next application.
        token: What ``Authorization: Bearer`` has to have, if it has no key; None allows keys alone.
        operator_token: What it may have as well.
        keys: The API keys.
    """

    def __init__(self, app: ASGIApp, token: str | None, operator_token: str | None, keys: KeyRing) -> None:
        self._app = app
        self._token = token
        self._tokens = [each for each in (token, operator_token) if each is not None]
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http" or _is_open(scope) or has_token(scope["headers"], self._tokens):
            return await self._app(scope, receive, send)
        permit = self._keys.find(bearer(scope["headers"]))
        if permit is not None:
            return await self._pass(permit, scope, receive, send)
        what = "an API key" if self._token is None else "the access token"
        message = f"this needs {what}, as the header 'Authorization: Bearer <token>'"
        await refuse(scope, send, RestError(401, "UNAUTHORIZED", message, headers={"WWW-Authenticate": "Bearer"}))

    async def _pass(self, permit: Permit, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the request of a key, and tell it what is left."""
        if scope["method"] == "POST":
            try:
                permit.take()
            except RestError as error:
                return await refuse(scope, send, error)
        scope.setdefault("state", {})["permit"] = permit

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                limits = [(name.encode(), value.encode()) for name, value in permit.headers().items()]
                message = {**message, "headers": [*message.get("headers", ()), *limits]}
            await send(message)

        await self._app(scope, receive, send_with_limits)


class RequestLimit:
    """Refuses requests while too many others are in progress; health and metrics have no limit.

    Args:
        app: The next application.
        most: How many may be in progress in this process.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        if scope["type"] != "http" or _is_below(scope, *UNLIMITED):
            return await self._app(scope, receive, send)
        if self._in_progress >= self._most:
            message = f"{self._in_progress} requests are in progress, as many as are allowed; try again later"
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            return await refuse(scope, send, RestError(429, "TOO_MANY_REQUESTS", message, headers=headers))
        self._in_progress += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_progress -= 1


def _given_id(headers: Headers) -> str:
    """The id that the client gave, if it can be sent on; empty if not."""
    for name, value in headers:
        if name == b"x-request-id":
            return value.decode() if REQUEST_ID.fullmatch(value) else ""
    return ""


def bearer(headers: Headers) -> bytes:
    """The token of a request, as ``Authorization: Bearer``; empty if it has none."""
    given = next((value for name, value in headers if name == b"authorization"), b"")
    scheme, _, token = given.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def has_token(headers: Headers, tokens: Iterable[str]) -> bool:
    """Whether a request has one of these tokens."""
    given = bearer(headers)
    equal = [hmac.compare_digest(given, each.encode()) for each in tokens]  # of all: each refusal takes the same time
    return any(equal)


def _is_open(scope: Scope) -> bool:
    """Whether a request needs no token."""
    return _is_below(scope, *OPEN) or scope["path"].removeprefix(scope.get("root_path", "")) in ("", "/")


def _is_below(scope: Scope, *paths: str) -> bool:
    """Whether a request is for one of these paths of the application, or below it."""
    own = scope["path"].removeprefix(scope.get("root_path", ""))
    return own.startswith(paths) and any(own == path or own.startswith(f"{path}/") for path in paths)
