"""The table of the server's configuration keys, from which configurations are written and read."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from pytriton.exceptions import PyTritonModelConfigError
from pytriton.model_config.dtypes import config_name, from_config_name
from pytriton.model_config.json_codec import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    TEXT,
    Codec,
    Field,
    list_of,
    look_up,
    map_of,
    name_of,
    one_of,
    read_fields,
    record,
    write_fields,
)
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
    RateLimiterResource,
    SequenceBatcher,
    SpecificVersions,
    TimeoutAction,
)
from pytriton.model_config.tensor import TensorSpec, checked_format
from pytriton.model_config.triton_model_config import EnsembleStep, ResponseCache, TritonModelConfig
from pytriton.model_config.warmup import ModelWarmup, WarmupInput

__all__ = ["MODEL", "can_have_own_batcher", "option_of_own_batcher", "read_own_batcher", "with_own_batcher"]

OWN_BATCHER = "pytriton_batcher"  # the parameter of models that the native proxy makes batches for


def _read_filled(codec: Codec, data: Any) -> Any:
    value = codec.read(data)
    if not value:
        raise ValueError("must not be empty")
    return value


_NAME = Codec(str, partial(_read_filled, TEXT))
_DIMS = Codec(list, partial(_read_filled, list_of(INTEGER)))
_FORMAT = Codec(lambda name: f"FORMAT_{name}", lambda data: checked_format(TEXT.read(data)))
_DTYPE = Codec(config_name, lambda data: from_config_name(TEXT.read(data)))

_TENSOR = (
    Field("name", "name", _NAME, required=True),
    Field("shape", "dims", _DIMS, required=True),
    Field("dtype", "data_type", _DTYPE, required=True),
    Field("optional", "optional", BOOLEAN, omit=False),
    Field("format", "format", _FORMAT, omit=None),
    Field("label_filename", "label_filename", TEXT, omit=""),
)


def _write_tensor(spec: TensorSpec) -> dict[str, Any]:
    data = write_fields(_TENSOR, spec)
    # The server requires a dimension; an empty reshape removes it between the server and the model.
    return data if spec.shape else {**data, "dims": [1], "reshape": {"shape": []}}


def _read_tensor(data: Any) -> TensorSpec:
    spec = TensorSpec(**read_fields(_TENSOR, data))
    reshape = look_up(data, "reshape")
    # Any other reshape concerns only the server and another backend; clients use dims.
    scalar = spec.shape == (1,) and reshape is not None and not look_up(reshape, "shape")
    return replace(spec, shape=()) if scalar else spec


_TENSORS = list_of(Codec(_write_tensor, _read_tensor))

_QUEUE_POLICY = record(
    QueuePolicy,
    Field("timeout_action", "timeoutAction", name_of(TimeoutAction)),
    Field("default_timeout_microseconds", "defaultTimeoutMicroseconds", INTEGER),
    Field("allow_timeout_override", "allowTimeoutOverride", BOOLEAN),
    Field("max_queue_size", "maxQueueSize", INTEGER),
)

_DYNAMIC_BATCHER = record(
    DynamicBatcher,
    Field("max_queue_delay_microseconds", "maxQueueDelayMicroseconds", INTEGER, omit=0),
    Field("preferred_batch_size", "preferredBatchSize", list_of(INTEGER), omit=None),
    Field("preserve_ordering", "preserveOrdering", BOOLEAN, omit=False),
    Field("priority_levels", "priorityLevels", INTEGER, omit=0),
    Field("default_priority_level", "defaultPriorityLevel", INTEGER, omit=0),
    Field("default_queue_policy", "defaultQueuePolicy", _QUEUE_POLICY, omit=None),
    Field("priority_queue_policy", "priorityQueuePolicy", map_of(INTEGER, _QUEUE_POLICY), omit=None),
)


_DIRECT_STRATEGY = record(
    DirectStrategy,
    Field("max_queue_delay_microseconds", "maxQueueDelayMicroseconds", INTEGER, omit=0),
    Field("minimum_slot_utilization", "minimumSlotUtilization", NUMBER, omit=0.0),
)

_OLDEST_STRATEGY = record(
    partial(OldestStrategy, max_candidate_sequences=0),  # protobuf leaves out zeros
    Field("max_candidate_sequences", "maxCandidateSequences", INTEGER),
    Field("preferred_batch_size", "preferredBatchSize", list_of(INTEGER), omit=None),
    Field("max_queue_delay_microseconds", "maxQueueDelayMicroseconds", INTEGER, omit=0),
    Field("preserve_ordering", "preserveOrdering", BOOLEAN, omit=False),
)

_SEQUENCE_BATCHER_FIELDS = (
    Field("strategy", "direct", _DIRECT_STRATEGY, kind=DirectStrategy),
    Field("strategy", "oldest", _OLDEST_STRATEGY, kind=OldestStrategy),
    Field("max_sequence_idle_microseconds", "maxSequenceIdleMicroseconds", INTEGER),
)

READY_INPUT = "pytriton_ready"


def _write_sequence_batcher(batcher: SequenceBatcher) -> dict[str, Any]:
    data = write_fields(_SEQUENCE_BATCHER_FIELDS, batcher)
    if isinstance(batcher.strategy, DirectStrategy):
        # The server fills idle slots with requests that no client sent. Only this input distinguishes them.
        ready = {"kind": "CONTROL_SEQUENCE_READY", "int32_false_true": [0, 1]}
        data["controlInput"] = [{"name": READY_INPUT, "control": [ready]}]
    return data


_SEQUENCE_BATCHER = Codec(
    _write_sequence_batcher, lambda data: SequenceBatcher(**read_fields(_SEQUENCE_BATCHER_FIELDS, data))
)

_VERSION_POLICY = one_of(
    all=(AllVersions, record(AllVersions)),
    latest=(LatestVersions, record(LatestVersions, Field("count", "num_versions", INTEGER))),
    specific=(
        SpecificVersions,
        record(partial(SpecificVersions, versions=[]), Field("versions", "versions", list_of(INTEGER))),
    ),
)

_RATE_LIMITER_RESOURCE = record(
    partial(RateLimiterResource, name="", count=0),
    Field("name", "name", TEXT),
    Field("count", "count", INTEGER),
    Field("is_global", "global", BOOLEAN, omit=False),
)

_RATE_LIMITER = record(
    RateLimiter,
    Field("resources", "resources", list_of(_RATE_LIMITER_RESOURCE), omit=None),
    Field("priority", "priority", INTEGER, omit=0),
)

# Protobuf leaves out zeros, which are KIND_AUTO and the server's default count.
_INSTANCE_GROUP = record(
    partial(InstanceGroup, kind=DeviceKind.KIND_AUTO),
    Field("count", "count", Codec(int, lambda data: INTEGER.read(data) or None), omit=None),
    Field("kind", "kind", name_of(DeviceKind)),
    Field("gpus", "gpus", list_of(INTEGER), omit=None),
    Field("host_policy", "host_policy", TEXT, omit=""),
    Field("rate_limiter", "rate_limiter", _RATE_LIMITER, omit=None),
)

_WARMUP_INPUT_FIELDS = (
    Field("dtype", "data_type", _DTYPE, required=True),
    Field("shape", "dims", _DIMS, required=True),
    Field("input_data_file", "input_data_file", TEXT, omit=None),
    Field("zero_data", "zero_data", BOOLEAN, omit=False),
    Field("random_data", "random_data", BOOLEAN, omit=False),
)


def _write_warmup_input(warmup_input: WarmupInput) -> dict[str, Any]:
    data = write_fields(_WARMUP_INPUT_FIELDS, warmup_input)
    # Protobuf accepts only one of several sources.
    sources = [key for key in ("input_data_file", "zero_data", "random_data") if key in data]
    return {key: value for key, value in data.items() if key not in sources[1:]}


_WARMUP_INPUT = Codec(_write_warmup_input, lambda data: WarmupInput(**read_fields(_WARMUP_INPUT_FIELDS, data)))
_WARMUP = record(
    partial(ModelWarmup, name="", batch_size=0, inputs={}, count=0),  # protobuf leaves out zeros
    Field("name", "name", TEXT),
    Field("batch_size", "batch_size", INTEGER),
    Field("inputs", "inputs", map_of(TEXT, _WARMUP_INPUT)),
    Field("count", "count", INTEGER),
)

# Protobuf leaves out false.
_DECOUPLED = Codec(lambda value: {"decoupled": value}, lambda data: BOOLEAN.read(look_up(data, "decoupled") or False))
_RESPONSE_CACHE = record(partial(ResponseCache, enable=False), Field("enable", "enable", BOOLEAN))

_PARAMETER = Codec(lambda text: {"string_value": text}, lambda data: TEXT.read(look_up(data, "string_value") or ""))
_PARAMETERS = map_of(TEXT, _PARAMETER)


def _read_parameters(data: Any) -> dict[str, str]:
    return dict.fromkeys(list_of(TEXT).read(data), "") if isinstance(data, list) else _PARAMETERS.read(data)


_STEP = record(
    partial(EnsembleStep, model_name=""),
    Field("model_name", "model_name", TEXT),
    Field("model_version", "model_version", INTEGER),
    Field("input_map", "input_map", map_of(TEXT, TEXT)),
    Field("output_map", "output_map", map_of(TEXT, TEXT)),
)
_STEPS = Codec(
    lambda steps: {"step": list_of(_STEP).write(steps)}, lambda data: list_of(_STEP).read(look_up(data, "step"))
)

MODEL = (
    Field("model_name", "name", _NAME),
    Field("max_batch_size", "max_batch_size", INTEGER),
    Field("version_policy", "version_policy", _VERSION_POLICY),
    Field("batcher", "dynamic_batching", _DYNAMIC_BATCHER, kind=DynamicBatcher),
    Field("batcher", "sequence_batching", _SEQUENCE_BATCHER, kind=SequenceBatcher),
    Field("inputs", "input", _TENSORS, omit=None),
    Field("outputs", "output", _TENSORS, omit=None),
    Field("instance_groups", "instance_group", list_of(_INSTANCE_GROUP), omit=None),
    Field("decoupled", "model_transaction_policy", _DECOUPLED, omit=False),
    Field("backend_parameters", "parameters", Codec(_PARAMETERS.write, _read_parameters), omit={}),
    Field("response_cache", "response_cache", _RESPONSE_CACHE, omit=None),
    Field("model_warmup", "model_warmup", list_of(_WARMUP), omit=None),
    Field("steps", "ensemble_scheduling", _STEPS, omit=None),
)
"""The fields of :class:`pytriton.model_config.triton_model_config.TritonModelConfig`, in the order of writing."""


def _write_microseconds(ms: float) -> int:
    return max(1, round(ms * 1000))


_LATENCY_TARGET = (
    Field("ms", "latencyTargetMicroseconds", Codec(_write_microseconds, lambda data: INTEGER.read(data) / 1000)),
    Field("percentile", "percentile", NUMBER),
)


def option_of_own_batcher(config: TritonModelConfig) -> str:
    """The option that only the native proxy's batcher has, for messages; empty without one."""
    if isinstance(config.batcher, LatencyTarget):
        return "a LatencyTarget"
    return "" if config.batch_cost is None else "a batch_cost"


