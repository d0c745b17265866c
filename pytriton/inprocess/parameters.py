"""Parameters of loading, of repositories and of metrics, as the C API has them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from pytriton.inprocess.capi import Api
from pytriton.inprocess.exceptions import InvalidArgumentError

__all__ = ["c_name", "c_text", "encoded", "parameters"]

STRING, INT, BOOL = range(3)
INT64 = range(-(1 << 63), 1 << 63)


@contextmanager
def parameters(api: Api, values: Mapping[str, Any]) -> Iterator[Any]:
    """An array of pointers to parameters, which live as long as the context.

    Args:
        api: Functions of the server.
        values: Texts, integers, booleans or bytes by name.

    Raises:
        InvalidArgumentError: A value is of another kind, or out of range.
    """
    made: list[int] = []
    try:
        for name, value in values.items():
            made.append(_parameter(api, name, value))
        yield (ctypes.c_void_p * len(made))(*made)
    finally:
        for pointer in made:
            api.ParameterDelete(pointer)


def encoded(text: str) -> bytes:
    """A text for the C API.

    Raises:
        InvalidArgumentError: It is no text, or C could not tell where it ends.
    """
    if not isinstance(text, str) or "\0" in text:
        raise InvalidArgumentError(f"{text!r} is no text, or has a NUL in it")
    return text.encode()


@lru_cache(maxsize=1024)
def c_name(name: str) -> bytes:
    """A name with the NUL that C wants, and of a length that what follows it wants.

    Raises:
        InvalidArgumentError: It is no text, or has a NUL in it.
    """
    return c_text(name)


def c_text(text: str) -> bytes:
    """As :func:`c_name`, for what is not said again and again."""
    data = encoded(text)
    return data + bytes(8 - len(data) % 8)


def _parameter(api: Api, name: str, value: Any) -> int:
    kind: int
    if isinstance(value, bytes):  # not copied by the server: the caller's mapping keeps them alive
        return int(api.ParameterBytesNew(encoded(name), value, len(value)))
    if isinstance(value, bool):
        kind, pointer = BOOL, ctypes.byref(ctypes.c_bool(value))
    elif isinstance(value, int) and value in INT64:
        kind, pointer = INT, ctypes.byref(ctypes.c_int64(value))
    elif isinstance(value, str):
        return int(api.ParameterNew(encoded(name), STRING, encoded(value)))
    else:
        raise InvalidArgumentError(f"parameter {name!r} is {value!r}; give a text, an int64, a boolean or bytes")
    return int(api.ParameterNew(encoded(name), kind, pointer))
