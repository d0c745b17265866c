"""The ASGI application: its routes, and what all of them share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pytriton.rest import docs, health
from pytriton.rest.config import RestConfig
from pytriton.rest.errors import RestError
from pytriton.rest.host import Direct, Host
from pytriton.rest.inference import Inference
from pytriton.rest.mcp import mcp_tools
from pytriton.rest.metrics import FrontMetrics
from pytriton.rest.middleware import stack
from pytriton.rest.openai import routes as openai
from pytriton.rest.openai.errors import is_openai, no_route
from pytriton.rest.pages.live import Live
from pytriton.rest.pages.routes import Pages
from pytriton.rest.pages.sampler import Sampler
from pytriton.rest.permits import KeyRing, ModelAccess
from pytriton.rest.predict import KServePredict, Predict
from pytriton.rest.upstream import upstream_of

__all__ = ["create_app"]

CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 501: "UNSUPPORTED"}


def create_app(server: Any, config: RestConfig | None = None, host: Host | None = None) -> Starlette:
    """The front of a server.

    Args:
        server: A ``Triton``, ``RemoteTriton`` or ``pytriton.inprocess.Triton``, which need not run yet; the URL of a
            server; or its ``ServerEndpoints``.
        config: Options; those of the listening socket and of TLS have no effect here.
        host: The process that runs the front, if that is another one; the pages show its workers and its log.

    Raises:
        PyTritonBadParameterError: An argument is wrong.
    """
    config = RestConfig() if config is None else config
    config.validate()
    upstream = upstream_of(server)
    metrics = FrontMetrics()
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

    app = _Front(
        routes=[
            Route("/predict/{model}", predict),
            Route("/predict/{model}/{version}", predict),
            Route("/v1/models/{model}:predict", kserve),
            Route("/v1/models/{model}/versions/{version}:predict", kserve),
            *openai.routes(inference, config),
            *tools.routes,
            *health.routes(upstream, metrics),
            *docs.routes(inference.models.ready, config),
            *Pages(live, inference.models, upstream, host, config, keys).routes(),
        ],
        middleware=stack(config, metrics, keys, upstream.token),
        exception_handlers={HTTPException: _on_http_exception, RestError: _on_error},
        lifespan=lifespan,
    )
    app.state.metrics, app.state.keys, app.state.live = metrics, keys, live
    return app


class _Front(Starlette):
    """Starlette without its outermost layer: the observer answers requests that fail."""

    def build_middleware_stack(self) -> ASGIApp:
        """The routes in their layers."""
        app: ASGIApp = ExceptionMiddleware(self.router, self.exception_handlers)
        for layer, arguments, options in reversed(self.user_middleware):
            app = layer(app, *arguments, **options)
        return app


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
