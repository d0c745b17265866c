"""Requests over one gRPC stream, without waiting for the responses to earlier ones."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tritonclient.utils import InferenceServerException as TritonException

from pytriton import forks
from pytriton.client.auth import TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.grpc_protocol import GrpcProtocol, open_channel
from pytriton.client.grpc_transports import GrpcStream, new_stub
from pytriton.client.tensors import InferResponse
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException

__all__ = ["RequestStream"]

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
                self._assign(self._stream.receive_message())
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
