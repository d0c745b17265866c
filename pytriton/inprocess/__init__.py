"""A Triton Inference Server as a library of this process: models are called without a network.

::

    with Server(model_repository="models") as server:
        for response in server.model("digits").infer(inputs={"image": image}):
            print(numpy.from_dlpack(response.outputs["digit"]))

Python callables are bound to it as to any other server. The server's threads call them::

    with Triton() as triton:
        triton.bind("digits", classify, inputs, outputs)
        with triton.client("digits") as client:
            print(client.infer_sample(image))
"""

from pytriton.inprocess.capi import (
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
from pytriton.inprocess.clients import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from pytriton.inprocess.exceptions import (
    AlreadyExistsError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    TritonError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)
from pytriton.inprocess.memory import MemoryAllocator, MemoryBuffer, default_memory_allocators
from pytriton.inprocess.messages import InferenceRequest, InferenceResponse
from pytriton.inprocess.metrics import Metric, MetricFamily
from pytriton.inprocess.options import ModelLoadDeviceLimit, Options, RateLimiterResource
from pytriton.inprocess.pending import AsyncResponseIterator, ResponseIterator
from pytriton.inprocess.server import Model, ModelDictionary, Server
from pytriton.inprocess.tensor import Tensor
from pytriton.inprocess.triton import Triton

__all__ = [
    "AlreadyExistsError",
    "AsyncResponseIterator",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "CancelledError",
    "DLDeviceType",
    "DataType",
    "DecoupledModelClient",
    "FuturesModelClient",
    "InferenceRequest",
    "InferenceResponse",
    "InstanceGroupKind",
    "InternalError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "LogFormat",
    "MemoryAllocator",
    "MemoryBuffer",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricFormat",
    "MetricKind",
    "Model",
    "ModelBatchFlag",
    "ModelClient",
    "ModelControlMode",
    "ModelDictionary",
    "ModelLoadDeviceLimit",
    "ModelTxnPropertyFlag",
    "NotFoundError",
    "Options",
    "RateLimitMode",
    "RateLimiterResource",
    "ResponseIterator",
    "Server",
    "Tensor",
    "Triton",
    "TritonError",
    "UnavailableError",
    "UnknownError",
    "UnsupportedError",
    "default_memory_allocators",
]
