"""Options of a server in this process, and the calls of the C API that set them."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pytriton.inprocess.arguments import integer, number, python_value
from pytriton.inprocess.capi import InstanceGroupKind, LogFormat, ModelControlMode, RateLimitMode
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError

__all__ = ["ModelLoadDeviceLimit", "Options", "RateLimiterResource", "Setting", "settings"]

_Item = TypeVar("_Item")


@dataclass
class RateLimiterResource:
    """A resource that instances of models must acquire before they execute, with the rate limiter.

    Attributes:
        name: The name in the models' configurations.
        count: The number of units.
        device: The GPU that has them; -1: every device.
    """

    name: str
    count: int
    device: int = -1


@dataclass
class ModelLoadDeviceLimit:
    """The share of a device's memory above which no more models are loaded.

    Attributes:
        kind: GPU is the only kind that the server supports.
        device: Number of the device.
        fraction: From 0 to 1.
    """

    kind: InstanceGroupKind
    device: int
    fraction: float


@dataclass
class Options:
    """Options of a server. They may be changed until the server starts, and are checked then.

    Attributes:
        model_repository: One or several folders of models; at least one. Relative paths are relative to this process's
            working directory.
        server_id: The server's name in its metadata.
        model_control_mode: What decides which models are loaded.
        startup_models: Names of models to load at the start, with EXPLICIT; ``*``: all.
        strict_model_config: Whether models must have complete configurations; otherwise backends complete them.
        rate_limiter_mode: Whether instances wait for resources before they execute.
        rate_limiter_resources: These resources.
        pinned_memory_pool_size: Bytes of page-locked memory; only with a GPU.
        cuda_memory_pool_sizes: Bytes by number of the GPU.
        cache_config: Settings by name of the response cache.
        cache_directory: Folder of caches; if the default does not exist, that of the bundled server.
        min_supported_compute_capability: GPUs below it are not used.
        exit_on_error: Whether the start fails if a model cannot be loaded.
        strict_readiness: Whether the server is ready only while all of its models are.
        exit_timeout: Seconds that a stop waits for requests.
        buffer_manager_thread_count: Threads that copy tensors, at most 1023; 0: the models' threads do.
        model_load_thread_count: Threads that load models, at most 1023. Each model of the Python backend forks the
            process while it loads: two forks at once make gRPC abort a process that has open channels. Hence one.
        model_load_retry_count: How often loading is tried again.
        model_namespacing: Whether models of the same name may be in several repositories.
        enable_peer_access: Whether GPUs may read each other's memory.
        log_file: File of the log; None: standard error.
        log_info: Whether to log information; warnings and errors are logged as well then.
        log_warn: Whether to log warnings; errors are logged as well then.
        log_error: Whether to log errors.
        log_format: Format of a line's beginning.
        log_verbose: Level of detail; from 1 on everything above is logged as well. All servers of a process share
            one log.
        metrics: Whether the server has metrics.
        gpu_metrics: Whether they include those of GPUs.
        cpu_metrics: Whether they include those of processor and memory.
        metrics_interval: Milliseconds between two measurements of these.
        backend_directory: Folder of backends; if the default does not exist, the bundled ones.
        repo_agent_directory: Folder of repository agents.
        model_load_device_limits: Limits of device memory for loading models.
        backend_configuration: Settings by name of the backend; those of "" are for all.
        host_policies: Settings by name of the policy.
        metrics_configuration: Settings by group of metrics; those of "" are for all.
    """

    model_repository: str | list[str] = field(default_factory=list)
    server_id: str = "triton"
    model_control_mode: ModelControlMode = ModelControlMode.NONE
    startup_models: list[str] = field(default_factory=list)
    strict_model_config: bool = True
    rate_limiter_mode: RateLimitMode = RateLimitMode.OFF
    rate_limiter_resources: list[RateLimiterResource] = field(default_factory=list)
    pinned_memory_pool_size: int = 1 << 28
    cuda_memory_pool_sizes: dict[int, int] = field(default_factory=dict)
    cache_config: dict[str, dict[str, Any]] = field(default_factory=dict)
    cache_directory: str = "/opt/tritonserver/caches"
    min_supported_compute_capability: float = 6.0
    exit_on_error: bool = True
    strict_readiness: bool = True
    exit_timeout: int = 30
    buffer_manager_thread_count: int = 0
    model_load_thread_count: int = 1
    model_load_retry_count: int = 0
    model_namespacing: bool = False
    enable_peer_access: bool = True
    log_file: str | None = None
    log_info: bool = False
    log_warn: bool = False
    log_error: bool = False
    log_format: LogFormat = LogFormat.DEFAULT
    log_verbose: int = 0
    metrics: bool = True
    gpu_metrics: bool = True
    cpu_metrics: bool = True
    metrics_interval: int = 2000
    backend_directory: str = "/opt/tritonserver/backends"
    repo_agent_directory: str = "/opt/tritonserver/repoagents"
    model_load_device_limits: list[ModelLoadDeviceLimit] = field(default_factory=list)
    backend_configuration: dict[str, dict[str, str]] = field(default_factory=dict)
    host_policies: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics_configuration: dict[str, dict[str, str]] = field(default_factory=dict)


class Setting(NamedTuple):
    """One call: the function's name without ``TRITONSERVER_ServerOptions``, and its arguments after the options."""

    function: str
    arguments: tuple[Any, ...]


