"""Options of a server in this process, and the calls that tell them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from pytriton.inprocess import (
    InstanceGroupKind,
    InvalidArgumentError,
    LogFormat,
    ModelControlMode,
    ModelLoadDeviceLimit,
    Options,
    RateLimiterResource,
    RateLimitMode,
)
from pytriton.inprocess.capi import CHECKED
from pytriton.inprocess.options import Setting, settings

# For each field a value that is not its default, and a call that follows from it.
CALLS: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "model_repository": ("/other", "SetModelRepositoryPath", (b"/other",)),
    "server_id": ("mine", "SetServerId", (b"mine",)),
    "model_control_mode": (ModelControlMode.EXPLICIT, "SetModelControlMode", (2,)),
    "startup_models": (["a", "*"], "SetStartupModel", (b"*",)),
    "strict_model_config": (False, "SetStrictModelConfig", (False,)),
    "rate_limiter_mode": (RateLimitMode.EXEC_COUNT, "SetRateLimiterMode", (1,)),
    "rate_limiter_resources": ([RateLimiterResource("r", 3)], "AddRateLimiterResource", (b"r", 3, -1)),
    "pinned_memory_pool_size": (1 << 40, "SetPinnedMemoryPoolByteSize", (1 << 40,)),
    "cuda_memory_pool_sizes": ({1: 2}, "SetCudaMemoryPoolByteSize", (1, 2)),
    "cache_config": ({"local": {"size": 9}}, "SetCacheConfig", (b"local", b'{"size": 9}')),
    "cache_directory": ("/c", "SetCacheDirectory", (b"/c",)),
    "min_supported_compute_capability": (8, "SetMinSupportedComputeCapability", (8.0,)),
    "exit_on_error": (False, "SetExitOnError", (False,)),
    "strict_readiness": (False, "SetStrictReadiness", (False,)),
    "exit_timeout": (1, "SetExitTimeout", (1,)),
    "buffer_manager_thread_count": (1, "SetBufferManagerThreadCount", (1,)),
    "model_load_thread_count": (2, "SetModelLoadThreadCount", (2,)),
    "model_load_retry_count": (1, "SetModelLoadRetryCount", (1,)),
    "model_namespacing": (True, "SetModelNamespacing", (True,)),
    "enable_peer_access": (False, "SetEnablePeerAccess", (False,)),
    "log_file": ("/log", "SetLogFile", (b"/log",)),
    "log_info": (True, "SetLogInfo", (True,)),
    "log_warn": (True, "SetLogWarn", (True,)),
    "log_error": (True, "SetLogError", (True,)),
    "log_format": (LogFormat.ISO8601, "SetLogFormat", (1,)),
    "log_verbose": (1, "SetLogVerbose", (1,)),
    "metrics": (False, "SetMetrics", (False,)),
    "gpu_metrics": (False, "SetGpuMetrics", (False,)),
    "cpu_metrics": (False, "SetCpuMetrics", (False,)),
    "metrics_interval": (1, "SetMetricsInterval", (1,)),
    "backend_directory": ("/b", "SetBackendDirectory", (b"/b",)),
    "repo_agent_directory": ("/r", "SetRepoAgentDirectory", (b"/r",)),
    "model_load_device_limits": (
        [ModelLoadDeviceLimit(InstanceGroupKind.GPU, 1, 0.5)],
        "SetModelLoadDeviceLimit",
        (2, 1, 0.5),
    ),
    "backend_configuration": ({"": {"k": "v"}}, "SetBackendConfig", (b"", b"k", b"v")),
    "host_policies": ({"p": {"k": "v"}}, "SetHostPolicy", (b"p", b"k", b"v")),
    "metrics_configuration": ({"": {"k": "v"}}, "SetMetricsConfig", (b"", b"k", b"v")),
}


def told(**values: Any) -> list[Setting]:
    return [*settings(Options(**{"model_repository": "/models", **values}))]


def test_every_option_is_told():
    assert [*CALLS] == [each.name for each in fields(Options)]


@pytest.mark.parametrize("name", CALLS)
def test_an_option_becomes_a_call(name: str):
    value, function, arguments = CALLS[name]
    assert Setting(function, arguments) in told(**{name: value})
    assert Setting(function, arguments) not in told()
    assert f"ServerOptions{function}" in CHECKED


def test_several_repositories_are_told_one_by_one():
    paths = [arguments for function, arguments in told(model_repository=["/a", "/b"]) if "Repository" in function]
    assert paths == [(b"/a",), (b"/b",)]


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({}, (False, False, False)),
        ({"log_error": True}, (False, False, True)),
        ({"log_warn": True}, (False, True, True)),
        ({"log_info": True}, (True, True, True)),
        ({"log_verbose": 1}, (True, True, True)),
    ],
)
def test_a_level_of_the_log_brings_those_above_it(options: dict[str, Any], levels: tuple[bool, ...]):
    values = {function: arguments[0] for function, arguments in told(**options)}
    assert (values["SetLogInfo"], values["SetLogWarn"], values["SetLogError"]) == levels


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_repository", []),
        ("model_repository", None),
        ("model_repository", 3),
        ("model_repository", [None]),
        ("server_id", 3),
        ("server_id", "a\0b"),
        ("startup_models", "all"),
        ("model_control_mode", 2),
        ("strict_model_config", 1),
        ("exit_timeout", -1),
        ("exit_timeout", 1 << 31),
        ("model_load_thread_count", 1 << 10),
        ("buffer_manager_thread_count", 1 << 10),
        ("backend_configuration", {"python": {"shm-default-byte-size": "9" * 19}}),
        ("host_policies", {"cpu": {"cpu-cores": "0-" + "9" * 10}}),
        ("exit_timeout", True),
        ("exit_timeout", 1.0),
        ("log_verbose", "1"),
        ("metrics_interval", 1 << 31),
        ("log_file", 0),
        ("min_supported_compute_capability", "6"),
        ("min_supported_compute_capability", -1.0),
        ("min_supported_compute_capability", float("nan")),
        ("rate_limiter_resources", [("r", 1)]),
        ("rate_limiter_resources", [RateLimiterResource("r", 1, -2)]),
        ("model_load_device_limits", [ModelLoadDeviceLimit(2, 0, 0.5)]),
        ("model_load_device_limits", [ModelLoadDeviceLimit(InstanceGroupKind.GPU, 0, 1.1)]),
        ("cuda_memory_pool_sizes", {0: -1}),
        ("cache_config", {"local": 3}),
        ("cache_config", {"local": {"size": b"1"}}),
        ("backend_configuration", {"python": {"key": 1}}),
    ],
)
def test_a_value_of_the_wrong_kind_or_out_of_range_is_refused_by_name(name: str, value: Any):
    with pytest.raises(InvalidArgumentError, match=name):
        told(**{name: value})


@pytest.mark.parametrize("name", [name for name in CALLS if name != "model_repository"])
def test_a_value_of_the_wrong_type_is_a_type_error(name: str):
    with pytest.raises(TypeError, match=name) as raised:
        told(**{name: object()})
    assert isinstance(raised.value, InvalidArgumentError)


def test_a_value_of_the_wrong_type_is_told_of_before_a_missing_repository():
    with pytest.raises(TypeError, match="server_id"):
        list(settings(Options(server_id=1)))  # type: ignore[arg-type]


def test_scalars_of_numpy_are_taken():
    given = told(exit_timeout=np.int64(3), strict_readiness=np.bool_(False), log_verbose=np.uint8(2))
    given += told(min_supported_compute_capability=np.float32(7.5))
    for expected in (("SetExitTimeout", (3,)), ("SetStrictReadiness", (False,)), ("SetLogVerbose", (2,))):
        assert expected in given
    assert ("SetMinSupportedComputeCapability", (7.5,)) in given


def test_a_name_in_the_settings_of_a_backend_may_have_digits():
    prefix = "1" * 40
    given = told(backend_configuration={"python": {"shm-region-prefix-name": prefix}})
    assert Setting("SetBackendConfig", (b"python", b"shm-region-prefix-name", prefix.encode())) in given
