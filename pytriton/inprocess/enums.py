"""Enumerations of the server's C API."""

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
    """Type of a buffer's memory."""

    CPU = 0
    CPU_PINNED = 1
    GPU = 2


class DataType(IntEnum):
    """Type of a tensor's elements; BYTES are strings of any length."""

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
    """What decides which models are loaded: all at the start, changes in the repository, or ``load`` and ``unload``."""

    NONE = 0
    POLL = 1
    EXPLICIT = 2


class RateLimitMode(IntEnum):
    """Whether instances of models wait for resources, by priority, before they execute."""

    OFF = 0
    EXEC_COUNT = 1


class LogFormat(IntEnum):
    """Format of the begin of a line in the server's log."""

    DEFAULT = 0
    ISO8601 = 1


class MetricFormat(IntEnum):
    """Format of the text of metrics."""

    PROMETHEUS = 0


class ModelBatchFlag(IntFlag):
    """Whether the first axis of a model's tensors is the batch."""

    UNKNOWN = 1
    FIRST_DIM = 2


class ModelTxnPropertyFlag(IntFlag):
    """Number of responses to a request: exactly one, or any number."""

    ONE_TO_ONE = 1
    DECOUPLED = 2


class InstanceGroupKind(IntEnum):
    """Kind of device that the instances of a model use."""

    AUTO = 0
    CPU = 1
    GPU = 2
    MODEL = 3


class MetricKind(IntEnum):
    """Whether a metric's value can only grow, or can be set."""

    COUNTER = 0
    GAUGE = 1


class DLDeviceType(IntEnum):
    """Type of a buffer's memory in DLPack."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
