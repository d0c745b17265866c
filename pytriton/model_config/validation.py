"""The checks of a model's configuration that ``bind`` makes before anything is sent to the server."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.instance_group import InstanceGroup, RateLimiter
from pytriton.model_config.sequence_batcher import DirectStrategy, OldestStrategy, SequenceBatcher
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.model_config.version_policy import AllVersions, LatestVersions, SpecificVersions, VersionPolicy
from pytriton.model_config.warmup import ModelWarmup

__all__ = ["check_combination", "check_integer", "check_type", "checked_copy", "validate"]

LOGGER = logging.getLogger(__name__)

ConfigT = TypeVar("ConfigT")

_FILE_NAME = re.compile(r"\w[\w.-]*")

# The widths of the server's fields.
_INT32_MAX = 2**31 - 1
_UINT32_MAX = 2**32 - 1
_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1


def validate(config: TritonModelConfig) -> None:
    """Check what the server would refuse, or read as something else.

    Raises:
        PyTritonBadParameterError: A value is out of its range, or two of them contradict each other.
    """
    if config.batching:
        check_integer("max_batch_size", config.max_batch_size, 1, _INT32_MAX)
    if isinstance(config.batcher, SequenceBatcher):
        _check_sequence_batcher(config.batcher, config.max_batch_size)
    elif config.batcher is not None:
        _check_batcher(config.batcher, config.max_batch_size)
    _check_version_policy(config.version_policy)
    for side, specs in (("input", config.inputs or ()), ("output", config.outputs or ())):
        _check_tensors(side, specs, config.batching)
    for spec in config.inputs or ():
        _check_input(spec)
    for spec in config.outputs or ():
        _check_output(spec)
    for group in config.instance_groups or ():
        _check_group(group)
    for warmup in config.model_warmup or ():
        check_type("each of model_warmup", warmup, ModelWarmup)
        for name, warmup_input in warmup.inputs.items():
            if not warmup_input.has_source or not warmup_input.shape:
                raise PyTritonBadParameterError(
                    f"warm-up {warmup.name!r}: input {name!r} needs a dimension, and one of zero_data, random_data and "
                    "input_data_file"
                )


def checked_copy(config: ConfigT) -> ConfigT:
    """A copy of a configuration and of all its parts, each checked and normalised as by its constructor.

    Programs assign fields of configurations that were made before. Attributes that are no fields have no effect, which
    a warning says.

    Raises:
        PyTritonError: What the constructors raise.
    """
    copied: Any = config
    if is_dataclass(config) and not isinstance(config, type):
        copied, names = copy.copy(config), [field.name for field in fields(config)]
        for name in names:
            object.__setattr__(copied, name, checked_copy(getattr(config, name)))
        if unknown := sorted(vars(config).keys() - {*names}):
            kind = type(config).__name__
            LOGGER.warning("%s has no field %s, which has no effect; fields: %s", kind, unknown, ", ".join(names))
        if hasattr(copied, "__post_init__"):
            copied.__post_init__()
    elif isinstance(config, dict):
        copied = {key: checked_copy(value) for key, value in config.items()}
    elif isinstance(config, (list, tuple)):
        copied = type(config)(map(checked_copy, config))
    return copied  # type: ignore[no-any-return]  # of the same type


def check_combination(config: TritonModelConfig) -> None:
    """Refuse options that the server refuses together, less plainly, or that it would not do right together.

    Raises:
        PyTritonBadParameterError: The model has such options.
    """
    sequences = isinstance(config.batcher, SequenceBatcher)
    if sequences and config.decoupled:
        raise PyTritonBadParameterError(
            "a decoupled model cannot have a SequenceBatcher: the server sends the next request of a sequence before "
            "the last response to the one before it; turn one of them off"
        )
    if config.response_cache is not None and config.response_cache.enable and (sequences or config.decoupled):
        raise PyTritonBadParameterError(
            "response_cache does not go with a SequenceBatcher or with decoupled=True; turn one of them off"
        )

    batcher = config.batcher
    if isinstance(batcher, DynamicBatcher) and batcher.preserve_ordering and batcher.priority_levels > 1:
        raise PyTritonBadParameterError(
            f"preserve_ordering does not go with {batcher.priority_levels} priority_levels, as requests of a higher "
            "priority overtake others; turn one of them off"
        )


def _check_version_policy(policy: VersionPolicy) -> None:
    if isinstance(policy, LatestVersions):
        check_integer("version_policy: count", policy.count, 1, _UINT32_MAX)
    elif isinstance(policy, SpecificVersions):
        if not policy.versions:
            raise PyTritonBadParameterError("version_policy names no version; name one, or use AllVersions")
        for version in policy.versions:
            check_integer("version_policy: each of versions", version, 1, _INT64_MAX)
    else:
        check_type("version_policy", policy, AllVersions)


def _check_group(group: InstanceGroup) -> None:
    check_type("instance_group", group, InstanceGroup)
    check_type("instance_group", group.kind, DeviceKind)
    place = f"instance_group {group.kind.value}"
    if group.count is not None:
        check_integer(place, group.count, 1, _INT32_MAX)
    for gpu in group.gpus or ():
        check_integer(f"{place}: each of gpus", gpu, 0, _INT32_MAX)
    if group.gpus and group.kind is not DeviceKind.KIND_GPU:
        raise PyTritonBadParameterError(f"{place} has gpus; use KIND_GPU")
    check_type(f"{place}: host_policy", group.host_policy, str)
    if group.rate_limiter is not None:
        check_type(f"{place}: rate_limiter", group.rate_limiter, RateLimiter)
        check_integer(f"{place}: priority of the rate_limiter", group.rate_limiter.priority, 0, _UINT32_MAX)
        for resource in group.rate_limiter.resources or ():
            check_type(f"{place}: each resource's name", resource.name, str)
            check_integer(f"{place}: count of resource {resource.name!r}", resource.count, 1, _UINT32_MAX)


def _check_sequence_batcher(batcher: SequenceBatcher, max_batch_size: int) -> None:
    check_integer("max_sequence_idle_microseconds", batcher.max_sequence_idle_microseconds, 1, _UINT64_MAX)
    strategy = batcher.strategy
    if isinstance(strategy, DirectStrategy):
        share = strategy.minimum_slot_utilization
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.0 <= share <= 1.0:
            raise PyTritonBadParameterError(f"minimum_slot_utilization must be from 0.0 to 1.0, got {share!r}")
    elif not isinstance(strategy, OldestStrategy):
        raise PyTritonBadParameterError(f"strategy must be a DirectStrategy or an OldestStrategy, got {strategy!r}")
    else:
        check_integer("max_candidate_sequences", strategy.max_candidate_sequences, 1, _INT32_MAX)
        for size in strategy.preferred_batch_size or ():
            check_integer("each preferred_batch_size", size, 1, max(1, max_batch_size))
    check_integer("max_queue_delay_microseconds", strategy.max_queue_delay_microseconds, 0, _UINT64_MAX)


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


def _check_input(spec: TensorSpec) -> None:
    if spec.format is not None and len(spec.shape) != 3:
        raise PyTritonBadParameterError(
            f"input {spec.name!r} has format {spec.format} and shape {spec.shape}; an image has three dimensions"
        )
    if spec.labels is not None or spec.label_filename:
        raise PyTritonBadParameterError(f"input {spec.name!r} has labels; only outputs can")


def _check_output(spec: TensorSpec) -> None:
    if spec.optional:
        raise PyTritonBadParameterError(f"output {spec.name!r} is optional; only inputs can be")
    if spec.format is not None:
        raise PyTritonBadParameterError(f"output {spec.name!r} has a format; only inputs can")
    if spec.labels is not None and spec.dtype is np.bytes_:
        raise PyTritonBadParameterError(f"output {spec.name!r} has labels, but holds texts, which are no scores")
    if spec.labels is not None and not _FILE_NAME.fullmatch(spec.label_filename):
        raise PyTritonBadParameterError(
            f"output {spec.name!r} has labels, for which label_filename must name a file, got {spec.label_filename!r}"
        )


def _check_batcher(batcher: DynamicBatcher, max_batch_size: int) -> None:
    check_type("batcher", batcher, DynamicBatcher)
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
    check_type(place, policy, QueuePolicy)
    check_type(f"{place}: timeout_action", policy.timeout_action, TimeoutAction)
    timeout = policy.default_timeout_microseconds
    check_integer(f"{place}: default_timeout_microseconds", timeout, 0, _UINT64_MAX)
    check_integer(f"{place}: max_queue_size", policy.max_queue_size, 0, _UINT32_MAX)


def check_integer(place: str, value: object, low: int, high: int) -> None:
    """Raise PyTritonBadParameterError unless ``value`` is an integer from ``low`` to ``high``."""
    # bool is an int to Python; True as a size is a slip.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise PyTritonBadParameterError(f"{place} must be an integer from {low} to {high}, got {value!r}")


def check_type(place: str, value: object, kind: type) -> None:
    """Raise PyTritonBadParameterError unless ``value`` is a ``kind``."""
    if not isinstance(value, kind):
        raise PyTritonBadParameterError(f"{place} must be a {kind.__name__}, got {value!r}")
