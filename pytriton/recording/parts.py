"""What is kept of requests until they are written, and the records that are made of it."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.recording.format import (
    ARRIVAL,
    BATCH,
    DTYPE_NAMES,
    DURATION,
    INDEX,
    MOST_RESPONSES,
    REQUESTS,
    ROWS,
    Block,
    array_of,
    sealed,
)
from pytriton.wire.tensors import BYTES, WHOLE_BATCH, Tensor, encode_bytes

__all__ = ["RECORD_BYTES", "TENSOR_BYTES", "Part", "Parts", "Stored", "records"]

RECORD_BYTES = 64 * 1024  # of several parts together
TENSOR_BYTES = 64  # about, of the header of a record
LENGTH_BYTES = 4  # of each text

Stored = tuple[int, tuple[int, ...], bytes]
"""A tensor: its dtype's code, shape, and data as in frames (wire/tensors.py)."""

Named = Sequence[tuple[str, Tensor]]
"""Tensors with their names."""


@dataclass(slots=True)
class Part:
    """Requests of one call of a model, of one form.

    Attributes:
        arrival: Of the call, in seconds since 1970.
        batch: Requests of the call.
        requests: Their indices in the call.
        rows: Of each request; None if the tensors have no axis of rows: there is one request then, or no tensor.
        tensors: By their names in the record.
        own: Fields that only one request has, by its number in the part.
        size: Bytes of all of that, about.
    """

    arrival: float
    batch: int
    requests: Sequence[int]
    rows: Sequence[int] | None
    tensors: dict[str, Stored] = field(default_factory=dict)
    own: dict[int, dict[str, Any]] = field(default_factory=dict)
    duration_s: float = 0.0
    responses: int = 0
    error: str = ""
    is_cancelled: bool = False
    size: int = 0

    def add(self, name: str, tensor: Stored) -> None:
        """Keep a tensor."""
        self.tensors[name] = tensor
        self.size += TENSOR_BYTES + len(tensor[2])

    def add_own(self, number: int, fields: dict[str, Any]) -> None:
        """Keep the fields of a request."""
        self.own[number] = fields
        self.size += len(json.dumps(fields))

    def form(self) -> Hashable:
        """The same for all parts that may be in one record."""
        axes = 0 if self.rows is None else 1
        tensors = [(name, code, shape[axes:]) for name, (code, shape, _) in self.tensors.items()]
        return axes, self.responses, self.error, self.is_cancelled, *tensors

    def is_above(self, most: int) -> bool:
        """Whether it is too large for a record of so many bytes."""
        return self.size > most or self.responses * len(self.requests) > MOST_RESPONSES

    def divided(self, most: int) -> Iterator[Part]:
        """The same in as many parts as it takes for each to be small enough, or a single request."""
        if len(self.requests) > 1 and self.is_above(most):
            for half in self._halves():
                yield from half.divided(most)
        else:
            yield self

    def _halves(self) -> tuple[Part, Part]:
        middle = len(self.requests) // 2
        first, second = (
            replace(self, requests=self.requests[half], rows=self.rows and self.rows[half], tensors={}, own={}, size=0)
            for half in (slice(middle), slice(middle, None))
        )
        end = sum(first.rows or ())
        for name, (code, shape, data) in self.tensors.items():
            both = array_of(code, shape, [data])
            first.add(name, _stored(code, both[:end]))
            second.add(name, _stored(code, both[end:]))
        for number, fields in self.own.items():
            if number < middle:
                first.add_own(number, fields)
            else:
                second.add_own(number - middle, fields)
        return first, second


