"""What the server is asked to do: one table of options, read from keywords, a dictionary or the environment."""

# ruff: noqa: RUF009 (the function called for each field returns a dataclasses.field)

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any

from pytriton import options
from pytriton.exceptions import PyTritonValidationError
from pytriton.logs import get_logger
from pytriton.options import FLAG, ITEMS, PATH, TEXT, Kind, choice, converted, integer, option, shown

__all__ = ["ENVIRONMENT_PREFIX", "NATIVE_HTTP_OPTIONS", "NO_FLAGS", "TritonConfig", "merge_configs"]

ENVIRONMENT_PREFIX = "PYTRITON_TRITON_CONFIG_"

_LOGGER = get_logger(__name__)

_COUNT, _LIMIT = integer(0), integer(1)
_PORT = integer(1, 65535)  # with 0 the server would choose a port that clients do not know


def _option(kind: Kind, meaning: str, *, secret: bool = False, flag: bool = True, native: bool = False) -> Any:
    """A field.

    Args:
        meaning: For the documentation.
        secret: Its value is not shown.
        flag: The server has a flag of the name.
        native: It is an option of the edge alone.
    """
    return option(None, kind, secret=secret, meaning=meaning, flag=flag and not native, native=native)


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

    model_repository: Path | None = _option(PATH, "model store directory; <workspace>/model-store")
    id: str | None = _option(TEXT, "identifier, reported as `name` in the server metadata; triton")
    log_verbose: int | None = _option(_COUNT, "0 is off, 1 and more are levels of detail; 0")
    log_file: Path | None = _option(PATH, "log file of the server; console")
    exit_timeout_secs: int | None = _option(_COUNT, "seconds that in-flight requests get at exit; 30")
    exit_on_error: bool | None = _option(FLAG, "exit when the initialisation fails; true")
    strict_readiness: bool | None = _option(FLAG, "ready only if all models are available; true")
    allow_http: bool | None = _option(FLAG, "serve HTTP; true")
    http_frontend: str | None = _option(
        choice("native", "triton"),
        "`native`: the edge of this package serves HTTP, `triton`: the server's own does; `native` if built",
        flag=False,
    )
    http_address: str | None = _option(
        TEXT, "address of the HTTP endpoint; with the edge also `unix:/path/of/socket`; 0.0.0.0"
    )
    http_port: int | None = _option(_PORT, "port of the HTTP endpoint; 8000")
    http_header_forward_pattern: str | None = _option(
        TEXT,
        "regular expression: matching HTTP headers become request parameters; letter case counts after `(?-i)`; off",
    )
    http_thread_count: int | None = _option(
        _COUNT, "threads that handle HTTP requests; 1, and 8 with the server's own endpoint"
    )
    http_restricted_api: str | None = _option(
        TEXT, "`<api>[,<api>...]:<header>=<value>`: these APIs need the header; off", secret=True
    )
    http_use_ssl: bool | None = _option(FLAG, "native: TLS for HTTP; false", native=True)
    http_use_ssl_mutual: bool | None = _option(
        FLAG, "native: mutual TLS for HTTP, wins over http_use_ssl; false", native=True
    )
    http_server_cert: Path | None = _option(
        PATH, "native: PEM file of the server's certificate chain, used with TLS", native=True
    )
    http_server_key: Path | None = _option(PATH, "native: PEM file of the server's key, used with TLS", native=True)
    http_root_cert: Path | None = _option(
        PATH, "native: PEM file of the authorities of clients, used with mutual TLS", native=True
    )
    http_max_head_bytes: int | None = _option(
        _LIMIT, "native: bytes of the longest head of a request; 65536", native=True
    )
    http_max_body_bytes: int | None = _option(
        _LIMIT, "native: bytes of the longest body of a request, with binary tensors; 2147483648", native=True
    )
    http_max_json_bytes: int | None = _option(
        _LIMIT, "native: bytes of the longest JSON, and compressed body, of a request; 67108864", native=True
    )
    http_max_buffered_bytes: int | None = _option(
        _LIMIT,
        "native: memory of all requests and answers; a third of what is free at the start",
        native=True,
    )
    http_max_buffered_bytes_per_address: int | None = _option(
        _LIMIT, "native: the same, of the clients of one address; half of that", native=True
    )
    http_timeout_s: int | None = _option(
        _LIMIT,
        "native: seconds without a byte of a body, or of a response that is taken, after which a connection is closed; "
        "a head has to come in that time, of which it has 30 at most, and a connection without a request is closed "
        "after it, or after 600 if nothing is given; 60",
        native=True,
    )
    http_least_bytes_per_second: int | None = _option(
        _LIMIT, "native: least rate of bodies, and of responses that are taken, in that time; 1024", native=True
    )
    http_max_connections: int | None = _option(
        _LIMIT, "native: open connections; more are closed at once; no limit", native=True
    )
    http_max_connections_per_address: int | None = _option(
        _LIMIT, "native: open connections of one address; no limit", native=True
    )
    http_max_requests: int | None = _option(_LIMIT, "native: requests in progress; more get 503; no limit", native=True)
    http_access_log: str | None = _option(
        TEXT, "native: file for a line of JSON per request, or `stderr`; off", native=True
    )
    http_metrics: bool | None = _option(
        FLAG, "native: serve `/metrics` at the HTTP endpoint as well; false", native=True
    )
    http_hosts: list[str] | None = _option(
        ITEMS,
        "native: names by which browsers may call, such as that of a proxy in front, beside addresses, `localhost` and "
        "the machine's name; `*` is any; none",
        native=True,
    )
    allow_grpc: bool | None = _option(FLAG, "serve gRPC; true")
    grpc_frontend: str | None = _option(
        choice("triton", "edge"),
        "`edge`: the edge serves gRPC, beside HTTP, `triton`: the server's own endpoint does; `edge` where "
        "it can serve it",
        flag=False,
    )
    grpc_address: str | None = _option(
        TEXT, "address of the gRPC endpoint; with the edge also `unix:/path/of/socket`; 0.0.0.0"
    )
    grpc_port: int | None = _option(_PORT, "port of the gRPC endpoint; with the edge also that of HTTP; 8001")
    grpc_header_forward_pattern: str | None = _option(
        TEXT, "regular expression: matching gRPC metadata become request parameters; off"
    )
    grpc_infer_allocation_pool_size: int | None = _option(_COUNT, "request and response objects kept for reuse; 8")
    grpc_use_ssl: bool | None = _option(FLAG, "TLS for gRPC; false")
    grpc_use_ssl_mutual: bool | None = _option(FLAG, "mutual TLS for gRPC, wins over grpc_use_ssl; false")
    grpc_server_cert: Path | None = _option(PATH, "PEM file of the server's certificate, used with TLS")
    grpc_server_key: Path | None = _option(PATH, "PEM file of the server's key, used with TLS")
    grpc_root_cert: Path | None = _option(PATH, "PEM file of the root certificate, used with TLS")
    grpc_infer_response_compression_level: str | None = _option(
        choice("none", "low", "medium", "high"), "none, low, medium or high; none"
    )
    grpc_keepalive_time: int | None = _option(_COUNT, "milliseconds between keep-alive pings; 7200000")
    grpc_keepalive_timeout: int | None = _option(_COUNT, "milliseconds to wait for the answer to a ping; 20000")
    grpc_keepalive_permit_without_calls: bool | None = _option(FLAG, "ping without calls in flight; false")
    grpc_http2_max_pings_without_data: int | None = _option(_COUNT, "pings sent while there is no data to send; 2")
    grpc_http2_min_recv_ping_interval_without_data: int | None = _option(
        _COUNT, "milliseconds between received pings below which a ping counts as bad; 300000"
    )
    grpc_http2_max_ping_strikes: int | None = _option(_COUNT, "bad pings before the connection is closed; 2")
    grpc_restricted_protocol: str | None = _option(
        TEXT, "as http_restricted_api; the metadata key is `triton-grpc-protocol-<header>`; off", secret=True
    )
    allow_metrics: bool | None = _option(FLAG, "serve metrics; true")
    allow_gpu_metrics: bool | None = _option(FLAG, "metrics of GPUs; true")
    allow_cpu_metrics: bool | None = _option(FLAG, "metrics of CPUs; true")
    metrics_interval_ms: int | None = _option(_COUNT, "milliseconds between collections of metrics; 2000")
    metrics_port: int | None = _option(_PORT, "port of the metrics endpoint; 8002")
    metrics_address: str | None = _option(TEXT, "address of the metrics endpoint; same as http_address")
    allow_sagemaker: bool | None = _option(FLAG, "serve SageMaker requests; false")
    sagemaker_port: int | None = _option(_PORT, "port of the SageMaker endpoint; 8080")
    sagemaker_safe_port_range: str | None = _option(
        TEXT, "`<first>-<last>` port allowed for the other endpoints; unset"
    )
    sagemaker_thread_count: int | None = _option(_COUNT, "threads that handle SageMaker requests; 8")
    allow_vertex_ai: bool | None = _option(FLAG, "serve Vertex AI requests; false")
    vertex_ai_port: int | None = _option(_PORT, "port of the Vertex AI endpoint; 8080")
    vertex_ai_thread_count: int | None = _option(_COUNT, "threads that handle Vertex AI requests; 8")
    vertex_ai_default_model: str | None = _option(TEXT, "model of Vertex AI single-model requests; unset")
    metrics_config: list[str] | None = _option(ITEMS, "items `<setting>=<value>`")
    trace_config: list[str] | None = _option(
        ITEMS,
        "items `<setting>=<value>` (level, rate, count, mode) or `<mode>,<setting>=<value>` (triton, opentelemetry)",
    )
    cache_config: list[str] | None = _option(
        ITEMS, "items `<cache>,<setting>=<value>`, for example `local,size=1048576`"
    )
    cache_directory: str | None = _option(TEXT, "directory of cache plug-ins; the one shipped with the server")
    rate_limit: str | None = _option(
        TEXT, "`execution_count`: instances wait for the resources of their rate limiter; off"
    )
    rate_limit_resource: list[str] | None = _option(
        ITEMS,
        "items `<resource>:<count>` or `<resource>:<count>:<device>`; what the instance that needs most needs",
    )
    host_policy: list[str] | None = _option(
        ITEMS, "items `<policy>,numa-node=<n>` or `<policy>,cpu-cores=<first>-<last>`, named by instance groups"
    )
    model_load_gpu_limit: list[str] | None = _option(
        ITEMS, "items `<device>:<fraction>` of a GPU's memory, above which no model is loaded; unset"
    )
    buffer_manager_thread_count: int | None = _option(_COUNT, "threads that copy tensors; 0")

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, converted(kind, value, name, PyTritonValidationError))
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
            if name in _KINDS:
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
        given = {name: text for name, text in (os.environ if environment is None else environment).items() if text}
        return cls(**options.read(cls, ENVIRONMENT_PREFIX, given, PyTritonValidationError, _warn_unknown))


