"""Which endpoints need an access token, and to which group of them each route belongs.

The ASGI application looks its routes up in the tables below, and ``pytriton check --exposure`` prints them. The server
and the edge have tables of their own for ``/v2`` and gRPC; ``tests/server/test_exposure.py`` compares
them.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from pytriton.exceptions import PyTritonValidationError

__all__ = [
    "APPLICATION_ROUTES",
    "DEFAULT_PROTECTED_ENDPOINTS",
    "ENDPOINT_GROUPS",
    "GRPC_CALLS",
    "HTTP_ROUTES",
    "METRICS",
    "TRITON_ACCESS_HEADER",
    "VALID_TRITON_ENDPOINTS",
    "ApplicationRoute",
    "TritonSecurityConfig",
    "is_loopback",
]

VALID_TRITON_ENDPOINTS = {
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
}
"""Groups of the server's endpoints, each with its HTTP paths and gRPC calls."""

METRICS = "metrics"
"""The group of the metrics' pages, which the server itself cannot protect: its port, and ``/metrics`` of HTTP."""

ENDPOINT_GROUPS = VALID_TRITON_ENDPOINTS | {METRICS}
"""All groups that ``restricted_endpoints`` may name."""

DEFAULT_PROTECTED_ENDPOINTS = ["shared-memory", "model-repository", "statistics", "trace", "logging"]
"""What changes or reveals the server's state: everything that calling a model does not need."""

TRITON_ACCESS_HEADER = "triton-access-token"
"""The HTTP header of the token; over gRPC it has the prefix ``triton-grpc-protocol-``."""


class ApplicationRoute(NamedTuple):
    """A route of the ASGI application.

    Attributes:
        group: Of its endpoints; None asks for nothing.
        known_names: Whether it is reached under known host names alone, as what it shows is for people or agents here.
    """

    group: str | None
    known_names: bool = False


APPLICATION_ROUTES: dict[str, ApplicationRoute] = {
    # Files without data need no token: a browser cannot send one with the address of a page.
    "/": ApplicationRoute(None, known_names=True),
    "/pages/static/{name}": ApplicationRoute(None, known_names=True),
    "/embed/{model}": ApplicationRoute(None, known_names=True),
    "/pages/unlock": ApplicationRoute(None, known_names=True),  # a code takes the place of the token, see Pages
    "/health/live": ApplicationRoute("health"),
    "/health/ready": ApplicationRoute("health"),
    "/openapi.json": ApplicationRoute("metadata", known_names=True),
    "/docs": ApplicationRoute("metadata", known_names=True),
    "/docs/{name}": ApplicationRoute("metadata", known_names=True),
    "/pages/models": ApplicationRoute("metadata", known_names=True),
    "/v1/models": ApplicationRoute("metadata"),
    "/v1/models/{model}": ApplicationRoute("metadata"),
    "/predict/{model}": ApplicationRoute("inference"),
    "/predict/{model}/{version}": ApplicationRoute("inference"),
    "/v1/models/{model}:predict": ApplicationRoute("inference"),
    "/v1/models/{model}/versions/{version}:predict": ApplicationRoute("inference"),
    "/v1/chat/completions": ApplicationRoute("inference"),
    "/v1/completions": ApplicationRoute("inference"),
    "/v1/embeddings": ApplicationRoute("inference"),
    "/mcp": ApplicationRoute("inference", known_names=True),
    "/metrics": ApplicationRoute("statistics"),
    "/pages/about": ApplicationRoute("statistics", known_names=True),
    "/pages/live": ApplicationRoute("statistics", known_names=True),
    "/pages/history": ApplicationRoute("statistics", known_names=True),
    "/pages/batches": ApplicationRoute("statistics", known_names=True),
    "/pages/workers": ApplicationRoute("statistics", known_names=True),
    "/pages/log": ApplicationRoute("logging", known_names=True),
    "/pages/commands": ApplicationRoute("model-repository", known_names=True),
}
"""The routes of the ASGI application, by path."""

HTTP_ROUTES: tuple[tuple[str, str, str], ...] = (
    ("GET", "/v2", "metadata"),
    ("GET", "/v2/health/live", "health"),
    ("GET", "/v2/health/ready", "health"),
    ("GET", "/v2/models/{model}", "metadata"),
    ("GET", "/v2/models/{model}/ready", "health"),
    ("GET", "/v2/models/{model}/config", "model-config"),
    ("GET", "/v2/models/{model}/stats", "statistics"),
    ("GET", "/v2/models/stats", "statistics"),
    ("POST", "/v2/models/{model}/infer", "inference"),
    ("POST", "/v2/models/{model}/generate", "inference"),
    ("POST", "/v2/models/{model}/generate_stream", "inference"),
    ("GET", "/v2/models/{model}/trace/setting", "trace"),
    ("POST", "/v2/models/{model}/trace/setting", "trace"),
    ("GET", "/v2/trace/setting", "trace"),
    ("POST", "/v2/trace/setting", "trace"),
    ("GET", "/v2/logging", "logging"),
    ("POST", "/v2/logging", "logging"),
    ("POST", "/v2/repository/index", "model-repository"),
    ("POST", "/v2/repository/models/{model}/load", "model-repository"),
    ("POST", "/v2/repository/models/{model}/unload", "model-repository"),
    ("GET", "/v2/systemsharedmemory/status", "shared-memory"),
    ("GET", "/v2/systemsharedmemory/region/{region}/status", "shared-memory"),
    ("POST", "/v2/systemsharedmemory/region/{region}/register", "shared-memory"),
    ("POST", "/v2/systemsharedmemory/region/{region}/unregister", "shared-memory"),
    ("POST", "/v2/systemsharedmemory/unregister", "shared-memory"),
    ("GET", "/v2/cudasharedmemory/status", "shared-memory"),
    ("GET", "/v2/cudasharedmemory/region/{region}/status", "shared-memory"),
    ("POST", "/v2/cudasharedmemory/region/{region}/register", "shared-memory"),
    ("POST", "/v2/cudasharedmemory/region/{region}/unregister", "shared-memory"),
    ("POST", "/v2/cudasharedmemory/unregister", "shared-memory"),
)
"""The routes of the server's HTTP endpoint; those of a model also have ``/versions/{version}`` behind its name.

The edge has the same table in ``native/kserve/v2_path.cpp``.
"""