def can_have_own_batcher(config: TritonModelConfig) -> bool:
    """Whether the native proxy can make the batches of a plain function in place of the server.

    It cannot where the server has to know which requests wait: priorities, limits of a queue, an order of responses,
    resources of the rate limiter, and its cache.
    """
    batcher = config.batcher
    is_limited = any(group.rate_limiter for group in config.instance_groups or ())
    is_cached = config.response_cache is not None and config.response_cache.enable
    if not config.batching or config.decoupled or is_limited or is_cached:
        return False
    if isinstance(batcher, LatencyTarget):
        return True
    if not isinstance(batcher, DynamicBatcher) or batcher.preserve_ordering:
        return False
    return not (batcher.priority_levels or batcher.default_queue_policy or batcher.priority_queue_policy)


def with_own_batcher(config: TritonModelConfig) -> TritonModelConfig:
    """The configuration with which the native proxy makes the batches, if it can, in place of the server."""
    if not can_have_own_batcher(config):
        return config
    if isinstance(config.batcher, LatencyTarget):
        options = write_fields(_LATENCY_TARGET, config.batcher)
    else:
        options = _DYNAMIC_BATCHER.write(config.batcher)
    if config.batch_cost is not None:
        options["batchCostInput"], axis = config.batch_cost
        options |= {} if axis is None else {"batchCostAxis": axis}
    options |= {} if config.max_batch_cost is None else {"maxBatchCost": config.max_batch_cost}
    parameters = {**config.backend_parameters, OWN_BATCHER: json.dumps(options)}
    return replace(config, batcher=None, batch_cost=None, max_batch_cost=None, backend_parameters=parameters)


