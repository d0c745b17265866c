"""What the server is asked to do: one table of options, read from keywords, a dictionary or the environment."""

# ruff: noqa: RUF009 (the function called for each field returns a dataclasses.field)

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeVar

from pytriton.exceptions import PyTritonValidationError
from pytriton.logs import get_logger

__all__ = ["ENVIRONMENT_PREFIX", "HTTP_FRONTENDS", "NATIVE_HTTP_OPTIONS", "NO_FLAGS", "TritonConfig", "merge_configs"]

HTTP_FRONTENDS = ("native", "triton")
GRPC_FRONTENDS = ("triton", "edge")
ENVIRONMENT_PREFIX = "PYTRITON_TRITON_CONFIG_"

_T = TypeVar("_T")
_LOGGER = get_logger(__name__)

_TRUE = ("true", "1", "yes", "on")
_SECRET = ("restricted", "token", "secret", "password")
_FALSE = ("false", "0", "no", "off")
# One item of a list field as a user types it: `setting=value` or `name,setting=value`. A value runs up to the next
# such beginning, so commas inside values survive unless a word and "=" follow them.
_BEGINNING = r"(?:[A-Za-z][\w-]*,)?[A-Za-z][\w-]*="
_ITEM = re.compile(rf"{_BEGINNING}.*?(?=,{_BEGINNING}|$)", re.DOTALL)


def _to_bool(value: object) -> bool:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in _TRUE + _FALSE:
        raise ValueError(f"expected a boolean ({'/'.join(_TRUE)} or {'/'.join(_FALSE)})")
    return word in _TRUE


def _to_int(value: object, lowest: int = 0, highest: int | None = None) -> int:
    limits = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"
    expected = f"expected an integer {limits}"
    try:
        if isinstance(value, str) or (isinstance(value, float) and value.is_integer()):
            number = int(value)
        elif isinstance(value, bool):
            raise TypeError
        else:
            number = operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(expected) from None
    if number < lowest or (highest is not None and number > highest):
        raise ValueError(expected)
    return number


def _to_port(value: object) -> int:
    return _to_int(value, lowest=1, highest=65535)  # with 0 the server would choose a port that clients do not know


def _to_positive(value: object) -> int:
    return _to_int(value, lowest=1)


def _to_frontend(value: object) -> str:
    if value not in HTTP_FRONTENDS:
        raise ValueError(f"expected one of {', '.join(map(repr, HTTP_FRONTENDS))}")
    return str(value)


def _to_grpc_frontend(value: object) -> str:
    if value not in GRPC_FRONTENDS:
        raise ValueError(f"expected one of {', '.join(map(repr, GRPC_FRONTENDS))}")
    return str(value)


def _to_str(value: object) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("expected text without NUL characters")
    return value


def _to_path(value: object) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not (text := _to_str(value)):
        raise ValueError("expected a path")
    return Path(text)


def _to_items(value: object) -> list[str]:
    if isinstance(value, str):
        return _split(value)
    if not isinstance(value, (list, tuple)):
        raise ValueError("expected a list of texts such as 'setting=value'")
    return [_to_str(item) for item in value]


def _split(text: str) -> list[str]:
    text = re.sub(r"\s*,\s*", ",", text).strip().strip(",")
    items = _ITEM.findall(text) if "=" in text else text.split(",")
    if ",".join(items) != text:
        raise ValueError("expected 'setting=value' or 'name,setting=value' items separated by commas")
    return [item for item in items if item]


def _option(
    convert: Callable[[object], _T], meaning: str, *, secret: bool = False, flag: bool = True, native: bool = False
) -> _T | None:
    """A field.

    Args:
        meaning: For the documentation.
        secret: Its value is not shown.
        flag: The server has a flag of the name.
        native: It is an option of the edge alone.
    """
    metadata = {"convert": convert, "meaning": meaning, "flag": flag and not native, "native": native}
    return field(default=None, repr=not secret, metadata=metadata)


