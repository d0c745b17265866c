"""The connection of a context to its server, and its stream of requests that do not wait for earlier ones."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from tritonclient.utils import InferenceServerException as TritonException

from pytriton import forks
from pytriton.client.arguments import check_headers
from pytriton.client.auth import TritonUrl, create_auth_headers, split_access_token, token_or_environment
from pytriton.client.conversations import NETWORK_TIMEOUT_S, Call, Transport
from pytriton.client.grpc_protocol import GrpcProtocol, open_channel
from pytriton.client.grpc_transports import GrpcStream, new_stub
from pytriton.client.sync import open_transport
from pytriton.client.tensors import InferResponse
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException, translated

__all__ = ["Connection", "ProtocolType", "RequestStream"]


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


Answers = dict[str, "Future[InferResponse]"]
"""By request id, in the order of the requests."""


class RequestStream:
    """Sends requests over one stream, from any thread, and assigns each its own response.

    It opens the stream with the first request, and again after a failure. A thread receives the responses, which the
    server sends in the order of the requests.

    Args:
        url: The server.
        headers: Sent when the stream is opened.
    """

    def __init__(self, url: TritonUrl, headers: dict[str, str]) -> None:
        self._url = url
        self._protocol = GrpcProtocol(url.with_scheme, headers)
        self._start()
        forks.register(self)

    def _start(self) -> None:
        self._lock = threading.RLock()  # collecting garbage may close this while the same thread is within send()
        self._opened: _OpenedStream | None = None
        self._closed = False

    def after_fork(self) -> None:
        """In a forked child, leave the stream to the parent: the next request opens a new one."""
        self._start()

    def send(self, call: Call) -> Future[InferResponse]:
        """Send a request; the future gets its first response.

        Args:
            call: With the arguments of ``infer``; no other pending request has its ``request_id``.

        Raises:
            PyTritonClientError: An argument cannot be sent. All other errors are the future's.
            InferenceServerException: This is closed.
        """
        metadata = self._protocol.metadata(call)
        message = self._protocol.stream_request(call, marks_end=True)
        answer: Future[InferResponse] = Future()
        with self._lock:
            if self._closed:
                raise InferenceServerException("the stream is closed")
            if self._opened is None or not self._opened.send(message, answer):
                self._opened = _OpenedStream(self._url, metadata, self._failure)
                self._opened.send(message, answer)
        return answer

    def finish(self) -> None:
        """Take no more requests, and wait for the responses to all that were sent."""
        with self._lock:
            self._closed, opened = True, self._opened
        if opened is not None:
            opened.finish()

    def close(self) -> None:
        """End the stream; pending requests fail. May be called twice."""
        with self._lock:
            self._closed, opened = True, self._opened
        if opened is not None:
            opened.close()

    def _failure(self, error: Exception) -> Exception:
        """The error of a request, for an error of the server or the connection."""
        if self._closed:
            return InferenceServerException("the stream was closed before the answer came")
        failure = self._protocol.translate(Call("stream_infer", math.inf), error)
        failure.__cause__ = error
        return failure


class _OpenedStream:
    """One stream, and the thread that receives from it, from the first request until the stream ends.

    Args:
        url: The server.
        metadata: Sent at once.
        failure: Makes the error of a request, for an error of the server or the connection.
    """

    def __init__(self, url: TritonUrl, metadata: dict[str, str], failure: Callable[[Exception], Exception]) -> None:
        self._failure = failure
        self._channel = open_channel(url.without_scheme)
        self._stream = GrpcStream(new_stub(self._channel), (metadata, None))
        self._lock = threading.RLock()
        self._answers: Answers = {}
        self._ended = False
        self._thread = threading.Thread(target=self._receive_all, name="pytriton-infer-stream", daemon=True)

    def send(self, message: Any, answer: Future[InferResponse]) -> bool:
        """Send a request; False if the stream has ended."""
        with self._lock:
            if self._ended:
                return False
            self._answers[message.id] = answer
            self._stream.send(message)
        if self._thread.ident is None:  # now there is a request that fails if the server cannot be reached
            self._thread.start()
        return True

    def finish(self) -> None:
        """Take no more requests, and wait for the responses to all that were sent."""
        self._stream.finish()
        self._thread.join()

    def close(self) -> None:
        """Fail the pending requests."""
        self._stream.close()

    def _receive_all(self) -> None:
        try:
            while True:
                self._assign(self._stream.receive())
        except Exception as error:
            with self._lock:
                self._ended = True
            for answer in self._answers.values():
                answer.set_exception(self._failure(error))
        finally:
            self._stream.close()
            self._channel.close()

    def _assign(self, message: Any) -> None:
        response = message.infer_response
        with self._lock:
            answer = self._pop(response.id)
        if answer is None:  # not the first response to its request
            return
        try:
            if message.error_message:
                raise TritonException(message.error_message)
            if not response.outputs and response.parameters["triton_final_response"].bool_param:
                raise InferenceServerException("the model gave no response to the request")
            received = InferResponse.from_grpc(response)
        except InferenceServerException as error:
            answer.set_exception(error)
        except Exception as error:
            answer.set_exception(self._failure(error))
        else:
            answer.set_result(received)

    def _pop(self, request_id: str) -> Future[InferResponse] | None:
        if not request_id and self._answers:  # some servers send no id, but keep the order of the requests
            request_id = next(iter(self._answers))
        return self._answers.pop(request_id, None)
