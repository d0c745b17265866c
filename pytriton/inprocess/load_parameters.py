"""The parameters that a model is loaded with, checked: some that are wrong make the server (2.51) end the process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pytriton.inprocess.exceptions import InvalidArgumentError, InvalidTypeError
from pytriton.inprocess.parameters import encoded, mapping

__all__ = ["checked_model_name", "checked_parameters"]

CONFIG, FILE = "config", "file:"
NAME_MAX = 255  # bytes of a file's name, which Linux allows
PATH_MAX = 4000  # bytes below the server's temporary folder: 4096 less the folder's own
VERSIONS = range(1, 1 << 63)
NUMBER = re.compile(r"\s*([+-]?\d+)")  # what the server takes for a version, at the beginning of a folder's name


def checked_model_name(name: str) -> bytes:
    """A model's name for the C API.

    Raises:
        InvalidTypeError: It is no text.
        InvalidArgumentError: It is empty or too long for a folder, or C could not tell where it ends.
    """
    data = encoded(name)
    if not 0 < len(data) <= NAME_MAX:
        raise InvalidArgumentError(f"a model's name has {len(data)} bytes; give 1 to {NAME_MAX}: {name!r:.80}")
    return data


def checked_parameters(parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The parameters of :meth:`pytriton.inprocess.Server.load`.

    Raises:
        InvalidTypeError: They are no dictionary, the configuration is no text, or a file is not of bytes.
        InvalidArgumentError: The configuration is not JSON, or a file's path is not one below a model's folder.
    """
    found = mapping("parameters", parameters)
    for name, value in found.items():
        encoded(name)
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
    if {"", ".", ".."} & {*parts}:
        raise _wrong_path(path, "not one below the model's folder, such as '1/model.py'")
    if any(len(part.encode()) > NAME_MAX for part in parts):
        raise _wrong_path(path, f"with a name of more than {NAME_MAX} bytes")
    if len(path.encode()) > PATH_MAX:
        raise _wrong_path(path, f"longer than {PATH_MAX} bytes")
    version = NUMBER.match(parts[0])
    if len(parts) > 1 and version and int(version[1]) not in VERSIONS:
        raise _wrong_path(path, f"in a folder for a version that is not from 1 to {VERSIONS[-1]}")


def _wrong_path(path: str, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{FILE!r} is followed by a path {problem}: {path!r:.80}")
