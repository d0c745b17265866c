"""The ASGI application: its routes, and what all of them share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route

from pytriton.rest import health
from pytriton.rest.config import RestConfig
from pytriton.rest.metrics import FrontMetrics
from pytriton.rest.middleware import stack
from pytriton.rest.predict import Predict
from pytriton.rest.upstream import upstream_of

__all__ = ["create_app"]


def create_app(server: Any, config: RestConfig | None = None) -> Starlette:
    """The front of a server.

    Args:
        server: A ``Triton``, ``RemoteTriton`` or ``pytriton.inprocess.Triton``, which need not run yet; the URL of a
            server; or its ``ServerEndpoints``.
        config: Options; those of the listening socket and of TLS have no effect here.

    Raises:
        PyTritonBadParameterError: An argument is wrong.
    """
    config = RestConfig() if config is None else config
    config.validate()
    upstream = upstream_of(server)
    predict = Predict(upstream, config)
    metrics = FrontMetrics()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await upstream.close()

    routes = [
        Route("/predict/{model}", predict, methods=["POST"]),
        Route("/predict/{model}/{version}", predict, methods=["POST"]),
        *health.routes(upstream, metrics),
    ]
    app = Starlette(routes=routes, middleware=stack(config, metrics), lifespan=lifespan)
    app.state.metrics = metrics
    return app
