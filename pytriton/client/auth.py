"""The access token of a server whose endpoints are restricted."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pytriton.client.arguments import check_token
from pytriton.client.exceptions import PyTritonClientValueError

__all__ = [
    "TOKEN_VARIABLE",
    "create_auth_headers",
    "extract_access_token_from_headers",
    "split_access_token",
    "token_or_environment",
]

#: Holds the token of clients that are not given one.
TOKEN_VARIABLE = "PYTRITON_ACCESS_TOKEN"

# The gRPC server looks for its restricted header under a prefix.
_HEADERS = {"http": "triton-access-token", "grpc": "triton-grpc-protocol-triton-access-token"}


def create_auth_headers(access_token: str | None, protocol: str) -> dict[str, str]:
    """The header that carries the token.

    Args:
        access_token: The token of the server.
        protocol: ``http`` or ``grpc``, in any case.

    Raises:
        PyTritonClientValueError: The token is empty or None or cannot travel in a header, or the protocol is another
            one.
    """
    token = check_token(access_token)
    header = _HEADERS.get(str(protocol).lower())
    if header is None:
        raise PyTritonClientValueError(f"protocol must be 'http' or 'grpc', got {protocol!r}")
    return {header: token}


def extract_access_token_from_headers(headers: Mapping[str, str] | None) -> str | None:
    """The token in HTTP headers or gRPC metadata, in any letter case; None if there is none, or there are no headers.

    Raises:
        PyTritonClientValueError: There are two different tokens.
    """
    tokens = {value for name, value in (headers or {}).items() if name.lower() in _HEADERS.values()}
    if len(tokens) > 1:
        raise PyTritonClientValueError(f"headers {' and '.join(_HEADERS.values())} hold different tokens; send one")
    return tokens.pop() if tokens else None


def split_access_token(headers: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The token as :func:`extract_access_token_from_headers` finds it, and the other headers."""
    others = {name: value for name, value in headers.items() if name.lower() not in _HEADERS.values()}
    return extract_access_token_from_headers(headers), others


def token_or_environment(access_token: str | None) -> str | None:
    """The token that a client was given, else that in ``PYTRITON_ACCESS_TOKEN``; None without either.

    Raises:
        PyTritonClientValueError: The one in the environment cannot travel in a header. The message does not show it.
    """
    if access_token is not None:
        return access_token
    token = os.environ.get(TOKEN_VARIABLE)
    return check_token(token, f"the environment variable {TOKEN_VARIABLE}") if token else None