_KINDS = options.kinds_of(TritonConfig)
NO_FLAGS = {each.name for each in fields(TritonConfig) if not each.metadata["flag"]}
"""Fields that are no flags of the server."""
NATIVE_HTTP_OPTIONS = [each.name for each in fields(TritonConfig) if each.metadata["native"]]
"""Fields that are for the edge alone."""
TritonConfig.__doc__ = f"{cleandoc(TritonConfig.__doc__ or '')}\n\nAttributes:\n" + "\n".join(
    f"    {each.name}: {each.metadata['meaning']}." for each in fields(TritonConfig)
)


def merge_configs(*configs: TritonConfig | None) -> TritonConfig:
    """Merge field by field into a new, validated configuration; later ones win, and None never overrides.

    Raises:
        PyTritonValidationError: The parts are valid, but not together.
    """
    merged: dict[str, Any] = {}
    for config in configs:
        if config is not None:
            for name in vars(config).keys() - _KINDS.keys():  # a slip in an assignment
                _warn_unknown(name, getattr(config, name))
            merged.update((name, value) for name, value in config.to_dict().items() if value is not None)
    return TritonConfig(**merged)


def _warn_unknown(name: str, value: object) -> None:
    text = shown(name, value)
    _LOGGER.warning("unknown configuration field %s=%s ignored; available: %s", name, text, ", ".join(_KINDS))
