"""The checks of a model's configuration that ``bind`` makes before anything is sent to the server."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

__all__ = ["check_integer", "validate"]

# The widths of the server's fields.
_INT32_MAX = 2**31 - 1
_UINT32_MAX = 2**32 - 1
_UINT64_MAX = 2**64 - 1


def validate(config: TritonModelConfig) -> None:
    """Check what the server would refuse, or read as something else.

    Raises:
        PyTritonBadParameterError: A value is out of its range, or two of them contradict each other.
    """
    if config.batching:
        check_integer("max_batch_size", config.max_batch_size, 1, _INT32_MAX)
    if config.batcher is not None:
        _check_batcher(config.batcher, config.max_batch_size)
    for side, specs in (("input", config.inputs or ()), ("output", config.outputs or ())):
        _check_tensors(side, specs, config.batching)
    for spec in config.outputs or ():
        if spec.optional:
            raise PyTritonBadParameterError(f"output {spec.name!r} is optional; only inputs can be")
    for kind, count in config.instance_group.items():
        _check_type("instance_group", kind, DeviceKind)
        if count is not None:
            check_integer(f"instance_group {kind.value}", count, 1, _INT32_MAX)


def _check_tensors(side: str, specs: Iterable[TensorSpec], batching: bool) -> None:
    seen: set[str] = set()
    for spec in specs:
        if not spec.name or not isinstance(spec.name, str):
            raise PyTritonBadParameterError(f"{side} name must be a text that is not empty, got {spec.name!r}")
        if spec.name in seen:
            raise PyTritonBadParameterError(f"{side} name {spec.name!r} is used twice; give each {side} its own name")
        if not spec.shape and not batching:
            raise PyTritonBadParameterError(f"{side} {spec.name!r} has no dimension; without batching use shape (1,)")
        seen.add(spec.name)


def _check_batcher(batcher: DynamicBatcher, max_batch_size: int) -> None:
    _check_type("batcher", batcher, DynamicBatcher)
    check_integer("max_queue_delay_microseconds", batcher.max_queue_delay_microseconds, 0, _UINT64_MAX)
    for size in batcher.preferred_batch_size or ():
        check_integer("each preferred_batch_size", size, 1, max_batch_size)
    levels = batcher.priority_levels
    check_integer("priority_levels", levels, 0, _UINT64_MAX)
    place = f"with {levels} priority_levels, default_priority_level"
    check_integer(place, batcher.default_priority_level, min(1, levels), levels)
    if batcher.default_queue_policy is not None:
        _check_policy("default_queue_policy", batcher.default_queue_policy)
    if batcher.priority_queue_policy and not levels:
        raise PyTritonBadParameterError("priority_queue_policy needs priority_levels; set how many there are")
    for level, policy in (batcher.priority_queue_policy or {}).items():
        check_integer("each level of priority_queue_policy", level, 1, levels)
        _check_policy(f"priority_queue_policy of level {level}", policy)


def _check_policy(place: str, policy: QueuePolicy) -> None:
    _check_type(place, policy, QueuePolicy)
    _check_type(f"{place}: timeout_action", policy.timeout_action, TimeoutAction)
    timeout = policy.default_timeout_microseconds
    check_integer(f"{place}: default_timeout_microseconds", timeout, 0, _UINT64_MAX)
    check_integer(f"{place}: max_queue_size", policy.max_queue_size, 0, _UINT32_MAX)


def check_integer(place: str, value: object, low: int, high: int) -> None:
    """Raise PyTritonBadParameterError unless ``value`` is an integer from ``low`` to ``high``."""
    # bool is an int to Python; True as a size is a slip.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise PyTritonBadParameterError(f"{place} must be an integer from {low} to {high}, got {value!r}")


def _check_type(place: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise PyTritonBadParameterError(f"{place} must be a {kind.__name__}, got {value!r}")
