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

import array
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

REQUEST, RESPONSE, ERROR, SPILL, END, CANCEL, RELEASE = KINDS = 1, 2, 3, 4, 5, 6, 7
INLINE, ROWS, MORE = 1, 2, 4

HEADER = struct.Struct("<IBBHIIIIQ")  # length, kind, flags, released, sequence, requests, tensors, metadata, region
TENSOR = struct.Struct("<HBBIQQ")  # name index, dtype code, rank, request index, offset, size in bytes
ALIGN = 64
INLINE_LIMIT_BYTES = 32 * 1024
WHOLE_BATCH = 0xFFFFFFFF
NO_REGION = 0xFFFFFFFFFFFFFFFF
MAX_RANK = 32  # of NumPy 1

# Codes are those of TRITONSERVER_DataType, so that a native proxy needs no table.
BYTES = 13
DTYPES: dict[int, np.dtype[Any]] = {
    code: np.dtype(name)
    for code, name in enumerate(
        [
            "bool",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "float32",
            "float64",
        ],
        start=1,
    )
}
_CODES = {dtype: code for code, dtype in DTYPES.items()}
_SHAPES = [struct.Struct(f"<{rank}Q") for rank in range(MAX_RANK + 1)]
_PADDING = bytes(ALIGN)

Data = Union[bytes, "NDArray[Any]"]


class FrameError(ValueError):
    """A frame's bytes contradict themselves; the connection that sent it cannot be trusted further."""


class Tensor(NamedTuple):
    """One tensor to send.

    Attributes:
        name: Index of the tensor's name in the model's inputs (request) or outputs (response).
        request: Index of the request that it belongs to, or WHOLE_BATCH.
        code: Dtype code.
        shape: Full shape.
        size: Bytes.
        parts: C-contiguous buffers which are the data when put one after the other.
    """

    name: int
    request: int
    code: int
    shape: tuple[int, ...]
    size: int
    parts: Sequence[Data]


class Placed(NamedTuple):
    """Where one received tensor lies; ``offset`` counts bytes from the start of the frame's data."""

    name: int
    request: int
    code: int
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(slots=True)
class Frame:
    """One message.

    Attributes:
        kind: REQUEST, RESPONSE, ERROR, SPILL, END (of a stream), CANCEL (of a batch) or RELEASE (of regions alone).
        sequence: Number of the batch; a reply carries that of its request. Of RELEASE, how many streamed replies the
            sender has taken.
        requests: Requests in the batch.
        rows: Rows of each request in whole-batch tensors; None if there are no such tensors.
        metadata: JSON text, empty if none.
        released: Offsets of regions in the receiver's arena that the sender has finished with.
        tensors: What a received frame holds.
        region: Offset of the data in the sender's arena; NO_REGION if it travels inline.
        more: Whether other replies to the same batch follow.
        data: What the tensors' offsets count in: inline data of a received frame, or the region.
    """

    kind: int
    sequence: int = 0
    requests: int = 0
    rows: Sequence[int] | None = None
    metadata: bytes = b""
    released: Sequence[int] = ()
    tensors: list[Placed] = field(default_factory=list)
    region: int = NO_REGION
    more: bool = False
    data: Any = None

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


def tensor(name: int, array: NDArray[Any], request: int = WHOLE_BATCH) -> Tensor:
    """Prepare one array for sending; copies only what is not contiguous, and BYTES.

    Raises:
        FrameError: Its dtype or rank cannot travel.
        TypeError: It holds objects that are neither ``bytes`` nor ``str``.
    """
    code = dtype_code(array.dtype)
    if array.ndim > MAX_RANK:
        raise FrameError(f"arrays of rank {array.ndim} cannot travel")
    if code == BYTES:
        encoded = encode_bytes(array)
        return Tensor(name, request, code, array.shape, len(encoded), (encoded,))
    if not array.flags.c_contiguous or not array.dtype.isnative:
        array = np.asarray(array, array.dtype.newbyteorder("="), order="C")  # ascontiguousarray() changes the shape ()
    return Tensor(name, request, code, array.shape, array.nbytes, (array,))


def joined(name: int, arrays: Sequence[NDArray[Any]], rows: int) -> Tensor:
    """Prepare the arrays of several requests as one whole-batch tensor, without joining them yet.

    Args:
        name: Index of the input's name.
        arrays: Contiguous arrays of shape ``(rows of the request, ...)``, all of one dtype (native numbers, or objects)
            and one trailing shape.
        rows: Sum of the arrays' rows.
    """
    first = arrays[0]
    if len(arrays) == 1 or first.dtype.hasobject:
        return tensor(name, first if len(arrays) == 1 else np.concatenate(arrays))
    size = sum(array.nbytes for array in arrays)
    return Tensor(name, WHOLE_BATCH, _CODES[first.dtype], (rows, *first.shape[1:]), size, arrays)


