"""``pytriton dashboard``: serves the pages of the app for a server that runs elsewhere."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Annotated

import typer

from pytriton.cli import options
from pytriton.cli.errors import ERRORS, exit_on_error
from pytriton.client.auth import TritonUrl, create_auth_headers
from pytriton.exceptions import PyTritonBadParameterError, PyTritonServerError
from pytriton.rest import RestConfig, create_app
from pytriton.server.endpoints import ServerEndpoints

__all__ = ["dashboard"]

ADDRESS = "127.0.0.1"


def dashboard(
    url: options.Url,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of this machine, to serve the pages on.")] = 8080,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Of the server's metrics, for the queues, e.g. http://localhost:8002/metrics."
        ),
    ] = None,
    grpc: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of the server's gRPC, for models that stream, e.g. grpc://localhost:8001."),
    ] = None,
    token: options.Token = None,
) -> None:
    """Show the pages of the app for a server that runs elsewhere: its models, figures and forms.

    They are served to this machine alone. The server's access token lets the app read the statistics; typed into the
    page, it allows commands. Ctrl+C ends it.
    """
    with exit_on_error((*ERRORS, ImportError)):
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
        typer.echo(f"Dashboard of {endpoints.http or endpoints.grpc} at http://{ADDRESS}:{port}; Ctrl+C ends it")
        try:
            server.run()
        except SystemExit as error:  # uvicorn's, if it cannot listen
            raise PyTritonServerError(
                f"the dashboard cannot listen on {ADDRESS}:{port}; choose another --port"
            ) from error