@dataclass(kw_only=True)
class TritonConfig:
    """Options of the Triton server; ``None`` leaves the choice to the server.

    Each field is the server flag of the same name, but for ``http_frontend``, ``grpc_frontend`` and the options of the
    edge, which the list below marks. Values are converted where their meaning is plain: text to
    paths, numbers and booleans (``true/false/1/0/yes/no/on/off`` in any case), one text to the items of a list.
    Fields may be assigned until the configuration is given to ``Triton()``, which copies, converts and checks it.
    The list below names the server's own default after the semicolon.

    Raises:
        PyTritonValidationError: A value is of the wrong type or out of range, or HTTP and gRPC are both off.
    """

    model_repository: Path | None = _option(_to_path, "model store directory; <workspace>/model-store")
    id: str | None = _option(_to_str, "identifier, reported as `name` in the server metadata; triton")
    log_verbose: int | None = _option(_to_int, "0 is off, 1 and more are levels of detail; 0")
    log_file: Path | None = _option(_to_path, "log file of the server; console")
    exit_timeout_secs: int | None = _option(_to_int, "seconds that in-flight requests get at exit; 30")
    exit_on_error: bool | None = _option(_to_bool, "exit when the initialisation fails; true")
    strict_readiness: bool | None = _option(_to_bool, "ready only if all models are available; true")
    allow_http: bool | None = _option(_to_bool, "serve HTTP; true")
    http_frontend: str | None = _option(
        _to_frontend,
        "`native`: the edge of this package serves HTTP, `triton`: the server's own does; `native` if built",
        flag=False,
    )
    http_address: str | None = _option(
        _to_str, "address of the HTTP endpoint; with the edge also `unix:/path/of/socket`; 0.0.0.0"
    )
    http_port: int | None = _option(_to_port, "port of the HTTP endpoint; 8000")
    http_header_forward_pattern: str | None = _option(
        _to_str,
        "regular expression: matching HTTP headers become request parameters; letter case counts after `(?-i)`; off",
    )
    http_thread_count: int | None = _option(
        _to_int, "threads that handle HTTP requests; 1, and 8 with the server's own endpoint"
    )
    http_restricted_api: str | None = _option(
        _to_str, "`<api>[,<api>...]:<header>=<value>`: these APIs need the header; off", secret=True
    )
    http_use_ssl: bool | None = _option(_to_bool, "native: TLS for HTTP; false", native=True)
    http_use_ssl_mutual: bool | None = _option(
        _to_bool, "native: mutual TLS for HTTP, wins over http_use_ssl; false", native=True
    )
    http_server_cert: Path | None = _option(
        _to_path, "native: PEM file of the server's certificate chain, used with TLS", native=True
    )
    http_server_key: Path | None = _option(_to_path, "native: PEM file of the server's key, used with TLS", native=True)
    http_root_cert: Path | None = _option(
        _to_path, "native: PEM file of the authorities of clients, used with mutual TLS", native=True
    )
    http_max_head_bytes: int | None = _option(
        _to_positive, "native: bytes of the longest head of a request; 65536", native=True
    )
    http_max_body_bytes: int | None = _option(
        _to_positive, "native: bytes of the longest body of a request, with binary tensors; 2147483648", native=True
    )
    http_max_json_bytes: int | None = _option(
        _to_positive, "native: bytes of the longest JSON, and compressed body, of a request; 67108864", native=True
    )
    http_max_buffered_bytes: int | None = _option(
        _to_positive,
        "native: memory of all requests and answers; a third of what is free at the start",
        native=True,
    )
    http_max_buffered_bytes_per_address: int | None = _option(
        _to_positive, "native: the same, of the clients of one address; half of that", native=True
    )
    http_head_timeout_s: int | None = _option(
        _to_positive, "native: seconds in which the head of a request has to come; 30", native=True
    )
    http_body_timeout_s: int | None = _option(
        _to_positive, "native: seconds without a byte of a body, or of a response that is taken; 60", native=True
    )
    http_least_bytes_per_second: int | None = _option(
        _to_positive, "native: least rate of bodies, and of responses that are taken, in that time; 1024", native=True
    )
    http_idle_timeout_s: int | None = _option(
        _to_positive, "native: seconds after which a connection without a request is closed; 600", native=True
    )
    http_max_connections: int | None = _option(
        _to_positive, "native: open connections; more are closed at once; no limit", native=True
    )
    http_max_connections_per_address: int | None = _option(
        _to_positive, "native: open connections of one address; no limit", native=True
    )
    http_max_requests: int | None = _option(
        _to_positive, "native: requests in progress; more get 503; no limit", native=True
    )
    http_access_log: str | None = _option(
        _to_str, "native: file for a line of JSON per request, or `stderr`; off", native=True
    )
    http_metrics: bool | None = _option(
        _to_bool, "native: serve `/metrics` at the HTTP endpoint as well; false", native=True
    )
    http_hosts: list[str] | None = _option(
        _to_items,
        "native: names by which browsers may call a server for this machine alone, such as that of a proxy in front, "
        "beside addresses, `localhost` and the machine's name; `*` is any; none",
        native=True,
    )
    allow_grpc: bool | None = _option(_to_bool, "serve gRPC; true")
    grpc_frontend: str | None = _option(
        _to_grpc_frontend,
        "`edge`: the edge serves gRPC, beside HTTP, `triton`: the server's own endpoint does; `edge` where "
        "it can serve it",
        flag=False,
    )
    grpc_address: str | None = _option(
        _to_str, "address of the gRPC endpoint; with the edge also `unix:/path/of/socket`; 0.0.0.0"
    )
    grpc_port: int | None = _option(_to_port, "port of the gRPC endpoint; with the edge also that of HTTP; 8001")
    grpc_header_forward_pattern: str | None = _option(
        _to_str, "regular expression: matching gRPC metadata become request parameters; off"
    )
    grpc_infer_allocation_pool_size: int | None = _option(_to_int, "request and response objects kept for reuse; 8")
    grpc_use_ssl: bool | None = _option(_to_bool, "TLS for gRPC; false")
    grpc_use_ssl_mutual: bool | None = _option(_to_bool, "mutual TLS for gRPC, wins over grpc_use_ssl; false")
    grpc_server_cert: Path | None = _option(_to_path, "PEM file of the server's certificate, used with TLS")
    grpc_server_key: Path | None = _option(_to_path, "PEM file of the server's key, used with TLS")
    grpc_root_cert: Path | None = _option(_to_path, "PEM file of the root certificate, used with TLS")
    grpc_infer_response_compression_level: str | None = _option(_to_str, "none, low, medium or high; none")
    grpc_keepalive_time: int | None = _option(_to_int, "milliseconds between keep-alive pings; 7200000")
    grpc_keepalive_timeout: int | None = _option(_to_int, "milliseconds to wait for the answer to a ping; 20000")
    grpc_keepalive_permit_without_calls: bool | None = _option(_to_bool, "ping without calls in flight; false")
    grpc_http2_max_pings_without_data: int | None = _option(_to_int, "pings sent while there is no data to send; 2")
    grpc_http2_min_recv_ping_interval_without_data: int | None = _option(
        _to_int, "milliseconds between received pings below which a ping counts as bad; 300000"
    )
    grpc_http2_max_ping_strikes: int | None = _option(_to_int, "bad pings before the connection is closed; 2")
    grpc_restricted_protocol: str | None = _option(
        _to_str, "as http_restricted_api; the metadata key is `triton-grpc-protocol-<header>`; off", secret=True
    )
    allow_metrics: bool | None = _option(_to_bool, "serve metrics; true")
    allow_gpu_metrics: bool | None = _option(_to_bool, "metrics of GPUs; true")
    allow_cpu_metrics: bool | None = _option(_to_bool, "metrics of CPUs; true")
    metrics_interval_ms: int | None = _option(_to_int, "milliseconds between collections of metrics; 2000")
    metrics_port: int | None = _option(_to_port, "port of the metrics endpoint; 8002")
    metrics_address: str | None = _option(_to_str, "address of the metrics endpoint; same as http_address")
    allow_sagemaker: bool | None = _option(_to_bool, "serve SageMaker requests; false")
    sagemaker_port: int | None = _option(_to_port, "port of the SageMaker endpoint; 8080")
    sagemaker_safe_port_range: str | None = _option(
        _to_str, "`<first>-<last>` port allowed for the other endpoints; unset"
    )
    sagemaker_thread_count: int | None = _option(_to_int, "threads that handle SageMaker requests; 8")
    allow_vertex_ai: bool | None = _option(_to_bool, "serve Vertex AI requests; false")
    vertex_ai_port: int | None = _option(_to_port, "port of the Vertex AI endpoint; 8080")
    vertex_ai_thread_count: int | None = _option(_to_int, "threads that handle Vertex AI requests; 8")
    vertex_ai_default_model: str | None = _option(_to_str, "model of Vertex AI single-model requests; unset")
    metrics_config: list[str] | None = _option(_to_items, "items `<setting>=<value>`")
    trace_config: list[str] | None = _option(
        _to_items,
        "items `<setting>=<value>` (level, rate, count, mode) or `<mode>,<setting>=<value>` (triton, opentelemetry)",
    )
    cache_config: list[str] | None = _option(
        _to_items, "items `<cache>,<setting>=<value>`, for example `local,size=1048576`"
    )
    cache_directory: str | None = _option(_to_str, "directory of cache plug-ins; the one shipped with the server")
    rate_limit: str | None = _option(
        _to_str, "`execution_count`: instances wait for the resources of their rate limiter; off"
    )
    rate_limit_resource: list[str] | None = _option(
        _to_items,
        "items `<resource>:<count>` or `<resource>:<count>:<device>`; what the instance that needs most needs",
    )
    host_policy: list[str] | None = _option(
        _to_items, "items `<policy>,numa-node=<n>` or `<policy>,cpu-cores=<first>-<last>`, named by instance groups"
    )
    model_load_gpu_limit: list[str] | None = _option(
        _to_items, "items `<device>:<fraction>` of a GPU's memory, above which no model is loaded; unset"
    )
    buffer_manager_thread_count: int | None = _option(_to_int, "threads that copy tensors; 0")

    def __post_init__(self) -> None:
        for name, convert in _CONVERTERS.items():
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, _converted(convert, value, name))
        if self.allow_http is False and self.allow_grpc is False:
            raise PyTritonValidationError("allow_http and allow_grpc are both false; leave one of them on")

    def to_dict(self) -> dict[str, Any]:
        """All fields, also those that are None; lists are copies."""
        return asdict(self)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TritonConfig:
        """Build from names and values; values are converted as by the constructor, lists are copied.

        Unknown names are ignored with a warning in the log.
        """
        known = {}
        for name, value in config.items():
            if name in _CONVERTERS:
                known[name] = value
            else:
                _warn_unknown(name, value)
        return cls(**known)

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> TritonConfig:
        """Build from variables ``PYTRITON_TRITON_CONFIG_<FIELD>``; an empty variable counts as not set.

        A list comes from ``..._<FIELD>_0``, ``_1``, ... (gaps are dropped), one item each, or from one variable whose
        items are separated by commas. In the latter, an item begins at ``setting=`` or ``name,setting=``, so
        ``local,size=1,redis,host=h`` is two items; a value in which a comma and ``word=`` follow needs the first form.
        Unknown fields are ignored with a warning in the log.

        Args:
            environment: Variables to read; default: those of the process.

        Raises:
            PyTritonValidationError: A value is wrong, or a list is given in both forms; names the variable.
        """
        values: dict[str, Any] = {}
        items: dict[str, dict[int, str]] = {}
        environment = os.environ if environment is None else environment
        for variable, text in environment.items():
            if not variable.startswith(ENVIRONMENT_PREFIX) or not text:
                continue
            name = variable[len(ENVIRONMENT_PREFIX) :].lower()
            base, _, index = name.rpartition("_")
            if name in _CONVERTERS:
                values[name] = _converted(_CONVERTERS[name], text, variable)
            elif index.isdecimal() and _CONVERTERS.get(base) is _to_items:
                items.setdefault(base, {})[int(index)] = text
            else:
                _warn_unknown(variable, text)
        for name, numbered in items.items():
            if name in values:
                variable = ENVIRONMENT_PREFIX + name.upper()
                raise PyTritonValidationError(f"{variable} and {variable}_{min(numbered)} are both set; use one form")
            values[name] = [numbered[index] for index in sorted(numbered)]
        return cls(**values)


