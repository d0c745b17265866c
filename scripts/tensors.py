"""The tensors that loads send and receive: float32, or byte strings, in the bytes of the KServe v2 protocol."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

__all__ = ["LONGEST_STRING_BYTES", "Floats", "Tensor", "datatype", "decode", "encode", "floats", "strings"]

LONGEST_STRING_BYTES = 64

Floats = NDArray[np.float32]
Tensor = NDArray[Any]  # Floats, or an array of bytes objects


def floats(count: int) -> Floats:
    """Values of shape ``(1, count)``, the same each time."""
    return np.random.default_rng(0).standard_normal((1, count), dtype=np.float32)


def strings(count: int) -> Tensor:
    """Letters, shape ``(1, count)``, the same each time; their lengths are spread evenly from 0 to the longest."""
    random = np.random.default_rng(0)
    lengths = random.permutation(np.arange(count) % (LONGEST_STRING_BYTES + 1))
    values = np.empty((1, count), np.object_)
    values[0] = [random.integers(ord("a"), ord("z") + 1, length, np.uint8).tobytes() for length in lengths]
    return values


def datatype(values: Tensor) -> str:
    """The protocol's name of the elements."""
    return "BYTES" if values.dtype == np.object_ else "FP32"


def encode(values: Tensor) -> bytes:
    """The elements as requests carry them: strings behind their lengths."""
    return bytes(serialize_byte_tensor(values).item()) if values.dtype == np.object_ else values.tobytes()


def decode(data: bytes, kind: str) -> Tensor:
    """The elements of an answer, 1-D.

    Args:
        data: What :func:`encode` makes of them.
        kind: Their :func:`datatype`.
    """
    return np.asarray(deserialize_bytes_tensor(data)) if kind == "BYTES" else np.frombuffer(data, np.float32)
