"""A response, read from one of the C API."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytriton.inprocess.capi import Api
from pytriton.inprocess.enums import DataType
from pytriton.inprocess.memory import MemoryBuffer
from pytriton.inprocess.response import InferenceResponse
from pytriton.inprocess.tensor import Tensor

if TYPE_CHECKING:
    from pytriton.inprocess.model import Model

__all__ = ["read"]

STRING = 0
NUMBERS: dict[int, type[c_int64] | type[c_bool] | type[c_double]] = {
    1: c_int64,
    2: c_bool,
    3: c_double,
}  # parameters by their type


def read(api: Api, handle: int, model: Model, buffers: Mapping[int, MemoryBuffer]) -> InferenceResponse:
    """Read a response.

    Args:
        api: The server's functions.
        handle: The response of the C API, which stays the caller's.
        model: The one that was asked.
        buffers: Those that were made for outputs, by the number that the server was told for each.
    """
    name, version, request_id = c_char_p(), c_int64(), c_char_p()
    api.InferenceResponseModel(handle, byref(name), byref(version))
    api.InferenceResponseId(handle, byref(request_id))
    answered = type(model)(model.server, (name.value or b"").decode(), version.value)
    response = InferenceResponse(answered, (request_id.value or b"").decode(), _parameters(api, handle))
    error = api.InferenceResponseError(handle)
    if error:
        response.error = api.error(error)
    else:
        response.outputs = _outputs(api, handle, buffers)
    return response


def _outputs(api: Api, handle: int, buffers: Mapping[int, MemoryBuffer]) -> dict[str, Tensor]:
    count = c_uint32()
    api.InferenceResponseOutputCount(handle, byref(count))
    name, data_type, shape, rank = c_char_p(), c_int(), c_void_p(), c_uint64()
    base, size, memory_type, memory_type_id, number = c_void_p(), c_size_t(), c_int(), c_int64(), c_void_p()
    places = [byref(each) for each in (name, data_type, shape, rank, base, size, memory_type, memory_type_id, number)]
    outputs = {}
    for index in range(count.value):
        api.InferenceResponseOutput(handle, index, *places)
        dims = tuple((c_int64 * rank.value).from_address(shape.value)) if shape.value and rank.value else ()
        buffer = buffers[number.value or 0]
        if buffer.size != size.value:
            buffer = replace(buffer, size=size.value)  # of a larger one, the part that is used
        outputs[(name.value or b"").decode()] = Tensor(DataType(data_type.value), dims, buffer)
    return outputs


def _parameters(api: Api, handle: int) -> dict[str, Any]:
    count = c_uint32()
    api.InferenceResponseParameterCount(handle, byref(count))
    name, kind, value = c_char_p(), c_int(), c_void_p()
    parameters: dict[str, Any] = {}
    for index in range(count.value):
        api.InferenceResponseParameter(handle, index, byref(name), byref(kind), byref(value))
        key = (name.value or b"").decode()
        if kind.value == STRING:
            parameters[key] = (c_char_p(value.value).value or b"").decode()
        elif kind.value in NUMBERS and value.value:
            parameters[key] = NUMBERS[kind.value].from_address(value.value).value
    return parameters
