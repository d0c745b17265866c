"""What every context needs to speak to its server."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from pytriton.client.arguments import check_headers
from pytriton.client.auth import create_auth_headers, split_access_token, token_or_environment
from pytriton.client.flows import NETWORK_TIMEOUT_S, Call, Transport
from pytriton.client.reply import GrpcReply
from pytriton.client.transport import load_lib, open_transport
from pytriton.client.url import TritonUrl
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException, translated
from pytriton.compat.tensorrtserver.protocol import ProtocolType
from pytriton.compat.tensorrtserver.stream import RequestStream

__all__ = ["Connection"]


class Connection:
    """Calls one server, from any number of threads: each call has a transport of its own while it lasts.

    Args:
        url: ``host:port``; a scheme before it counts for nothing.
        protocol: How to speak; a plain int of the same value is as good.
        verbose: Print what is called and what it returns.
        http_headers: Texts ``name:value``, sent with every call over HTTP; over gRPC the access token alone is.
        headers: Sent with every call over either protocol.
        streaming: :meth:`send` will be used.

    Attributes:
        is_grpc: Whether it speaks gRPC.
        lib: ``tritonclient.http`` or ``tritonclient.grpc``, whose tensors it takes.

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
        self.lib = load_lib(scheme)
        self._verbose = verbose
        self._stream = RequestStream(self._url, self.lib, self._headers) if streaming else None
        self._idle: deque[Transport] = deque()

    def call(self, method: str, arguments: Mapping[str, Any], timeout_s: float = NETWORK_TIMEOUT_S) -> Any:
        """Call a method of tritonclient's client.

        Args:
            method: Its name.
            arguments: Its own arguments.
            timeout_s: The call must have ended after that many seconds.

        Returns:
            What it returns; over gRPC in the form of JSON, where the method has it.

        Raises:
            InferenceServerException: It failed, in whatever way.
        """
        as_json = {"as_json": True} if self.is_grpc and method.startswith("get_") else {}
        model = () if method == "infer" else (arguments.get("model_name", ""), arguments.get("model_version", ""))
        with self._transport() as transport, translated(*model):
            answer = transport.call(Call(method, timeout_s, {**arguments, **as_json}))
        self._print(method, answer)
        return answer

    def send(self, arguments: Mapping[str, Any]) -> Future[GrpcReply]:
        """Send an inference over a stream, without waiting for the answers to others.

        Args:
            arguments: Those of ``infer``.

        Returns:
            Gets the first response, or any exception. What is called back must be brief: no other answer is received
            meanwhile.

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
        """Take no more requests for the stream, and wait for the answers to all that were sent."""
        if self._stream is not None:
            self._stream.finish()

    def close(self) -> None:
        """Close the stream, and what no call uses now. May be called twice."""
        if self._stream is not None:
            self._stream.close()
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _transport(self) -> Iterator[Transport]:
        try:
            transport = self._idle.pop()
        except IndexError:
            transport = open_transport(self._url, self.lib, self._headers)
        try:
            yield transport
        finally:
            self._idle.append(transport)

    def _print_streamed(self, answer: Future[GrpcReply]) -> None:
        if answer.exception() is None:
            self._print("stream_infer", answer.result())

    def _print(self, method: str, answer: Any) -> None:
        if self._verbose:
            shown = answer.get_response() if hasattr(answer, "get_response") else answer
            print(f"{method} at {self._url.with_scheme}: {shown}")


def _headers(scheme: str, http_headers: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """What goes with each call, the access token among it, under the name that it has in this protocol."""
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
