"""Options of the app, and what each of its processes gets."""

from __future__ import annotations

import math
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton import options
from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.options import ANY_SECONDS, FLAG, TEXTS, integer, option, with_none
from pytriton.rest.keys import ApiKey, read_keys
from pytriton.security import check_header_value, is_loopback

if TYPE_CHECKING:
    from pytriton.server.endpoints import ServerEndpoints

__all__ = ["DEFAULT_PORT", "AppSpec", "EdgeFiles", "RestConfig", "checked"]

DEFAULT_PORT = 8080

ENVIRONMENT_PREFIX = "PYTRITON_REST_"


@dataclass(kw_only=True)
class RestConfig:
    """Options of the app.

    Attributes:
        port: TCP port of the app.
        address: Address that it listens on. None is that of the server's HTTP endpoint, or any if there is none.
        processes: Number of processes that share the port.
        root_path: Path below which a reverse proxy serves the app, such as ``/models``.
        cors: Origins whose pages may call the app, such as ``https://example.com``; ``["*"]`` allows all.
        hosts: Names by which browsers and clients of ``/mcp`` may reach the app, beside addresses, ``localhost`` and
            the machine's name: those of a reverse proxy, of a container or of a service; ``["*"]`` allows all.
        access_token: Token that every route but ``/health`` asks for, as ``Authorization: Bearer``. None asks for none.
        api_keys: Keys with names, models and limits, beside the access token: a file, its text, or a list of
            :class:`pytriton.rest.ApiKey`. docs/llm.md describes them. None asks for none.
        mcp: Whether ``/mcp`` offers the typed models as tools.
        certificate: PEM file of the certificate chain for HTTPS.
        key: PEM file of the certificate's key.
        max_body_bytes: Largest body of a request; larger ones get 413.
        max_depth: Deepest nesting of JSON, of all routes at the port.
        max_requests: Requests in progress in one process; more get 429.
        max_memory_bytes: Memory that the requests in progress may take in one process, as the app reckons it before
            it takes it; one client may take three quarters of it. More get 503, 429, or 413 if one request alone would
            take so much. None is a quarter of what is available at the start, for all processes.
        timeout_s: Limit for one inference; later ones get 504.
        heartbeat_s: Longest silence of a stream of server-sent events, in seconds.
        access_log: Whether each request is logged.
        show_errors: Whether clients get the message of an exception in a callable; else they get the id of the request,
            and the log gets both. None shows it where ``address`` is one of this machine alone, and in applications
            that mount the app.
        frames: Origins whose pages may show ``/embed/{model}`` in a frame, such as ``https://example.com``; ``["*"]``
            allows all.
    """

    port: int = option(DEFAULT_PORT, integer(1, 65535))
    address: str | None = None
    processes: int = option(1, integer())
    root_path: str = ""
    cors: Sequence[str] = option((), TEXTS._replace(expected="a list of origins"))
    hosts: Sequence[str] = option((), TEXTS._replace(expected="a list of names"))
    access_token: str | None = field(default=None, repr=False)
    api_keys: Sequence[ApiKey] | str | Path | None = field(default=None, repr=False)
    mcp: bool = option(False, FLAG)
    certificate: str | Path | None = None
    key: str | Path | None = None
    max_body_bytes: int = option(64 * 2**20, integer())
    max_depth: int = option(64, integer())
    max_requests: int = option(1024, integer())
    max_memory_bytes: int | None = option(None, with_none(integer(0)))
    timeout_s: float = option(60.0, ANY_SECONDS)
    heartbeat_s: float = option(15.0, ANY_SECONDS)
    access_log: bool = option(False, FLAG)
    show_errors: bool | None = option(None, with_none(FLAG))
    frames: Sequence[str] = option((), TEXTS._replace(expected="a list of origins"))

    @classmethod
    def from_env(cls, environment: Mapping[str, str] = os.environ) -> RestConfig:
        """The options in ``PYTRITON_REST_PORT``, ``PYTRITON_REST_ADDRESS`` and so on; lists have commas.

        Raises:
            PyTritonBadParameterError: A value cannot be understood; the message names the variable.
        """
        return cls(**options.read(cls, ENVIRONMENT_PREFIX, environment, PyTritonBadParameterError))

    def validate(self) -> None:
        """Check all options.

        Raises:
            PyTritonBadParameterError: An option is out of range, or of the wrong type; the message names it.
        """
        options.check(self)
        if self.address is not None and (not isinstance(self.address, str) or not self.address):
            raise PyTritonBadParameterError(f"address must be one such as '127.0.0.1', got {self.address!r}")
        if self.access_token is not None:
            check_header_value("access_token", self.access_token)
        self.keys()
        for each in self.frames:
            if not _ORIGIN.fullmatch(each):
                raise PyTritonBadParameterError(f"frames must have origins such as 'https://example.com', got {each!r}")
        if (self.certificate is None) != (self.key is None):
            raise PyTritonBadParameterError("certificate and key go together; give both, or none")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise PyTritonBadParameterError(f"root_path must be like '/models', got {self.root_path!r}")

    def keys(self) -> tuple[ApiKey, ...]:
        """The API keys.

        Raises:
            PyTritonBadParameterError: They cannot be read, or one is wrong.
        """
        return () if self.api_keys is None else read_keys(self.api_keys)

    def asks_for_credentials(self) -> bool:
        """Whether the routes of the app ask for a token or for API keys, whatever the server asks for."""
        return self.access_token is not None or self.api_keys is not None

    def shows_errors(self) -> bool:
        """Whether clients of an app that listens at its address get the messages of exceptions."""
        return is_loopback(self.address or "") if self.show_errors is None else self.show_errors

    def for_edge(self) -> dict[str, Any]:
        """Options of the server's edge, with which it answers ``/predict`` as the app does."""
        return {
            "predict": not self.access_log,  # else the app has to see all requests
            "predict_timeout_ms": math.ceil(self.timeout_s * 1000),
            "predict_heartbeat_ms": math.ceil(self.heartbeat_s * 1000),
            "predict_max_body_bytes": self.max_body_bytes,
            "predict_max_requests": self.max_requests,
            "predict_shows_errors": self.shows_errors(),
            "max_nesting": self.max_depth,
            "origins": [*self.cors],
            "hosts": [*self.hosts],
        }

    def tokens(self) -> list[str] | None:
        """What opens the app's routes beside API keys; None if they ask for nothing."""
        if not self.asks_for_credentials():
            return None
        return [] if self.access_token is None else [self.access_token]


