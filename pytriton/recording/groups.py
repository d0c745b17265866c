"""What is kept of the requests of a batch, and the groups of one form in which they are written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.recording.format import LENGTH_BYTES, Group, Stored, array_of, encode, joined_texts
from pytriton.wire.tensors import BYTES, WHOLE_BATCH, Tensor

__all__ = ["RECORD_BYTES", "TENSOR_BYTES", "Message", "State", "combined", "grouped", "sizes_of"]

RECORD_BYTES = 64 * 1024  # of several requests together
TENSOR_BYTES = 64  # about, of the header of a record, and of a response without outputs

Sizes = NDArray[np.int64]
"""Bytes of each request."""


@dataclass(frozen=True)
class State:
    """What has become of a request.

    Attributes:
        responses: How many it has got.
        error: Why it failed; empty if it did not.
        is_cancelled: Nobody waited for the answer.
    """

    responses: int
    error: str = ""
    is_cancelled: bool = False


@dataclass(frozen=True)
class Call:
    """What all requests of a batch have in common.

    Attributes:
        arrival: In seconds since 1970.
        duration_s: From then to the last response.
        requests: Their number, chosen or not.
    """

    arrival: float
    duration_s: float
    requests: int


class Message:
    """What a request frame or a response has of some requests of a batch.

    Args:
        place: Where its tensors belong in a record: ``inputs``, or ``outputs/0`` of the first response.
        indices: Of the requests in the batch, rising.
        rows: Of each of them, in tensors of the whole batch; None if there are no such tensors.
        tensors: With their names. Those of the whole batch have the rows of these requests alone.
    """

    def __init__(
        self, place: str, indices: Sequence[int], rows: Sequence[int] | None, tensors: Sequence[tuple[str, Tensor]]
    ) -> None:
        self.place, self.indices, self.rows, self.tensors = place, indices, rows, tensors

    def copied(self) -> Message:
        """The same with data of its own."""
        tensors = [(name, tensor.copied()) for name, tensor in self.tensors]
        return Message(self.place, self.indices, self.rows, tensors)

    def size(self) -> int:
        """Bytes of all requests together, about."""
        return TENSOR_BYTES + sum([TENSOR_BYTES + tensor.size for _, tensor in self.tensors])

    def sizes(self) -> Sizes:
        """Bytes of each request, about."""
        sizes = np.full(len(self.indices), TENSOR_BYTES)
        places = {index: place for place, index in enumerate(self.indices)}
        for _, tensor in self.tensors:
            if tensor.request == WHOLE_BATCH:
                ends = _ends(tensor, self.rows or ())
                sizes += TENSOR_BYTES + ends[1:] - ends[:-1]
            elif tensor.request in places:
                sizes[places[tensor.request]] += TENSOR_BYTES + tensor.size
        return sizes

    def of(self, indices: Sequence[int]) -> Message:
        """What it has of some of its requests: views, or copies."""
        if len(indices) == len(self.indices):
            return self
        chosen = np.zeros(len(self.indices), bool)
        chosen[np.searchsorted(self.indices, indices)] = True
        rows = None if self.rows is None else np.asarray(self.rows)[chosen].tolist()
        wanted = frozenset(indices)
        tensors = [
            (name, _rows_of(tensor, chosen, self.rows or ()) if tensor.request == WHOLE_BATCH else tensor)
            for name, tensor in self.tensors
            if tensor.request == WHOLE_BATCH or tensor.request in wanted
        ]
        return Message(self.place, indices, rows, tensors)


def _lengths(tensor: Tensor) -> NDArray[np.uint32]:
    """Bytes of each text of a tensor."""
    return np.frombuffer(tensor.data(), np.uint32, prod(tensor.shape))


def _ends(tensor: Tensor, rows: Sequence[int]) -> Sizes:
    """Where the data of each request would end if they lay one after the other, and 0 before."""
    row_ends = np.cumsum([0, *rows])
    total = int(row_ends[-1])
    if tensor.code != BYTES:
        return row_ends * (tensor.size // max(total, 1))
    text_ends = np.cumsum(np.concatenate([[0], _lengths(tensor) + np.int64(LENGTH_BYTES)]))
    return np.asarray(text_ends[row_ends * ((len(text_ends) - 1) // max(total, 1))])


def _rows_of(tensor: Tensor, chosen: NDArray[np.bool_], rows: Sequence[int]) -> Tensor:
    """A tensor with the rows of some requests of several."""
    of_rows = np.repeat(chosen, rows)
    if tensor.code != BYTES:
        data = array_of(tensor.code, tensor.shape, tensor.parts)[of_rows].tobytes()
    else:
        of_texts, lengths = np.repeat(of_rows, prod(tensor.shape[1:])), _lengths(tensor)
        texts = np.frombuffer(tensor.data(), np.uint8, offset=LENGTH_BYTES * len(lengths))
        data = lengths[of_texts].tobytes() + texts[np.repeat(of_texts, lengths)].tobytes()
    shape = (int(np.count_nonzero(of_rows)), *tensor.shape[1:])
    return Tensor(tensor.name, WHOLE_BATCH, tensor.code, shape, len(data), (data,))


def sizes_of(messages: Sequence[Message]) -> Sizes:
    """Bytes of each request in some messages, which have the same requests."""
    sizes = messages[0].sizes()
    for message in messages[1:]:
        sizes += message.sizes()
    return sizes


def grouped(
    call: Call,
    messages: Sequence[Message],
    indices: Sequence[int],
    state: State,
    others: Mapping[int, State],
    own: Mapping[int, str],
    most: int,
) -> tuple[list[Group], int]:
    """The groups of some requests of a batch, and how many are too large to be in any.

    Args:
        messages: That of the request frame, and those of the responses in their order; with all of these requests.
        state: Of each request, but for ``others``.
        own: JSON of the fields that only one request has.
        most: Bytes that a request may have with its answer.
    """
    messages = [message.of(indices) for message in messages]
    told = len(state.error) * len(indices) + sum([len(text) for text in own.values()])
    size = told + sum([message.size() for message in messages])
    arrays = sum([1 + len(message.tensors) for message in messages])
    if not others and size <= min(most, RECORD_BYTES) and arrays * len(indices) <= RECORD_BYTES:
        return [*_groups(call, messages[: 1 + state.responses], indices, state, own)], 0
    sizes = {}
    alike: dict[State, list[int]] = defaultdict(list)
    for index, size in zip(indices, sizes_of(messages).tolist(), strict=True):
        of_request = others.get(index, state)
        sizes[index] = size + len(own.get(index, "")) + len(of_request.error)
        if sizes[index] <= most:
            alike[of_request].append(index)
    groups: list[Group] = []
    for of_requests, members in alike.items():
        for some in _small(members, sizes):
            groups += _groups(call, messages[: 1 + of_requests.responses], some, of_requests, own)
    return groups, len(indices) - sum(map(len, alike.values()))


def _small(members: Sequence[int], sizes: Mapping[int, int]) -> Iterator[Sequence[int]]:
    """Requests in turn, as many at a time as a record may have."""
    begin = size = 0
    for end, index in enumerate(members):
        if size + sizes[index] > RECORD_BYTES and begin < end:
            yield members[begin:end]
            begin, size = end, 0
        size += sizes[index]
    yield members[begin:]


def _groups(
    call: Call, messages: Sequence[Message], indices: Sequence[int], state: State, own: Mapping[int, str]
) -> Iterator[Group]:
    """One group of some requests; or one of each, if their tensors are of several forms."""
    picked = [message.of(indices) for message in messages]
    columns = _columns(picked)
    if columns is None:
        for index in indices:
            yield from _groups(call, picked, [index], state, own)
        return
    told = {place: own[index] for place, index in enumerate(indices) if index in own} if own else {}
    yield Group(**vars(call), **vars(state), indices=indices, rows=columns[0], tensors=columns[1], own=told)


def _columns(messages: Sequence[Message]) -> tuple[Sequence[int] | None, dict[str, Stored]] | None:
    """The rows of the requests of some messages, and their tensors; None if they cannot be put together."""
    count = len(messages[0].indices)
    rows = next((message.rows for message in messages if message.rows is not None), None)
    tensors: dict[str, Stored] = {}
    apart: dict[str, list[Tensor]] = defaultdict(list)  # of each request its own
    for message in messages:
        for name, tensor in message.tensors:
            if tensor.request == WHOLE_BATCH:
                tensors[f"{message.place}/{name}"] = tensor.code, tensor.shape, tensor.data()
            else:
                apart[f"{message.place}/{name}"].append(tensor)
    if apart and rows is None:
        rows = [tensor.shape[0] if tensor.shape else -1 for tensor in next(iter(apart.values()))]
    if all(len(each) == count and _have_rows(each, rows or ()) for each in apart.values()):
        for name, each in apart.items():
            stored = [(tensor.code, tensor.shape, tensor.data()) for tensor in each]
            shape = (sum(rows or ()), *each[0].shape[1:])
            data = joined_texts(stored) if each[0].code == BYTES else b"".join([data for _, _, data in stored])
            tensors[name] = each[0].code, shape, data
        return rows, tensors
    if count > 1:
        return None
    for name, (tensor,) in apart.items():
        tensors[name] = tensor.code, tensor.shape, tensor.data()
    return None, tensors


def _have_rows(tensors: Sequence[Tensor], rows: Sequence[int]) -> bool:
    """Whether tensors of single requests are of one form but for their rows."""
    form = tensors[0].code, tensors[0].shape[1:]
    return [(tensor.code, tensor.shape[1:], tensor.shape[:1]) for tensor in tensors] == [
        (*form, (count,)) for count in rows
    ]


def combined(shared: Mapping[str, Any], groups: Sequence[Group]) -> Iterator[bytes]:
    """Records of some groups: those of one form together, as far as they are small.

    Args:
        shared: The fields that all requests of the recording have in common.
    """
    alike: dict[Hashable, list[Group]] = defaultdict(list)
    for group in groups:
        alike[group.form()].append(group)
    for each in alike.values():
        begin = size = 0
        for end, group in enumerate(each):
            added = group.size()
            if size + added > RECORD_BYTES and begin < end:
                yield encode(shared, each[begin:end])
                begin, size = end, 0
            size += added
        yield encode(shared, each[begin:])
