"""The format of a recording: a header, and records one after the other, without an index.

::

    file     MAGIC, whose last byte is the version; then records
    record   u64 bytes of the block, f64 arrival of the first request in seconds since 1970, u32 requests, u32 CRC-32 of
             these three and the block; the block
    block    requests with their answers, in the format of safetensors:
             u64 bytes of the header, the header, which is JSON, the tensors' data

All numbers are little-endian. A block has requests of one form: the same model, tensors and number of responses, and no
error or the same one. Its tensors are columns, request after request::

    calls/arrival f64, calls/duration_s f64, calls/batch u32    of each call of the model
    calls/requests u32                                          how many requests of the call are here
    index u32                                                   of each request, its place in its call
    rows u32                                                    of each request, if its tensors have an axis of rows
    inputs/NAME, outputs/0/NAME, outputs/1/NAME ...             the rows of all requests; or, without ``rows``, an array
                                                                of each request, stacked

Safetensors has no texts: a tensor of BYTES is one of U8, with the u32 lengths of all elements and then their bytes; its
real shape is in ``texts``. Everything else is JSON in the header's ``__metadata__``, under ``requests``: the fields of
:class:`RecordedRequest` that all requests share; ``texts``; ``responses``, which is their number; and ``own``, with
fields of single requests by their number in the block. What is empty is left out.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonError
from pytriton.wire.tensors import BYTES, DTYPES, SCALAR_TYPES, decode_bytes, empty

__all__ = [
    *("ARRIVAL", "BATCH", "CHECKSUM_BYTES", "DTYPE_NAMES", "DURATION", "HEAD", "LENGTH", "MAGIC", "MOST_RESPONSES"),
    *("INDEX", "REQUESTS", "ROWS", "Block", "RecordedRequest", "RecordingError"),
    *("array_of", "checksum", "decode", "requests_in", "sealed"),
]

MAGIC = b"PYTRREC\x02"
HEAD = struct.Struct("<QdII")
CHECKSUM_BYTES = 4  # the last ones of the head
LENGTH = struct.Struct("<Q")
MOST_RESPONSES = 2**20  # to all requests of a record
ARRIVAL, DURATION, BATCH, REQUESTS = "calls/arrival", "calls/duration_s", "calls/batch", "calls/requests"
INDEX, ROWS = "index", "rows"


class RecordingError(PyTritonError, ValueError):
    """A file is no recording, or a record in it is damaged."""


@dataclass(frozen=True)
class RecordedRequest:
    """A request as a worker got it, with its answer.

    Attributes:
        arrival: When it reached the worker, in seconds since 1970.
        duration_s: Seconds from then to its last response: without the server's queue and the network.
        batch: How many requests the callable got in the same call.
        index: Its place among them, from 0 on.
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
    index: int = 0
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sequence: tuple[int | str, bool, bool] | None = None
    error: str = ""
    is_cancelled: bool = False
    is_streamed: bool = False
    lacks_inputs: bool = False
    inputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    responses: Sequence[Mapping[str, NDArray[Any]]] = ()


DTYPE_NAMES = {  # in safetensors, by their code
    code: name.replace("UINT", "U").replace("INT", "I").replace("FP", "F")
    for code, name in enumerate(SCALAR_TYPES, start=1)
    if code != BYTES
}
_CODES = {name: code for code, name in DTYPE_NAMES.items()}
_SHARED: dict[str, type] = {"model": str, "version": int, "error": str}
_SHARED |= dict.fromkeys(("is_cancelled", "is_streamed", "lacks_inputs"), bool)
_OWN: dict[str, type] = {"id": str, "parameters": dict, "sequence": list}


class Block:
    """A block that is made."""

    def __init__(self) -> None:
        self._entries: dict[str, Any] = {}
        self._data: list[bytes] = []
        self._size = 0

    def add(self, name: str, dtype: str, shape: Sequence[int], data: bytes) -> None:
        """Add a tensor; ``dtype`` is its name in safetensors."""
        begin, self._size = self._size, self._size + len(data)
        self._entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, self._size]}
        self._data.append(data)

    def encode(self, told: Mapping[str, Any]) -> bytes:
        """The block; ``told`` is the JSON of its requests."""
        text = json.dumps({"__metadata__": {"requests": json.dumps(told)}, **self._entries}).encode()
        text += b" " * (-len(text) % 8)  # so that the data are aligned
        return b"".join((LENGTH.pack(len(text)), text, *self._data))


def sealed(arrival: float, requests: int, block: bytes) -> bytes:
    """The record of a block."""
    head = HEAD.pack(len(block), arrival, requests, 0)[:-CHECKSUM_BYTES]
    return b"".join((head, checksum(head, block).to_bytes(CHECKSUM_BYTES, "little"), block))


def checksum(head: bytes, block: bytes) -> int:
    """That of a record; ``head`` is what stands before it."""
    return zlib.crc32(block, zlib.crc32(head))


