"""Requests and responses, and their encoding between Python and C++.

``RequestHeader`` and ``InputHeader`` of ``native/inprocess/pending_request.h`` are the form of a request;
``native/inprocess/encoded_response.cpp`` makes a block of each response. Most responses of a model differ only in the
addresses of their outputs, which are the last bytes of the block, and in their ids. All other bytes are decoded once,
and looked up later.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char, c_void_p, string_at
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from struct import Struct, unpack_from
from typing import Any, NamedTuple

import numpy as np

from pytriton.inprocess.arguments import INT64, encode, encode_name, encode_padded, integer, mapping, python_value
from pytriton.inprocess.capi import Api, DataType, DLDeviceType, MemoryType
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError, TritonError, error_of
from pytriton.inprocess.memory import CODES, HostMemory, MemoryAllocator, MemoryBuffer, Place, address_of
from pytriton.inprocess.tensor import DATA_TYPES, Tensor, tensor_of

__all__ = [
    "InferenceRequest",
    "InferenceResponse",
    "ResponseLayout",
    "decode_response",
    "encode_request",
    "has_details",
    "set_details",
]

UINT64, UINT32 = range(1 << 64), range(1 << 32)
REQUEST_HEADER = Struct("<qQQqiIII")
ADDRESS = Struct("<Q")
INPUT_HEADER = Struct("<QQqiiII")  # begins with the address
HOLD, ALLOCATE = 1, 2

MIN_BYTES = 256  # of each block
RESPONSE_HEADER = Struct("<QqIi6I")
RESPONSE_SIZES = Struct("<Q16xI4xII")  # from the header: bytes of the block, number of outputs, bytes of model and id
OUTPUT_HEADER = Struct("<QQqiiII")
PARAMETER_HEADER = Struct("<qiIII")
FINAL, EMPTY = 1, 2
STRING, _INT, BOOL, DOUBLE = range(4)
DESCRIPTION = 28  # offset, in an output, of data type, rank, shape and name
MEMORY_TYPES = [*MemoryType]  # an index is faster than a call of the class
MAX_LAYOUTS = 256  # of a model


@dataclass
class InferenceRequest:
    """A request. It may be changed, and sent several times, also at once: each time as it is then.

    Attributes:
        model: The :class:`~pytriton.inprocess.Model` that the request is for.
        request_id: Returned with the responses.
        flags: 1: a sequence begins; 2: it ends.
        correlation_id: Number or text that identifies the sequence.
        priority: 1 is the highest; 0: the model's default.
        timeout: Microseconds that the request may wait in a dynamic batcher; 0: the batcher's own limit.
        inputs: Tensors, arrays, lists or objects with ``__dlpack__``, by name, with the batch axis. Arrays in C order
            and native byte order are not copied: they must not change before the response.
        parameters: Texts, integers, booleans and floats.
        output_memory_type: Where outputs are wanted: ``"cpu"``, ``"gpu:1"``, a MemoryType, or a tuple of one and a
            GPU's number.
        output_memory_allocator: Allocates the outputs; without one they are in memory of the CPU.
        response_queue: Gets each response, as the iterator does.
    """

    model: Any  # the module of its class imports this one
    request_id: str | None = None
    flags: int = 0
    correlation_id: int | str | None = None
    priority: int = 0
    timeout: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str | int | bool | float] = field(default_factory=dict)
    output_memory_type: MemoryType | Place | tuple[DLDeviceType, int] | str | None = None
    output_memory_allocator: MemoryAllocator | None = None
    response_queue: Any = None


def encode_request(
    request: InferenceRequest, number: int, place: Place | None, notifications: int, hold: bool, allocate: bool
) -> tuple[bytes, list[Any]]:
    """A request for C++, without its details, and the owners of its inputs' memory.

    That memory is not copied, and must stay until the server has released the request.

    Args:
        place: Where outputs are wanted.
        notifications: Address of the queue that gets the number with each response; 0: none.
        hold: Whether to send it later, after :func:`set_details`.
        allocate: Whether an allocator in Python allocates outputs.

    Raises:
        InvalidArgumentError: An input is not a tensor, or has a wrong shape, data type or memory.
    """
    flags = (HOLD if hold else 0) | (ALLOCATE if allocate else 0)
    memory_type, memory_type_id = (-1, 0) if place is None else place
    inputs = mapping("inputs", request.inputs)
    text = b"" if request.request_id is None else encode_padded(request.request_id)
    version = request.model.version
    header = REQUEST_HEADER.pack(
        version, number, notifications, memory_type_id, memory_type, flags, len(inputs), len(text)
    )
    parts = [header, text]
    owners: list[Any] = []
    for name, value in inputs.items():
        if type(value) is np.ndarray and value.dtype in DATA_TYPES and value.flags.c_contiguous:
            parts += ADDRESS.pack(_address(value)), _array_description(name, value.dtype, value.shape)
            owners.append(value)
        else:
            tensor = tensor_of(value)
            parts.append(_encode_input(name, tensor))
            owners.append(tensor)
    return b"".join(parts), owners


@lru_cache(maxsize=1024)
def _array_description(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The encoding of an input in the CPU's memory, after its address."""
    data = Tensor(DATA_TYPES[dtype], shape, MemoryBuffer(0, MemoryType.CPU, 0, prod(shape) * dtype.itemsize, None))
    return _encode_input(name, data)[ADDRESS.size :]


