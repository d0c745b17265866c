"""Values from callers: checked, and converted for the C API."""

from __future__ import annotations

import ctypes
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from pytriton.inprocess.capi import Api
from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError

__all__ = [
    "INT64",
    "checked_model_name",
    "checked_parameters",
    "encode",
    "encode_name",
    "encode_padded",
    "integer",
    "mapping",
    "number",
    "parameters",
    "python_value",
    "seconds",
]

INT64 = range(-(1 << 63), 1 << 63)
STRING, INT, BOOL = range(3)  # kinds of parameters
CONFIG, FILE = "config", "file:"
NAME_MAX = 255  # bytes of a file's name on Linux
PATH_MAX = 4000  # bytes below the server's temporary folder: 4096 less the length of the folder
VERSIONS = range(1, 1 << 63)
VERSION = re.compile(r"\s*([+-]?\d+)")  # what the server reads as a version, at the begin of a folder's name


def python_value(value: Any) -> Any:
    """The Python value of a NumPy scalar; any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def integer(name: str, value: Any, allowed: range) -> int:
    """An integer of Python or NumPy.

    Raises:
        InvalidTypeError: It is not an integer; a boolean is not.
        InvalidArgumentError: It is not in ``allowed``.
    """
    found = python_value(value)
    if not isinstance(found, int) or isinstance(found, bool):
        raise InvalidTypeError(f"{name} is {value!r}; give an integer from {allowed[0]} to {allowed[-1]}")
    if found not in allowed:
        raise InvalidArgumentError(f"{name} is {found}; give an integer from {allowed[0]} to {allowed[-1]}")
    return found


def number(name: str, value: Any, highest: float = math.inf, kind: str = "number") -> float:
    """A number from 0 to ``highest``, of Python or NumPy.

    Raises:
        InvalidTypeError: It is not a number; a boolean is not.
        InvalidArgumentError: It is out of range or NaN.
    """
    found = python_value(value)
    limits = "from 0 on" if math.isinf(highest) else f"from 0 to {highest:g}"
    if not isinstance(found, (int, float)) or isinstance(found, bool):
        raise InvalidTypeError(f"{name} is or contains {value!r}; give a {kind} {limits}")
    if not 0 <= found <= highest:
        raise InvalidArgumentError(f"{name} is or contains {found}; give a {kind} {limits}")
    return float(found)


def seconds(name: str, value: Any, default: float | None = None) -> float:
    """A number of seconds from 0 on; ``default`` replaces None. Errors as :func:`number`."""
    return number(name, default if value is None else value, kind="number of seconds")


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """A mapping; an empty one for None.

    Raises:
        InvalidTypeError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, (dict, Mapping)):
        raise InvalidTypeError(f"{name} is {value!r:.200}; give a dictionary")
    return value


def encode(text: str) -> bytes:
    """A text in UTF-8 for the C API.

    Raises:
        InvalidTypeError: It is not a text.
        InvalidArgumentError: It contains a NUL, where it would end for C, or half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise InvalidTypeError(f"{text!r:.200} is a {type(text).__name__}; give a text")
    if "\0" in text:
        raise InvalidArgumentError(f"{text!r:.200} has a NUL in it; the server's texts end there")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{text!r:.200} cannot be encoded in UTF-8: {error.reason}") from error


def encode_padded(text: str) -> bytes:
    """As :func:`encode`, with at least one NUL at the end, and of a length that is a multiple of 8."""
    data = encode(text)
    return data + bytes(8 - len(data) % 8)


encode_name = lru_cache(maxsize=1024)(encode_padded)
"""As :func:`encode_padded`, for names that are used again and again."""


@contextmanager
def parameters(api: Api, values: Mapping[str, Any]) -> Iterator[Any]:
    """An array of pointers to parameters of the C API, which exist until the context ends.

    Args:
        values: Texts, integers, booleans or bytes by name.

    Raises:
        InvalidTypeError: A value is of another type.
        InvalidArgumentError: An integer has more than 64 bits, or a text contains a NUL.
    """
    made: list[int] = []
    try:
        for name, value in values.items():
            made.append(_parameter(api, name, value))
        yield (ctypes.c_void_p * len(made))(*made)
    finally:
        for pointer in made:
            api.ParameterDelete(pointer)


def _parameter(api: Api, name: str, given: Any) -> int:
    value = python_value(given)
    pointer: Any
    if isinstance(value, bytes):  # the server does not copy them: the caller's mapping keeps them alive
        return int(api.ParameterBytesNew(encode(name), value, len(value)))
    if isinstance(value, bool):
        kind, pointer = BOOL, ctypes.byref(ctypes.c_bool(value))
    elif isinstance(value, int):
        kind, pointer = INT, ctypes.byref(ctypes.c_int64(integer(f"parameter {name!r}", value, INT64)))
    elif isinstance(value, str):
        kind, pointer = STRING, encode(value)
    else:
        raise InvalidTypeError(f"parameter {name!r} is {given!r:.200}; give a text, an integer, a boolean or bytes")
    return int(api.ParameterNew(encode(name), kind, pointer))


def checked_model_name(name: str) -> bytes:
    """The name of a model to load, for the C API.

    Raises:
        InvalidTypeError: It is not a text.
        InvalidArgumentError: It is empty, too long for a folder's name, or contains a NUL.
    """
    data = encode(name)
    if not 0 < len(data) <= NAME_MAX:
        raise InvalidArgumentError(f"a model's name has {len(data)} bytes; give 1 to {NAME_MAX}: {name!r:.80}")
    return data


def checked_parameters(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The parameters of :meth:`pytriton.inprocess.Server.load`; some wrong ones make the server (2.51) end the process.

    Raises:
        InvalidTypeError: They are not a dictionary, the configuration is not a text, or a file is not bytes.
        InvalidArgumentError: The configuration is not JSON, or a file's path is not below a model's folder.
    """
    found = mapping("parameters", given)
    for name, value in found.items():
        encode(name)
        if name == CONFIG:
            _check_config(value)
        elif name.startswith(FILE):
            _check_file(name, value)
        elif isinstance(value, bytes):
            raise InvalidArgumentError(f"parameter {name!r:.80} is of bytes, so a file; name it '{FILE}<path>'")
    return found


def _check_config(text: object) -> None:
    if not isinstance(text, str):
        raise InvalidTypeError(f"config is a {type(text).__name__}; give a text in JSON")
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"config is not JSON: {error}") from error


def _check_file(name: str, content: object) -> None:
    if not isinstance(content, bytes):
        raise InvalidTypeError(f"{name!r:.80} is a {type(content).__name__}; give the file's bytes")
    path = name.removeprefix(FILE)
    parts = path.split("/")
    version = VERSION.match(parts[0])
    problem = ""
    if {"", ".", ".."} & {*parts}:
        problem = "not one below the model's folder, such as '1/model.py'"
    elif any(len(part.encode()) > NAME_MAX for part in parts):
        problem = f"with a name of more than {NAME_MAX} bytes"
    elif len(path.encode()) > PATH_MAX:
        problem = f"longer than {PATH_MAX} bytes"
    elif len(parts) > 1 and version and int(version[1]) not in VERSIONS:
        problem = f"in a folder for a version that is not from 1 to {VERSIONS[-1]}"
    if problem:
        raise InvalidArgumentError(f"{FILE!r} is followed by a path {problem}: {path!r:.80}")
