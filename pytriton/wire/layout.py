"""The layout of a message: which tensors it holds, without their data.

A layout consists of one entry per tensor, in the order of their data::

    name u16, dtype u8, rank u8, request u32, then u64 per extent

``request`` is WHOLE_BATCH for a tensor that holds the rows of all requests. Its first extent is the sum of those rows,
which differs from batch to batch, so it is not part of the layout: batches of any number of requests and rows have the
same layout, byte for byte. Offsets and sizes follow from the layout and the rows. Only the sizes of BYTES tensors do
not; the message has those beside its layout.

Layouts are parsed once and found again by their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .tensors import ALIGN, BYTES, DTYPES, MAX_RANK, WHOLE_BATCH, FrameError

__all__ = ["Layout", "Placed", "encode_entry", "layout_of"]

ENTRY = struct.Struct("<HBBI")  # name index, dtype code, rank, request index
MOST_LAYOUTS = 256
MOST_ENTRIES = 1024  # of tensors that differ in rows as well
LONGEST_LAYOUT = 4096  # bytes; longer ones, of many ragged requests, hardly come again
MOST_PLACES = 256

_EXTENTS = [struct.Struct(f"<{rank}Q") for rank in range(MAX_RANK + 1)]


class Placed(NamedTuple):
    """Where one received tensor lies; ``offset`` counts bytes from the start of the frame's data."""

    name: int
    request: int
    code: int
    shape: tuple[int, ...]
    offset: int
    size: int
    dtype: np.dtype[Any] | None  # None for BYTES


class Item(NamedTuple):
    """One entry of a layout.

    Attributes:
        name: Index of the tensor's name in the model's inputs (request) or outputs (response).
        request: Index of the request that it belongs to, or WHOLE_BATCH.
        code: Dtype code.
        extents: The whole shape; of a whole-batch tensor, without the first extent.
        dtype: None for BYTES.
        size: Bytes of the tensor, or of a row of a whole-batch tensor; 0 for BYTES.
    """

    name: int
    request: int
    code: int
    extents: tuple[int, ...]
    dtype: np.dtype[Any] | None
    size: int


class Layout:
    """A parsed layout.

    Attributes:
        has_tensors: Whether there is any entry.
        is_whole: Whether all tensors hold the rows of all requests, so that a frame has to tell those.
        texts: Number of BYTES tensors, whose sizes a frame tells.
        last_request: Greatest index of a request; -1 if there is none.

    Raises:
        FrameError: Some tensors are of single requests and others are not.
    """

    __slots__ = ("_items", "_places", "has_tensors", "is_whole", "last_request", "texts")

    def __init__(self, items: Sequence[Item]) -> None:
        single = [item.request for item in items if item.request != WHOLE_BATCH]
        if 0 < len(single) < len(items):
            raise FrameError("a frame has tensors of the whole batch beside those of single requests")
        self._items = items
        self._places: dict[int, tuple[list[Placed], int]] = {}
        self.has_tensors = bool(items)
        self.is_whole = bool(items) and not single
        self.texts = sum(item.dtype is None for item in items)
        self.last_request = max(single, default=-1)

    def place(self, rows: int, sizes: Sequence[int] = ()) -> tuple[list[Placed], int]:
        """Where the tensors of one message lie.

        Args:
            rows: Sum of the requests' rows.
            sizes: Bytes of each BYTES tensor.

        Returns:
            The tensors, in a list that others share, and the bytes up to the end of the last one.
        """
        if self.texts:
            return self._place(rows, sizes)
        places = self._places.get(rows)
        if places is None:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()
            places = self._places[rows] = self._place(rows, ())
        return places

    def _place(self, rows: int, sizes: Sequence[int]) -> tuple[list[Placed], int]:
        placed = []
        offset = end = 0
        told = iter(sizes)
        for name, request, code, extents, dtype, size in self._items:
            if request == WHOLE_BATCH:
                extents, size = (rows, *extents), rows * size
            if dtype is None:
                size = next(told)
            placed.append(Placed(name, request, code, extents, offset, size, dtype))
            end = offset + size
            offset = end + (-end % ALIGN)
        return placed, end


@lru_cache(MOST_ENTRIES)
def encode_entry(name: int, request: int, code: int, shape: tuple[int, ...]) -> bytes:
    """The entry of one tensor, from its whole shape."""
    extents = shape[1:] if request == WHOLE_BATCH else shape
    return ENTRY.pack(name, code, len(shape), request) + _EXTENTS[len(extents)].pack(*extents)


def layout_of(encoded: bytes) -> Layout:
    """The layout that some bytes describe.

    Raises:
        FrameError: They describe none.
    """
    return _known(encoded) if len(encoded) <= LONGEST_LAYOUT else _parse(encoded)


def _parse(encoded: bytes) -> Layout:
    items = []
    at = 0
    try:
        while at < len(encoded):
            name, code, rank, request = ENTRY.unpack_from(encoded, at)
            is_whole = request == WHOLE_BATCH
            if rank > MAX_RANK or rank < is_whole:
                raise FrameError(f"a tensor for request {request} has rank {rank}")
            dtype = DTYPES.get(code)
            if dtype is None and code != BYTES:
                raise FrameError(f"unknown dtype code {code}")
            extents = _EXTENTS[rank - is_whole].unpack_from(encoded, at + ENTRY.size)
            size = 0 if dtype is None else prod(extents) * dtype.itemsize
            items.append(Item(name, request, code, extents, dtype, size))
            at += ENTRY.size + 8 * len(extents)
    except struct.error as error:
        raise FrameError(f"truncated layout of {len(encoded)} bytes") from error
    return Layout(items)


_known = lru_cache(MOST_LAYOUTS)(_parse)
