"""A request, written for C++ (``native/flight.h``: ``Plan`` and ``Input``), and its details for the C API."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ctypes import c_void_p
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

from pytriton.inprocess.capi import Api
from pytriton.inprocess.exceptions import InvalidArgumentError
from pytriton.inprocess.memory import Place
from pytriton.inprocess.parameters import INT64, encoded
from pytriton.inprocess.tensor import Tensor

if TYPE_CHECKING:
    from pytriton.inprocess.request import InferenceRequest

__all__ = ["c_name", "has_details", "packed", "write_details"]

UINT64, UINT32 = range(1 << 64), range(1 << 32)
PLAN = Struct("<qQQqiIII")
INPUT = Struct("<QQqiiII")
HOLD, ALLOCATE = 1, 2
SHAPES = [Struct(f"<{rank}q") for rank in range(8)]


def packed(
    request: InferenceRequest, number: int, inputs: Sequence[Tensor], wish: Place | None, news: int, hold: bool
) -> bytes:
    """The request for C++, without its details.

    Args:
        request: It.
        number: Of the flight.
        inputs: Its tensors, in order. Their memory is not copied, and must stay until the server has let go of it.
        wish: Where outputs are to lie.
        news: The mailbox that gets the number with each response; 0: none.
        hold: Whether it is not to be sent yet.

    Raises:
        InvalidArgumentError: A tensor's shape or memory is not of integers.
    """
    flags = (HOLD if hold else 0) | (ALLOCATE if request.output_memory_allocator else 0)
    memory_type, memory_type_id = (-1, 0) if wish is None else wish
    parts = [PLAN.pack(request.model.version, number, news, memory_type_id, memory_type, flags, len(inputs), 0)]
    for name, tensor in zip(request.inputs, inputs, strict=True):
        buffer, shape, text = tensor.memory_buffer, tensor.shape, c_name(name)
        place = buffer.memory_type_id, buffer.memory_type
        rank = len(shape)
        try:
            parts += (
                INPUT.pack(buffer.data_ptr, buffer.size, *place, tensor.data_type, rank, len(text)),
                (SHAPES[rank] if rank < len(SHAPES) else Struct(f"<{rank}q")).pack(*shape),
                text,
            )
        except struct.error as error:
            raise InvalidArgumentError(f"input {name!r} is {tensor!r}: {error}") from error
    return b"".join(parts)


@lru_cache(maxsize=1024)
def c_name(name: str) -> bytes:
    """A name with the NUL that C wants, and of a length that what follows it wants.

    Raises:
        InvalidArgumentError: It is no text, or has a NUL in it.
    """
    data = encoded(name)
    return data + bytes(8 - len(data) % 8)


def has_details(request: InferenceRequest) -> bool:
    """Whether there is more to say than :func:`packed` does."""
    return bool(
        request.parameters
        or request.request_id is not None
        or request.flags
        or request.correlation_id is not None
        or request.priority
        or request.timeout
    )


def write_details(api: Api, handle: c_void_p, request: InferenceRequest) -> None:
    """Write all but the model and the inputs.

    Args:
        api: The server's functions.
        handle: The request of the C API.
        request: What to write.

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
