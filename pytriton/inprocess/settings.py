"""From options to calls of the C API, after what can be checked beforehand."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from pytriton.inprocess.enums import InstanceGroupKind, LogFormat, ModelControlMode, RateLimitMode
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError
from pytriton.inprocess.options import ModelLoadDeviceLimit, Options, RateLimiterResource
from pytriton.inprocess.parameters import integer, plain

__all__ = ["Setting", "settings"]

_Enum = TypeVar("_Enum", bound=IntEnum)
_Item = TypeVar("_Item")


class Setting(NamedTuple):
    """One call: the function's name without ``TRITONSERVER_ServerOptions``, and its arguments after the options."""

    function: str
    arguments: tuple[Any, ...]


# Fields that are one call with one value each.
_TEXTS = {
    "server_id": "SetServerId",
    "cache_directory": "SetCacheDirectory",
    "backend_directory": "SetBackendDirectory",
    "repo_agent_directory": "SetRepoAgentDirectory",
}
_FLAGS = {
    "strict_model_config": "SetStrictModelConfig",
    "exit_on_error": "SetExitOnError",
    "strict_readiness": "SetStrictReadiness",
    "model_namespacing": "SetModelNamespacing",
    "enable_peer_access": "SetEnablePeerAccess",
    "metrics": "SetMetrics",
    "gpu_metrics": "SetGpuMetrics",
    "cpu_metrics": "SetCpuMetrics",
}
_COUNTS = {  # and the number of bits
    "pinned_memory_pool_size": ("SetPinnedMemoryPoolByteSize", 64),
    "exit_timeout": ("SetExitTimeout", 31),  # the server takes larger ones for negative
    "buffer_manager_thread_count": ("SetBufferManagerThreadCount", 10),  # it ends the process if there are too many
    "model_load_thread_count": ("SetModelLoadThreadCount", 10),
    "model_load_retry_count": ("SetModelLoadRetryCount", 32),
    "log_verbose": ("SetLogVerbose", 31),
    "metrics_interval": ("SetMetricsInterval", 31),
}
_ENUMS: dict[str, tuple[str, type[IntEnum]]] = {
    "model_control_mode": ("SetModelControlMode", ModelControlMode),
    "rate_limiter_mode": ("SetRateLimiterMode", RateLimitMode),
    "log_format": ("SetLogFormat", LogFormat),
}
_GROUPS = {
    "backend_configuration": "SetBackendConfig",
    "host_policies": "SetHostPolicy",
    "metrics_configuration": "SetMetricsConfig",
}
# Digits of numbers in these texts: the server, or a backend, ends the process at a number that it has no type for.
_DIGITS = {"backend_configuration": 18, "host_policies": 9}
_NAMES = {"shm-region-prefix-name"}  # settings whose digits are no number


def settings(options: Options) -> Iterator[Setting]:
    """The calls that tell a server these options.

    Raises:
        InvalidTypeError: A value has the wrong type; the message names the field.
        InvalidArgumentError: A value is out of range; as well.
    """
    for name, function in _TEXTS.items():
        yield Setting(function, (_text(name, getattr(options, name)),))
    for name, function in _FLAGS.items():
        yield Setting(function, (_flag(name, getattr(options, name)),))
    for name, (function, bits) in _COUNTS.items():
        yield Setting(function, (_count(name, getattr(options, name), bits),))
    for name, (function, kind) in _ENUMS.items():
        yield Setting(function, (_member(name, getattr(options, name), kind),))
    for name, function in _GROUPS.items():
        for group, values in _items(name, getattr(options, name)):
            for key, value in _items(name, values):
                setting = _text(name, group), _text(name, key), _text(name, value)
                if key not in _NAMES:
                    _check_digits(name, value)
                yield Setting(function, setting)
    yield from _logging(options)
    yield from _devices(options)
    for cache, values in _items("cache_config", options.cache_config):
        yield Setting("SetCacheConfig", (_text("cache_config", cache), _json("cache_config", values)))
    yield from _repositories(options)  # last: without one, a field of the wrong type is what to tell of


