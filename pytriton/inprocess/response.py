"""Responses, and their decoding from the block that C++ makes of one (``native/encoded_response.cpp``).

Most responses of a model differ only in the addresses of their outputs, which are the last bytes of the block. All
bytes before them are decoded once, and looked up afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import string_at
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Any, NamedTuple

from pytriton.inprocess.enums import DataType, MemoryType
from pytriton.inprocess.exceptions import TritonError, error_of
from pytriton.inprocess.memory import HostMemory, MemoryBuffer
from pytriton.inprocess.tensor import Tensor

__all__ = ["InferenceResponse", "ResponseLayout", "decode_response"]

MIN_BYTES = 256  # of each block
HEADER = Struct("<QqIi6I")
SIZES = Struct("<Q16xI")  # from the header: the block's bytes, and the number of outputs
OUTPUT_HEADER = Struct("<QQqiiII")
PARAMETER_HEADER = Struct("<qiIII")
FINAL, EMPTY = 1, 2
STRING, _INT, BOOL, DOUBLE = range(4)
DESCRIPTION = 28  # offset, in an output, of data type, rank, shape and name
MEMORY_TYPES = [*MemoryType]  # an index is faster than a call of the class
MAX_LAYOUTS = 256  # of a model


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
    """What is equal in responses that differ only in the addresses of outputs, all in memory that C++ allocated.

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
    size, count = SIZES.unpack_from(text)
    if size > MIN_BYTES:
        text = string_at(block, size)
    begin = size - 8 * count
    layout = model.response_layouts.get(text[:begin])
    if layout is None:
        return _decode_new(text, begin, model, allocated, free)
    outputs = {}
    addresses = layout.addresses.unpack_from(text, begin)
    for (name, data_type, shape, bytes_), base in zip(layout.outputs, addresses, strict=True):
        buffer = MemoryBuffer(base, MemoryType.CPU, 0, bytes_, HostMemory(base, free))
        outputs[name] = Tensor(data_type, shape, buffer)
    return InferenceResponse(layout.model, "", {}, outputs, None, None, layout.final)


def _decode_new(
    text: bytes, end: int, model: Any, allocated: dict[int, MemoryBuffer], free: Callable[[int], object]
) -> InferenceResponse:
    _, version, flags, code, count, parameters, model_size, id_size, message_size, _ = HEADER.unpack_from(text)
    final = bool(flags & FINAL)
    if flags & EMPTY:
        return InferenceResponse(model, "", final=final)
    begin = HEADER.size + model_size
    name = text[HEADER.size : begin].decode(errors="replace")
    request_id = text[begin : begin + id_size].decode(errors="replace")
    begin += id_size
    response = InferenceResponse(type(model)(model.server, name, version), request_id, final=final)
    if code >= 0:
        response.error = error_of(code, text[begin : begin + message_size].decode(errors="replace"))
        begin += message_size
    addresses = Struct(f"<{count}Q")
    is_repeatable = code < 0 and not parameters and not id_size
    for base in addresses.unpack_from(text, end):
        begin, is_from_allocator = _decode_output(text, begin, base, response.outputs, allocated, free)
        is_repeatable &= not is_from_allocator
    if parameters:
        _decode_parameters(text, begin, parameters, response.parameters)
    if is_repeatable:
        if len(model.response_layouts) >= MAX_LAYOUTS:
            model.response_layouts.clear()
        outputs = [(name, item.data_type, item.shape, item.size) for name, item in response.outputs.items()]
        model.response_layouts[text[:end]] = ResponseLayout(response.model, final, outputs, addresses)
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
