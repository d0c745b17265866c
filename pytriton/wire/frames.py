"""The wire format: one frame each way per batch. Pure functions on bytes; see README.md for the picture.

::

    header      32 bytes, HEADER
    layout      which tensors there are, layout.py
    sizes       u64 per BYTES tensor
    released    u64[released]            regions of the peer's arena that the sender no longer uses
    rows        u32[requests]            if flag ROWS: rows of each request in whole-batch tensors
    metadata    JSON text                if any request or error needs it
    (padding to ALIGN)
    data        if flag INLINE: the tensors' bytes, each padded to ALIGN; else they lie so in the sender's arena, from
                byte ``region`` on

All integers are little-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import Placed, encode_entry, layout_of
from .tensors import ALIGN, BYTES, FrameError, Tensor, decode_bytes, empty

REQUEST, RESPONSE, ERROR, SPILL, END, CANCEL, RELEASE, ASK, BYE, LIMIT = KINDS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
INLINE, ROWS, MORE, APART = 1, 2, 4, 8

HEADER = struct.Struct("<IBBHIIIIQ")  # length, kind, flags, released, number, requests, layout, metadata, region
KIND = 4  # where a message has its kind
INLINE_LIMIT_BYTES = 32 * 1024
MAX_REQUESTS = 1 << 20  # each becomes an object, though it may have no tensor
NO_REGION = 0xFFFFFFFFFFFFFFFF
SEQUENCE_START, SEQUENCE_END = 1, 2  # flags of a request, in the metadata

_PADDING = bytes(ALIGN)
_ROWS = [struct.Struct(f"<{requests}I") for requests in range(129)]


class Frame:
    """One message.

    Args:
        kind: REQUEST, RESPONSE, ERROR, SPILL, END (of a stream), CANCEL (of requests), RELEASE (of regions alone),
            ASK (which requests are cancelled), BYE (the server lets the model go) or LIMIT (of batches in flight).
        number: Of the batch; a reply carries that of its request. Of RELEASE, how many streamed replies the sender has
            taken; of LIMIT, how many batches the proxy may have in flight from now on.
        rows: Rows of each request in whole-batch tensors; None if there are no such tensors.
        metadata: JSON text, empty if none.
        released: Offsets of regions in the receiver's arena that the sender has finished with.
        region: Offset of the data in the sender's arena; NO_REGION if it travels inline.
        more: Whether other replies to the same batch follow.
        apart: Whether the requests must be seen one by one: some want only a part of the outputs, or are traced.

    Attributes:
        tensors: What a received frame holds; other frames share the list.
        data_bytes: Bytes from the start of the data to the end of its last tensor; of a received frame.
        data: What the tensors' offsets count in: inline data of a received frame, or the region.
        observers: What observes the batch in this process: metrics, spans and recordings. They do not travel.
        cancellation: Of a received batch: says which of its requests are cancelled. Not sent.
    """

    # What most frames have, which takes no time to set.
    metadata: bytes = b""
    released: Sequence[int] = ()
    tensors: Sequence[Placed] = ()
    data_bytes: int = 0
    data: Any = None
    observers: Sequence[Any] = ()
    cancellation: Any = None

    def __init__(
        self,
        kind: int,
        number: int = 0,
        requests: int = 0,
        rows: Sequence[int] | None = None,
        metadata: bytes = b"",
        released: Sequence[int] = (),
        region: int = NO_REGION,
        more: bool = False,
        apart: bool = False,
    ) -> None:
        self.kind = kind
        self.number = number
        self.requests = requests
        self.rows = rows
        self.region = region
        self.more = more
        self.apart = apart
        if metadata:
            self.metadata = metadata
        if released:
            self.released = released

    def array(self, tensor: Placed) -> NDArray[Any]:
        """One received tensor: a writable view of the data, or for BYTES a decoded copy.

        Raises:
            FrameError: The strings do not fit their size, or NumPy has no such shape.
        """
        _, _, _, shape, offset, size, dtype = tensor
        if dtype is None:
            return decode_bytes(self.data[offset : offset + size], shape)
        return np.ndarray(shape, dtype, self.data, offset) if size else empty(shape, dtype)


def received_tensors(frame: Frame) -> list[Tensor]:
    """The tensors of a received frame, to be sent on or kept, without a copy of their data."""
    return [
        Tensor(name, request, code, shape, size, (frame.data[offset : offset + size],))
        for name, request, code, shape, offset, size, _ in frame.tensors
    ]


def pack(frame: Frame, tensors: Sequence[Tensor] = ()) -> bytes:
    """Encode a frame.

    Args:
        frame: Everything but the tensors. With ``region`` set, their data is not included: it lies in the arena, each
            tensor padded to ALIGN.
    """
    entries, sizes = [], []
    pieces: list[Any] = []  # Data; but numpy's types do not say that an array is a buffer
    size_of_data = 0
    for name, request, code, shape, size, parts in tensors:
        entries.append(encode_entry(name, request, code, shape))
        if code == BYTES:
            sizes.append(size)
        if size:
            pieces += parts
            if pad := -size % ALIGN:
                pieces.append(_PADDING[:pad])
            size_of_data += size + pad
    layout = b"".join(entries)
    rows, metadata, released, region = frame.rows, frame.metadata, frame.released, frame.region
    flags = (MORE if frame.more else 0) | (APART if frame.apart else 0)
    head = [layout]
    length = HEADER.size + len(layout)
    if sizes or released:
        numbers = (*sizes, *released)
        head.append(struct.pack(f"<{len(numbers)}Q", *numbers))
        length += 8 * len(numbers)
    if rows is not None:
        flags |= ROWS
        head.append(_rows(len(rows)).pack(*rows))
        length += 4 * len(rows)
    if metadata:
        head.append(metadata)
        length += len(metadata)
    if region == NO_REGION:
        flags |= INLINE
        if size_of_data:
            head.append(_PADDING[: -length % ALIGN])
            length += -length % ALIGN + size_of_data
    else:
        pieces = []
    header = HEADER.pack(
        length, frame.kind, flags, len(released), frame.number, frame.requests, len(layout), len(metadata), region
    )
    return b"".join((header, *head, *pieces))


def unpack(buffer: memoryview) -> Frame:
    """Decode a frame; inline data stays a view of the buffer.

    Args:
        buffer: The whole frame and nothing else.

    Raises:
        FrameError: Truncated, or counts and sizes that do not fit.
    """
    try:
        length, kind, flags, released, number, requests, layout_bytes, metadata, region = HEADER.unpack_from(buffer)
        if length != len(buffer):
            raise FrameError(f"a frame of {length} bytes arrived as {len(buffer)}")
        inline = flags & INLINE
        if not 1 <= kind <= LIMIT or (inline == 0) == (region == NO_REGION):
            raise FrameError(f"a frame of kind {kind} has flags {flags} and its data in region {region}")
        if requests > MAX_REQUESTS:
            raise FrameError(f"a frame of {requests} requests; there may be {MAX_REQUESTS}")
        at = HEADER.size + layout_bytes
        layout = layout_of(bytes(buffer[HEADER.size : at]))
        has_rows = flags & ROWS
        if layout.last_request >= requests or (layout.has_tensors and layout.is_whole != (has_rows != 0)):
            raise FrameError(f"a frame of {requests} requests, with flags {flags}, has tensors of other requests")
        frame = Frame(kind, number, requests, None, b"", (), region, flags & MORE != 0, flags & APART != 0)
        sizes: Sequence[int] = ()
        if layout.texts:
            sizes = struct.unpack_from(f"<{layout.texts}Q", buffer, at)
            at += 8 * layout.texts
        if released:
            frame.released = struct.unpack_from(f"<{released}Q", buffer, at)
            at += 8 * released
        total = 0
        if has_rows:
            frame.rows = rows = _rows(requests).unpack_from(buffer, at)
            total = sum(rows)
            at += 4 * requests
        if metadata:
            frame.metadata = bytes(buffer[at : at + metadata])
            at += metadata
        frame.tensors, frame.data_bytes = layout.place(total, sizes)
        if inline:
            if frame.data_bytes:
                at += -at % ALIGN
            frame.data = buffer[at:]
            at += frame.data_bytes
        if at > length:
            raise FrameError(f"a frame of {length} bytes describes {at}")
        return frame
    except struct.error as error:
        raise FrameError(f"truncated frame of {len(buffer)} bytes") from error


def cancellation(number: int, requests: int, cancelled: Sequence[int], all_done: bool) -> Frame:
    """What tells a worker of cancelled requests of a batch.

    Args:
        cancelled: Their indices.
        all_done: Whether nobody waits for any request of the batch now.
    """
    told = {"requests": list(cancelled), "all": all_done}
    return Frame(CANCEL, number, requests, metadata=json.dumps(told).encode())


def error_reply(number: int, requests: int, message: str, code: str) -> Frame:
    """What fails all requests of a batch; to send them again one by one would not help.

    Args:
        code: The value of an ``ErrorCode``.
    """
    status = {"message": message, "code": code, "isolate": False}
    return Frame(ERROR, number, requests, metadata=json.dumps(status).encode())


def _rows(requests: int) -> struct.Struct:
    """The rows of so many requests."""
    return _ROWS[requests] if requests < len(_ROWS) else struct.Struct(f"<{requests}I")


# What a callable says of a failure beside its message is JSON, behind a mark where only the message gets through.
SEPARATOR = " | "
MARK = SEPARATOR + '{"details":'


def join_details(message: str, details: str) -> str:
    """The text that the server passes on: the message, then the details."""
    return f"{message}{SEPARATOR}{details}" if details else message


def split_details(text: str) -> tuple[str, str]:
    """Message and details of such a text; the latter are empty if there are none."""
    message, mark, _ = text.rpartition(MARK)
    return (message, text[len(message) + len(SEPARATOR) :]) if mark else (text, "")
