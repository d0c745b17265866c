"""Options of the server beyond those of ``TritonConfig``, as a mapping."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pytriton.exceptions import PyTritonError
from pytriton.server.launch import flag_value

__all__ = ["TritonServerConfig"]

_SWITCH = "disable-auto-complete-config"  # the only flag of the server without a value
_OPTIONS = f"""
    id exit-timeout-secs
    log-verbose log-info log-warning log-error log-format log-file
    model-store model-repository exit-on-error {_SWITCH} strict-readiness model-control-mode repository-poll-secs
    load-model model-config-name model-load-thread-count model-load-retry-count model-namespacing enable-peer-access
    allow-http http-address http-port reuse-http-port http-header-forward-pattern http-thread-count http-restricted-api
    allow-grpc grpc-address grpc-port reuse-grpc-port grpc-header-forward-pattern grpc-infer-allocation-pool-size
    grpc-use-ssl grpc-use-ssl-mutual grpc-server-cert grpc-server-key grpc-root-cert
    grpc-infer-response-compression-level grpc-keepalive-time grpc-keepalive-timeout
    grpc-keepalive-permit-without-calls grpc-http2-max-pings-without-data
    grpc-http2-min-recv-ping-interval-without-data grpc-http2-max-ping-strikes
    grpc-max-connection-age grpc-max-connection-age-grace grpc-restricted-protocol
    allow-sagemaker sagemaker-port sagemaker-safe-port-range sagemaker-thread-count
    allow-vertex-ai vertex-ai-port vertex-ai-thread-count vertex-ai-default-model
    allow-metrics allow-gpu-metrics allow-cpu-metrics metrics-address metrics-port metrics-interval-ms metrics-config
    trace-config backend-directory backend-config repoagent-directory cache-config cache-directory
    rate-limit rate-limit-resource pinned-memory-pool-byte-size cuda-memory-pool-byte-size cuda-virtual-address-size
    min-supported-compute-capability buffer-manager-thread-count host-policy model-load-gpu-limit
    strict-model-config response-cache-byte-size trace-file trace-level trace-rate trace-count trace-log-frequency
""".split()


class TritonServerConfig(Mapping[str, Any]):
    """Options for the server's command line, by name in kebab or snake case.

    A list sets its flag once per item. An option that is not set reads as None; setting it to None unsets it.
    Iteration gives the names of the options that are set, in kebab case.

    Raises:
        PyTritonError: An unknown option is set.
    """

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    @classmethod
    def allowed_keys(cls) -> list[str]:
        """Names of the options, first all in snake case, then all in kebab case."""
        return [name.replace("-", "_") for name in _OPTIONS] + _OPTIONS

    def update_config(self, params: Mapping[str, Any] | None = None) -> None:
        """Set several options."""
        for name, value in (params or {}).items():
            self[name] = value

    def to_args_list(self) -> list[str]:
        """The options as separate arguments ``--name``, ``value``; values may hold spaces and ``=``."""
        return [argument for flag in self._flags() for argument in flag]

    def to_cli_string(self) -> str:
        """The options as one line for a shell, each ``--name=value``, quoted where needed."""
        return shlex.join("=".join(flag) for flag in self._flags())

    def copy(self) -> TritonServerConfig:
        """An independent configuration with the same options."""
        duplicate = TritonServerConfig()
        duplicate.update_config(self)
        return duplicate

    def server_args(self) -> dict[str, Any]:
        """The options that are set, by name in kebab case."""
        return dict(self._options)

    def get(self, name: str, default: Any = None) -> Any:
        """The option, or ``default`` if it is not set."""
        value = self[name]
        return default if value is None else value

    def __getitem__(self, name: str) -> Any:
        return self._options.get(name.replace("_", "-"))

    def __setitem__(self, name: str, value: Any) -> None:
        option = name.replace("_", "-")
        if option not in _OPTIONS:
            raise PyTritonError(f"the server has no option {name!r}; TritonServerConfig.allowed_keys() lists them")
        if value is None:
            self._options.pop(option, None)
        else:
            self._options[option] = list(value) if isinstance(value, (list, tuple)) else value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self[name] is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def _flags(self) -> Iterator[list[str]]:
        for name, value in self._options.items():
            if name == _SWITCH:
                if value:
                    yield [f"--{name}"]
            else:
                for item in value if isinstance(value, list) else [value]:
                    yield [f"--{name}", flag_value(item)]
