"""The checks of a model's configuration that ``bind`` makes before anything is sent to the server."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.logs import get_logger
from pytriton.model_config.field_table import can_have_own_batcher, option_of_own_batcher
from pytriton.model_config.model_config import (
    AllVersions,
    DeviceKind,
    DirectStrategy,
    DynamicBatcher,
    InstanceGroup,
    LatencyTarget,
    LatestVersions,
    OldestStrategy,
    QueuePolicy,
    RateLimiter,
    SequenceBatcher,
    SpecificVersions,
    TimeoutAction,
    VersionPolicy,
)
from pytriton.model_config.tensor import TensorSpec
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_config.warmup import ModelWarmup, WarmupInput

__all__ = [
    "check_batcher_of_proxy",
    "check_integer",
    "checked_copy",
    "groups_of_callables",
    "validate",
    "validate_for_bind",
]

LOGGER = get_logger(__name__)

ConfigT = TypeVar("ConfigT")

_FILE_NAME = re.compile(r"\w[\w.-]*")

# The widths of the server's fields.
_INT32_MAX = 2**31 - 1
_UINT32_MAX = 2**32 - 1
_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1

_MOST_COST = 2**62
_LEAST_TARGET_MS, _MOST_TARGET_MS = 0.1, 3_600_000


def validate(config: TritonModelConfig) -> None:
    """Check that the server accepts the configuration and reads it as it is meant.

    Raises:
        PyTritonBadParameterError: A value is out of its range, or two of them contradict each other.
    """
    if config.batching:
        check_integer("max_batch_size", config.max_batch_size, 1, _INT32_MAX)
    if isinstance(config.batcher, SequenceBatcher):
        _check_sequence_batcher(config.batcher, config.max_batch_size)
    elif isinstance(config.batcher, LatencyTarget):
        _check_target(config.batcher)
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
        _check_type("each of model_warmup", warmup, ModelWarmup)
        for name, warmup_input in warmup.inputs.items():
            if not warmup_input.has_source or not warmup_input.shape:
                raise PyTritonBadParameterError(
                    f"warm-up {warmup.name!r}: input {name!r} needs a dimension, and one of zero_data, random_data and "
                    "input_data_file"
                )


def validate_for_bind(config: TritonModelConfig, callables: int, model_warmup: Sequence[ModelWarmup] | None) -> None:
    """Check the configuration of a model that ``bind`` has described; includes :func:`validate`.

    Args:
        callables: How many callables it has.
        model_warmup: The warm-up requests that ``bind`` makes.

    Raises:
        PyTritonBadParameterError: A value is out of its range, or two of them contradict each other.
    """
    validate(config)
    _check_combination(config)
    _check_callables(config, callables)
    _check_warmup(model_warmup or (), config)


def check_batcher_of_proxy(config: TritonModelConfig, without: str) -> None:
    """Refuse options of batches that only the native proxy makes, from the requests of plain functions.

    Args:
        without: What makes no such batches.

    Raises:
        PyTritonBadParameterError: It has such an option.
    """
    if option := option_of_own_batcher(config):
        raise PyTritonBadParameterError(
            f"model {config.model_name!r} has {option}, which {without} cannot keep; bind a plain function without it, "
            "with the native proxy, or use a DynamicBatcher"
        )


def groups_of_callables(groups: Sequence[InstanceGroup] | None, callables: int) -> list[InstanceGroup]:
    """The instance groups of a model with so many callables; a single group without count gets all of them.

    Raises:
        PyTritonBadParameterError: ``groups`` is not a list of InstanceGroup, or one of several has no count.
    """
    if not isinstance(groups, (list, tuple, type(None))) or not all(isinstance(g, InstanceGroup) for g in groups or ()):
        raise PyTritonBadParameterError(f"instance_groups must be a list of InstanceGroup, got {groups!r}")
    groups = list(groups or [InstanceGroup()])
    if len(groups) == 1 and groups[0].count is None:
        return [replace(groups[0], count=max(1, callables // groups[0].devices))]
    if any(group.count is None for group in groups):
        raise PyTritonBadParameterError("give each of several instance_groups a count: how many callables it has")
    return groups


def checked_copy(config: ConfigT) -> ConfigT:
    """A copy of a configuration and of all its parts, each checked and normalised as by its constructor.

    Programs assign fields of existing configurations. An attribute that is not a field has no effect, and is logged
    as a warning.

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