def _repositories(options: Options) -> Iterator[Setting]:
    paths = options.model_repository
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if paths is None or paths in ([], ()):
        raise InvalidArgumentError(f"model_repository is {paths!r}; give at least one folder of models")
    if not isinstance(paths, (list, tuple)):
        raise _wrong("model_repository", paths, "a folder of models, or a list of them")
    for path in paths:
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        absolute = os.path.abspath(os.fsdecode(_text("model_repository", text)))
        yield Setting("SetModelRepositoryPath", (os.fsencode(absolute),))
    for model in _list("startup_models", options.startup_models, str):
        yield Setting("SetStartupModel", (_text("startup_models", model),))


def _logging(options: Options) -> Iterator[Setting]:
    enabled = options.log_verbose > 0
    for name, function in (("log_info", "SetLogInfo"), ("log_warn", "SetLogWarn"), ("log_error", "SetLogError")):
        enabled = _flag(name, getattr(options, name)) or enabled
        yield Setting(function, (enabled,))
    yield Setting("SetLogFile", (_text("log_file", "" if options.log_file is None else options.log_file),))


def _devices(options: Options) -> Iterator[Setting]:
    yield Setting(
        "SetMinSupportedComputeCapability",
        (_number("min_supported_compute_capability", options.min_supported_compute_capability, math.inf),),
    )
    name = "cuda_memory_pool_sizes"
    for device, size in _items(name, options.cuda_memory_pool_sizes):
        yield Setting("SetCudaMemoryPoolByteSize", (_count(name, device, 31), _count(name, size, 64)))
    name = "rate_limiter_resources"
    for resource in _list(name, options.rate_limiter_resources, RateLimiterResource):
        device = -1 if resource.device == -1 else _count(name, resource.device, 31)
        arguments = (_text(name, resource.name), _count(name, resource.count, 64), device)
        yield Setting("AddRateLimiterResource", arguments)
    name = "model_load_device_limits"
    for limit in _list(name, options.model_load_device_limits, ModelLoadDeviceLimit):
        kind, device = _member(name, limit.kind, InstanceGroupKind), _count(name, limit.device, 31)
        yield Setting("SetModelLoadDeviceLimit", (kind, device, _number(name, limit.fraction, 1)))


def _text(name: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    if "\0" in value:
        raise InvalidArgumentError(f"{name} is or contains {value!r}; give a text without NUL")
    return os.fsencode(value)


def _check_digits(name: str, text: str) -> None:
    most = _DIGITS.get(name, math.inf)
    if any(len(digits.lstrip("0")) > most for digits in re.findall("[0-9]+", text)):
        raise InvalidArgumentError(f"{name} contains {text!r:.80}; give numbers of at most {most} digits")


def _flag(name: str, value: object) -> bool:
    value = plain(value)
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def _count(name: str, value: object, bits: int) -> int:
    return integer(name, value, range(1 << bits))


def _number(name: str, value: object, highest: float) -> float:
    number = plain(value)
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise _wrong(name, value, f"a number from 0 to {highest}")
    if not 0 <= number <= highest:
        raise InvalidArgumentError(f"{name} is or contains {number}; give a number from 0 to {highest}")
    return float(number)


def _member(name: str, value: object, kind: type[_Enum]) -> int:
    if not isinstance(value, kind):
        raise _wrong(name, value, f"one of {', '.join(each.name for each in kind)}")
    return int(value)


def _items(name: str, value: object) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise _wrong(name, value, "a dictionary")
    return value.items()


def _json(name: str, values: object) -> bytes:
    try:
        return json.dumps(dict(_items(name, values))).encode()
    except (TypeError, ValueError) as error:
        raise _wrong(name, values, f"what JSON can say: {error}") from error


def _list(name: str, value: object, kind: type[_Item]) -> Iterable[_Item]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, kind) for each in value):
        raise _wrong(name, value, f"a list of {kind.__name__}")
    return value


def _wrong(name: str, value: object, wanted: str) -> InvalidTypeError:
    return InvalidTypeError(f"{name} is or contains {value!r}; give {wanted}")
