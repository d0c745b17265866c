"""The one table of the server's configuration keys, for writing and for reading."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pytriton.model_config.codec import (
    BOOLEAN,
    INTEGER,
    TEXT,
    Codec,
    Field,
    list_of,
    look_up,
    map_of,
    name_of,
    read_fields,
    record,
    write_fields,
)
from pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from pytriton.model_config.dtypes import config_name, from_config_name
from pytriton.model_config.triton_model_config import ResponseCache, TensorSpec

__all__ = ["MODEL"]


def _read_filled(codec: Codec, data: Any) -> Any:
    value = codec.read(data)
    if not value:
        raise ValueError("must not be empty")
    return value


_NAME = Codec(str, partial(_read_filled, TEXT))
_DIMS = Codec(list, partial(_read_filled, list_of(INTEGER)))
_DTYPE = Codec(config_name, lambda data: from_config_name(TEXT.read(data)))

_TENSOR = (
    Field("name", "name", _NAME, required=True),
    Field("shape", "dims", _DIMS, required=True),
    Field("dtype", "data_type", _DTYPE, required=True),
    Field("optional", "optional", BOOLEAN, omit=False),
)


def _write_tensor(spec: TensorSpec) -> dict[str, Any]:
    data = write_fields(_TENSOR, spec)
    # The server wants a dimension; an empty reshape takes it away again between the server and the model.
    return data if spec.shape else {**data, "dims": [1], "reshape": {"shape": []}}


def _read_tensor(data: Any) -> TensorSpec:
    spec = TensorSpec(**read_fields(_TENSOR, data))
    reshape = look_up(data, "reshape")
    # Any other reshape is between the server and a foreign backend; clients go by dims.
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


def _write_instances(instances: dict[DeviceKind, int | None]) -> list[dict[str, Any]]:
    groups = ({"count": count, "kind": kind.value} for kind, count in instances.items())
    return [{key: value for key, value in group.items() if value is not None} for group in groups]


def _read_instances(data: Any) -> dict[DeviceKind, int | None]:
    # Protobuf leaves out zeros, which are KIND_AUTO and the server's default count. One kind may have several groups.
    group = record(
        lambda kind=DeviceKind.KIND_AUTO, count=0: (kind, count),
        Field("kind", "kind", name_of(DeviceKind)),
        Field("count", "count", INTEGER),
    )
    instances: dict[DeviceKind, int | None] = {}
    for kind, count in list_of(group).read(data):
        instances[kind] = ((instances.get(kind) or 0) + count) or None
    return instances


# Protobuf leaves out false.
_DECOUPLED = Codec(lambda value: {"decoupled": value}, lambda data: BOOLEAN.read(look_up(data, "decoupled") or False))
_RESPONSE_CACHE = record(partial(ResponseCache, enable=False), Field("enable", "enable", BOOLEAN))

_PARAMETER = Codec(lambda text: {"string_value": text}, lambda data: TEXT.read(look_up(data, "string_value") or ""))
_PARAMETERS = map_of(TEXT, _PARAMETER)


def _read_parameters(data: Any) -> dict[str, str]:
    return dict.fromkeys(list_of(TEXT).read(data), "") if isinstance(data, list) else _PARAMETERS.read(data)


MODEL = (
    Field("model_name", "name", _NAME),
    Field("max_batch_size", "max_batch_size", INTEGER),
    Field("batcher", "dynamic_batching", _DYNAMIC_BATCHER, omit=None),
    Field("inputs", "input", _TENSORS, omit=None),
    Field("outputs", "output", _TENSORS, omit=None),
    Field("instance_group", "instance_group", Codec(_write_instances, _read_instances), omit={}),
    Field("decoupled", "model_transaction_policy", _DECOUPLED, omit=False),
    Field("backend_parameters", "parameters", Codec(_PARAMETERS.write, _read_parameters), omit={}),
    Field("response_cache", "response_cache", _RESPONSE_CACHE, omit=None),
)
"""The fields of :class:`pytriton.model_config.triton_model_config.TritonModelConfig`, in the order of writing."""
