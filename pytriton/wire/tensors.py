"""The tensors of a frame: arrays as bytes, and bytes as arrays."""

from __future__ import annotations

import array
import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

ALIGN = 64
WHOLE_BATCH = 0xFFFFFFFF
MAX_RANK = 32  # of NumPy 1

# Name in the inference protocol to NumPy scalar type, in the order of TRITONSERVER_DataType, whose codes begin at 1.
# The table of the native proxy is in native/frames/tensors.cpp; tests/unit/model_config/test_dtypes.py compares both.
SCALAR_TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.bytes_,
}
BYTES = 13
DTYPES = {code: np.dtype(scalar) for code, scalar in enumerate(SCALAR_TYPES.values(), start=1) if code != BYTES}
_CODES = {dtype: code for code, dtype in DTYPES.items()}

Data = Union[bytes, "NDArray[Any]"]


class FrameError(ValueError):
    """A frame's bytes contradict themselves; the connection that sent it cannot be trusted further."""


class BadRequestError(ValueError):
    """What a client sent cannot travel; requests merged with its own shall not suffer from it."""


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

    def data(self) -> bytes:
        """The data, as a copy unless they are one ``bytes`` object."""
        parts: Sequence[Any] = self.parts
        return b"".join(parts)

    def copied(self) -> Tensor:
        """The same with data of its own."""
        return Tensor(self.name, self.request, self.code, self.shape, self.size, (self.data(),))


def tensor(name: int, array: NDArray[Any], request: int = WHOLE_BATCH) -> Tensor:
    """Prepare one array for sending; copies only what is not contiguous, and BYTES.

    Raises:
        FrameError: Its dtype or rank cannot travel.
        TypeError: It holds objects that are neither ``bytes`` nor ``str``.
    """
    if array.ndim > MAX_RANK:
        raise FrameError(f"arrays of rank {array.ndim} cannot travel")
    code = _CODES.get(array.dtype)
    if code is None:  # not one of the native numbers
        code = dtype_code(array.dtype)
        if code == BYTES:
            encoded = encode_bytes(array)
            return Tensor(name, request, code, array.shape, len(encoded), (encoded,))
        array = array.astype(DTYPES[code])
    if not array.flags.c_contiguous:
        array = np.asarray(array, order="C")  # ascontiguousarray() changes the shape ()
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
    count = prod(shape)
    buffer = bytes(encoded)
    if len(buffer) < 4 * count:
        raise FrameError(f"{len(buffer)} bytes cannot hold the lengths of {count} strings")
    lengths = struct.unpack_from(f"<{count}I", buffer)
    ends = list(accumulate(lengths, initial=4 * count))
    if ends[-1] != len(buffer):
        raise FrameError(f"strings end at byte {ends[-1]} of {len(buffer)}")
    strings = empty(shape, np.dtype(object))
    strings.reshape(-1)[:] = [buffer[start:end] for start, end in pairwise(ends)]
    return strings


def dtype_code(dtype: np.dtype[Any]) -> int:
    """The wire code of a numpy dtype.

    Raises:
        FrameError: The dtype cannot travel.
    """
    if dtype.kind in "OSU":
        return BYTES
    code = _CODES.get(dtype.newbyteorder("="))
    if code is None:
        raise FrameError(f"arrays of dtype {dtype} cannot travel")
    return code


def data_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes that the tensors' data takes, each padded to ALIGN."""
    size = 0
    for tensor in tensors:
        size += tensor[4] + (-tensor[4] % ALIGN)
    return size


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of the shape of a received tensor.

    Raises:
        FrameError: NumPy has no such shape: an extent beyond its limit, beside one of 0.
    """
    try:
        return np.empty(shape, dtype)
    except ValueError as error:
        raise FrameError(f"a tensor cannot have shape {shape}") from error