def _encode_input(name: str, tensor: Tensor) -> bytes:
    buffer, text = tensor.memory_buffer, encode_name(name)
    if not isinstance(buffer, MemoryBuffer) or not hasattr(tensor.shape, "__len__"):
        raise InvalidTypeError(f"input {name!r} is {tensor!r:.200}; give it a MemoryBuffer, and a shape of integers")
    rank = len(tensor.shape)
    place = buffer.memory_type_id, buffer.memory_type
    try:
        header = INPUT_HEADER.pack(buffer.data_ptr, buffer.size, *place, tensor.data_type, rank, len(text))
        encoded = header + struct.pack(f"<{rank}q", *tensor.shape) + text
    except struct.error as error:
        raise InvalidArgumentError(f"input {name!r} is {tensor!r:.200}: {error}") from error
    # Exactly, as the server's own product of a shape may overflow.
    needed = prod(map(int, tensor.shape)) * CODES[tensor.data_type][1] // 8 if tensor.data_type in CODES else None
    if min(tensor.shape, default=0) < 0 or needed not in (None, buffer.size):
        raise InvalidArgumentError(
            f"input {name!r} has the shape {tuple(tensor.shape)}, which takes {needed} bytes; it has {buffer.size}"
        )
    return encoded


def _address(array: Any) -> int:
    try:
        return addressof(c_char.from_buffer(array))  # takes a quarter of the other way's time
    except (TypeError, ValueError):  # the array is read-only or empty
        return address_of(array)


def has_details(request: InferenceRequest) -> bool:
    """Whether the request has more than :func:`encode_request` encodes."""
    return bool(
        request.parameters or request.flags or request.correlation_id is not None or request.priority or request.timeout
    )


def set_details(api: Api, handle: c_void_p, request: InferenceRequest) -> None:
    """Set everything that :func:`encode_request` does not encode, in a request of the C API.

    Raises:
        TritonError: A value is wrong.
    """
    if request.flags:
        api.InferenceRequestSetFlags(handle, integer("flags", request.flags, UINT32))
    if isinstance(request.correlation_id, str):
        api.InferenceRequestSetCorrelationIdString(handle, encode(request.correlation_id))
    elif request.correlation_id is not None:
        api.InferenceRequestSetCorrelationId(handle, integer("correlation_id", request.correlation_id, UINT64))
    if request.priority:
        api.InferenceRequestSetPriorityUInt64(handle, integer("priority", request.priority, UINT64))
    if request.timeout:
        api.InferenceRequestSetTimeoutMicroseconds(handle, integer("timeout", request.timeout, UINT64))
    for key, value in mapping("parameters", request.parameters).items():
        _set_parameter(api, handle, key, value)


def _set_parameter(api: Api, handle: c_void_p, key: str, given: Any) -> None:
    value = python_value(given)
    if isinstance(value, str):
        api.InferenceRequestSetStringParameter(handle, encode(key), encode(value))
    elif isinstance(value, bool):
        api.InferenceRequestSetBoolParameter(handle, encode(key), value)
    elif isinstance(value, int):
        api.InferenceRequestSetIntParameter(handle, encode(key), integer(f"parameter {key!r}", value, INT64))
    elif isinstance(value, float):
        api.InferenceRequestSetDoubleParameter(handle, encode(key), value)
    else:
        raise InvalidTypeError(f"parameter {key!r} is {given!r:.200}; give a text, an integer, a boolean or a float")


@dataclass
class InferenceResponse:
    """A response.

    Attributes:
        model: The :class:`~pytriton.inprocess.Model` that gave it, with its version.
        request_id: That of the request; empty if it had none.
        parameters: The model's parameters of the response.
        outputs: Tensors by name; empty if there is an error.
        error: The error, if there is one.
        classification_label: None; the server's labels are not supported.
        final: Whether it is the last response.
    """

    model: Any  # the module of its class imports this one
    request_id: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    error: TritonError | None = None
    classification_label: str | None = None
    final: bool = False


class ResponseLayout(NamedTuple):
    """What is equal in responses that differ only in their ids and the addresses of outputs, which C++ allocated.

    Attributes:
        model: The model with its version.
        final: Whether they are last responses.
        outputs: Name, data type, shape and bytes of each output.
        addresses: Decodes the addresses.
    """

    model: Any
    final: bool
    outputs: Sequence[tuple[str, DataType, Sequence[int], int]]
    addresses: Struct


