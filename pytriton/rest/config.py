"""Options of the REST front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytriton.exceptions import PyTritonBadParameterError

__all__ = ["RestConfig"]


@dataclass(kw_only=True)
class RestConfig:
    """Options of the REST front.

    Attributes:
        port: TCP port of the front's own process.
        address: Address that it listens on.
        processes: Number of processes that share the port.
        root_path: Path below which a reverse proxy serves the front, such as ``/models``.
        cors: Origins whose pages may call the front, such as ``https://example.com``; ``["*"]`` allows all.
        access_token: Token that every route but ``/health`` asks for, as ``Authorization: Bearer``. None asks for none.
        certificate: PEM file of the certificate chain for HTTPS.
        key: PEM file of the certificate's key.
        max_body_bytes: Largest body of a request; larger ones get 413.
        max_depth: Deepest nesting of JSON.
        max_requests: Requests in progress in one process; more get 429.
        timeout_s: Limit for one inference; later ones get 504.
        heartbeat_s: Longest silence of a stream of server-sent events, in seconds.
        access_log: Whether each request is logged.
    """

    port: int = 8080
    address: str = "0.0.0.0"
    processes: int = 1
    root_path: str = ""
    cors: Sequence[str] = ()
    access_token: str | None = field(default=None, repr=False)
    certificate: str | Path | None = None
    key: str | Path | None = None
    max_body_bytes: int = 64 * 2**20
    max_depth: int = 64
    max_requests: int = 1024
    timeout_s: float = 60.0
    heartbeat_s: float = 15.0
    access_log: bool = False

    def validate(self) -> None:
        """Check all options.

        Raises:
            PyTritonBadParameterError: An option is out of range, or of the wrong type; the message names it.
        """
        for name in ("processes", "max_body_bytes", "max_depth", "max_requests"):
            _check(name, getattr(self, name), int, 1)
        _check("port", self.port, int, 1, 65535)
        for name in ("timeout_s", "heartbeat_s"):
            _check(name, getattr(self, name), (int, float), 0.001)
        if isinstance(self.cors, str) or not all(isinstance(origin, str) for origin in self.cors):
            raise PyTritonBadParameterError(f"cors must be a list of origins, got {self.cors!r}")
        if (self.certificate is None) != (self.key is None):
            raise PyTritonBadParameterError("certificate and key go together; give both, or none")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise PyTritonBadParameterError(f"root_path must be like '/models', got {self.root_path!r}")


def _check(name: str, value: Any, kind: Any, least: float, most: float = float("inf")) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        limit = f"of at least {least}" if most == float("inf") else f"from {least} to {most}"
        noun = "an integer" if kind is int else "a number"
        raise PyTritonBadParameterError(f"{name} must be {noun} {limit}, got {value!r}")
