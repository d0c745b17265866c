"""The format of a recording: a header, and records one after the other, without an index.

::

    file     MAGIC, whose last byte is the version; then records
    record   u64 bytes of the block, f64 arrival in seconds since 1970, u32 CRC-32 of these two and the block; the block
    block    a request with its answer, in the format of safetensors:
             u64 bytes of the header, the header, which is JSON, the tensors' data

All numbers are little-endian. The tensors of a block are called ``inputs/NAME``, and ``outputs/0/NAME`` of the first
response. Safetensors has no texts: a tensor of BYTES is one of U8, with the u32 lengths of all elements and then their
bytes; its real shape is in ``texts``. Everything else is JSON in the header's ``__metadata__``, under ``request``: the
fields of :class:`RecordedRequest`, ``texts``, and ``responses``, which is their number, as far as they are not empty.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonError
from pytriton.wire.tensors import BYTES, DTYPES, SCALAR_TYPES, decode_bytes, empty

__all__ = [
    *("CHECKSUM_BYTES", "HEAD", "MAGIC", "MOST_RESPONSES", "RecordedRequest", "RecordingError", "Stored"),
    *("array_of", "checksum", "decode", "encode"),
]

MAGIC = b"PYTRREC\x01"
HEAD = struct.Struct("<QdI")
CHECKSUM_BYTES = 4  # the last ones of the head
LENGTH = struct.Struct("<Q")
MOST_RESPONSES = 2**20

Stored = tuple[int, tuple[int, ...], bytes]
"""A tensor: its dtype's code, shape, and data as in frames (wire/tensors.py)."""


class RecordingError(PyTritonError, ValueError):
    """A file is no recording, or a record in it is damaged."""


@dataclass(frozen=True)
class RecordedRequest:
    """A request as a worker got it, with its answer.

    Attributes:
        arrival: When it reached the worker, in seconds since 1970.
        duration_s: Seconds from then to its last response: without the server's queue and the network.
        batch: How many requests the callable got in the same call.
        id: What the client called it; may be empty.
        parameters: Without those that only the server needs.
        sequence: Correlation id, and whether it is the first one and the last one of its sequence; None without.
        error: Why it failed; empty if it did not.
        is_cancelled: Nobody waited for the answer, of which the end may be missing.
        is_streamed: The model is decoupled.
        lacks_inputs: The recording leaves inputs out, so that the request cannot be repeated.
        inputs: Name to read-only array; of BYTES to an array of ``bytes``.
        responses: Outputs by name, of each response.
    """

    model: str
    version: int
    arrival: float
    duration_s: float = 0.0
    batch: int = 1
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sequence: tuple[int | str, bool, bool] | None = None
    error: str = ""
    is_cancelled: bool = False
    is_streamed: bool = False
    lacks_inputs: bool = False
    inputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    responses: Sequence[Mapping[str, NDArray[Any]]] = ()


_NAMES = {  # of dtypes, by their code
    code: name.replace("UINT", "U").replace("INT", "I").replace("FP", "F")
    for code, name in enumerate(SCALAR_TYPES, start=1)
    if code != BYTES
}
_CODES = {name: code for code, name in _NAMES.items()}
_TYPES: dict[str, type | tuple[type, ...]] = {
    **{"model": str, "version": int, "duration_s": (float, int), "batch": int, "id": str, "parameters": dict},
    **{"sequence": list, "error": str, "is_cancelled": bool, "is_streamed": bool, "lacks_inputs": bool},
    **{"texts": dict, "responses": int},
}


def checksum(head: bytes, block: bytes) -> int:
    """That of a record; ``head`` is what stands before it."""
    return zlib.crc32(block, zlib.crc32(head))


