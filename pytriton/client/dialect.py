"""How a call is put in tritonclient's words, per protocol; the same for its synchronous and asynchronous clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
)
from pytriton.client.flows import Call
from pytriton.client.model_state import parse_http_response

__all__ = ["GrpcDialect", "HttpDialect"]

# gRPC reports what the server sends and what happens to the connection with one status, so only the text tells.
_GRPC_CONNECTION_TEXTS = (
    "failed to connect",
    "connection refused",
    "connection reset",
    "connection timed out",
    "socket closed",
    "broken pipe",
    "errors resolving",
    "resolution failed",
    "keepalive",
    "goaway",
    "endpoint closing",
    "recvmsg",
    "sendmsg",
    "stream removed",
    "unreachable",
    "no route to host",
)


class HttpDialect:
    """HTTP.

    Args:
        lib: The tritonclient module.
        server: The server's URL, for messages.
        headers: Sent with every call.
        connection_errors: What the library raises when a connection fails.
    """

    def __init__(
        self,
        lib: Any,
        server: str,
        headers: Mapping[str, str],
        connection_errors: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        self.server_error: type[Exception] = lib.InferenceServerException
        self._connection_errors = connection_errors
        self._server = server
        self._headers = dict(headers)

    def arguments(self, call: Call) -> dict[str, Any]:
        """Keyword arguments of the client's method."""
        # A new dict each time: tritonclient adds its own headers to it.
        return {**call.arguments, "headers": {**self._headers, **call.headers}}

    def answer(self, call: Call, raw: Any) -> Any:
        """What the flow gets for what the client's method returned."""
        return parse_http_response(raw) if call.method == "get_model_repository_index" else raw

    def translate(self, call: Call, error: Exception) -> PyTritonClientError:
        """The clients' error for anything that the client's method raised."""
        if isinstance(error, PyTritonClientError):
            return error
        if isinstance(error, TimeoutError):
            return self.timeout(call)
        if isinstance(error, self.server_error):
            return PyTritonClientInferenceServerError(str(error))
        if isinstance(error, self._connection_errors):
            return PyTritonClientConnectionError(f"the connection to {self._server} failed at {call.method}: {error}")
        return PyTritonClientInferenceServerError(
            f"{call.method} at {self._server} failed: {type(error).__name__}: {error}"
        )

    def timeout(self, call: Call) -> PyTritonClientTimeoutError:
        """The error for a call that has not ended in time."""
        return PyTritonClientTimeoutError(
            f"{self._server} did not answer {call.method} within {call.timeout_s:g} s; the server may still be working "
            "on it"
        )


class GrpcDialect(HttpDialect):
    """gRPC."""

    def arguments(self, call: Call) -> dict[str, Any]:
        """Keyword arguments of the client's method."""
        # gRPC refuses upper-case letters in the names of metadata.
        headers = {name.lower(): value for name, value in {**self._headers, **call.headers}.items()}
        timeout_s = None if math.isinf(call.timeout_s) else call.timeout_s
        arguments = {**call.arguments, "headers": headers, "client_timeout": timeout_s}
        if call.method in ("get_model_config", "get_model_repository_index"):
            arguments["as_json"] = True
        return arguments

    def answer(self, call: Call, raw: Any) -> Any:
        """What the flow gets for what the client's method returned."""
        if call.method == "get_model_config":
            return raw["config"]
        if call.method == "get_model_repository_index":
            return parse_http_response(raw.get("models", ()))
        return raw

    def translate(self, call: Call, error: Exception) -> PyTritonClientError:
        """The clients' error for anything that the client's method raised."""
        if isinstance(error, self.server_error):
            text = str(error)
            if text.startswith("[StatusCode.DEADLINE_EXCEEDED]"):
                return self.timeout(call)
            if text.startswith("[StatusCode.UNAVAILABLE]") and any(
                cause in text.lower() for cause in _GRPC_CONNECTION_TEXTS
            ):
                return PyTritonClientConnectionError(
                    f"the connection to {self._server} failed at {call.method}: {error}"
                )
        return super().translate(call, error)
