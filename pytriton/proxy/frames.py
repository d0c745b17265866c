"""The wire format: one frame each way per batch. Pure functions on bytes; see README.md for the picture.

::

    header      32 bytes, HEADER
    released    u64[released]            regions of the peer's arena that the sender no longer uses
    tensors     TENSOR + u64[rank] each  what lies where in the data
    rows        u32[requests]            if flag ROWS: rows of each request in whole-batch tensors
    metadata    JSON text                if any request or error needs it
    (padding to ALIGN)
    data        if flag INLINE: the tensors' bytes, each padded to ALIGN; else they lie so in the sender's arena, from
                byte ``region`` on

All integers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from .tensors import ALIGN, MAX_RANK, WHOLE_BATCH, FrameError, Placed, Tensor, view

REQUEST, RESPONSE, ERROR, SPILL, END, CANCEL, RELEASE, ASK, BYE = KINDS = 1, 2, 3, 4, 5, 6, 7, 8, 9
INLINE, ROWS, MORE, APART = 1, 2, 4, 8

HEADER = struct.Struct("<IBBHIIIIQ")  # length, kind, flags, released, sequence, requests, tensors, metadata, region
KIND, NUMBER, COUNTS, REGION = 4, slice(8, 12), slice(12, 20), 24  # where a message has its kind, sequence and so on
TENSOR = struct.Struct("<HBBIQQ")  # name index, dtype code, rank, request index, offset, size in bytes
INLINE_LIMIT_BYTES = 32 * 1024
MAX_REQUESTS = 1 << 20  # each becomes an object, though it may have no tensor
NO_REGION = 0xFFFFFFFFFFFFFFFF

_SHAPES = [struct.Struct(f"<{rank}Q") for rank in range(MAX_RANK + 1)]
_PADDING = bytes(ALIGN)
_MOST_LAYOUTS = 256
_LONGEST_DESCRIPTION = 4096


@dataclass(slots=True)
class Frame:
    """One message.

    Attributes:
        kind: REQUEST, RESPONSE, ERROR, SPILL, END (of a stream), CANCEL (of requests), RELEASE (of regions alone),
            ASK (which requests are cancelled) or BYE (the server lets the model go).
        sequence: Number of the batch; a reply carries that of its request. Of RELEASE, how many streamed replies the
            sender has taken.
        requests: Requests in the batch.
        rows: Rows of each request in whole-batch tensors; None if there are no such tensors.
        metadata: JSON text, empty if none.
        released: Offsets of regions in the receiver's arena that the sender has finished with.
        tensors: What a received frame holds; other frames may share the list.
        region: Offset of the data in the sender's arena; NO_REGION if it travels inline.
        more: Whether other replies to the same batch follow.
        apart: Whether the requests must be seen one by one: some want only a part of the outputs, or are traced.
        data: What the tensors' offsets count in: inline data of a received frame, or the region.
        watches: Who observes the batch in this process: the worker's metrics and spans. They do not travel.
        cancellation: Of a received batch: says which of its requests are cancelled. Not sent.
    """

    kind: int
    sequence: int = 0
    requests: int = 0
    rows: Sequence[int] | None = None
    metadata: bytes = b""
    released: Sequence[int] = ()
    tensors: Sequence[Placed] = field(default_factory=list)
    region: int = NO_REGION
    more: bool = False
    apart: bool = False
    data: Any = None
    cancellation: Any = None
    watches: Sequence[Any] = ()

    @property
    def data_bytes(self) -> int:
        """Bytes from the start of the data to the end of its last tensor."""
        return max((tensor.offset + tensor.size for tensor in self.tensors), default=0)

    def array(self, tensor: Placed) -> NDArray[Any]:
        """One received tensor: a writable view of the data, or for BYTES a decoded copy.

        Raises:
            FrameError: The tensor does not fit the data, or its size contradicts its shape.
        """
        return view(self.data, tensor)


def pack(frame: Frame, tensors: Sequence[Tensor] = ()) -> bytes:
    """Encode a frame.

    Args:
        frame: Everything but the tensors. With ``region`` set, their data is not included: it lies in the arena at
            the offsets of :func:`offsets`.
        tensors: What to send.
    """
    inline = frame.region == NO_REGION
    flags = (INLINE if inline else 0) | (ROWS if frame.rows is not None else 0) | (MORE if frame.more else 0)
    if frame.apart:
        flags |= APART
    body = []
    if frame.released:
        body.append(struct.pack(f"<{len(frame.released)}Q", *frame.released))
    pieces: list[Any] = []  # Data; but numpy's types do not say that an array is a buffer
    offset = 0
    for name, request, code, shape, size, parts in tensors:
        body.append(TENSOR.pack(name, code, len(shape), request, offset, size))
        body.append(_SHAPES[len(shape)].pack(*shape))
        pad = -size % ALIGN
        offset += size + pad
        if inline:
            pieces.extend(parts)
            pieces.append(_PADDING[:pad])
    if frame.rows is not None:
        body.append(struct.pack(f"<{len(frame.rows)}I", *frame.rows))
    body.append(frame.metadata)
    length = HEADER.size + sum(map(len, body))
    if pieces:
        body.append(_PADDING[: -length % ALIGN])
        length += -length % ALIGN + offset
    header = HEADER.pack(
        length,
        frame.kind,
        flags,
        len(frame.released),
        frame.sequence,
        frame.requests,
        len(tensors),
        len(frame.metadata),
        frame.region,
    )
    return b"".join((header, *body, *pieces))


def unpack(buffer: memoryview) -> Frame:
    """Decode a frame; inline data stays a view of the buffer.

    Args:
        buffer: The whole frame and nothing else.

    Raises:
        FrameError: Truncated, or counts and offsets that do not fit.
    """
    try:
        return _unpack(buffer)
    except struct.error as error:
        raise FrameError(f"truncated frame of {len(buffer)} bytes") from error


def _unpack(buffer: memoryview) -> Frame:
    length, kind, flags, released, sequence, requests, tensors, metadata, region = HEADER.unpack_from(buffer)
    if length != len(buffer):
        raise FrameError(f"a frame of {length} bytes arrived as {len(buffer)}")
    inline = bool(flags & INLINE)
    plain = inline and region == NO_REGION and not (released or metadata)
    key = (length, kind, flags, requests, tensors) if plain else None
    known = _layouts.get(key)
    if known is not None and buffer[HEADER.size : HEADER.size + len(known.description)] == known.description:
        more, apart = bool(flags & MORE), bool(flags & APART)
        data = buffer[known.data :]
        return Frame(kind, sequence, requests, known.rows, b"", (), known.tensors, region, more, apart, data)
    if kind not in KINDS or inline != (region == NO_REGION):
        raise FrameError(f"a frame of kind {kind} has flags {flags} and its data in region {region}")
    if requests > MAX_REQUESTS:
        raise FrameError(f"a frame of {requests} requests; there may be {MAX_REQUESTS}")
    frame = Frame(kind, sequence, requests, region=region, more=bool(flags & MORE), apart=bool(flags & APART))
    at = HEADER.size
    if released:
        frame.released = struct.unpack_from(f"<{released}Q", buffer, at)
        at += 8 * released
    new, placed = tuple.__new__, list[Placed]()  # a named tuple's own constructor takes three times as long
    for _ in range(tensors):
        name, code, rank, request, offset, size = TENSOR.unpack_from(buffer, at)
        if rank > MAX_RANK or not (request < requests or request == WHOLE_BATCH):
            raise FrameError(f"tensor of rank {rank} for request {request} of {requests}")
        shape = _SHAPES[rank].unpack_from(buffer, at + TENSOR.size)
        placed.append(new(Placed, (name, request, code, shape, offset, size)))
        at += TENSOR.size + 8 * rank
    if flags & ROWS:
        frame.rows = struct.unpack_from(f"<{requests}I", buffer, at)
        at += 4 * requests
    frame.tensors = placed
    _check_rows(frame)
    frame.metadata = bytes(buffer[at : at + metadata])
    at += metadata
    if at > length:
        raise FrameError(f"a frame of {length} bytes describes {at}")
    if inline:
        frame.data = buffer[at + (-at % ALIGN) :]
    if key is not None and at <= _LONGEST_DESCRIPTION:
        _learn(key, _Layout(bytes(buffer[HEADER.size : at]), frame.rows, placed, at + (-at % ALIGN)))
    return frame


class _Layout(NamedTuple):
    """What a description says, to be known again: those of most frames are the same few, byte for byte."""

    description: bytes
    rows: Sequence[int] | None
    tensors: list[Placed]
    data: int  # where it begins


_layouts: dict[Any, _Layout] = {}  # by what of the header counts


def _learn(key: tuple[int, ...], layout: _Layout) -> None:
    if len(_layouts) >= _MOST_LAYOUTS:
        _layouts.clear()
    _layouts[key] = layout


def _check_rows(frame: Frame) -> None:
    """With rows, every tensor has those of all requests; without, it belongs to one of them."""
    total = sum(frame.rows or ())
    for _, request, _, shape, _, _ in frame.tensors:
        whole = request == WHOLE_BATCH
        if whole != (frame.rows is not None) or (whole and shape[:1] != (total,)):
            raise FrameError(f"tensor of shape {shape} for request {request} where requests have {frame.rows} rows")
