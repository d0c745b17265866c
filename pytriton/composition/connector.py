"""How the callables of a server's models reach that server."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pytriton.constants import CALLERS_PARAMETER
from pytriton.exceptions import PyTritonInvalidOperationError

if TYPE_CHECKING:
    from pytriton.client.auth import TritonUrl

__all__ = ["Connector", "NetworkConnector", "secret_of"]

OF_PROGRAM = secrets.token_hex()


def secret_of(access_token: str | None) -> str:
    """What begins the names of callers in requests to a server.

    All programs that serve models there derive the same from its access token; without one, each has its own, and finds
    no cycles through the models of others.
    """
    return hashlib.sha256(f"{CALLERS_PARAMETER} {access_token or OF_PROGRAM}".encode()).hexdigest()


class Connector(Protocol):
    """Makes transports to the server. Those for streams have the method ``stream``.

    Attributes:
        secret: As of :func:`secret_of`.
    """

    @property
    def secret(self) -> str: ...  # noqa: D102

    def transport(self, *, streams: bool = False) -> Any:
        """A transport for one thread at a time; raises PyTritonInvalidOperationError if the server has no such door."""

    def async_transport(self, *, streams: bool = False) -> Any:
        """The same for event loops."""

    def for_processes(self) -> Connector | None:
        """One that can be pickled; None if other processes cannot reach the server."""


@dataclass(frozen=True)
class NetworkConnector:
    """The endpoints of a server that runs in another process; it can be pickled.

    Args:
        http: URL of HTTP, which may be that of a Unix socket; None if there is none.
        grpc: URL of gRPC; None if there is none without TLS.
        secret: As that of :class:`Connector`.
    """

    http: str | None
    grpc: str | None
    secret: str = field(repr=False)
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    grpc_headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def transport(self, *, streams: bool = False) -> Any:
        """As :meth:`Connector.transport`."""
        from pytriton.client.sync import open_transport

        return open_transport(*self._door(streams))

    def async_transport(self, *, streams: bool = False) -> Any:
        """As :meth:`Connector.async_transport`."""
        from pytriton.client.aio import open_async_transport

        return open_async_transport(*self._door(streams))

    def for_processes(self) -> Connector:
        """As :meth:`Connector.for_processes`."""
        return self

    def _door(self, streams: bool) -> tuple[TritonUrl, Mapping[str, str]]:
        from pytriton.client.auth import TritonUrl

        if self.http is not None and not streams:
            return TritonUrl.from_url(self.http), self.http_headers
        if self.grpc is not None:
            return TritonUrl.from_url(self.grpc), self.grpc_headers
        what = "streams of other models, which come over gRPC" if streams else "other models"
        raise PyTritonInvalidOperationError(
            f"callables cannot call {what}: their server has no endpoint without TLS on this machine for that; set "
            "TritonConfig(allow_grpc=True) without grpc_use_ssl"
        )
