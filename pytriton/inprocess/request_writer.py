"""A request, written for C++ (``native/flight.h``: ``Plan`` and ``Input``), and its details for the C API."""

from __future__ import annotations

import struct
from ctypes import addressof, c_char, c_void_p
from functools import lru_cache
from math import prod
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from pytriton.inprocess.capi import Api
from pytriton.inprocess.dlpack_export import CODES
from pytriton.inprocess.enums import MemoryType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError
from pytriton.inprocess.memory import MemoryBuffer, Place
from pytriton.inprocess.parameters import INT64, c_name, c_text, encoded, integer, mapping, plain
from pytriton.inprocess.tensor import DATA_TYPES, Tensor, tensor_of

if TYPE_CHECKING:
    from pytriton.inprocess.request import InferenceRequest

__all__ = ["has_details", "packed", "write_details"]

UINT64, UINT32 = range(1 << 64), range(1 << 32)
PLAN = Struct("<qQQqiIII")
INPUT = Struct("<QQqiiII")  # which begins with the address
ADDRESS = Struct("<Q")
HOLD, ALLOCATE = 1, 2


def packed(
    request: InferenceRequest, number: int, wish: Place | None, news: int, hold: bool, allocate: bool
) -> tuple[bytes, list[Any]]:
    """The request for C++, without its details, and what owns the memory of its inputs.

    That memory is not copied, and must stay until the server has let go of the request.

    Args:
        request: It.
        number: Of the flight.
        wish: Where outputs are to lie.
        news: The mailbox that gets the number with each response; 0: none.
        hold: Whether it is not to be sent yet.
        allocate: Whether an allocator in Python makes the memory of outputs.

    Raises:
        InvalidArgumentError: An input is none, or has a wrong shape, data type or memory.
    """
    flags = (HOLD if hold else 0) | (ALLOCATE if allocate else 0)
    memory_type, memory_type_id = (-1, 0) if wish is None else wish
    inputs = mapping("inputs", request.inputs)
    text = b"" if request.request_id is None else c_text(request.request_id)
    plan = PLAN.pack(request.model.version, number, news, memory_type_id, memory_type, flags, len(inputs), len(text))
    parts = [plan, text]
    owners: list[Any] = []
    for name, value in inputs.items():
        if type(value) is np.ndarray and value.dtype in DATA_TYPES and value.flags.c_contiguous:  # as most are
            parts += ADDRESS.pack(_address(value)), _described(name, value.dtype, value.shape)
            owners.append(value)
        else:
            tensor = tensor_of(value)
            parts.append(_packed_tensor(name, tensor))
            owners.append(tensor)
    return b"".join(parts), owners


@lru_cache(maxsize=1024)
def _described(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """An input of the CPU's memory, after the address."""
    data = Tensor(DATA_TYPES[dtype], shape, MemoryBuffer(0, MemoryType.CPU, 0, prod(shape) * dtype.itemsize, None))
    return _packed_tensor(name, data)[ADDRESS.size :]


def _packed_tensor(name: str, tensor: Tensor) -> bytes:
    buffer, text = tensor.memory_buffer, c_name(name)
    if not isinstance(buffer, MemoryBuffer) or not hasattr(tensor.shape, "__len__"):
        raise InvalidTypeError(f"input {name!r} is {tensor!r:.200}; give it a MemoryBuffer, and a shape of integers")
    rank = len(tensor.shape)
    place = buffer.memory_type_id, buffer.memory_type
    try:
        head = INPUT.pack(buffer.data_ptr, buffer.size, *place, tensor.data_type, rank, len(text))
        packed = head + struct.pack(f"<{rank}q", *tensor.shape) + text
    except struct.error as error:
        raise InvalidArgumentError(f"input {name!r} is {tensor!r:.200}: {error}") from error
    # Exactly, as the server's own product of a shape may overflow.
    needed = prod(map(int, tensor.shape)) * CODES[tensor.data_type][1] // 8 if tensor.data_type in CODES else None
    if min(tensor.shape, default=0) < 0 or needed not in (None, buffer.size):
        raise InvalidArgumentError(
            f"input {name!r} has the shape {tuple(tensor.shape)}, which takes {needed} bytes; it has {buffer.size}"
        )
    return packed


def _address(array: Any) -> int:
    try:
        return addressof(c_char.from_buffer(array))  # in a quarter of the other way's time
    except (TypeError, ValueError):  # it must not be written to, or is empty
        return int(array.__array_interface__["data"][0])


def has_details(request: InferenceRequest) -> bool:
    """Whether there is more to say than :func:`packed` does."""
    return bool(
        request.parameters or request.flags or request.correlation_id is not None or request.priority or request.timeout
    )


def write_details(api: Api, handle: c_void_p, request: InferenceRequest) -> None:
    """Write all that :func:`packed` does not.

    Args:
        api: The server's functions.
        handle: The request of the C API.
        request: What to write.

    Raises:
        TritonError: A value is wrong.
    """
    if request.flags:
        api.InferenceRequestSetFlags(handle, integer("flags", request.flags, UINT32))
    if isinstance(request.correlation_id, str):
        api.InferenceRequestSetCorrelationIdString(handle, encoded(request.correlation_id))
    elif request.correlation_id is not None:
        api.InferenceRequestSetCorrelationId(handle, integer("correlation_id", request.correlation_id, UINT64))
    if request.priority:
        api.InferenceRequestSetPriorityUInt64(handle, integer("priority", request.priority, UINT64))
    if request.timeout:
        api.InferenceRequestSetTimeoutMicroseconds(handle, integer("timeout", request.timeout, UINT64))
    for key, value in mapping("parameters", request.parameters).items():
        _write_parameter(api, handle, key, value)


def _write_parameter(api: Api, handle: c_void_p, key: str, given: Any) -> None:
    value = plain(given)
    if isinstance(value, str):
        api.InferenceRequestSetStringParameter(handle, encoded(key), encoded(value))
    elif isinstance(value, bool):
        api.InferenceRequestSetBoolParameter(handle, encoded(key), value)
    elif isinstance(value, int):
        api.InferenceRequestSetIntParameter(handle, encoded(key), integer(f"parameter {key!r}", value, INT64))
    elif isinstance(value, float):
        api.InferenceRequestSetDoubleParameter(handle, encoded(key), value)
    else:
        raise InvalidTypeError(f"parameter {key!r} is {given!r:.200}; give a text, an integer, a boolean or a float")
