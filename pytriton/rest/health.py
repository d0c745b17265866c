"""``/health`` for probes, and ``/metrics`` for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pytriton.client.exceptions import PyTritonClientError
from pytriton.logs import get_logger
from pytriton.rest.errors import unavailable
from pytriton.rest.metrics import AppMetrics
from pytriton.rest.upstream import Upstream

__all__ = ["routes"]

LOGGER = get_logger("pytriton.rest")

METRICS_TYPE = "text/plain; version=0.0.4"


def routes(upstream: Upstream, metrics: AppMetrics) -> list[Route]:
    """The routes."""

    async def live(_: Request) -> Response:
        """The app answers; a server that is launched again does not concern the one that restarts this process."""
        return JSONResponse({"live": True})

    async def ready(_: Request) -> Response:
        """The server can serve all of its models."""
        if await upstream.is_ready():
            return JSONResponse({"ready": True})
        error = unavailable("the server or one of its models is not ready")
        return JSONResponse(error.body(), error.status, error.headers)

    async def page(_: Request) -> Response:
        """The server's metrics, then those of the app."""
        try:
            text = await upstream.metrics()
        except (OSError, TimeoutError, PyTritonClientError) as error:  # it is launched again, for example
            LOGGER.debug("the server's metrics cannot be read: %s", error)
            text = ""
        if text and not text.endswith("\n"):
            text += "\n"
        return PlainTextResponse(text + metrics.text(), media_type=METRICS_TYPE)

    return [Route("/health/live", live), Route("/health/ready", ready), Route("/metrics", page)]
