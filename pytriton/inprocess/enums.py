"""The numbers that the server's C API gives to kinds of things."""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "DLDeviceType",
    "DataType",
    "InstanceGroupKind",
    "LogFormat",
    "MemoryType",
    "MetricFormat",
    "MetricKind",
    "ModelBatchFlag",
    "ModelControlMode",
    "ModelTxnPropertyFlag",
    "RateLimitMode",
]


class MemoryType(IntEnum):
    """Where a buffer lies."""

    CPU = 0
    CPU_PINNED = 1
    GPU = 2


class DataType(IntEnum):
    """What the elements of a tensor are; BYTES are strings of any length."""

    INVALID = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14


class ModelControlMode(IntEnum):
    """Who decides what is loaded: all is at the start, the server looks for changes, or ``load`` and ``unload`` do."""

    NONE = 0
    POLL = 1
    EXPLICIT = 2


class RateLimitMode(IntEnum):
    """Whether instances of models take turns by their resources and priorities."""

    OFF = 0
    EXEC_COUNT = 1


class LogFormat(IntEnum):
    """How a line of the server's log begins."""

    DEFAULT = 0
    ISO8601 = 1


class MetricFormat(IntEnum):
    """The language of the text of metrics."""

    PROMETHEUS = 0


class ModelBatchFlag(IntFlag):
    """Whether the first axis of a model's tensors is the batch."""

    UNKNOWN = 1
    FIRST_DIM = 2


class ModelTxnPropertyFlag(IntFlag):
    """How many responses a model gives to a request: exactly one, or any number."""

    ONE_TO_ONE = 1
    DECOUPLED = 2


class InstanceGroupKind(IntEnum):
    """What the instances of a model run on."""

    AUTO = 0
    CPU = 1
    GPU = 2
    MODEL = 3


class MetricKind(IntEnum):
    """What happens to a metric's value: it only grows, or it goes both ways."""

    COUNTER = 0
    GAUGE = 1


class DLDeviceType(IntEnum):
    """Where a buffer lies, in the numbers of DLPack."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
