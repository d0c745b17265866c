"""Values from callers, checked; and parameters of loading, of repositories and of metrics, as the C API has them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from pytriton.inprocess.capi import Api
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError

__all__ = ["INT64", "c_name", "c_text", "encoded", "integer", "mapping", "parameters", "plain", "seconds"]

STRING, INT, BOOL = range(3)
INT64 = range(-(1 << 63), 1 << 63)


def plain(value: Any) -> Any:
    """The Python value of a NumPy scalar; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def integer(name: str, value: Any, numbers: range) -> int:
    """An integer of Python or NumPy.

    Raises:
        InvalidTypeError: It is none; a boolean is none.
        InvalidArgumentError: It is not one of ``numbers``.
    """
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidTypeError(f"{name} is {value!r}; give an integer from {numbers[0]} to {numbers[-1]}")
    if number not in numbers:
        raise InvalidArgumentError(f"{name} is {number}; give an integer from {numbers[0]} to {numbers[-1]}")
    return number


def seconds(name: str, value: Any, default: float | None = None) -> float:
    """A number of seconds of Python or NumPy; ``default`` stands for None, if there is one.

    Raises:
        InvalidTypeError: It is no number.
        InvalidArgumentError: It is negative or NaN.
    """
    number = plain(default if value is None else value)
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise InvalidTypeError(f"{name} is {value!r}; give a number of seconds")
    if not number >= 0:
        raise InvalidArgumentError(f"{name} is {number}; give a number of seconds from 0 on")
    return float(number)


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """A mapping; None stands for an empty one.

    Raises:
        InvalidTypeError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, (dict, Mapping)):
        raise InvalidTypeError(f"{name} is {value!r:.200}; give a dictionary")
    return value


@contextmanager
def parameters(api: Api, values: Mapping[str, Any]) -> Iterator[Any]:
    """An array of pointers to parameters, which live as long as the context.

    Args:
        api: Functions of the server.
        values: Texts, integers, booleans or bytes by name.

    Raises:
        InvalidTypeError: A value is of another type.
        InvalidArgumentError: An integer has more than 64 bits, or a text has a NUL.
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
        InvalidTypeError: It is no text.
        InvalidArgumentError: It has a NUL, at which it would end for C, or half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise InvalidTypeError(f"{text!r:.200} is a {type(text).__name__}; give a text")
    if "\0" in text:
        raise InvalidArgumentError(f"{text!r:.200} has a NUL in it; the server's texts end there")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{text!r:.200} cannot be encoded in UTF-8: {error.reason}") from error


@lru_cache(maxsize=1024)
def c_name(name: str) -> bytes:
    """A name with the NUL that C wants, and of a length that what follows it wants.

    Raises:
        InvalidArgumentError: As :func:`encoded`.
    """
    return c_text(name)


def c_text(text: str) -> bytes:
    """As :func:`c_name`, for what is not said again and again."""
    data = encoded(text)
    return data + bytes(8 - len(data) % 8)


def _parameter(api: Api, name: str, given: Any) -> int:
    kind: int
    value = plain(given)
    if isinstance(value, bytes):  # not copied by the server: the caller's mapping keeps them alive
        return int(api.ParameterBytesNew(encoded(name), value, len(value)))
    if isinstance(value, bool):
        kind, pointer = BOOL, ctypes.byref(ctypes.c_bool(value))
    elif isinstance(value, int):
        kind, pointer = INT, ctypes.byref(ctypes.c_int64(integer(f"parameter {name!r}", value, INT64)))
    elif isinstance(value, str):
        return int(api.ParameterNew(encoded(name), STRING, encoded(value)))
    else:
        raise InvalidTypeError(f"parameter {name!r} is {given!r:.200}; give a text, an integer, a boolean or bytes")
    return int(api.ParameterNew(encoded(name), kind, pointer))
