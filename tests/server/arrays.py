"""Arrays that tell requests and values apart, and their comparison."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

NUMBERS = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
NUMBERS += ["float16", "float32", "float64"]
STRINGS = [b"", b"plain", b"nul \0 inside", b"\0", b"nul at the end\0\0", "zażółć ☃".encode(), b"\xff\xfe", b"x" * 300]


def filled(value: float, rows: int = 1, columns: int = 4) -> NDArray[np.float32]:
    """An input that tells requests apart."""
    return np.full((rows, columns), value, np.float32)


def strings(shape: tuple[int, ...]) -> NDArray[np.object_]:
    """An object array of all kinds of bytes."""
    array = np.empty(prod(shape), dtype=object)
    array[:] = [STRINGS[index % len(STRINGS)] for index in range(array.size)]
    return array.reshape(shape)


def values(dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Values from the whole range of a dtype; floats with infinities, NaN and -0."""
    found = np.dtype(dtype)
    if found.kind in "SO":
        return strings(shape)
    bits = np.random.default_rng(0).integers(0, 256, prod(shape) * found.itemsize, np.uint8)
    if found.kind == "b":
        return (bits & 1).view(found).reshape(shape)
    array = bits.view(found)
    if found.kind == "f":
        array[:4] = [np.inf, -np.inf, np.nan, -0.0][: array.size]
    return array.reshape(shape)


def completed(outputs: Mapping[str, NDArray[Any]], dtypes: Mapping[str, DTypeLike]) -> dict[str, NDArray[Any]]:
    """Outputs, and empty ones of as many rows in place of those that a model declares and these lack."""
    empty = (*next(iter(outputs.values())).shape[:1], 0)
    return {name: np.empty(empty, dtype) for name, dtype in dtypes.items()} | dict(outputs)


def assert_same(got: NDArray[Any], expected: NDArray[Any]) -> None:
    """The same dtype, shape and bits; text arrays arrive as objects."""
    assert got.dtype == (object if expected.dtype.kind in "SO" else expected.dtype)
    assert got.shape == expected.shape
    if got.dtype == object:
        assert got.ravel().tolist() == expected.ravel().tolist()
        assert {type(item) for item in got.flat} <= {bytes}
    else:
        assert got.tobytes() == expected.tobytes()