def _check_combination(config: TritonModelConfig) -> None:
    """Refuse options that the server refuses together with an unclear message, or handles incorrectly together."""
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

    _check_cost(config)
    if (option := option_of_own_batcher(config)) and not can_have_own_batcher(config):
        raise PyTritonBadParameterError(
            f"{option} does not go with a SequenceBatcher, batcher=None, batching=False, decoupled=True, "
            "response_cache, a rate limiter, preserve_ordering, priorities or a QueuePolicy; turn one of them off"
        )

    batcher = config.batcher
    if isinstance(batcher, DynamicBatcher) and batcher.preserve_ordering and batcher.priority_levels > 1:
        raise PyTritonBadParameterError(
            f"preserve_ordering does not go with {batcher.priority_levels} priority_levels, as requests of a higher "
            "priority overtake others; turn one of them off"
        )


def _check_cost(config: TritonModelConfig) -> None:
    if config.max_batch_cost is not None:
        check_integer("max_batch_cost", config.max_batch_cost, 1, _MOST_COST)
    if config.batch_cost is None:
        if config.max_batch_cost is not None:
            raise PyTritonBadParameterError("max_batch_cost needs a batch_cost: the input that a row's cost comes from")
        return
    if config.max_batch_cost is None and not isinstance(config.batcher, LatencyTarget):
        raise PyTritonBadParameterError("batch_cost has no effect without max_batch_cost or a LatencyTarget; give one")
    name, axis = config.batch_cost
    found = [spec for spec in config.inputs or () if spec.name == name]
    if not found:
        names = [spec.name for spec in config.inputs or ()]
        raise PyTritonBadParameterError(f"batch_cost names the input {name!r}; the model has {names}")
    if axis is not None and not 1 <= axis <= len(found[0].shape):
        raise PyTritonBadParameterError(
            f"batch_cost names axis {axis} of input {name!r}, whose axes below that of the batch are 1 to "
            f"{len(found[0].shape)}"
        )


def _check_callables(config: TritonModelConfig, callables: int) -> None:
    for group in config.instance_groups or ():
        if group.kind is DeviceKind.KIND_AUTO or (group.kind is DeviceKind.KIND_GPU and not group.gpus):
            raise PyTritonBadParameterError(
                f"an instance group of model {config.model_name!r} is {group.kind.value}, of which the server makes as "
                "many instances as it finds GPUs; use KIND_CPU, or KIND_GPU with gpus=[0, ...]"
            )
    instances = sum((group.count or 0) * group.devices for group in config.instance_groups or ())
    if instances != callables:
        raise PyTritonBadParameterError(
            f"the instance groups of model {config.model_name!r} make {instances} instances, but it has {callables} "
            "callables; give bind() a list with one callable per instance"
        )


def _check_warmup(model_warmup: Sequence[ModelWarmup], config: TritonModelConfig) -> None:
    """Check that a client of the model could send these requests, and that each input has a source of data."""
    if not isinstance(model_warmup, (list, tuple)):
        raise PyTritonBadParameterError(f"model_warmup must be a list of ModelWarmup, got {model_warmup!r}")
    specs = {spec.name: spec for spec in config.inputs or ()}
    for warmup in model_warmup:
        _check_type("each of model_warmup", warmup, ModelWarmup)
        place = f"warm-up {warmup.name!r}"
        low, high = (1, config.max_batch_size) if config.batching else (0, 1)
        check_integer(f"{place}: batch_size", warmup.batch_size, low, high)
        check_integer(f"{place}: count", warmup.count, 0, _UINT32_MAX)
        if unknown := sorted(warmup.inputs.keys() - specs.keys()):
            raise PyTritonBadParameterError(f"{place}: {unknown} are no inputs of the model; it has {[*specs]}")
        for name, warmup_input in warmup.inputs.items():
            _check_warmup_input(f"{place}: input {name!r}", warmup_input, specs[name])