def settings(options: Options) -> Iterator[Setting]:
    """The calls that set these options.

    Raises:
        InvalidTypeError: A value has the wrong type; the message names the field.
        InvalidArgumentError: A value is out of range; the message names the field.
    """
    for name, (function, check) in _SINGLE_VALUES.items():
        yield Setting(function, (check(name, getattr(options, name)),))
    for name, function in _GROUPS.items():
        for group, values in _items(name, getattr(options, name)):
            for key, value in _items(name, values):
                setting = _text(name, group), _text(name, key), _text(name, value)
                if key not in _NAMES:
                    _check_digits(name, value)
                yield Setting(function, setting)
    yield from _log_settings(options)
    yield from _device_settings(options)
    for cache, values in _items("cache_config", options.cache_config):
        yield Setting("SetCacheConfig", (_text("cache_config", cache), _json("cache_config", values)))
    yield from _repository_settings(options)  # last: an error about another field is more useful than a missing one


def _repository_settings(options: Options) -> Iterator[Setting]:
    paths = options.model_repository
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if paths is None or paths in ([], ()):
        raise InvalidArgumentError(f"model_repository is {paths!r}; give at least one folder of models")
    if not isinstance(paths, (list, tuple)):
        raise _wrong_type("model_repository", paths, "a folder of models, or a list of them")
    for path in paths:
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        absolute = os.path.abspath(os.fsdecode(_text("model_repository", text)))
        yield Setting("SetModelRepositoryPath", (os.fsencode(absolute),))
    for model in _list("startup_models", options.startup_models, str):
        yield Setting("SetStartupModel", (_text("startup_models", model),))


def _log_settings(options: Options) -> Iterator[Setting]:
    enabled = options.log_verbose > 0
    for name, function in (("log_info", "SetLogInfo"), ("log_warn", "SetLogWarn"), ("log_error", "SetLogError")):
        enabled = _flag(name, getattr(options, name)) or enabled
        yield Setting(function, (enabled,))
    yield Setting("SetLogFile", (_text("log_file", "" if options.log_file is None else options.log_file),))


def _device_settings(options: Options) -> Iterator[Setting]:
    name = "cuda_memory_pool_sizes"
    for device, size in _items(name, options.cuda_memory_pool_sizes):
        yield Setting("SetCudaMemoryPoolByteSize", (_count(31, name, device), _count(64, name, size)))
    name = "rate_limiter_resources"
    for resource in _list(name, options.rate_limiter_resources, RateLimiterResource):
        device = -1 if resource.device == -1 else _count(31, name, resource.device)
        arguments = (_text(name, resource.name), _count(64, name, resource.count), device)
        yield Setting("AddRateLimiterResource", arguments)
    name = "model_load_device_limits"
    for limit in _list(name, options.model_load_device_limits, ModelLoadDeviceLimit):
        kind, device = _member(InstanceGroupKind, name, limit.kind), _count(31, name, limit.device)
        yield Setting("SetModelLoadDeviceLimit", (kind, device, number(name, limit.fraction, 1)))


