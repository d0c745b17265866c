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
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonError
from pytriton.wire.tensors import BYTES, DTYPES, SCALAR_TYPES, decode_bytes, empty

__all__ = [
    *("CHECKSUM_BYTES", "COLUMNS", "HEAD", "LENGTH_BYTES", "MAGIC", "MOST_ARRAYS"),
    *("Group", "RecordedRequest", "RecordingError", "Stored"),
    *("array_of", "checksum", "decode", "encode", "joined_texts", "make_block", "record_of", "requests_in"),
]

MAGIC = b"PYTRREC\x02"
HEAD = struct.Struct("<QdII")
CHECKSUM_BYTES = 4  # the last ones of the head
LENGTH = struct.Struct("<Q")
LENGTH_BYTES = 4  # of each text
MOST_ARRAYS = 2**20  # of the requests of a record, and as many responses
CALL_BYTES, REQUEST_BYTES = 24, 8  # in the columns
COLUMNS = 6  # of a block, beside the tensors
ARRIVAL, DURATION, BATCH, REQUESTS = "calls/arrival", "calls/duration_s", "calls/batch", "calls/requests"
INDEX, ROWS = "index", "rows"


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


NOTHING: Mapping[str, NDArray[Any]] = MappingProxyType({})
_NAMES = {  # in safetensors, by their code
    code: name.replace("UINT", "U").replace("INT", "I").replace("FP", "F")
    for code, name in enumerate(SCALAR_TYPES, start=1)
    if code != BYTES
}
_CODES = {name: code for code, name in _NAMES.items()}
_SHARED: dict[str, type] = {
    **{"model": str, "version": int, "error": str},
    **dict.fromkeys(("is_cancelled", "is_streamed", "lacks_inputs"), bool),
}
_OWN: dict[str, type] = {"id": str, "parameters": dict, "sequence": list}


@dataclass(slots=True)
class Group:
    """Requests of one call of a model, of one form, to be written.

    Attributes:
        arrival, duration_s, requests: Of the call, as in :class:`RecordedRequest`; the last is its ``batch``.
        responses: To each of the requests here, which have the same ``error``.
        indices: Of the requests in the call.
        rows: Of each of them; None if the tensors have no axis of rows: there is one request then, or no tensor.
        tensors: By their names in a block: with the rows of all requests, or without ``rows`` in the request's shape.
        own: JSON of the fields that only one request has, by its place in ``indices``.
    """

    arrival: float
    duration_s: float
    requests: int
    responses: int
    error: str
    is_cancelled: bool
    indices: Sequence[int]
    rows: Sequence[int] | None
    tensors: Mapping[str, Stored]
    own: Mapping[int, str]

    def form(self) -> Hashable:
        """The same for all groups that may be in one record."""
        axes = 0 if self.rows is None else 1
        tensors = [(name, code, shape[axes:]) for name, (code, shape, _) in self.tensors.items()]
        return axes, self.responses, self.error, self.is_cancelled, *tensors

    def size(self) -> int:
        """Bytes that it adds to a record, about; and no less than the arrays that it becomes when it is read."""
        size = CALL_BYTES + sum([len(data) for _, _, data in self.tensors.values()])
        if self.own:
            size += sum([len(text) for text in self.own.values()])
        return size + len(self.indices) * (REQUEST_BYTES + len(self.tensors) + self.responses)


def encode(shared: Mapping[str, Any], groups: Sequence[Group]) -> bytes:
    """A record of groups that have the same form.

    Args:
        shared: The fields that all requests of the recording have in common.
    """
    first, calls = groups[0], [len(groups)]
    numbers = [len(group.indices) for group in groups]
    columns = {
        ARRIVAL: ("F64", calls, array("d", [group.arrival for group in groups]).tobytes()),
        DURATION: ("F64", calls, array("d", [group.duration_s for group in groups]).tobytes()),
        BATCH: ("U32", calls, array("I", [group.requests for group in groups]).tobytes()),
        REQUESTS: ("U32", calls, array("I", numbers).tobytes()),
        INDEX: ("U32", [sum(numbers)], array("I", chain.from_iterable(group.indices for group in groups)).tobytes()),
    }
    axes, extent = 0, sum(numbers)
    if first.rows is not None:
        rows = array("I", chain.from_iterable(group.rows or () for group in groups))
        columns[ROWS] = "U32", [extent], rows.tobytes()
        axes, extent = 1, sum(rows)
    texts = {}
    for name, (code, shape, _) in first.tensors.items():
        tensors = [group.tensors[name] for group in groups]
        extents = [extent, *shape[axes:]]
        if code == BYTES:
            data = joined_texts(tensors)
            columns[name], texts[name] = ("U8", [len(data)], data), extents
        else:
            columns[name] = _NAMES[code], extents, b"".join([data for _, _, data in tensors])
    own: list[str] = []
    number = 0
    for group, count in zip(groups, numbers, strict=True):
        own += [f'"{number + place}": {text}' for place, text in group.own.items()] if group.own else ()
        number += count
    fields = {"responses": first.responses, "error": first.error, "is_cancelled": first.is_cancelled, "texts": texts}
    told = json.dumps({name: value for name, value in {**shared, **fields}.items() if value})
    block = make_block(f'{told[:-1]}, "own": {{{", ".join(own)}}}}}' if own else told, columns)
    return record_of(min([group.arrival for group in groups]), number, block)


