"""The ASGI application: its routes, and what all of them share."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from pytriton.rest.config import RestConfig
from pytriton.rest.metrics import FrontMetrics
from pytriton.rest.middleware import stack

__all__ = ["create_app"]


def create_app(server: Any, config: RestConfig | None = None) -> Starlette:
    """The front of a server.

    Args:
        server: A ``Triton``, ``RemoteTriton`` or ``pytriton.inprocess.Triton``, which need not run yet; or the URL of
            a server.
        config: Options; those of the listening socket and of TLS have no effect here.
    """
    config = config or RestConfig()
    metrics = FrontMetrics()

    async def live(request):
        return PlainTextResponse("")

    async def text(request):
        return PlainTextResponse(metrics.text())

    async def predict(request):
        import asyncio

        body = await request.json()
        await asyncio.sleep(body.get("sleep", 0))
        return JSONResponse(body)

    app = Starlette(
        routes=[
            Route("/health/live", live),
            Route("/metrics", text),
            Route("/predict/{model}", predict, methods=["POST"]),
        ],
        middleware=stack(config, metrics),
    )
    app.state.metrics = metrics
    return app