def decode_response(
    block: int, model: Any, allocated: dict[int, MemoryBuffer], free: Callable[[int], object]
) -> InferenceResponse:
    """Decode a response.

    Args:
        block: Its address.
        model: The model of the request, whose ``response_layouts`` are those decoded before.
        allocated: Buffers by token, from the request's allocator; those of the response are removed.
        free: Frees memory that C++ allocated.
    """
    text = string_at(block, MIN_BYTES)
    size, count, model_size, id_size = RESPONSE_SIZES.unpack_from(text)
    if size > MIN_BYTES:
        text = string_at(block, size)
    begin = size - 8 * count
    id_begin = RESPONSE_HEADER.size + model_size
    id_end = id_begin + id_size
    request_id = text[id_begin:id_end].decode(errors="replace")
    key = text[:id_begin] + text[id_end:begin]
    layout = model.response_layouts.get(key)
    if layout is None:
        return _decode_new(text, begin, key, model, allocated, free)
    outputs = {}
    addresses = layout.addresses.unpack_from(text, begin)
    for (name, data_type, shape, bytes_), base in zip(layout.outputs, addresses, strict=True):
        buffer = MemoryBuffer(base, MemoryType.CPU, 0, bytes_, HostMemory(base, free))
        outputs[name] = Tensor(data_type, shape, buffer)
    return InferenceResponse(layout.model, request_id, {}, outputs, None, None, layout.final)


def _decode_new(
    text: bytes, end: int, key: bytes, model: Any, allocated: dict[int, MemoryBuffer], free: Callable[[int], object]
) -> InferenceResponse:
    """Decode a response whose layout is not known, and note its layout by ``key`` if it can occur again."""
    _, version, flags, code, count, parameters, model_size, id_size, message_size, _ = RESPONSE_HEADER.unpack_from(text)
    final = bool(flags & FINAL)
    if flags & EMPTY:
        return InferenceResponse(model, "", final=final)
    begin = RESPONSE_HEADER.size + model_size
    name = text[RESPONSE_HEADER.size : begin].decode(errors="replace")
    request_id = text[begin : begin + id_size].decode(errors="replace")
    begin += id_size
    response = InferenceResponse(type(model)(model.server, name, version), request_id, final=final)
    if code >= 0:
        response.error = error_of(code, text[begin : begin + message_size].decode(errors="replace"))
        begin += message_size
    addresses = Struct(f"<{count}Q")
    is_repeatable = code < 0 and not parameters
    for base in addresses.unpack_from(text, end):
        begin, is_from_allocator = _decode_output(text, begin, base, response.outputs, allocated, free)
        is_repeatable &= not is_from_allocator
    if parameters:
        _decode_parameters(text, begin, parameters, response.parameters)
    if is_repeatable:
        if len(model.response_layouts) >= MAX_LAYOUTS:
            model.response_layouts.clear()
        outputs = [(name, item.data_type, item.shape, item.size) for name, item in response.outputs.items()]
        model.response_layouts[key] = ResponseLayout(response.model, final, outputs, addresses)
    return response


def _decode_output(
    text: bytes,
    begin: int,
    base: int,
    outputs: dict[str, Tensor],
    allocated: dict[int, MemoryBuffer],
    free: Callable[[int], object],
) -> tuple[int, bool]:
    """Add an output to ``outputs``. Returns its end in the block, and whether an allocator in Python made it."""
    size, token, device, memory_type, _, rank, name_size = OUTPUT_HEADER.unpack_from(text, begin)
    end = begin + OUTPUT_HEADER.size + 8 * rank + name_size
    name, data_type, shape = _decode_description(text[begin + DESCRIPTION : end])
    made = allocated.pop(token) if token else None
    owner, capsule = (made.owner, made.capsule) if made else (HostMemory(base, free), None)
    buffer = MemoryBuffer(base, MEMORY_TYPES[memory_type], device, size, owner, capsule)
    outputs[name] = Tensor(data_type, shape, buffer)
    return end, made is not None


@lru_cache(maxsize=1024)
def _decode_description(text: bytes) -> tuple[str, DataType, tuple[int, ...]]:
    """Name, data type and shape of an output."""
    data_type, rank = unpack_from("<iI", text)
    begin = OUTPUT_HEADER.size - DESCRIPTION
    name = text[begin + 8 * rank :].decode(errors="replace")
    return name, DataType(data_type), unpack_from(f"<{rank}q", text, begin)


def _decode_parameters(text: bytes, begin: int, count: int, parameters: dict[str, Any]) -> None:
    for _ in range(count):
        number, kind, name_size, text_size, _ = PARAMETER_HEADER.unpack_from(text, begin)
        value: Any = bool(number) if kind == BOOL else number
        if kind == DOUBLE:
            (value,) = unpack_from("<d", text, begin)
        begin += PARAMETER_HEADER.size
        name = text[begin : begin + name_size].decode(errors="replace")
        begin += name_size + text_size
        parameters[name] = text[begin - text_size : begin].decode(errors="replace") if kind == STRING else value
