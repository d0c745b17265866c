"""What regions of shared memory contain: arrays as bytes, and bytes as arrays."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.compat.tensorrtserver.exceptions import InferenceServerException
from pytriton.compat.tensorrtserver.strings import serialize_string_tensor

__all__ = ["as_array", "as_chunks", "raised_as"]


@contextmanager
def raised_as(kind: type[InferenceServerException], doing: str) -> Iterator[None]:
    """Raise errors of the body as one of ``kind``, whose message begins with what was being done."""
    try:
        yield
    except kind:
        raise
    except Exception as error:
        raise kind(f"cannot {doing}: {error}") from None  # one failure prints one traceback


def as_chunks(input_values: Any, room: int) -> list[NDArray[np.uint8]]:
    """The bytes of arrays, in C order.

    Strings are encoded as :func:`serialize_string_tensor` does. An array without axes that holds ``bytes`` counts as
    encoded.

    Args:
        input_values: A list or tuple of arrays.
        room: Bytes that all of them may take.

    Raises:
        ValueError: It is something else, or takes more.
    """
    if not isinstance(input_values, (list, tuple)) or not all(isinstance(each, np.ndarray) for each in input_values):
        raise ValueError(f"input_values must be a list of arrays, got {_described(input_values)}")
    chunks = [_chunk(array) for array in input_values]
    needed = sum(chunk.nbytes for chunk in chunks)
    if needed > room:
        raise ValueError(f"the arrays take {needed} bytes, but there is room for {room}")
    return chunks


def as_array(memory: Any, datatype: Any, shape: Any, offset: int) -> NDArray[Any]:
    """An array of what lies in memory.

    Args:
        memory: A buffer.
        datatype: A dtype of NumPy; ``object``, ``bytes`` and ``str`` mean strings.
        shape: Of the array.
        offset: Where it begins in memory, in bytes.

    Returns:
        A view of the memory; strings are a new object array of ``bytes``.

    Raises:
        ValueError: The memory is too short, or does not hold strings.
    """
    dtype = np.dtype(datatype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(int(size) for size in shape)
    if offset < 0 or any(size < 0 for size in shape):
        raise ValueError(f"shape and offset must not be negative, got {list(shape)} and {offset}")
    if dtype.kind in "OSU":
        return _strings(memory, math.prod(shape), offset).reshape(shape)
    needed, there = math.prod(shape) * dtype.itemsize, len(memory) - offset
    if needed > there:
        raise ValueError(f"shape {list(shape)} of {dtype} takes {needed} bytes, but there are {max(0, there)}")
    return np.ndarray(shape, dtype, buffer=memory, offset=offset if needed else 0)


def _chunk(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype.kind in "OSU":
        item = array.item() if array.ndim == 0 else None
        if isinstance(item, bytes):
            return np.frombuffer(item, np.uint8)
        return serialize_string_tensor(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _strings(memory: Any, count: int, offset: int) -> NDArray[np.object_]:
    found = np.empty(count, dtype=object)
    for index in range(count):
        start = offset + 4
        if start > len(memory) or (end := start + struct.unpack_from("<I", memory, offset)[0]) > len(memory):
            raise ValueError(f"the region holds {index} strings and no more; {count} are wanted")
        found[index] = bytes(memory[start:end])
        offset = end
    return found


def _described(value: Any) -> str:
    return f"a list with {[type(each).__name__ for each in value]}" if isinstance(value, list) else type(value).__name__
