"""Where programs on this machine reach a server, and what it asks of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytriton.client.auth import Tls, create_auth_headers, token_or_environment
from pytriton.client.url import TritonUrl
from pytriton.config import TritonConfig
from pytriton.server.access import Restrictions, uses_tls
from pytriton.server.launch import endpoints, local_host

__all__ = ["ServerAddress"]


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """Where programs on this machine reach a server, and what it asks of them. It can be pickled.

    Attributes:
        http_url: None if HTTP is off, or where it is is not known.
        grpc_url: Likewise for gRPC.
        metrics_url: Likewise for the page of metrics.
        http_headers: Those that open every endpoint over HTTP, such as that of the access token.
        grpc_headers: Likewise for gRPC.
        grpc_tls: None if gRPC is not encrypted.
    """

    http_url: str | None = None
    grpc_url: str | None = None
    metrics_url: str | None = None
    http_headers: dict[str, str] = field(default_factory=dict, repr=False)
    grpc_headers: dict[str, str] = field(default_factory=dict, repr=False)
    grpc_tls: Tls | None = None

    @classmethod
    def of_own(cls, config: TritonConfig, restrictions: Restrictions) -> ServerAddress:
        """That of a server that this process launches.

        Raises:
            PyTritonClientValueError: A certificate cannot be used.
        """
        urls = {name: f"{local_host(address)}:{port}" for name, (address, port) in endpoints(config).items()}
        tls = None
        if uses_tls(config):
            is_mutual = config.grpc_use_ssl_mutual
            tls = Tls(
                root_certificates=config.grpc_server_cert,
                private_key=config.grpc_server_key if is_mutual else None,
                certificate_chain=config.grpc_server_cert if is_mutual else None,
            )
        return cls(
            http_url=f"http://{urls['http_port']}" if "http_port" in urls else None,
            grpc_url=f"grpc://{urls['grpc_port']}" if "grpc_port" in urls else None,
            metrics_url=f"http://{urls['metrics_port']}/metrics" if "metrics_port" in urls else None,
            http_headers=restrictions.headers("http"),
            grpc_headers=restrictions.headers("grpc"),
            grpc_tls=tls,
        )

    @classmethod
    def of_url(cls, url: str, access_token: str | None = None) -> ServerAddress:
        """That of a server that another process launched, of which one URL is known.

        Args:
            url: As :meth:`TritonUrl.from_url` reads it.
            access_token: Of the server; without one, that in ``PYTRITON_ACCESS_TOKEN``, if there is one.

        Raises:
            PyTritonClientInvalidUrlError: The URL cannot be understood.
        """
        parsed, token = TritonUrl.from_url(url), token_or_environment(access_token or None)
        headers = create_auth_headers(token, parsed.scheme) if token else {}
        if parsed.scheme == "grpc":
            return cls(grpc_url=parsed.with_scheme, grpc_headers=headers)
        return cls(http_url=parsed.with_scheme, http_headers=headers)
