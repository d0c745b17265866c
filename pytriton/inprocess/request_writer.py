"""A request, written into one of the C API."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from pytriton.inprocess.capi import Api
from pytriton.inprocess.exceptions import InvalidArgumentError
from pytriton.inprocess.parameters import INT64, encoded
from pytriton.inprocess.tensor import Tensor

if TYPE_CHECKING:
    from pytriton.inprocess.request import InferenceRequest

__all__ = ["write"]

UINT64, UINT32 = range(1 << 64), range(1 << 32)


def write(api: Api, handle: c_void_p, request: InferenceRequest, inputs: Mapping[bytes, Tensor]) -> None:
    """Write all of a request but its model and its callbacks.

    Args:
        api: The server's functions.
        handle: The new request of the C API.
        request: What to write.
        inputs: Its tensors. Their memory is not copied, and must stay until the server has let go of the request.

    Raises:
        TritonError: A value is wrong.
    """
    if request.request_id is not None:
        api.InferenceRequestSetId(handle, encoded(request.request_id))
    if request.flags:
        api.InferenceRequestSetFlags(handle, _number("flags", request.flags, UINT32))
    if isinstance(request.correlation_id, str):
        api.InferenceRequestSetCorrelationIdString(handle, encoded(request.correlation_id))
    elif request.correlation_id is not None:
        api.InferenceRequestSetCorrelationId(handle, _number("correlation_id", request.correlation_id, UINT64))
    if request.priority:
        api.InferenceRequestSetPriorityUInt64(handle, _number("priority", request.priority, UINT64))
    if request.timeout:
        api.InferenceRequestSetTimeoutMicroseconds(handle, _number("timeout", request.timeout, UINT64))
    for name, tensor in inputs.items():
        rank = len(tensor.shape)
        api.InferenceRequestAddInput(handle, name, tensor.data_type, (c_int64 * rank)(*tensor.shape), rank)
        buffer = tensor.memory_buffer
        api.InferenceRequestAppendInputData(
            handle, name, buffer.data_ptr, buffer.size, buffer.memory_type, buffer.memory_type_id
        )
    for key, value in request.parameters.items():
        _write_parameter(api, handle, key, value)


def _write_parameter(api: Api, handle: c_void_p, key: str, value: Any) -> None:
    if isinstance(value, str):
        api.InferenceRequestSetStringParameter(handle, encoded(key), encoded(value))
    elif isinstance(value, bool):
        api.InferenceRequestSetBoolParameter(handle, encoded(key), value)
    elif isinstance(value, int) and value in INT64:
        api.InferenceRequestSetIntParameter(handle, encoded(key), value)
    elif isinstance(value, float):
        api.InferenceRequestSetDoubleParameter(handle, encoded(key), value)
    else:
        raise InvalidArgumentError(f"parameter {key!r} is {value!r}; give a text, an int64, a boolean or a float")


def _number(name: str, value: object, numbers: range) -> int:
    if not isinstance(value, int) or value not in numbers:
        raise InvalidArgumentError(f"{name} is {value!r}; give an integer from 0 to {numbers[-1]}")
    return value
