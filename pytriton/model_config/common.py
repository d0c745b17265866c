"""The options that programs import from ``pytriton.model_config.common``; they are defined in their own modules."""

from pytriton.model_config.model_config import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.warmup import ModelWarmup, WarmupInput, generate_warmup_data, generate_warmup_requests

__all__ = [
    "DeviceKind",
    "DynamicBatcher",
    "ModelWarmup",
    "QueuePolicy",
    "TimeoutAction",
    "WarmupInput",
    "generate_warmup_data",
    "generate_warmup_requests",
]
