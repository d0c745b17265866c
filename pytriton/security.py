"""Which endpoints of the server need an access token."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Set
from dataclasses import dataclass, field

from pytriton.exceptions import PyTritonValidationError

__all__ = [
    "DEFAULT_PROTECTED_ENDPOINTS",
    "TRITON_ACCESS_HEADER",
    "VALID_TRITON_ENDPOINTS",
    "TritonSecurityConfig",
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

DEFAULT_PROTECTED_ENDPOINTS = ["shared-memory", "model-repository", "statistics", "trace", "logging"]
"""What changes or reveals the server's state: everything that calling a model does not need."""

TRITON_ACCESS_HEADER = "triton-access-token"
"""The HTTP header of the token; over gRPC it has the prefix ``triton-grpc-protocol-``."""

TOKEN_BYTES = 32


@dataclass
class TritonSecurityConfig:
    """Endpoints that need the access token.

    The token is no part of ``repr``.

    Args:
        access_token: Printable ASCII characters without spaces. None makes a random one of 43 URL-safe characters, if
            there is something to protect.
        restricted_endpoints: A list or set, of :data:`VALID_TRITON_ENDPOINTS`. None protects
            :data:`DEFAULT_PROTECTED_ENDPOINTS`, an empty list nothing.

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


def check_endpoints(name: str, endpoints: Collection[object]) -> None:
    """Raise PyTritonValidationError unless these are groups of the server's endpoints, each named once."""
    unknown = [endpoint for endpoint in endpoints if endpoint not in VALID_TRITON_ENDPOINTS]
    if unknown:
        bad, valid = ", ".join(map(repr, unknown)), ", ".join(sorted(VALID_TRITON_ENDPOINTS))
        raise PyTritonValidationError(f"{name} has unknown endpoints {bad}; valid are {valid}")


def _checked(endpoints: object) -> list[str]:
    if isinstance(endpoints, (str, dict)) or not isinstance(endpoints, Collection):
        raise PyTritonValidationError(f"restricted_endpoints must be a list of names, got {endpoints!r}")
    check_endpoints("restricted_endpoints", endpoints)
    # Sets of names have another order in each process, and the server's command line shows it.
    return sorted(endpoints) if isinstance(endpoints, Set) else list(dict.fromkeys(endpoints))
