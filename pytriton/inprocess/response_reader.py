"""A response, read from the block in which C++ describes it; ``native/parcel.cpp`` has its layout."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import string_at
from functools import lru_cache
from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Any

from pytriton.inprocess.cargo import Cargo
from pytriton.inprocess.enums import DataType, MemoryType
from pytriton.inprocess.exceptions import error_of
from pytriton.inprocess.memory import HostMemory, MemoryBuffer
from pytriton.inprocess.response import InferenceResponse
from pytriton.inprocess.tensor import Tensor

if TYPE_CHECKING:
    from pytriton.inprocess.model import Model

__all__ = ["read"]

FIRST_BYTES = 512  # which each block has
HEAD = Struct("<QqIi6I")
OUTPUT = Struct("<QQQqiiII")
PARAMETER = Struct("<qiIII")
FINAL, EMPTY = 1, 2
STRING, _INT, BOOL, DOUBLE = range(4)
DESCRIPTION = 36  # where, in an output, that begins which is the same each time
MEMORY_TYPES = [*MemoryType]  # which is faster than to call the class


def read(block: int, model: Model, cargo: Cargo, free: Callable[[int], object]) -> InferenceResponse:
    """Read a response.

    Args:
        block: Its address.
        model: The one that was asked.
        cargo: The request's, with the buffers that its allocator made.
        free: Frees what C++ allocated.
    """
    text = string_at(block, FIRST_BYTES)
    size, version, flags, code, outputs, parameters, model_size, id_size, message_size, _ = HEAD.unpack_from(text)
    if size > FIRST_BYTES:
        text = string_at(block, size)
    final = bool(flags & FINAL)
    if flags & EMPTY:
        return InferenceResponse(model, "", final=final)
    begin = HEAD.size + model_size
    name = text[HEAD.size : begin].decode(errors="replace")
    request_id = text[begin : begin + id_size].decode(errors="replace")
    begin += id_size
    response = InferenceResponse(model.answering(name, version), request_id, final=final)
    if code >= 0:
        response.error = error_of(code, text[begin : begin + message_size].decode(errors="replace"))
        begin += message_size
    if outputs:
        begin = _read_outputs(text, begin, outputs, response.outputs, cargo, free)
    if parameters:
        _read_parameters(text, begin, parameters, response.parameters)
    return response


def _read_outputs(
    text: bytes, begin: int, count: int, found: dict[str, Tensor], cargo: Cargo, free: Callable[[int], object]
) -> int:
    for _ in range(count):
        base, size, token, device, memory_type, _, rank, name_size = OUTPUT.unpack_from(text, begin)
        end = begin + OUTPUT.size + 8 * rank + name_size
        name, data_type, shape = _described(text[begin + DESCRIPTION : end])
        begin = end
        made = cargo.buffers.pop(token) if token else None
        owner, capsule = (made.owner, made.capsule) if made else (HostMemory(base, free), None)
        buffer = MemoryBuffer(base, MEMORY_TYPES[memory_type], device, size, owner, capsule)
        found[name] = Tensor(data_type, shape, buffer)
    return begin


@lru_cache(maxsize=1024)
def _described(text: bytes) -> tuple[str, DataType, tuple[int, ...]]:
    """Name, data type and shape of an output."""
    data_type, rank = unpack_from("<iI", text)
    begin = OUTPUT.size - DESCRIPTION
    name = text[begin + 8 * rank :].decode(errors="replace")
    return name, DataType(data_type), unpack_from(f"<{rank}q", text, begin)


def _read_parameters(text: bytes, begin: int, count: int, found: dict[str, Any]) -> None:
    for _ in range(count):
        number, kind, name_size, text_size, _ = PARAMETER.unpack_from(text, begin)
        value: Any = bool(number) if kind == BOOL else number
        if kind == DOUBLE:
            (value,) = unpack_from("<d", text, begin)
        begin += PARAMETER.size
        name = text[begin : begin + name_size].decode(errors="replace")
        begin += name_size + text_size
        found[name] = text[begin - text_size : begin].decode(errors="replace") if kind == STRING else value