def read_own_batcher(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a configuration that was read, with the options that :func:`with_own_batcher` wrote.

    Raises:
        PyTritonModelConfigError: They are not as that wrote them.
    """
    parameters = attributes.get("backend_parameters", {})
    if OWN_BATCHER not in parameters:
        return attributes
    others = {name: text for name, text in parameters.items() if name != OWN_BATCHER}
    try:
        options = json.loads(parameters[OWN_BATCHER])
        batcher = _read_batcher(options)
        cost, axis, most = map(options.get, ("batchCostInput", "batchCostAxis", "maxBatchCost"))
        read = {
            "batch_cost": None if cost is None else (TEXT.read(cost), None if axis is None else INTEGER.read(axis)),
            "max_batch_cost": None if most is None else INTEGER.read(most),
        }
    except (ValueError, TypeError, RecursionError) as error:
        raise PyTritonModelConfigError(f"the parameter {OWN_BATCHER} of a model is not a batcher: {error}") from error
    return {**attributes, **read, "batcher": attributes.get("batcher") or batcher, "backend_parameters": others}


def _read_batcher(options: Any) -> DynamicBatcher | LatencyTarget:
    target = read_fields(_LATENCY_TARGET, options)
    return LatencyTarget(**target) if "ms" in target else _DYNAMIC_BATCHER.read(options)