def encode_bytes(strings: NDArray[Any]) -> bytes:
    """Encode an object, ``S`` or ``U`` array: u32 lengths of all elements, then their bytes, in C order.

    Raises:
        TypeError: An element is neither ``bytes`` nor ``str``.
    """
    elements = strings.ravel().tolist()
    if strings.dtype.kind != "S":
        elements = [element if type(element) is bytes else _as_bytes(element) for element in elements]
    return array.array("I", map(len, elements)).tobytes() + b"".join(elements)


def _as_bytes(element: object) -> bytes:
    if isinstance(element, bytes):  # numpy.bytes_ and other subclasses
        return bytes(element)
    if isinstance(element, str):
        return element.encode()
    raise TypeError(f"a bytes tensor holds {type(element).__name__}; give bytes or str")


def decode_bytes(encoded: Any, shape: tuple[int, ...]) -> NDArray[np.object_]:
    """Inverse of :func:`encode_bytes`: an object array of ``bytes`` of the given shape (a copy).

    Raises:
        FrameError: The lengths do not fit the data.
    """
    count = _count(shape)
    buffer = bytes(encoded)
    if len(buffer) < 4 * count:
        raise FrameError(f"{len(buffer)} bytes cannot hold the lengths of {count} strings")
    lengths = struct.unpack_from(f"<{count}I", buffer)
    ends = list(accumulate(lengths, initial=4 * count))
    if ends[-1] != len(buffer):
        raise FrameError(f"strings end at byte {ends[-1]} of {len(buffer)}")
    strings = _empty(shape, np.dtype(object))
    strings.reshape(-1)[:] = [buffer[start:end] for start, end in pairwise(ends)]
    return strings


def dtype_code(dtype: np.dtype[Any]) -> int:
    """The wire code of a numpy dtype.

    Raises:
        FrameError: The dtype cannot travel.
    """
    if dtype.kind in "OSU":
        return BYTES
    code = _CODES.get(dtype) or _CODES.get(dtype.newbyteorder("="))
    if code is None:
        raise FrameError(f"arrays of dtype {dtype} cannot travel")
    return code


def pack(frame: Frame, tensors: Sequence[Tensor] = ()) -> bytes:
    """Encode a frame.

    Args:
        frame: Everything but the tensors. With ``region`` set, their data is not included: it lies in the arena at
            the offsets of :func:`offsets`.
        tensors: What to send.
    """
    inline = frame.region == NO_REGION
    flags = (INLINE if inline else 0) | (ROWS if frame.rows is not None else 0) | (MORE if frame.more else 0)
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


def data_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes that the tensors' data takes, each padded to ALIGN."""
    return sum([tensor.size + (-tensor.size % ALIGN) for tensor in tensors])


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
    if kind not in KINDS or inline != (region == NO_REGION):
        raise FrameError(f"a frame of kind {kind} has flags {flags} and its data in region {region}")
    frame = Frame(kind, sequence, requests, region=region, more=bool(flags & MORE))
    at = HEADER.size
    if released:
        frame.released = struct.unpack_from(f"<{released}Q", buffer, at)
        at += 8 * released
    new, placed = tuple.__new__, frame.tensors  # a named tuple's own constructor takes three times as long
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
    _check_rows(frame)
    frame.metadata = bytes(buffer[at : at + metadata])
    at += metadata
    if at > length:
        raise FrameError(f"a frame of {length} bytes describes {at}")
    if inline:
        frame.data = buffer[at + (-at % ALIGN) :]
    return frame


def _check_rows(frame: Frame) -> None:
    """With rows, every tensor has those of all requests; without, it belongs to one of them."""
    total = sum(frame.rows or ())
    for _, request, _, shape, _, _ in frame.tensors:
        whole = request == WHOLE_BATCH
        if whole != (frame.rows is not None) or (whole and shape[:1] != (total,)):
            raise FrameError(f"tensor of shape {shape} for request {request} where requests have {frame.rows} rows")


def view(data: Any, placed: Placed) -> NDArray[Any]:
    """A received tensor: a writable view of the data that it lies in, or for BYTES a decoded copy.

    Raises:
        FrameError: The tensor does not fit the data, or its size contradicts its shape.
    """
    _, _, code, shape, offset, size = placed
    if not 0 <= offset <= offset + size <= len(data):
        raise FrameError(f"a tensor lies at bytes {offset} to {offset + size} of {len(data)}")
    if code == BYTES:
        return decode_bytes(data[offset : offset + size], shape)
    if code not in DTYPES:
        raise FrameError(f"unknown dtype code {code}")
    dtype = DTYPES[code]
    if _count(shape) * dtype.itemsize != size:
        raise FrameError(f"a tensor of shape {shape} and dtype {dtype} has {size} bytes")
    if size == 0:
        return _empty(shape, dtype)
    return np.ndarray(shape, dtype, data, offset)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        return np.empty(shape, dtype)
    except ValueError as error:  # an extent beyond numpy's, beside one of 0
        raise FrameError(f"a tensor cannot have shape {shape}") from error


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
