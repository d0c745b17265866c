"""Checks of what the caller passes beside tensors; every error is raised before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pytriton.client.exceptions import PyTritonClientValueError

__all__ = [
    "DEFAULT_MAX_RESPONSE_BYTES",
    "check_headers",
    "check_max_response_bytes",
    "check_metadata",
    "check_model",
    "check_parameters",
    "check_text",
    "check_timeout",
    "check_token",
]

DEFAULT_MAX_RESPONSE_BYTES = 4 * 2**30
"""The longest response that a client takes unless it is told another limit, also after decompression."""

Parameters = Mapping[str, str | int | bool] | None

_INT64 = range(-(2**63), 2**63)
_RESERVED = {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# What both HTTP and gRPC transmit unchanged; above all no line break, which would start another header.
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_METADATA_NAME = re.compile(r"[-_.0-9a-z]+")
_VERSION = re.compile(r"[0-9]{1,19}")  # the server's are 64-bit integers

# They say where a message ends, how its body is encoded, or belong to the connection. The client writes them.
_FRAMING = {
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "inference-header-content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}


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
        check_text(f"parameter {name!r}", f"{name}{value}")
    return checked


def check_headers(headers: Parameters) -> dict[str, str]:
    """The request's headers with values as text, empty for None.

    Raises:
        PyTritonClientValueError: It is no dict, a name is no header name, reserved or given twice in different letter
            cases, or a value is not a str, int or bool, or has characters that a header cannot carry.
    """
    checked = {name: str(value) for name, value in _check_items("headers", headers).items()}
    for name, value in checked.items():
        if not _HEADER_NAME.fullmatch(name):
            raise PyTritonClientValueError(f"{name!r} is not a header name; use letters, digits and '-'")
        if name.lower() in _FRAMING:
            raise PyTritonClientValueError(
                f"header {name!r} is reserved: the client writes it itself; for compression use "
                "with_options(compression=...), for another host or path change the url"
            )
        _check_value(f"header {name!r} has value {value!r}", value)
    if len({name.lower() for name in checked}) < len(checked):
        raise PyTritonClientValueError(
            f"headers {', '.join(map(repr, checked))} have a name twice in different letter cases; give it once"
        )
    return checked


def check_metadata(headers: Mapping[str, object]) -> None:
    """Check that headers, which :func:`check_headers` has passed, can travel as gRPC's metadata as well.

    Raises:
        PyTritonClientValueError: A name has characters that gRPC refuses, or means something to gRPC itself.
    """
    for name in headers:
        lowered = name.lower()
        if not _METADATA_NAME.fullmatch(lowered):
            raise PyTritonClientValueError(
                f"{name!r} is not a name of gRPC metadata; use letters, digits, '-', '_' and '.'"
            )
        if lowered.startswith("grpc-") or lowered == "content-type":
            raise PyTritonClientValueError(f"header {name!r} is reserved by gRPC; choose another name")
        if lowered.endswith("-bin"):
            raise PyTritonClientValueError(
                f"header {name!r} would be binary metadata, as its name ends with '-bin'; choose another name"
            )


def check_token(access_token: str | None, name: str = "access_token") -> str:
    """The access token, if it can travel in a header. Messages show its name alone.

    Raises:
        PyTritonClientValueError: It is no text, empty, or has characters that a header cannot carry.
    """
    if not access_token:
        raise PyTritonClientValueError(f"{name} must not be empty")
    if not isinstance(access_token, str):
        raise PyTritonClientValueError(f"{name} must be a str, got {type(access_token).__name__}")
    _check_value(f"{name} is not printable", access_token)
    return access_token


def check_max_response_bytes(limit: int | None) -> int | None:
    """The longest response to take, in bytes; None for any.

    Raises:
        PyTritonClientValueError: It is neither None nor an int above 0.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0):
        raise PyTritonClientValueError(
            f"max_response_bytes must be an int above 0, or None for no limit, got {limit!r}"
        )
    return limit


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
    """Check a model's name and version, which become parts of the request's path.

    Raises:
        PyTritonClientValueError: The name is no text or empty, or cannot be that of a model; or the version is neither
            None nor the text of a number.
    """
    if not isinstance(model_name, str) or not model_name:
        raise PyTritonClientValueError(f"model_name must be a non-empty str, got {model_name!r}")
    if "/" in model_name or model_name in (".", ".."):
        raise PyTritonClientValueError(
            f"model_name must be the name of a model, without '/', got {model_name!r}; pass a version as model_version"
        )
    check_text(f"model_name {model_name!r}", model_name)
    if model_version is not None and not (isinstance(model_version, str) and _VERSION.fullmatch(model_version)):
        raise PyTritonClientValueError(
            f"model_version must be a str of digits such as '1', or None for the highest, got {model_version!r}"
        )


def check_text(what: str, text: str) -> None:
    """Check that a text has no lone surrogates.

    Raises:
        PyTritonClientValueError: It has; the message says of ``what``.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PyTritonClientValueError(f"{what} cannot be sent as UTF-8: {error}") from error


def _check_value(what: str, value: str) -> None:
    if not _HEADER_VALUE.fullmatch(value):
        raise PyTritonClientValueError(f"{what}; headers carry printable ASCII, so encode it, e.g. with base64")


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
