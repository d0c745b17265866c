"""What every request passes before its route: its id, the log, the metrics and limits. All is pure ASGI."""

from __future__ import annotations

import json
import random
import re
import time
from asyncio import CancelledError
from collections.abc import Iterable, Mapping

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytriton.logs import get_logger
from pytriton.rest.config import RestConfig
from pytriton.rest.costs import Account, Costs, default_limit_bytes
from pytriton.rest.errors import RETRY_AFTER_S, RestError, send_error
from pytriton.rest.metrics import CLIENT_WENT_AWAY, AppMetrics
from pytriton.rest.openai.errors import refuse

__all__ = [
    "ACCESS_LOGGER",
    "request_id",
    "stack",
    "trace_headers",
]

ACCESS_LOGGER = "pytriton.rest.access"
LOGGER = get_logger(ACCESS_LOGGER)

UNLIMITED = "/health", "/metrics", "/pages"  # what watches a busy app
FAILED = 500
EXPOSED = ("X-Request-ID", "Retry-After")

REQUEST_ID = re.compile(rb"[!-~]{1,128}")
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
TRACESTATE = re.compile(rb"[ -~]{1,512}")

Headers = Iterable[tuple[bytes, bytes]]


def stack(config: RestConfig, metrics: AppMetrics) -> list[Middleware]:
    """The middleware of an application, the outermost first."""
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
    layers.append(Middleware(RequestLimit, config.max_requests))
    account = Account(config.max_memory_bytes or default_limit_bytes(config.processes))
    layers.append(Middleware(Costs, account, config.timeout_s))
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
        logs: Whether each is logged, to ``pytriton.rest.access``.
    """

    def __init__(self, app: ASGIApp, metrics: AppMetrics, logs: bool) -> None:
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
                await send_error(counted_send, RestError(FAILED, "INTERNAL", "the app failed; its log has the reason"))
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
        model = str(scope["state"].get("model") or scope.get("path_params", {}).get("model", ""))
        is_known = status != 404 and scope["app"].state.models.is_known(model)
        return self._routes[endpoint], model if is_known else ""


class RootPath:
    """Serves below the path that a reverse proxy knows the app by, whether or not the proxy removes it.

    Args:
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


class RequestLimit:
    """Refuses requests while too many others are in progress; health and metrics have no limit.

    Args:
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


def _is_below(scope: Scope, *paths: str) -> bool:
    """Whether a request is for one of these paths of the application, or below it."""
    own = scope["path"].removeprefix(scope.get("root_path", ""))
    return own.startswith(paths) and any(own == path or own.startswith(f"{path}/") for path in paths)