def joined_texts(tensors: Sequence[Stored]) -> bytes:
    """The data of tensors of BYTES, one after the other, as those of one."""
    ends = [LENGTH_BYTES * prod(shape) for _, shape, _ in tensors]
    lengths = [data[:end] for (_, _, data), end in zip(tensors, ends, strict=True)]
    return b"".join(lengths + [data[end:] for (_, _, data), end in zip(tensors, ends, strict=True)])


def make_block(told: str, columns: Mapping[str, tuple[str, Sequence[int], bytes]]) -> bytes:
    """A block of the JSON of its requests and of tensors, each with its dtype in safetensors, shape and data."""
    header: dict[str, Any] = {"__metadata__": {"requests": told}}
    end = 0
    for name, (dtype, shape, data) in columns.items():
        begin, end = end, end + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    return b"".join((LENGTH.pack(len(text)), text, *[data for _, _, data in columns.values()]))


def record_of(arrival: float, requests: int, block: bytes) -> bytes:
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


def decode(arrival: float, requests: int, block: bytes) -> list[RecordedRequest]:
    """The requests in a block; their arrays are views of it.

    Args:
        arrival: Of the first one, as its record says.
        requests: How many its record says there are.

    Raises:
        RecordingError: It is damaged.
    """
    try:
        return _decode(arrival, requests, block)
    except (
        *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),
        struct.error,
    ) as error:
        raise RecordingError(f"a record cannot be read, {type(error).__name__}: {error}") from error


def _decode(arrival: float, requests: int, block: bytes) -> list[RecordedRequest]:
    (length,) = LENGTH.unpack_from(block)
    begin = LENGTH.size + length
    if begin > len(block):
        raise ValueError(f"its header of {length} bytes is longer than it")
    header, data = json.loads(block[LENGTH.size : begin]), memoryview(block)[begin:]
    told = json.loads(header.pop("__metadata__")["requests"])
    texts, own, responses = told.pop("texts", {}), told.pop("own", {}), told.pop("responses", 0)
    _check(told, _SHARED)
    if type(responses) is not int or responses < 0 or requests * (responses + len(header)) > MOST_ARRAYS:
        raise ValueError(f"it has {requests} requests with {len(header)} tensors and {responses!r} responses")
    if sum([described["data_offsets"][1] - described["data_offsets"][0] for described in header.values()]) > len(data):
        raise ValueError("its tensors overlap")
    columns = {name: _array(described, texts.get(name), data) for name, described in header.items()}
    indices, rows = columns.pop(INDEX), columns.pop(ROWS, None)
    for column in (indices, rows):
        if column is not None and (column.dtype != np.uint32 or column.shape != (requests,)):
            raise ValueError(f"a column of its requests is {column!r:.100}")
    calls = _calls(columns, arrival, requests)
    ends = None if rows is None else [*accumulate(rows.tolist(), initial=0)]
    # Of each request, its inputs under 0 and its responses from 1 on, as far as they have tensors.
    places: list[dict[int, dict[str, NDArray[Any]]]] = [{} for _ in range(requests)]
    for key, column in columns.items():
        side, _, name = key.partition("/")
        index, _, output = name.partition("/")
        number, name = (0, name) if side == "inputs" else (1 + int(index), output)
        if side not in ("inputs", "outputs") or number > responses or number < (side == "outputs"):
            raise ValueError(f"it has a tensor {key!r:.100}")
        for place, piece in zip(places, _of_each(column, requests, ends), strict=True):
            place.setdefault(number, {})[name] = piece
    return [
        RecordedRequest(
            **told,
            **call,
            **_checked_own(own.get(str(number), {})),
            index=index,
            inputs=place.get(0, NOTHING),
            responses=[place.get(each, NOTHING) for each in range(1, 1 + responses)],
        )
        for number, (call, index, place) in enumerate(zip(calls, indices.tolist(), places, strict=True))
    ]


def _calls(columns: dict[str, NDArray[Any]], arrival: float, requests: int) -> list[dict[str, Any]]:
    """What the columns of calls say of each request; they are removed."""
    arrivals, durations, batches, numbers = (columns.pop(name) for name in (ARRIVAL, DURATION, BATCH, REQUESTS))
    if not arrivals.ndim == 1 or not arrivals.shape == durations.shape == batches.shape == numbers.shape:
        raise ValueError("its calls are not as many in all columns")
    for column, dtype in ((arrivals, np.float64), (durations, np.float64), (batches, np.uint32), (numbers, np.uint32)):
        if column.dtype != dtype:
            raise TypeError(f"a column of its calls has dtype {column.dtype}")
    if not len(arrivals) or arrivals.min() != arrival:
        raise ValueError(f"its first request did not arrive at {arrival}")
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


def _of_each(column: NDArray[Any], requests: int, ends: Sequence[int] | None) -> list[NDArray[Any]]:
    """What each request has of a tensor; ``ends`` are those of its rows, after a 0."""
    if ends is None:
        if len(column) != requests:
            raise ValueError(f"a tensor has {len(column)} entries for {requests} requests")
        return [column[number, ...] for number in range(requests)]
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