def _text(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise _wrong_type(name, value, "a text")
    if "\0" in value:
        raise InvalidArgumentError(f"{name} is or contains {value!r}; give a text without NUL")
    return os.fsencode(value)


def _check_digits(name: str, text: str) -> None:
    limit = _DIGITS.get(name, math.inf)
    if any(len(digits.lstrip("0")) > limit for digits in re.findall("[0-9]+", text)):
        raise InvalidArgumentError(f"{name} contains {text!r:.80}; give numbers of at most {limit} digits")


def _flag(name: str, value: object) -> bool:
    value = python_value(value)
    if not isinstance(value, bool):
        raise _wrong_type(name, value, "True or False")
    return value


def _count(bits: int, name: str, value: object) -> int:
    return integer(name, value, range(1 << bits))


def _member(kind: type[IntEnum], name: str, value: object) -> int:
    if not isinstance(value, kind):
        raise _wrong_type(name, value, f"one of {', '.join(each.name for each in kind)}")
    return int(value)


def _items(name: str, value: object) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise _wrong_type(name, value, "a dictionary")
    return value.items()


def _json(name: str, values: object) -> bytes:
    try:
        return json.dumps(dict(_items(name, values))).encode()
    except (TypeError, ValueError) as error:
        raise _wrong_type(name, values, f"values that JSON can represent: {error}") from error


def _list(name: str, value: object, kind: type[_Item]) -> Iterable[_Item]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, kind) for each in value):
        raise _wrong_type(name, value, f"a list of {kind.__name__}")
    return value


def _wrong_type(name: str, value: object, expected: str) -> InvalidTypeError:
    return InvalidTypeError(f"{name} is or contains {value!r}; give {expected}")


# Fields that are one call with one value each.
_SINGLE_VALUES: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "server_id": ("SetServerId", _text),
    "cache_directory": ("SetCacheDirectory", _text),
    "backend_directory": ("SetBackendDirectory", _text),
    "repo_agent_directory": ("SetRepoAgentDirectory", _text),
    "strict_model_config": ("SetStrictModelConfig", _flag),
    "exit_on_error": ("SetExitOnError", _flag),
    "strict_readiness": ("SetStrictReadiness", _flag),
    "model_namespacing": ("SetModelNamespacing", _flag),
    "enable_peer_access": ("SetEnablePeerAccess", _flag),
    "metrics": ("SetMetrics", _flag),
    "gpu_metrics": ("SetGpuMetrics", _flag),
    "cpu_metrics": ("SetCpuMetrics", _flag),
    "pinned_memory_pool_size": ("SetPinnedMemoryPoolByteSize", partial(_count, 64)),
    "exit_timeout": ("SetExitTimeout", partial(_count, 31)),  # the server reads larger values as negative
    # More threads than 1023 end the process.
    "buffer_manager_thread_count": ("SetBufferManagerThreadCount", partial(_count, 10)),
    "model_load_thread_count": ("SetModelLoadThreadCount", partial(_count, 10)),
    "model_load_retry_count": ("SetModelLoadRetryCount", partial(_count, 32)),
    "log_verbose": ("SetLogVerbose", partial(_count, 31)),
    "metrics_interval": ("SetMetricsInterval", partial(_count, 31)),
    "model_control_mode": ("SetModelControlMode", partial(_member, ModelControlMode)),
    "rate_limiter_mode": ("SetRateLimiterMode", partial(_member, RateLimitMode)),
    "log_format": ("SetLogFormat", partial(_member, LogFormat)),
    "min_supported_compute_capability": ("SetMinSupportedComputeCapability", number),
}
# Fields of settings by group.
_GROUPS = {
    "backend_configuration": "SetBackendConfig",
    "host_policies": "SetHostPolicy",
    "metrics_configuration": "SetMetricsConfig",
}
# The most digits of numbers in these settings: the server, or a backend, ends the process at a number that overflows.
_DIGITS = {"backend_configuration": 18, "host_policies": 9}
_NAMES = {"shm-region-prefix-name"}  # settings whose digits are not a number