GRPC_CALLS: dict[str, str] = {
    "ServerLive": "health",
    "ServerReady": "health",
    "ModelReady": "health",
    "ServerMetadata": "metadata",
    "ModelMetadata": "metadata",
    "ModelInfer": "inference",
    "ModelStreamInfer": "inference",
    "ModelConfig": "model-config",
    "ModelStatistics": "statistics",
    "RepositoryIndex": "model-repository",
    "RepositoryModelLoad": "model-repository",
    "RepositoryModelUnload": "model-repository",
    "SystemSharedMemoryStatus": "shared-memory",
    "SystemSharedMemoryRegister": "shared-memory",
    "SystemSharedMemoryUnregister": "shared-memory",
    "CudaSharedMemoryStatus": "shared-memory",
    "CudaSharedMemoryRegister": "shared-memory",
    "CudaSharedMemoryUnregister": "shared-memory",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}
"""The calls of the server's gRPC service."""

TOKEN_BYTES = 32
PLACEHOLDER = "replace-me"  # in deploy/kubernetes/base/token


@dataclass
class TritonSecurityConfig:
    """Endpoints that need the access token.

    The token is no part of ``repr``.

    Args:
        access_token: Printable ASCII characters without spaces. None makes a random one of 43 URL-safe characters, if
            there is something to protect.
        restricted_endpoints: A list or set, of :data:`ENDPOINT_GROUPS`. None protects
            :data:`DEFAULT_PROTECTED_ENDPOINTS`, and ``inference`` where the app asks for a token or for API
            keys; an empty list nothing.

    Raises:
        PyTritonValidationError: An endpoint has no such name, or the token cannot be sent.
    """

    access_token: str | None = field(default=None, repr=False)
    restricted_endpoints: list[str] | None = None
    is_default: bool = field(init=False, repr=False, compare=False, default=False)
    """Whether the choice of endpoints was left to us."""

    def __post_init__(self) -> None:
        chosen = self.restricted_endpoints
        endpoints = DEFAULT_PROTECTED_ENDPOINTS if chosen is None else chosen
        self.is_default = chosen is None or (self.is_default and chosen == DEFAULT_PROTECTED_ENDPOINTS)
        self.restricted_endpoints = _checked(endpoints)
        if self.access_token is not None:
            check_header_value("access_token", self.access_token)
        elif endpoints:
            self.access_token = secrets.token_urlsafe(TOKEN_BYTES)


def check_header_value(name: str, value: object) -> None:
    """Raise PyTritonValidationError, without naming the value, unless a client can send it as a header."""
    if not isinstance(value, str) or not value or not all("!" <= character <= "~" for character in value):
        raise PyTritonValidationError(f"{name} must be printable ASCII characters without spaces, and not empty")
    if value == PLACEHOLDER:
        raise PyTritonValidationError(
            f"{name} is {PLACEHOLDER!r}, which stands in deploy/kubernetes for a token of yours; put one there, as "
            "from: openssl rand -base64 33"
        )


def check_endpoints(name: str, endpoints: Collection[object], valid_groups: Set[str] = ENDPOINT_GROUPS) -> None:
    """Raise PyTritonValidationError unless these are groups of endpoints."""
    unknown = [endpoint for endpoint in endpoints if endpoint not in valid_groups]
    if unknown:
        bad, valid = ", ".join(map(repr, unknown)), ", ".join(sorted(valid_groups))
        raise PyTritonValidationError(f"{name} has unknown endpoints {bad}; valid are {valid}")


def _checked(endpoints: object) -> list[str]:
    if isinstance(endpoints, (str, dict)) or not isinstance(endpoints, Collection):
        raise PyTritonValidationError(f"restricted_endpoints must be a list of names, got {endpoints!r}")
    check_endpoints("restricted_endpoints", endpoints)
    # Sets of names have another order in each process, and the server's command line shows it.
    return sorted(endpoints) if isinstance(endpoints, Set) else list(dict.fromkeys(endpoints))


def is_loopback(address: str) -> bool:
    """Whether an address, or ``localhost``, is for this machine alone."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
