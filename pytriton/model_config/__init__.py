"""The description of a model: its tensors, batching, instances, versions and warm-up."""

from pytriton.model_config.model_config import (
    AllVersions,
    DeviceKind,
    DirectStrategy,
    DynamicBatcher,
    InstanceGroup,
    LatencyTarget,
    LatestVersions,
    ModelConfig,
    OldestStrategy,
    QueuePolicy,
    RateLimiter,
    RateLimiterResource,
    SequenceBatcher,
    SpecificVersions,
    TimeoutAction,
)
from pytriton.model_config.recording import Recording
from pytriton.model_config.tensor import Tensor
from pytriton.model_config.warmup import ModelWarmup, WarmupInput

__all__ = [
    "AllVersions",
    "DeviceKind",
    "DirectStrategy",
    "DynamicBatcher",
    "InstanceGroup",
    "LatencyTarget",
    "LatestVersions",
    "ModelConfig",
    "ModelWarmup",
    "OldestStrategy",
    "QueuePolicy",
    "RateLimiter",
    "RateLimiterResource",
    "Recording",
    "SequenceBatcher",
    "SpecificVersions",
    "Tensor",
    "TimeoutAction",
    "WarmupInput",
]