_CONVERTERS: dict[str, Callable[[object], object]] = {
    option.name: option.metadata["convert"] for option in fields(TritonConfig)
}
NO_FLAGS = {option.name for option in fields(TritonConfig) if not option.metadata["flag"]}
"""Fields that are no flags of the server."""
NATIVE_HTTP_OPTIONS = [option.name for option in fields(TritonConfig) if option.metadata["native"]]
"""Fields that are for the edge alone."""
TritonConfig.__doc__ = f"{cleandoc(TritonConfig.__doc__ or '')}\n\nAttributes:\n" + "\n".join(
    f"    {option.name}: {option.metadata['meaning']}." for option in fields(TritonConfig)
)


def merge_configs(*configs: TritonConfig | None) -> TritonConfig:
    """Merge field by field into a new, validated configuration; later ones win, and None never overrides.

    Raises:
        PyTritonValidationError: The parts are valid, but not together.
    """
    merged: dict[str, Any] = {}
    for config in configs:
        if config is not None:
            for name in vars(config).keys() - _CONVERTERS.keys():  # a slip in an assignment
                _warn_unknown(name, getattr(config, name))
            merged.update((name, value) for name, value in config.to_dict().items() if value is not None)
    return TritonConfig(**merged)


def _converted(convert: Callable[[object], object], value: object, label: str) -> object:
    try:
        return convert(value)
    except ValueError as error:
        raise PyTritonValidationError(f"{label}: {error}, got {_shown(label, value)}") from error


def _warn_unknown(name: str, value: object) -> None:
    shown = _shown(name, value)
    _LOGGER.warning("unknown configuration field %s=%s ignored; available: %s", name, shown, ", ".join(_CONVERTERS))


def _shown(name: str, value: object) -> str:
    """The value as messages may have it."""
    return "***" if any(word in name.lower() for word in _SECRET) else repr(value)
