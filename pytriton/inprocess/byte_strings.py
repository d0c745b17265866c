"""Tensors of BYTES: for each element its length, four bytes little-endian, and its bytes; elements in C order."""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError

__all__ = ["decode", "encode"]

LENGTH = Struct("<I")


def encode(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The memory of a BYTES tensor.

    Args:
        array: Texts, which are encoded in UTF-8, or bytes; of any shape.

    Raises:
        InvalidTypeError: An element is neither.
    """
    parts = []
    for element in array.ravel():
        data = element.encode() if isinstance(element, str) else element
        if not isinstance(data, bytes):
            raise InvalidTypeError(f"an element is {element!r:.200}; give texts or bytes")
        parts += [LENGTH.pack(len(data)), data]
    return np.frombuffer(b"".join(parts), np.uint8)


def decode(memory: bytes, shape: tuple[int, ...]) -> npt.NDArray[np.object_]:
    """The elements of a BYTES tensor, as ``bytes``.

    Raises:
        InvalidArgumentError: The memory holds other than as many elements as the shape says.
    """
    result = np.empty(shape, np.object_)
    flat, position = result.reshape(-1), 0
    for index in range(flat.size):
        start = position + LENGTH.size
        if start > len(memory):
            raise InvalidArgumentError(f"the memory ends within element {index} of {flat.size}")
        position = start + LENGTH.unpack_from(memory, position)[0]
        if position > len(memory):
            raise InvalidArgumentError(f"the memory ends within element {index} of {flat.size}")
        flat[index] = memory[start:position]
    if position != len(memory):
        raise InvalidArgumentError(f"{len(memory) - position} bytes follow the last element")
    return result
