"""What a server in this process is told before it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytriton.inprocess.enums import InstanceGroupKind, LogFormat, ModelControlMode, RateLimitMode

__all__ = ["ModelLoadDeviceLimit", "Options", "RateLimiterResource"]

INSTALLED = "/opt/tritonserver"


@dataclass
class RateLimiterResource:
    """How much of a resource there is for instances that take turns.

    Attributes:
        name: As models name it.
        count: How many units.
        device: The GPU that has them; -1: each.
    """

    name: str
    count: int
    device: int = -1


@dataclass
class ModelLoadDeviceLimit:
    """How much of a device's memory may be in use for models to be loaded still.

    Attributes:
        kind: GPU is what the server knows.
        device: Its number.
        fraction: From 0 to 1.
    """

    kind: InstanceGroupKind
    device: int
    fraction: float


@dataclass
class Options:
    """Options of a server, which may be changed until it starts, and are checked then.

    Attributes:
        model_repository: One or several folders of models; at least one. Relative ones are those of this process.
        server_id: The name that the server gives itself.
        model_control_mode: Who decides what is loaded.
        startup_models: Names of models to load at the start, with EXPLICIT; ``*``: all.
        strict_model_config: Whether models must have complete configurations; otherwise backends complete them.
        rate_limiter_mode: Whether instances take turns.
        rate_limiter_resources: What they take turns with.
        pinned_memory_pool_size: Bytes of page-locked memory, where there is a GPU.
        cuda_memory_pool_sizes: Bytes by number of the GPU.
        cache_config: Settings by name of the response cache.
        cache_directory: Folder of caches; if the default does not exist, the bundled server's.
        min_supported_compute_capability: Of GPUs to be used.
        exit_on_error: Whether a start during which a model cannot be loaded fails.
        strict_readiness: Whether the server is ready only while all of its models are.
        exit_timeout: Seconds that a stop waits for requests.
        buffer_manager_thread_count: Threads that copy tensors, at most 1023; 0: the models' own.
        model_load_thread_count: Threads that load models, at most 1023. Each model of the Python backend forks the
            process for a moment: two at once make gRPC abort it, if channels of gRPC's are open in it. Hence one.
        model_load_retry_count: How often loading is tried again.
        model_namespacing: Whether models of one name in several repositories are told apart.
        enable_peer_access: Whether GPUs may read each other's memory.
        log_file: Where the log goes; None: to standard error.
        log_info: Whether to log how things go; warnings and errors then are, too.
        log_warn: Whether to log warnings; errors then are, too.
        log_error: Whether to log errors.
        log_format: How a line begins.
        log_verbose: Detail from 0 on; from 1 on all of the above is logged. The log is the whole process's.
        metrics: Whether there are metrics.
        gpu_metrics: Whether GPUs have some.
        cpu_metrics: Whether processor and memory have some.
        metrics_interval: Milliseconds between two measurements of these.
        backend_directory: Folder of backends; if the default does not exist, those that come with this package.
        repo_agent_directory: Folder of agents that fetch models.
        model_load_device_limits: Limits of memory in use.
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
    cache_directory: str = f"{INSTALLED}/caches"
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
    backend_directory: str = f"{INSTALLED}/backends"
    repo_agent_directory: str = f"{INSTALLED}/repoagents"
    model_load_device_limits: list[ModelLoadDeviceLimit] = field(default_factory=list)
    backend_configuration: dict[str, dict[str, str]] = field(default_factory=dict)
    host_policies: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics_configuration: dict[str, dict[str, str]] = field(default_factory=dict)
