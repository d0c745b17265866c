"""The ASGI application: its routes, and what all of them share."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette

from pytriton.rest.config import RestConfig

__all__ = ["create_app"]


def create_app(server: Any, config: RestConfig | None = None) -> Starlette:
    """The front of a server.

    Args:
        server: A ``Triton``, ``RemoteTriton`` or ``pytriton.inprocess.Triton``, which need not run yet; or the URL of
            a server.
        config: Options; those of the listening socket and of TLS have no effect here.
    """
    return Starlette()
