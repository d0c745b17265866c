"""The ASGI application: its routes, and what all of them share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pytriton.logs import get_logger
from pytriton.rest import docs, health
from pytriton.rest.authorization import Access, Guarded, GuardedRoute
from pytriton.rest.config import RestConfig
from pytriton.rest.errors import RestError
from pytriton.rest.host import Direct, Host
from pytriton.rest.inference import Inference
from pytriton.rest.mcp import mcp_tools
from pytriton.rest.metrics import AppMetrics
from pytriton.rest.middleware import stack
from pytriton.rest.openai import routes as openai
from pytriton.rest.openai.errors import is_openai, no_route
from pytriton.rest.pages.live import Live
from pytriton.rest.pages.routes import Pages
from pytriton.rest.pages.sampler import Sampler
from pytriton.rest.permits import KeyRing, ModelAccess
from pytriton.rest.predict import KServePredict, Predict
from pytriton.rest.sites import Sites
from pytriton.rest.upstream import upstream_of
from pytriton.server.access import Rule

__all__ = ["create_app"]

LOGGER = get_logger("pytriton.rest")

CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 501: "UNSUPPORTED"}


def create_app(server: Any, config: RestConfig | None = None, host: Host | None = None) -> Starlette:
    """The app of a server.

    Args:
        server: A ``Triton``, ``RemoteTriton`` or ``pytriton.inprocess.Triton``, which need not run yet; the URL of a
            server; or its ``ServerEndpoints``.
        config: Options; those of the listening socket and of TLS have no effect here.
        host: The process that runs the app, if that is another one; the pages show its workers and its log.

    Raises:
        PyTritonBadParameterError: An argument is wrong.
    """
    config = RestConfig() if config is None else config
    config.validate()
    upstream = upstream_of(server)
    if hasattr(server, "exposure") and config.asks_for_credentials() and not _is_protected(upstream.rules):
        LOGGER.warning(
            "the app asks for a token or an API key, but its models can be called without one at the server's own "
            "ports: add 'inference' to TritonSecurityConfig.restricted_endpoints"
        )
    metrics = AppMetrics()
    if host is None and hasattr(server, "console"):
        host = Direct(server.console().answer)
    live = Live(Sampler(upstream, metrics, host))
    inference = Inference(upstream, config)
    keys = KeyRing(config.keys())
    predict, kserve = ModelAccess(Predict(inference, config)), ModelAccess(KServePredict(inference, config))
    tools = mcp_tools(inference, config)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        live.start()
        async with tools.running():
            yield
        live.end()
        await upstream.close()

    sites = Sites(config)
    access = Access(config, keys, upstream.rules, upstream.token)
    routes = [
        Route("/predict/{model}", predict),
        Route("/predict/{model}/{version}", predict),
        Route("/v1/models/{model}:predict", kserve),
        Route("/v1/models/{model}/versions/{version}:predict", kserve),
        *openai.routes(inference, config),
        *tools.routes,
        *health.routes(upstream, metrics),
        *docs.routes(inference.models.ready, access),
        *Pages(live, inference.models, upstream, host, config, access).routes(),
    ]
    app = _App(
        routes=[GuardedRoute(route, access, sites) for route in routes],
        middleware=stack(config, metrics),
        exception_handlers={HTTPException: _on_http_exception, RestError: _on_error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # Starlette would send the client to the host of its own header
    app.router.default = Guarded(_NoRoute(app), access, "metadata")
    app.state.metrics, app.state.keys, app.state.live = metrics, keys, live
    app.state.models = inference.models
    return app


def _is_protected(rules: Sequence[Rule]) -> bool:
    return any("inference" in rule.endpoints for rule in rules)


class _App(Starlette):
    """Starlette without its outermost layer: the observer answers requests that fail."""

    def build_middleware_stack(self) -> ASGIApp:
        """The routes in their layers."""
        app: ASGIApp = ExceptionMiddleware(self.router, self.exception_handlers)
        for layer, arguments, options in reversed(self.user_middleware):
            app = layer(app, *arguments, **options)
        return app


class _NoRoute:
    """Answers a request without a route: one with a slash too many, or one too few, is sent to its route.

    Args:
        app: Has the routes.
    """

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            path: str = scope["path"]
            other = path.rstrip("/") if path.endswith("/") else f"{path}/"
            known = any(route.matches({**scope, "path": other})[0] != Match.NONE for route in self._app.routes)
            if known and not other.startswith("//"):  # which would be another host
                location = quote(other, safe="/:@!$&'()*+,;=~")
                query = scope["query_string"].decode("latin-1")
                headers = {"Location": f"{location}?{query}" if query else location}
                return await Response(None, 307, headers)(scope, receive, send)
        await self._app.router.not_found(scope, receive, send)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RestError)
    return Response(error.encoded(), error.status, error.headers, "application/json")


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code == 404 and is_openai(request.scope):
        return await _on_error(request, no_route(request.url.path))
    if error.status_code == 404:
        message = f"there is no route {request.url.path!r}; /docs lists all"
    elif error.status_code == 405:
        message = f"{request.method} is not allowed here"
        if request.method == "OPTIONS":
            return Response(None, 204, error.headers)
    code = CODES.get(error.status_code, "INVALID_REQUEST")
    return await _on_error(request, RestError(error.status_code, code, message, headers=error.headers))
