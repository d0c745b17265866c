"""Names of data types: NumPy's, the inference protocol's and those of the server's model configuration.

``np.object_`` is written as BYTES too, and read back as ``np.bytes_``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.wire.tensors import SCALAR_TYPES

__all__ = ["config_name", "from_config_name", "from_triton_name", "scalar_type", "triton_name"]

_CONFIG_NAMES = {name: "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}" for name in SCALAR_TYPES}
_NAMES_OF_CONFIG = {config: name for name, config in _CONFIG_NAMES.items()}
# By kind and size, not by type: np.longlong and np.int64 are two types with one layout.
_NAMES_OF_LAYOUT = {np.dtype(scalar).str[1:]: name for name, scalar in SCALAR_TYPES.items() if name != "BYTES"}
_ALLOWED = ", ".join([*(scalar.__name__.rstrip("_") for scalar in SCALAR_TYPES.values()), "object"])
_BUILTINS = (bool, int, float, bytes, object)


def scalar_type(dtype: DTypeLike) -> type[np.generic]:
    """The NumPy scalar type of a data type.

    Args:
        dtype: A NumPy scalar type, a ``numpy.dtype`` (byte order and string length are dropped), a string such as
            ``"float32"``, or one of ``bool``, ``int``, ``float``, ``bytes`` and ``object``.

    Returns:
        A type of the table; ``np.bytes_`` for bytes and ``np.object_`` for objects, which are both sent as BYTES.

    Raises:
        PyTritonBadParameterError: The server has no such type, e.g. text, complex, dates, structures.
    """
    found = _as_dtype(dtype)
    if found.kind == "O":
        return np.object_
    return SCALAR_TYPES[_name(found, dtype)]


def triton_name(dtype: DTypeLike) -> str:
    """Name in the inference protocol, e.g. ``FP32`` or ``BYTES``.

    Raises:
        PyTritonBadParameterError: As :func:`scalar_type`.
    """
    return _name(_as_dtype(dtype), dtype)


def config_name(dtype: DTypeLike) -> str:
    """Name in the server's model configuration, e.g. ``TYPE_FP32`` or ``TYPE_STRING``.

    Raises:
        PyTritonBadParameterError: As :func:`scalar_type`.
    """
    return _CONFIG_NAMES[triton_name(dtype)]


def from_triton_name(name: str) -> type[np.generic]:
    """Scalar type of a name in the inference protocol; BYTES gives ``np.bytes_``.

    Raises:
        ValueError: The name is not in the table.
    """
    return SCALAR_TYPES[_known(name, SCALAR_TYPES)]


def from_config_name(name: str) -> type[np.generic]:
    """Scalar type of a name in the server's model configuration; TYPE_STRING gives ``np.bytes_``.

    Raises:
        ValueError: The name is not in the table.
    """
    return SCALAR_TYPES[_NAMES_OF_CONFIG[_known(name, _NAMES_OF_CONFIG)]]


def _as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    # np.dtype() accepts more: None and np.floating as float64, and any class as object.
    concrete = isinstance(dtype, type) and (dtype in _BUILTINS or dtype in np.sctypeDict.values())
    if not concrete and not isinstance(dtype, (str, np.dtype)):
        raise _unsupported(dtype)
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise _unsupported(dtype) from error


def _name(found: np.dtype[Any], given: object) -> str:
    if found.kind in "SO":
        return "BYTES"
    name = _NAMES_OF_LAYOUT.get(found.str[1:])
    if name is None:
        raise _unsupported(given)
    return name


def _known(name: str, table: dict[str, Any]) -> str:
    if name not in table:
        raise ValueError(f"{name!r} is not a supported data type; supported are {', '.join(table)}")
    return name


def _unsupported(dtype: object) -> PyTritonBadParameterError:
    return PyTritonBadParameterError(f"dtype {dtype!r} is not supported by the server; use one of {_ALLOWED}")
