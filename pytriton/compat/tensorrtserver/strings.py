"""Texts as servers take them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.compat.tensorrtserver.exceptions import InferenceServerException

__all__ = ["as_bytes", "serialize_string_tensor"]


def serialize_string_tensor(input_tensor: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a tensor of texts.

    Args:
        input_tensor: Any shape, not empty, dtype ``np.bytes_``, ``np.str_`` or ``object``; see :func:`as_bytes`.

    Returns:
        One axis. For each element, in C order, the count of its bytes as a little-endian uint32, then the bytes.

    Raises:
        InferenceServerException: It is no such array.
    """
    items = as_bytes(input_tensor).ravel().tolist()
    if not items:
        raise InferenceServerException("a tensor of strings must not be empty")
    return np.frombuffer(b"".join([struct.pack("<I", len(item)) + item for item in items]), np.uint8)


def as_bytes(array: NDArray[Any]) -> NDArray[np.object_]:
    """A new array of the same shape whose elements are ``bytes``.

    Text is encoded as UTF-8; objects that are neither bytes nor text, as ``str()`` shows them.

    Raises:
        InferenceServerException: It is no array, or of numbers.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "SUO":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise InferenceServerException(f"strings must be an array of dtype object, bytes or str, got {kind}")
    found = np.empty(array.shape, dtype=object)
    found.ravel()[:] = [
        bytes(item) if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()
    ]
    return found
