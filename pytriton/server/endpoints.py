"""Where clients on this machine reach a server, and the headers that open its restricted endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytriton.client.auth import TritonUrl
from pytriton.config import TritonConfig
from pytriton.security import TRITON_ACCESS_HEADER
from pytriton.server.access import Access, Restrictions, uses_tls
from pytriton.server.launch import endpoints, local_host

__all__ = ["ServerEndpoints"]

GRPC_PREFIX = "triton-grpc-protocol-"


@dataclass(frozen=True)
class ServerEndpoints:
    """The endpoints of a server.

    Attributes:
        http: URL of HTTP, such as ``http://127.0.0.1:8000``; None if it is off.
        grpc: URL of gRPC, such as ``grpc://127.0.0.1:8001``; None if it is off, or encrypted.
        metrics: URL of the metrics' page; None if it is off, or not known.
        http_headers: Headers of requests over HTTP.
        grpc_headers: Metadata of requests over gRPC.
    """

    http: str | None = None
    grpc: str | None = None
    metrics: str | None = None
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    grpc_headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def access_token(self) -> str | None:
        """The server's access token, if its headers have one."""
        return self.http_headers.get(TRITON_ACCESS_HEADER) or self.grpc_headers.get(GRPC_PREFIX + TRITON_ACCESS_HEADER)

    @classmethod
    def of_own(
        cls, config: TritonConfig, restrictions: Restrictions, private_url: str | None = None
    ) -> ServerEndpoints:
        """Those of a server that this process launches; it need not run yet.

        Args:
            config: Of the server.
            restrictions: What its endpoints ask for.
            private_url: Of the server's own HTTP endpoint behind the native front end, which asks for nothing.
        """
        urls = {
            name: f"{'grpc' if name == 'grpc_port' else 'http'}://{local_host(address)}:{port}"
            for name, (address, port) in endpoints(config).items()
        }
        metrics = urls.get("metrics_port")
        return cls(
            private_url or urls.get("http_port"),
            None if uses_tls(config) else urls.get("grpc_port"),
            f"{metrics}/metrics" if metrics else None,
            {} if private_url else restrictions.headers("http"),
            restrictions.headers("grpc"),
        )

    @classmethod
    def of_other(cls, url: str, access_token: str | None = None) -> ServerEndpoints:
        """The one endpoint of a server that another process launched.

        Args:
            url: Of HTTP or of gRPC.
            access_token: Of the server; without one, that in ``PYTRITON_ACCESS_TOKEN``, if there is one.

        Raises:
            PyTritonClientInvalidUrlError: The URL cannot be understood.
        """
        return cls.of_access(Access.to_other(url, access_token))

    @classmethod
    def of_access(cls, access: Access) -> ServerEndpoints:
        """The endpoint that an access is to."""
        if TritonUrl.from_url(access.url).scheme == "grpc":
            return cls(grpc=access.url, grpc_headers=access.headers)
        return cls(http=access.url, http_headers=access.headers)
