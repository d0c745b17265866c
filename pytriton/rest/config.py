"""Options of the REST front, and what each of its processes gets."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytriton.exceptions import PyTritonBadParameterError, PyTritonValidationError
from pytriton.rest.keys import ApiKey, read_keys
from pytriton.security import check_header_value

if TYPE_CHECKING:
    from pytriton.server.endpoints import ServerEndpoints

__all__ = ["DEFAULT_PORT", "READY", "FrontSpec", "FrontendFiles", "RestConfig", "checked"]

DEFAULT_PORT = 8080

ENVIRONMENT_PREFIX = "PYTRITON_REST_"
READY = b"ready"


@dataclass(kw_only=True)
class RestConfig:
    """Options of the REST front.

    Attributes:
        port: TCP port of the front.
        address: Address that it listens on.
        processes: Number of processes that share the port.
        root_path: Path below which a reverse proxy serves the front, such as ``/models``.
        cors: Origins whose pages may call the front, such as ``https://example.com``; ``["*"]`` allows all.
        access_token: Token that every route but ``/health`` asks for, as ``Authorization: Bearer``. None asks for none.
        api_keys: Keys with names, models and limits, beside the access token: a file, its text, or a list of
            :class:`pytriton.rest.ApiKey`. docs/llm.md describes them. None asks for none.
        mcp: Whether ``/mcp`` offers the typed models as tools.
        certificate: PEM file of the certificate chain for HTTPS.
        key: PEM file of the certificate's key.
        max_body_bytes: Largest body of a request; larger ones get 413.
        max_depth: Deepest nesting of JSON.
        max_requests: Requests in progress in one process; more get 429.
        timeout_s: Limit for one inference; later ones get 504.
        heartbeat_s: Longest silence of a stream of server-sent events, in seconds.
        access_log: Whether each request is logged.
    """

    port: int = DEFAULT_PORT
    address: str = "0.0.0.0"
    processes: int = 1
    root_path: str = ""
    cors: Sequence[str] = ()
    access_token: str | None = field(default=None, repr=False)
    api_keys: Sequence[ApiKey] | str | Path | None = field(default=None, repr=False)
    mcp: bool = False
    certificate: str | Path | None = None
    key: str | Path | None = None
    max_body_bytes: int = 64 * 2**20
    max_depth: int = 64
    max_requests: int = 1024
    timeout_s: float = 60.0
    heartbeat_s: float = 15.0
    access_log: bool = False

    @classmethod
    def from_env(cls, environment: Mapping[str, str] = os.environ) -> RestConfig:
        """The options in ``PYTRITON_REST_PORT``, ``PYTRITON_REST_ADDRESS`` and so on; lists have commas.

        Raises:
            PyTritonBadParameterError: A value cannot be understood; the message names the variable.
        """
        given: dict[str, Any] = {}
        for each in fields(cls):
            name = f"{ENVIRONMENT_PREFIX}{each.name.upper()}"
            text = environment.get(name)
            if text is not None:
                kind = type(each.default)
                try:
                    given[each.name] = _READERS.get(kind, str)(text)
                except (KeyError, ValueError) as error:
                    raise PyTritonBadParameterError(f"{name} cannot be {text!r}; give {_NOUNS[kind]}") from error
        return cls(**given)

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
        for name in ("access_log", "mcp"):
            if not isinstance(getattr(self, name), bool):
                raise PyTritonBadParameterError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.address, str) or not self.address:
            raise PyTritonBadParameterError(f"address must be one such as '127.0.0.1', got {self.address!r}")
        if self.access_token is not None:
            check_header_value("access_token", self.access_token)
        self.keys()
        if isinstance(self.cors, str) or not all(isinstance(origin, str) for origin in self.cors):
            raise PyTritonBadParameterError(f"cors must be a list of origins, got {self.cors!r}")
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

    def for_frontend(self) -> dict[str, Any]:
        """Options of the server's native HTTP front end, with which it answers ``/predict`` as the front does."""
        return {
            "predict": not self.access_log,  # else the front has to see all requests
            "predict_timeout_ms": math.ceil(self.timeout_s * 1000),
            "predict_heartbeat_ms": math.ceil(self.heartbeat_s * 1000),
            "predict_max_body_bytes": self.max_body_bytes,
            "predict_max_requests": self.max_requests,
            "predict_has_cors": bool(self.cors),
            "predict_needs_token": self.access_token is not None or self.api_keys is not None,
            "predict_access_token": self.access_token or "",
        }


@dataclass(frozen=True)
class FrontendFiles:
    """What the front shares with the server's native HTTP front end, which then accepts from its port.

    Attributes:
        socket: Path of the Unix socket on which the front gets the requests that come there.
        counters: Path of a file for the metrics of the requests that the native front end answers itself.
    """

    socket: str
    counters: str


@dataclass(frozen=True)
class FrontSpec:
    """What a process of the front needs.

    Attributes:
        config: Options of the front.
        endpoints: Of the server behind it.
        listener: Descriptor of the socket that it accepts from, which listens already.
        control: Descriptor of the socket to the hosting process. It brings the number of seconds in which to answer
            the requests in progress, and its end ends this process at once. :data:`READY` goes the other way.
        host: Descriptor of the socket on which the hosting process answers questions, see :mod:`pytriton.rest.host`.
        counters: Descriptors of the metrics of all processes of the front, and of the native HTTP front end.
        limits: Descriptor of what the API keys have used.
        index: Which of them this process is.
        parent: Id of the hosting process.
        level: For log messages.
    """

    config: RestConfig
    endpoints: ServerEndpoints
    listener: int
    control: int
    host: int
    counters: tuple[int, ...]
    limits: int
    index: int
    parent: int
    level: int

    def descriptors(self) -> tuple[int, ...]:
        """All of them."""
        return (self.listener, self.control, self.host, self.limits, *self.counters)


_NOUNS = {int: "an integer", float: "a number", bool: "true or false"}
_READERS: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()],
    tuple: lambda text: [item.strip() for item in text.split(",") if item.strip()],
}


def _check(name: str, value: Any, kind: Any, least: float, most: float = float("inf")) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        limit = f"of at least {least}" if most == float("inf") else f"from {least} to {most}"
        noun = "an integer" if kind is int else "a number"
        raise PyTritonBadParameterError(f"{name} must be {noun} {limit}, got {value!r}")


def checked(rest: RestConfig | bool | None) -> RestConfig | None:
    """The options of a front, checked for all that its processes need; None for no front.

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
        raise ImportError(f"the REST front needs {', '.join(missing)}; install it with: pip install 'pytriton[rest]'")
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