def requests_in(record: bytes) -> int:
    """How many requests a record has."""
    requests: int = HEAD.unpack_from(record)[2]
    return requests


def decode(requests: int, block: bytes) -> list[RecordedRequest]:
    """The requests in a block.

    Args:
        requests: How many its record says there are.

    Raises:
        RecordingError: It is damaged.
    """
    try:
        return _decode(requests, block)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error) as error:
        raise RecordingError(f"a record cannot be read, {type(error).__name__}: {error}") from error


def _decode(requests: int, block: bytes) -> list[RecordedRequest]:
    (length,) = LENGTH.unpack_from(block)
    begin = LENGTH.size + length
    if begin > len(block):
        raise ValueError(f"its header of {length} bytes is longer than it")
    header, data = json.loads(block[LENGTH.size : begin]), memoryview(block)[begin:]
    told = json.loads(header.pop("__metadata__")["requests"])
    texts, own, responses = told.pop("texts", {}), told.pop("own", {}), told.pop("responses", 0)
    _check(told, _SHARED)
    columns = {name: _array(described, texts.get(name), data) for name, described in header.items()}
    calls = _calls(columns, requests)
    indices, rows = columns.pop(INDEX), columns.pop(ROWS, None)
    for column in (indices, rows):
        if column is not None and (column.dtype != np.uint32 or column.shape != (requests,)):
            raise ValueError(f"a column of its requests is {column!r:.100}")
    if type(responses) is not int or not 0 <= responses * requests <= MOST_RESPONSES:
        raise ValueError(f"it has {responses!r} responses to each of {requests} requests")
    # Of each request, its inputs and then its responses.
    places: list[list[dict[str, NDArray[Any]]]] = [[{} for _ in range(1 + responses)] for _ in range(requests)]
    for key, column in columns.items():
        side, _, name = key.partition("/")
        index, _, output = name.partition("/")
        number, name = (0, name) if side == "inputs" else (1 + int(index), output)
        if number < 0:
            raise ValueError(f"it has a tensor {key!r:.100}")
        for place, array in zip(places, _divided(column, requests, rows), strict=True):
            place[number][name] = array
    return [
        RecordedRequest(
            **told, **call, **_checked_own(own.get(str(number), {})), index=index, inputs=place[0], responses=place[1:]
        )
        for number, (call, index, place) in enumerate(zip(calls, indices.tolist(), places, strict=True))
    ]


def _calls(columns: dict[str, NDArray[Any]], requests: int) -> list[dict[str, Any]]:
    """What the columns of calls say of each request; they are removed."""
    arrivals, durations, batches, numbers = (columns.pop(name) for name in (ARRIVAL, DURATION, BATCH, REQUESTS))
    if not arrivals.ndim == 1 or not arrivals.shape == durations.shape == batches.shape == numbers.shape:
        raise ValueError("its calls are not as many in all columns")
    for column, dtype in ((arrivals, np.float64), (durations, np.float64), (batches, np.uint32), (numbers, np.uint32)):
        if column.dtype != dtype:
            raise TypeError(f"a column of its calls has dtype {column.dtype}")
    if not (np.isfinite(arrivals).all() and np.isfinite(durations).all() and (durations >= 0).all()):
        raise ValueError("a time of a call is no number")
    if sum(numbers.tolist()) != requests:
        raise ValueError(f"it has {requests} requests, and its calls have {sum(numbers.tolist())}")
    told = zip(arrivals.tolist(), durations.tolist(), batches.tolist(), numbers.tolist(), strict=True)
    return [
        {"arrival": arrival, "duration_s": duration, "batch": batch}
        for arrival, duration, batch, number in told
        for _ in range(number)
    ]


def _divided(column: NDArray[Any], requests: int, rows: NDArray[Any] | None) -> list[NDArray[Any]]:
    """What each request has of a tensor."""
    if rows is None:
        if len(column) != requests:
            raise ValueError(f"a tensor has {len(column)} entries for {requests} requests")
        return [column[number, ...] for number in range(requests)]
    ends = [*accumulate(rows.tolist(), initial=0)]
    if len(column) != ends[-1]:
        raise ValueError(f"a tensor has {len(column)} rows, and the requests have {ends[-1]}")
    return [column[begin:end] for begin, end in pairwise(ends)]


def _check(fields: dict[str, Any], types: Mapping[str, type]) -> None:
    for name, value in fields.items():
        if not isinstance(value, types[name]):
            raise TypeError(f"its {name} is {value!r:.100}")


def _checked_own(fields: dict[str, Any]) -> dict[str, Any]:
    if not fields:
        return fields
    _check(fields, _OWN)
    if not all(isinstance(value, (str, float, int)) for value in fields.get("parameters", {}).values()):
        raise TypeError("a parameter has another type")
    if "sequence" in fields:
        correlation_id, first, last = fields["sequence"]
        if not isinstance(correlation_id, (int, str)):
            raise TypeError(f"its sequence is {correlation_id!r:.100}")
        fields["sequence"] = (correlation_id, bool(first), bool(last))
    return fields


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