class Parts:
    """Some requests of one call, in as few parts as their form and size allow.

    Args:
        part: The requests, of which nothing was kept yet.
        rows: Of each request of the call; None if the tensors have no axis of rows.
        most: Bytes that one request with its answer may have.
        let_go: Called with the number of requests that have more, and are kept no longer.
    """

    def __init__(self, part: Part, rows: Sequence[int] | None, most: int, let_go: Callable[[int], object]) -> None:
        self._parts, self._batch, self._rows, self._most, self._let_go = [part], part.batch, rows, most, let_go

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add_inputs(self, tensors: Named) -> None:
        """Keep a copy of what the requests have of the call's inputs."""
        self._divide_for(tensors)
        for part in self._parts:
            self._add(part, "inputs", tensors)
        self.fit()

    def add_response(self, tensors: Named, errors: Mapping[int, str]) -> None:
        """Keep a copy of what they have of a response; some have failed instead, by index in the call."""
        self._divide_for(tensors, errors)
        for part in self._parts:
            part.error = errors.get(part.requests[0], part.error)
            if not part.error:
                self._add(part, f"outputs/{part.responses}", tensors)
                part.responses += 1
        self.fit()

    def fail(self, error: str) -> None:
        """All have failed."""
        for part in self._parts:
            part.error = error

    def clear(self) -> None:
        """Keep none of them."""
        self._parts = []

    def fit(self) -> None:
        """Divide what is too large for a record; requests that are too large alone are let go."""
        if any(part.is_above(self._most) for part in self._parts):
            parts = [*chain.from_iterable(part.divided(self._most) for part in self._parts)]
            self._parts = [part for part in parts if not part.is_above(self._most)]
            self._let_go(len(parts) - len(self._parts))

    def _divide_for(self, tensors: Named, errors: Mapping[int, str] | None = None) -> None:
        """Have a part of each request if what it gets differs in more than its rows."""
        are_own = bool(tensors) and tensors[0][1].request != WHOLE_BATCH
        if are_own or errors:
            self._parts = [*chain.from_iterable(part.divided(-1) for part in self._parts)]
        if are_own:
            for part in self._parts:
                part.rows = None

    def _add(self, part: Part, place: str, tensors: Named) -> None:
        requests = part.requests
        if self._batch == 1 and sum([tensor.size for _, tensor in tensors]) > self._most:
            part.size = self._most + 1  # without a copy
            return
        for name, tensor in tensors:
            if tensor.request == WHOLE_BATCH and len(requests) < self._batch:
                array = array_of(tensor.code, tensor.shape, tensor.parts)[self._rows_of(requests)]
                part.add(f"{place}/{name}", _stored(tensor.code, array))
            elif tensor.request == WHOLE_BATCH or tensor.request in requests:
                part.add(f"{place}/{name}", (tensor.code, tensor.shape, tensor.data()))

    def _rows_of(self, requests: Sequence[int]) -> NDArray[np.bool_]:
        """Which rows of the call are theirs."""
        are_theirs = np.zeros(self._batch, bool)
        are_theirs[requests] = True
        return np.repeat(are_theirs, self._rows or ())


def _stored(code: int, tensor: NDArray[Any]) -> Stored:
    return code, tensor.shape, encode_bytes(tensor) if code == BYTES else tensor.tobytes()


def records(shared: Mapping[str, Any], parts: Sequence[Part]) -> Iterator[bytes]:
    """Records of some parts: those of one form together, as far as they are small.

    Args:
        shared: The fields that all requests of the recording have in common.
    """
    groups: dict[Hashable, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.form(), []).append(part)
    for group in groups.values():
        begin = size = 0
        for end, part in enumerate(group):
            added = part.size + TENSOR_BYTES * len(part.requests) * max(part.responses, 1)
            if size + added > RECORD_BYTES and begin < end:
                yield _record(shared, group[begin:end])
                begin, size = end, 0
            size += added
        yield _record(shared, group[begin:])


def _record(shared: Mapping[str, Any], parts: Sequence[Part]) -> bytes:
    first, calls = parts[0], [len(parts)]
    requests = [len(part.requests) for part in parts]
    block = Block()
    block.add(ARRIVAL, "F64", calls, array("d", [part.arrival for part in parts]).tobytes())
    block.add(DURATION, "F64", calls, array("d", [part.duration_s for part in parts]).tobytes())
    block.add(BATCH, "U32", calls, array("I", [part.batch for part in parts]).tobytes())
    block.add(REQUESTS, "U32", calls, array("I", requests).tobytes())
    axes, extent = 0, sum(requests)
    block.add(INDEX, "U32", [extent], array("I", chain.from_iterable(part.requests for part in parts)).tobytes())
    if first.rows is not None:
        rows = array("I", chain.from_iterable(part.rows or () for part in parts))
        block.add(ROWS, "U32", [extent], rows.tobytes())
        axes, extent = 1, sum(rows)
    texts = {}
    for name, (code, shape, _) in first.tensors.items():
        tensors = [part.tensors[name] for part in parts]
        shape = (extent, *shape[axes:])
        if code == BYTES:
            data = _joined_texts(tensors)
            block.add(name, "U8", [len(data)], data)
            texts[name] = shape
        else:
            block.add(name, DTYPE_NAMES[code], shape, b"".join([data for _, _, data in tensors]))
    own, number = {}, 0
    for part, count in zip(parts, requests, strict=True):
        own.update({str(number + each): fields for each, fields in part.own.items()})
        number += count
    told = {"responses": first.responses, "error": first.error, "is_cancelled": first.is_cancelled}
    told = {**shared, **told, "texts": texts, "own": own}
    arrival = min(part.arrival for part in parts)
    return sealed(arrival, number, block.encode({name: value for name, value in told.items() if value}))


def _joined_texts(tensors: Sequence[Stored]) -> bytes:
    ends = [LENGTH_BYTES * prod(shape) for _, shape, _ in tensors]
    lengths = [data[:end] for (_, _, data), end in zip(tensors, ends, strict=True)]
    return b"".join(lengths + [data[end:] for (_, _, data), end in zip(tensors, ends, strict=True)])