def encode(arrival: float, details: Mapping[str, Any], tensors: Mapping[str, Stored]) -> bytes:
    """A record.

    Args:
        details: What the JSON of the request has, but ``texts``.
        tensors: By their names in the block.
    """
    texts = {name: shape for name, (code, shape, _) in tensors.items() if code == BYTES}
    details = {name: value for name, value in {**details, "texts": texts}.items() if value}
    header, end = f'{{"__metadata__": {{"request": {json.dumps(json.dumps(details))}}}', 0
    for name, (code, shape, data) in tensors.items():
        begin, end = end, end + len(data)
        dtype, extents = ("U8", [len(data)]) if code == BYTES else (_NAMES[code], [*shape])
        header += f', {json.dumps(name)}: {{"dtype": "{dtype}", "shape": {extents}, "data_offsets": [{begin}, {end}]}}'
    text = f"{header}}}".encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    block = b"".join((LENGTH.pack(len(text)), text, *(data for _, _, data in tensors.values())))
    head = HEAD.pack(len(block), arrival, 0)[:-CHECKSUM_BYTES]
    return b"".join((head, checksum(head, block).to_bytes(CHECKSUM_BYTES, "little"), block))


def decode(arrival: float, block: bytes) -> RecordedRequest:
    """The request in a block.

    Raises:
        RecordingError: It is damaged.
    """
    try:
        return _decode(arrival, block)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error) as error:
        raise RecordingError(f"a record cannot be read, {type(error).__name__}: {error}") from error


def _decode(arrival: float, block: bytes) -> RecordedRequest:
    (length,) = LENGTH.unpack_from(block)
    begin = LENGTH.size + length
    if begin > len(block):
        raise ValueError(f"its header of {length} bytes is longer than it")
    header = json.loads(block[LENGTH.size : begin])
    details = json.loads(header.pop("__metadata__")["request"])
    for name, value in details.items():
        if not isinstance(value, _TYPES[name]):
            raise TypeError(f"its {name} is {value!r:.100}")
    if not all(isinstance(value, (str, float, int)) for value in details.get("parameters", {}).values()):
        raise TypeError("a parameter has another type")
    texts, count = details.pop("texts", {}), details.pop("responses", 0)
    if not 0 <= count <= MOST_RESPONSES:
        raise ValueError(f"it has {count!r} responses")
    inputs: dict[str, NDArray[Any]] = {}
    responses: list[dict[str, NDArray[Any]]] = [{} for _ in range(count)]
    data = memoryview(block)[begin:]
    for key, described in header.items():
        side, _, name = key.partition("/")
        index, _, output = name.partition("/")
        place, name = (inputs, name) if side == "inputs" else (responses[int(index)], output)
        place[name] = _array(described, texts.get(key), data)
    if "sequence" in details:
        correlation_id, first, last = details["sequence"]
        if not isinstance(correlation_id, (int, str)):
            raise TypeError(f"its sequence is {correlation_id!r:.100}")
        details["sequence"] = (correlation_id, bool(first), bool(last))
    request = RecordedRequest(arrival=arrival, inputs=inputs, responses=responses, **details)
    if not (isfinite(request.duration_s) and request.duration_s >= 0):
        raise ValueError(f"it took {request.duration_s} s")
    return request


def _array(described: Mapping[str, Any], text_shape: Sequence[int] | None, data: memoryview) -> NDArray[Any]:
    begin, end = described["data_offsets"]
    shape = tuple(described["shape"] if text_shape is None else text_shape)
    if not all(type(size) is int and size >= 0 for size in (begin, end, *shape)) or not begin <= end <= len(data):
        raise ValueError(f"a tensor of shape {shape} lies from byte {begin} to {end} of {len(data)}")
    return array_of(_CODES[described["dtype"]] if text_shape is None else BYTES, shape, [data[begin:end]])


def array_of(code: int, shape: tuple[int, ...], parts: Sequence[Any]) -> NDArray[Any]:
    """A tensor as an array: a view of its data if they are numbers in one part, else a copy.

    Args:
        parts: Buffers that are the data as in frames (wire/tensors.py), when put one after the other.

    Raises:
        ValueError: They do not fit.
    """
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if code == BYTES:
        return decode_bytes(data, shape)
    return np.frombuffer(data, DTYPES[code]).reshape(shape) if prod(shape) else empty(shape, DTYPES[code])
