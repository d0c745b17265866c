"""The access token of a server whose endpoints are restricted."""

from __future__ import annotations

from collections.abc import Mapping

from pytriton.client.arguments import check_token
from pytriton.client.exceptions import PyTritonClientValueError

__all__ = ["create_auth_headers", "extract_access_token_from_headers"]

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


def extract_access_token_from_headers(headers: Mapping[str, str]) -> str | None:
    """The token in HTTP headers or gRPC metadata, in any letter case; None if there is none.

    Raises:
        PyTritonClientValueError: There are two different tokens.
    """
    tokens = {value for name, value in headers.items() if name.lower() in _HEADERS.values()}
    if len(tokens) > 1:
        raise PyTritonClientValueError(f"headers {' and '.join(_HEADERS.values())} hold different tokens; send one")
    return tokens.pop() if tokens else None
