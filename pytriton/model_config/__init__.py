"""How a model is described: its tensors, its scheduling, its instances, its warm-up."""

from pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.instance_group import InstanceGroup, RateLimiter, RateLimiterResource
from pytriton.model_config.model_config import ModelConfig
from pytriton.model_config.sequence_batcher import DirectStrategy, OldestStrategy, SequenceBatcher
from pytriton.model_config.tensor import Tensor
from pytriton.model_config.version_policy import AllVersions, LatestVersions, SpecificVersions
from pytriton.model_config.warmup import ModelWarmup, WarmupInput

__all__ = [
    "AllVersions",
    "DeviceKind",
    "DirectStrategy",
    "DynamicBatcher",
    "InstanceGroup",
    "LatestVersions",
    "ModelConfig",
    "ModelWarmup",
    "OldestStrategy",
    "QueuePolicy",
    "RateLimiter",
    "RateLimiterResource",
    "SequenceBatcher",
    "SpecificVersions",
    "Tensor",
    "TimeoutAction",
    "WarmupInput",
]
