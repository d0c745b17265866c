"""The server in this process: models are called without a network, from a Triton Inference Server as a library.

::

    with Server(model_repository="models") as server:
        print(server.metadata(), server.models())
"""

from pytriton.inprocess.enums import (
    DataType,
    DLDeviceType,
    InstanceGroupKind,
    LogFormat,
    MemoryType,
    MetricFormat,
    MetricKind,
    ModelBatchFlag,
    ModelControlMode,
    ModelTxnPropertyFlag,
    RateLimitMode,
)
from pytriton.inprocess.exceptions import (
    AlreadyExistsError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    TritonError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)
from pytriton.inprocess.model import Model, ModelDictionary
from pytriton.inprocess.options import ModelLoadDeviceLimit, Options, RateLimiterResource
from pytriton.inprocess.server import Server

__all__ = [
    "AlreadyExistsError",
    "CancelledError",
    "DLDeviceType",
    "DataType",
    "InstanceGroupKind",
    "InternalError",
    "InvalidArgumentError",
    "LogFormat",
    "MemoryType",
    "MetricFormat",
    "MetricKind",
    "Model",
    "ModelBatchFlag",
    "ModelControlMode",
    "ModelDictionary",
    "ModelLoadDeviceLimit",
    "ModelTxnPropertyFlag",
    "NotFoundError",
    "Options",
    "RateLimitMode",
    "RateLimiterResource",
    "Server",
    "TritonError",
    "UnavailableError",
    "UnknownError",
    "UnsupportedError",
]
