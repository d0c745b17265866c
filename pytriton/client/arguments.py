"""Checks of what the caller passes beside tensors; every error is raised before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pytriton.client.exceptions import PyTritonClientValueError

__all__ = ["check_headers", "check_model", "check_parameters", "check_timeout"]

Parameters = Mapping[str, str | int | bool] | None

_INT64 = range(-(2**63), 2**63)
_RESERVED = {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# What both HTTP and gRPC transmit unchanged; above all no line break, which would start another header.
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


def check_parameters(parameters: Parameters) -> dict[str, str | int | bool]:
    """A copy of the request's parameters, empty for None.

    Raises:
        PyTritonClientValueError: It is no dict, a name is no text or reserved, or a value is not a str, bool or int
            of 64 bits.
    """
    checked = _check_items("parameters", parameters)
    for name, value in checked.items():
        if name in _RESERVED or name.startswith("triton_"):
            raise PyTritonClientValueError(f"parameter name {name!r} is reserved by the server; choose another one")
        if isinstance(value, int) and value not in _INT64:
            raise PyTritonClientValueError(f"parameter {name!r} is {value}, which is no 64-bit integer; send a str")
    return checked


def check_headers(headers: Parameters) -> dict[str, str]:
    """The request's headers with values as text, empty for None.

    Raises:
        PyTritonClientValueError: It is no dict, a name is no header name, or a value is not a str, int or bool, or
            has characters that a header cannot carry.
    """
    checked = {name: str(value) for name, value in _check_items("headers", headers).items()}
    for name, value in checked.items():
        if not _HEADER_NAME.fullmatch(name):
            raise PyTritonClientValueError(f"{name!r} is not a header name; use letters, digits and '-'")
        if not _HEADER_VALUE.fullmatch(value):
            raise PyTritonClientValueError(
                f"header {name!r} has value {value!r}; headers carry printable ASCII, so encode it, e.g. with base64"
            )
    return checked


def check_timeout(name: str, timeout_s: float | None, default_s: float) -> float:
    """The timeout in seconds, or the default for None.

    Raises:
        PyTritonClientValueError: It is not a number above 0.
    """
    if timeout_s is None:
        return default_s
    try:
        seconds = float(timeout_s)
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds > 0:
        raise PyTritonClientValueError(f"{name} must be a number of seconds above 0, got {timeout_s!r}")
    return seconds


def check_model(model_name: str, model_version: str | None) -> None:
    """Check the types of a model's name and version.

    Raises:
        PyTritonClientValueError: The name is no text or empty, or the version is neither text nor None.
    """
    if not isinstance(model_name, str) or not model_name:
        raise PyTritonClientValueError(f"model_name must be a non-empty str, got {model_name!r}")
    if not (model_version is None or (isinstance(model_version, str) and model_version)):
        raise PyTritonClientValueError(
            f"model_version must be a str such as '1', or None for the highest, got {model_version!r}"
        )


def _check_items(what: str, items: Parameters) -> dict[str, str | int | bool]:
    if items is None:
        return {}
    if not isinstance(items, Mapping):
        raise PyTritonClientValueError(f"{what} must be a dict, got {type(items).__name__}")
    for name, value in items.items():
        if not isinstance(name, str):
            raise PyTritonClientValueError(f"{what} must have str names, got {name!r}")
        if not isinstance(value, (str, int)):  # a bool is an int
            raise PyTritonClientValueError(f"{what}[{name!r}] must be a str, int or bool, got {type(value).__name__}")
    return dict(items)
