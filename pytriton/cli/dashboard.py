"""``pytriton dashboard``: serves the pages of the app for a server that runs elsewhere."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace

from pytriton.client.auth import TritonUrl, create_auth_headers
from pytriton.exceptions import PyTritonBadParameterError, PyTritonServerError
from pytriton.rest import RestConfig, create_app
from pytriton.server.endpoints import ServerEndpoints

__all__ = ["show_dashboard"]

ADDRESS = "127.0.0.1"


def show_dashboard(
    url: str, port: int, metrics: str | None, grpc: str | None, token: str | None, echo: Callable[[str], None]
) -> None:
    """Serve the pages until SIGINT or SIGTERM.

    Args:
        url: For HTTP or gRPC.
        metrics: URL of the server's metrics, if they shall be read.
        grpc: URL of the server's gRPC beside ``url``, for models that stream.
        token: The server's access token; None takes that in the environment, if there is one.

    Raises:
        ImportError: The libraries of the extra ``rest`` are not installed.
        PyTritonBadParameterError: ``grpc`` is a URL of HTTP.
        PyTritonClientInvalidUrlError: A URL cannot be understood.
        PyTritonServerError: It cannot listen on the port.
    """
    endpoints = replace(ServerEndpoints.of_other(url, token), metrics=metrics)
    if grpc is not None:
        parsed = TritonUrl.from_url(grpc)
        if parsed.scheme != "grpc":
            raise PyTritonBadParameterError(f"--grpc is {grpc!r}; give one such as grpc://localhost:8001")
        headers = create_auth_headers(endpoints.access_token, "grpc") if endpoints.access_token else {}
        endpoints = replace(endpoints, grpc=parsed.with_scheme, grpc_headers=headers)
    application = create_app(endpoints, RestConfig(port=port, address=ADDRESS))
    uvicorn = importlib.import_module("uvicorn")
    server = uvicorn.Server(
        uvicorn.Config(application, ADDRESS, port, log_level="warning", timeout_graceful_shutdown=1)
    )
    echo(f"Dashboard of {endpoints.http or endpoints.grpc} at http://{ADDRESS}:{port}; Ctrl+C ends it")
    try:
        server.run()
    except SystemExit as error:  # uvicorn's, if it cannot listen
        raise PyTritonServerError(f"the dashboard cannot listen on {ADDRESS}:{port}; choose another --port") from error
