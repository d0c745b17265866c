"""How a call is put in tritonclient's words, per protocol; the same for its synchronous and asynchronous clients."""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping
from typing import Any

from pytriton.client.arguments import check_metadata, check_model
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientQueueTimeoutError,
    PyTritonClientServerUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientTlsError,
)
from pytriton.client.flows import Call
from pytriton.client.reply import GrpcReply

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

_GRPC_TLS_TEXTS = ("handshake failed", "verification check failed")

_GRPC_LENGTH_TEXTS = ("Received message larger than max", "Decompressed message larger than max")

_UNAVAILABLE = {"503", "StatusCode.UNAVAILABLE"}
_NOT_FOUND = {"404", "StatusCode.NOT_FOUND"}


class HttpDialect:
    """HTTP.

    Args:
        lib: The tritonclient module.
        server: The server's URL, for messages.
        headers: Sent with every call.
        connection_errors: What the library raises when a connection fails.
        secured: The connection is to be encrypted.
    """

    def __init__(
        self,
        lib: Any,
        server: str,
        headers: Mapping[str, str],
        connection_errors: tuple[type[Exception], ...] = (OSError,),
        *,
        secured: bool = False,
    ) -> None:
        self.server_error: type[Exception] = lib.InferenceServerException
        self._connection_errors = connection_errors
        self._server = server
        self._headers = dict(headers)
        # TLS 1.3 has no other way to say so.
        self._hint = "; a server that demands clients' certificates closes those without one it trusts" * secured

    def arguments(self, call: Call) -> dict[str, Any]:
        """Keyword arguments of the client's method.

        Raises:
            PyTritonClientValueError: The name or version of a model cannot be part of a path.
        """
        self._check_model(call.arguments)
        # A new dict each time: the client adds its own headers to it.
        arguments = {**call.arguments, "headers": self._joined(call.headers)}
        if call.compression:
            arguments["request_compression_algorithm"] = call.compression
            arguments["response_compression_algorithm"] = call.compression
        return arguments

    @staticmethod
    def _check_model(arguments: Mapping[str, Any]) -> None:
        if name := arguments.get("model_name"):
            check_model(name, arguments.get("model_version") or None)

    def _joined(self, headers: Mapping[str, str]) -> dict[str, str]:
        """A call's headers and those of every call, of which it replaces some; none is sent twice."""
        if not headers or not self._headers:
            return {**self._headers, **headers}
        replaced = {name.lower() for name in headers}
        return {**{name: value for name, value in self._headers.items() if name.lower() not in replaced}, **headers}

    def answer(self, call: Call, raw: Any) -> Any:
        """What the flow gets for what the client's method returned."""
        return raw

    def translate(self, call: Call, error: Exception) -> PyTritonClientError:
        """The clients' error for anything that the client's method raised."""
        if isinstance(error, PyTritonClientError):
            return error
        if isinstance(error, TimeoutError):
            return self.timeout(call)
        if isinstance(error, self.server_error):
            return _refusal(error)
        if _is_about_tls(error):
            return self.tls_failure(call, error)
        if isinstance(error, self._connection_errors):
            return self.connection_failure(call, error)
        return PyTritonClientInferenceServerError(
            f"{call.method} at {self._server} failed: {type(error).__name__}: {error}"
        )

    def timeout(self, call: Call) -> PyTritonClientTimeoutError:
        """The error for a call that has not ended in time."""
        return PyTritonClientTimeoutError(
            f"{self._server} did not answer {call.method} within {call.timeout_s:g} s; the server may still be working "
            "on it"
        )

    def connection_failure(self, call: Call, error: Exception) -> PyTritonClientConnectionError:
        """The error for a call whose connection could not be made, or broke."""
        return PyTritonClientConnectionError(
            f"the connection to {self._server} failed at {call.method}: {error}{self._hint}"
        )

    def tls_failure(self, call: Call, error: Exception) -> PyTritonClientTlsError:
        """The error for a call whose connection could not be secured."""
        return PyTritonClientTlsError(
            f"the TLS handshake with {self._server} failed at {call.method}: {error}; check that the server speaks "
            "TLS, that root_certificates hold the authority of its certificate, that the certificate names the URL's "
            "host, and whether the server wants a certificate of this client"
        )


class GrpcDialect(HttpDialect):
    """gRPC."""

    def arguments(self, call: Call) -> dict[str, Any]:
        """Keyword arguments of the client's method.

        Raises:
            PyTritonClientValueError: As over HTTP, or a header cannot travel as metadata.
        """
        self._check_model(call.arguments)
        check_metadata(call.headers)
        # gRPC refuses upper-case letters in the names of metadata.
        headers = {name.lower(): value for name, value in self._joined(call.headers).items()}
        timeout_s = None if math.isinf(call.timeout_s) else call.timeout_s
        arguments = {**call.arguments, "headers": headers, "client_timeout": timeout_s}
        if call.method in ("get_model_config", "get_model_repository_index"):
            arguments["as_json"] = True
        if call.compression:
            arguments["compression_algorithm"] = call.compression
        return arguments

    def answer(self, call: Call, raw: Any) -> Any:
        """What the flow gets for what the client's method returned."""
        if call.method == "get_model_config":
            return raw["config"]
        if call.method == "get_model_repository_index":
            return raw.get("models", [])
        return GrpcReply(raw.get_response()) if call.method == "infer" else raw

    def translate(self, call: Call, error: Exception) -> PyTritonClientError:
        """The clients' error for anything that the client's method raised."""
        if isinstance(error, self.server_error):
            text = str(error)
            if text.startswith("[StatusCode.DEADLINE_EXCEEDED]"):
                return self.timeout(call)
            if text.startswith("[StatusCode.UNAVAILABLE]"):
                lowered = text.lower()
                if any(cause in lowered for cause in _GRPC_TLS_TEXTS):
                    return self.tls_failure(call, error)
                if any(cause in lowered for cause in _GRPC_CONNECTION_TEXTS):
                    return self.connection_failure(call, error)
            if any(cause in text for cause in _GRPC_LENGTH_TEXTS):
                return PyTritonClientInferenceServerError(
                    f"{text}; if the model may answer so, make the client with a higher max_response_bytes"
                )
        return super().translate(call, error)


def _refusal(error: Any) -> PyTritonClientError:
    """What an error that the server sent means, of tritonclient's ``InferenceServerException``."""
    status, text = error.status(), str(error)
    if status in _NOT_FOUND and "unknown model" in text:
        # It was there when this client got ready, or its user knew that it would be.
        return PyTritonClientServerUnavailableError(text)
    # Over gRPC, the lack of an access token has this status as well.
    if status not in _UNAVAILABLE or "is restricted" in text:
        return PyTritonClientInferenceServerError(text)
    if "timeout expired" in text.lower():
        return PyTritonClientQueueTimeoutError(text)
    return PyTritonClientServerUnavailableError(text)


def _is_about_tls(error: Exception) -> bool:
    # A connection that ends in the handshake says nothing about trust. aiohttp wraps what ssl raises.
    return any(
        isinstance(each, ssl.SSLError)
        and not isinstance(each, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError))
        for each in (error, error.__cause__)
    )
