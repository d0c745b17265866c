"""The connection of a context to its server."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from pytriton.client.arguments import check_headers
from pytriton.client.auth import TritonUrl, create_auth_headers, split_access_token, token_or_environment
from pytriton.client.conversations import NETWORK_TIMEOUT_S, Call, Transport
from pytriton.client.sync import open_transport
from pytriton.client.tensors import InferResponse
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException, translated
from pytriton.compat.tensorrtserver.stream import RequestStream

__all__ = ["Connection", "ProtocolType"]


class ProtocolType(IntEnum):
    """The protocols of a server."""

    HTTP = 0
    GRPC = 1

    @classmethod
    def from_str(cls, value: str) -> ProtocolType:
        """The protocol with a name in any letter case.

        Raises:
            ValueError: It does not exist.
        """
        name = value.upper()
        if name not in cls.__members__:
            raise ValueError(f"unexpected protocol {value!r}, expecting HTTP or gRPC")
        return cls[name]


class Connection:
    """Calls one server from any number of threads; each call under way has its own transport.

    Args:
        url: ``host:port``; a scheme before it is ignored.
        protocol: A ProtocolType, or an int of the same value.
        verbose: Print every call and its result.
        http_headers: Texts ``name:value``, sent with every call over HTTP; over gRPC only the access token is sent.
        headers: Sent with every call over either protocol.
        streaming: The context will use :meth:`send`.

    Attributes:
        is_grpc: Whether the protocol is gRPC.

    Raises:
        InferenceServerException: An argument is wrong.
    """

    def __init__(
        self,
        url: str,
        protocol: int,
        verbose: bool,
        http_headers: Sequence[str] | None,
        headers: Mapping[str, str] | None,
        *,
        streaming: bool = False,
    ) -> None:
        try:
            self.is_grpc = ProtocolType(protocol) is ProtocolType.GRPC
        except ValueError:
            raise InferenceServerException(
                f"protocol must be ProtocolType.HTTP or ProtocolType.GRPC, got {protocol!r}"
            ) from None
        if streaming and not self.is_grpc:
            raise InferenceServerException("streaming needs ProtocolType.GRPC")
        scheme = "grpc" if self.is_grpc else "http"
        with translated():
            self._url = TritonUrl.from_url(f"{scheme}://{str(url).rpartition('://')[2]}")
            self._headers = _headers(scheme, check_headers(_split(http_headers)), check_headers(headers))
        self._verbose = verbose
        self._stream = RequestStream(self._url, self._headers) if streaming else None
        self._idle: deque[Transport] = deque()

    def call(self, method: str, arguments: Mapping[str, Any], timeout_s: float = NETWORK_TIMEOUT_S) -> Any:
        """Perform a :class:`~pytriton.client.conversations.Call`.

        Args:
            method: Of the call.
            arguments: Of the call.
            timeout_s: The call ends after that many seconds.

        Returns:
            An ``InferResponse`` for inference, a bool for health, else the JSON form of the answer.

        Raises:
            InferenceServerException: For every failure.
        """
        model = () if method == "infer" else (arguments.get("model_name", ""), arguments.get("model_version", ""))
        with self._transport() as transport, translated(*model):
            answer = transport.call(Call(method, timeout_s, arguments))
        self._print(method, answer)
        return answer

    def send(self, arguments: Mapping[str, Any]) -> Future[InferResponse]:
        """Send an inference over the stream, without waiting for the responses to earlier ones.

        Args:
            arguments: Those of ``infer``.

        Returns:
            Gets the first response, or any exception. Its callbacks must not block: they run in the thread that
            receives responses.

        Raises:
            InferenceServerException: It cannot be sent.
        """
        assert self._stream is not None
        with translated():
            answer = self._stream.send(Call("stream_infer", math.inf, arguments))
        if self._verbose:
            answer.add_done_callback(self._print_streamed)
        return answer

    def finish(self) -> None:
        """Take no more requests for the stream, and wait for the responses to all that were sent."""
        if self._stream is not None:
            self._stream.finish()

    def close(self) -> None:
        """Close the stream and the idle transports. May be called twice."""
        if self._stream is not None:
            self._stream.close()
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _transport(self) -> Iterator[Transport]:
        try:
            transport = self._idle.pop()
        except IndexError:
            transport = open_transport(self._url, self._headers)
        try:
            yield transport
        finally:
            self._idle.append(transport)

    def _print_streamed(self, answer: Future[InferResponse]) -> None:
        if answer.exception() is None:
            self._print("stream_infer", answer.result())

    def _print(self, method: str, answer: Any) -> None:
        if self._verbose:
            shown = answer.get_response() if hasattr(answer, "get_response") else answer
            print(f"{method} at {self._url.with_scheme}: {shown}")


def _headers(scheme: str, http_headers: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of every call, among them the access token under the name that the protocol has for it."""
    token, named = split_access_token(http_headers)
    own_token, own = split_access_token(headers)
    token = token_or_environment(own_token or token)
    carried = {} if scheme == "grpc" else named
    return check_headers({**carried, **own, **(create_auth_headers(token, scheme) if token else {})})


def _split(http_headers: Sequence[str] | None) -> dict[str, str]:
    headers = {}
    for header in http_headers or ():
        name, colon, value = str(header).partition(":")
        if not colon:
            raise InferenceServerException(f"http_headers must be texts 'name:value', got {header!r}")
        headers[name.strip()] = value.strip()
    return headers