@dataclass(frozen=True)
class EdgeFiles:
    """What the app shares with the server's edge, which then accepts from its port.

    Attributes:
        socket: Path of the Unix socket on which the app gets the requests that come there.
        counters: Path of a file for the metrics of the requests that the edge answers itself.
        is_encrypted: Whether it accepts from the port with TLS.
    """

    socket: str
    counters: str
    is_encrypted: bool = False


@dataclass(frozen=True)
class AppSpec:
    """What a process of the app needs.

    Attributes:
        config: Options of the app.
        endpoints: Of the server behind it.
        listener: Descriptor of the socket that it accepts from, which listens already.
        host: Descriptor of the socket on which the hosting process answers questions, see :mod:`pytriton.rest.host`.
        counters: Descriptors of the metrics of all processes of the app, and of the edge.
        limits: Descriptor of what the API keys have used.
        index: Which of them this process is.
        log_levels: Of the hosting process's loggers, by name.
    """

    config: RestConfig
    endpoints: ServerEndpoints
    listener: int
    host: int
    counters: tuple[int, ...]
    limits: int
    index: int
    log_levels: dict[str, int]

    def descriptors(self) -> tuple[int, ...]:
        """All of them."""
        return (self.listener, self.host, self.limits, *self.counters)


_ORIGIN = re.compile(r"\*|https?://(\*\.)?[A-Za-z0-9._-]+(:\d{1,5})?|https?://\[[0-9a-fA-F:.]+\](:\d{1,5})?")


def checked(rest: RestConfig | bool | None) -> RestConfig | None:
    """The options of an app, checked for all that its processes need; None for no app.

    Args:
        rest: Options, which are copied. True takes those in the environment, and so does None if they have a port.

    Raises:
        ImportError: The libraries of the extra ``rest`` are not installed.
        PyTritonBadParameterError: An option is out of range, or of the wrong type.
        PyTritonValidationError: The certificate and the key cannot be used.
    """
    if rest is None:
        rest = "PYTRITON_REST_PORT" in os.environ
    if rest is False:
        return None
    config = RestConfig.from_env() if rest is True else rest
    if not isinstance(config, RestConfig):
        raise PyTritonBadParameterError(f"rest must be True, False or a RestConfig, got {config!r}")
    config = replace(config)
    config.api_keys = config.keys() if config.api_keys is not None else None  # the file is read once
    config.validate()
    missing = [name for name in ("httptools", "pydantic", "starlette", "uvicorn", "uvloop") if find_spec(name) is None]
    if missing:
        raise ImportError(f"the app needs {', '.join(missing)}; install it with: pip install 'pytriton[rest]'")
    if config.mcp and find_spec("mcp") is None:
        raise ImportError("RestConfig(mcp=True) needs mcp; install it with: pip install 'pytriton[mcp]'")
    if config.certificate is not None and config.key is not None:
        try:
            # Without a password, OpenSSL would ask at the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.certificate, config.key, password="")
        except (OSError, ValueError) as error:
            raise PyTritonValidationError(
                f"certificate {config.certificate} and key {config.key} cannot be used: {error}; give PEM files of a "
                "certificate and of its key, which is not encrypted"
            ) from error
    return config
