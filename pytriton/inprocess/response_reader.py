"""A response, read from the block in which C++ describes it; ``native/parcel.cpp`` has its layout.

Most responses of a model differ in the addresses of their outputs alone, which come last: the rest is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import string_at
from functools import lru_cache
from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Any, NamedTuple

from pytriton.inprocess.cargo import Cargo
from pytriton.inprocess.enums import DataType, MemoryType
from pytriton.inprocess.exceptions import error_of
from pytriton.inprocess.memory import HostMemory, MemoryBuffer
from pytriton.inprocess.response import InferenceResponse
from pytriton.inprocess.tensor import Tensor

if TYPE_CHECKING:
    from pytriton.inprocess.model import Model

__all__ = ["Plain", "read"]

FIRST_BYTES = 256  # which each block has
HEAD = Struct("<QqIi6I")
SIZES = Struct("<Q16xI")  # of the block, and the number of outputs: the head's
OUTPUT = Struct("<QQqiiII")
PARAMETER = Struct("<qiIII")
FINAL, EMPTY = 1, 2
STRING, _INT, BOOL, DOUBLE = range(4)
DESCRIPTION = 28  # where, in an output, that begins which is the same each time
MEMORY_TYPES = [*MemoryType]  # which is faster than to call the class
MOST = 256


class Plain(NamedTuple):
    """What is the same in responses whose outputs lie in memory that C++ allocated.

    Attributes:
        model: With its version.
        final: Whether they are the last ones.
        outputs: The name, data type, shape and bytes of each.
        addresses: Reads their addresses.
    """

    model: Model
    final: bool
    outputs: Sequence[tuple[str, DataType, Sequence[int], int]]
    addresses: Struct


def read(block: int, model: Model, cargo: Cargo, free: Callable[[int], object]) -> InferenceResponse:
    """Read a response.

    Args:
        block: Its address.
        model: The one that was asked, which remembers what its responses are like.
        cargo: The request's, with the buffers that its allocator made.
        free: Frees what C++ allocated.
    """
    text = string_at(block, FIRST_BYTES)
    size, count = SIZES.unpack_from(text)
    if size > FIRST_BYTES:
        text = string_at(block, size)
    begin = size - 8 * count
    plain = model.plain_responses.get(text[:begin])
    if plain is None:
        return _read_anew(text, begin, model, cargo, free)
    outputs = {}
    addresses = plain.addresses.unpack_from(text, begin)
    for (name, data_type, shape, bytes_), base in zip(plain.outputs, addresses, strict=True):
        buffer = MemoryBuffer(base, MemoryType.CPU, 0, bytes_, HostMemory(base, free))
        outputs[name] = Tensor(data_type, shape, buffer)
    return InferenceResponse(plain.model, "", {}, outputs, None, None, plain.final)


def _read_anew(text: bytes, end: int, model: Model, cargo: Cargo, free: Callable[[int], object]) -> InferenceResponse:
    _, version, flags, code, count, parameters, model_size, id_size, message_size, _ = HEAD.unpack_from(text)
    final = bool(flags & FINAL)
    if flags & EMPTY:
        return InferenceResponse(model, "", final=final)
    begin = HEAD.size + model_size
    name = text[HEAD.size : begin].decode(errors="replace")
    request_id = text[begin : begin + id_size].decode(errors="replace")
    begin += id_size
    response = InferenceResponse(type(model)(model.server, name, version), request_id, final=final)
    if code >= 0:
        response.error = error_of(code, text[begin : begin + message_size].decode(errors="replace"))
        begin += message_size
    addresses = Struct(f"<{count}Q")
    is_plain = code < 0 and not parameters and not id_size
    for base in addresses.unpack_from(text, end):
        begin, is_own = _read_output(text, begin, base, response.outputs, cargo, free)
        is_plain &= is_own
    if parameters:
        _read_parameters(text, begin, parameters, response.parameters)
    if is_plain:
        if len(model.plain_responses) >= MOST:
            model.plain_responses.clear()
        outputs = [(name, item.data_type, item.shape, item.size) for name, item in response.outputs.items()]
        model.plain_responses[text[:end]] = Plain(response.model, final, outputs, addresses)
    return response


def _read_output(
    text: bytes, begin: int, base: int, found: dict[str, Tensor], cargo: Cargo, free: Callable[[int], object]
) -> tuple[int, bool]:
    """Read an output; returns where it ends, and whether C++ has allocated its memory."""
    size, token, device, memory_type, _, rank, name_size = OUTPUT.unpack_from(text, begin)
    end = begin + OUTPUT.size + 8 * rank + name_size
    name, data_type, shape = _described(text[begin + DESCRIPTION : end])
    made = cargo.buffers.pop(token) if token else None
    owner, capsule = (made.owner, made.capsule) if made else (HostMemory(base, free), None)
    found[name] = Tensor(data_type, shape, MemoryBuffer(base, MEMORY_TYPES[memory_type], device, size, owner, capsule))
    return end, made is None


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