def _check_warmup_input(place: str, warmup_input: WarmupInput, spec: TensorSpec) -> None:
    shape, found, expected = tuple(warmup_input.shape), np.dtype(warmup_input.dtype), np.dtype(spec.dtype)
    sizes_fit = len(shape) == len(spec.shape) and all(w in (-1, n) for n, w in zip(shape, spec.shape, strict=True))
    if not sizes_fit or found != expected:
        raise PyTritonBadParameterError(
            f"{place} is {found.name} of shape {shape}, but the model's is {expected.name} of shape {spec.shape}; "
            "leave the batch axis out, and give -1 a size"
        )
    if not warmup_input.has_source:
        raise PyTritonBadParameterError(f"{place} has no data; set zero_data, random_data or input_data_file")


def _check_version_policy(policy: VersionPolicy) -> None:
    if isinstance(policy, LatestVersions):
        check_integer("version_policy: count", policy.count, 1, _UINT32_MAX)
    elif isinstance(policy, SpecificVersions):
        if not policy.versions:
            raise PyTritonBadParameterError("version_policy names no version; name one, or use AllVersions")
        for version in policy.versions:
            check_integer("version_policy: each of versions", version, 1, _INT64_MAX)
    else:
        _check_type("version_policy", policy, AllVersions)


def _check_group(group: InstanceGroup) -> None:
    _check_type("instance_group", group, InstanceGroup)
    _check_type("instance_group", group.kind, DeviceKind)
    place = f"instance_group {group.kind.value}"
    if group.count is not None:
        check_integer(place, group.count, 1, _INT32_MAX)
    for gpu in group.gpus or ():
        check_integer(f"{place}: each of gpus", gpu, 0, _INT32_MAX)
    if group.gpus and group.kind is not DeviceKind.KIND_GPU:
        raise PyTritonBadParameterError(f"{place} has gpus; use KIND_GPU")
    _check_type(f"{place}: host_policy", group.host_policy, str)
    if group.rate_limiter is not None:
        _check_type(f"{place}: rate_limiter", group.rate_limiter, RateLimiter)
        check_integer(f"{place}: priority of the rate_limiter", group.rate_limiter.priority, 0, _UINT32_MAX)
        for resource in group.rate_limiter.resources or ():
            _check_type(f"{place}: each resource's name", resource.name, str)
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
        raise PyTritonBadParameterError(f"output {spec.name!r} has labels, but holds texts instead of scores")
    if spec.labels is not None and not _FILE_NAME.fullmatch(spec.label_filename):
        raise PyTritonBadParameterError(
            f"output {spec.name!r} has labels, for which label_filename must name a file, got {spec.label_filename!r}"
        )


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


def _check_target(target: LatencyTarget) -> None:
    for name, value in (("ms", target.ms), ("percentile", target.percentile)):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise PyTritonBadParameterError(f"{name} of a LatencyTarget must be a number, got {value!r}")
    if not _LEAST_TARGET_MS <= target.ms <= _MOST_TARGET_MS:
        raise PyTritonBadParameterError(
            f"ms of a LatencyTarget must be from {_LEAST_TARGET_MS} to {_MOST_TARGET_MS}, got {target.ms!r}"
        )
    if not 0.5 <= target.percentile <= 0.999:
        raise PyTritonBadParameterError(
            f"percentile of a LatencyTarget must be from 0.5 to 0.999, as a share, got {target.percentile!r}"
        )


def _check_policy(place: str, policy: QueuePolicy) -> None:
    _check_type(place, policy, QueuePolicy)
    _check_type(f"{place}: timeout_action", policy.timeout_action, TimeoutAction)
    timeout = policy.default_timeout_microseconds
    check_integer(f"{place}: default_timeout_microseconds", timeout, 0, _UINT64_MAX)
    check_integer(f"{place}: max_queue_size", policy.max_queue_size, 0, _UINT32_MAX)


def check_integer(place: str, value: object, low: int, high: int) -> None:
    """Raise PyTritonBadParameterError unless ``value`` is an integer from ``low`` to ``high``."""
    # bool is a subclass of int; True as a size is a mistake.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise PyTritonBadParameterError(f"{place} must be an integer from {low} to {high}, got {value!r}")


def _check_type(place: str, value: object, kind: type) -> None:
    """Raise PyTritonBadParameterError unless ``value`` is a ``kind``."""
    if not isinstance(value, kind):
        raise PyTritonBadParameterError(f"{place} must be a {kind.__name__}, got {value!r}")
