"""Requests over one gRPC stream, none of which waits for the answer to another."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pytriton import forks
from pytriton.client.flows import Call
from pytriton.client.grpc_stream import Stream, stream_channel, stream_request
from pytriton.client.reply import GrpcReply
from pytriton.client.transport import grpc_dialect
from pytriton.client.url import TritonUrl
from pytriton.compat.tensorrtserver.exceptions import InferenceServerException

__all__ = ["RequestStream"]

Answers = dict[str, "Future[GrpcReply]"]
"""Those that requests wait for, by the requests' ids, in the order in which they were sent."""


class RequestStream:
    """Sends requests over one stream, from any thread, and gives each its own answer.

    The stream is opened with the first request, and again after it failed. A thread receives the answers, which the
    server sends in the order of the requests.

    Args:
        url: The server.
        lib: ``tritonclient.grpc``.
        headers: Sent when the stream is opened.
    """

    def __init__(self, url: TritonUrl, lib: Any, headers: dict[str, str]) -> None:
        self._url = url
        self._lib = lib
        # gRPC refuses upper-case letters in the names of metadata.
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._dialect = grpc_dialect(url, lib, headers, None)
        self._start()
        forks.register(self)

    def _start(self) -> None:
        self._lock = threading.RLock()  # collecting garbage may close this while the same thread is within send()
        self._opened: _OpenedStream | None = None
        self._closed = False

    def after_fork(self) -> None:
        """In a forked child, leave the stream to the parent: the next request opens a new one."""
        self._start()

    def send(self, call: Call) -> Future[GrpcReply]:
        """Send a request; the future gets its first response.

        Args:
            call: With the arguments of tritonclient's ``infer``; a ``request_id`` that no other request has which
                waits for an answer.

        Raises:
            PyTritonClientError: An argument cannot be sent. All other errors are the future's.
            InferenceServerException: This is closed.
        """
        self._dialect.arguments(call)  # checks them
        message = stream_request(self._lib, call)
        answer: Future[GrpcReply] = Future()
        with self._lock:
            if self._closed:
                raise InferenceServerException("the stream is closed")
            if self._opened is None or not self._opened.send(message, answer):
                self._opened = _OpenedStream(self._url, self._lib, self._headers, self._failure)
                self._opened.send(message, answer)
        return answer

    def finish(self) -> None:
        """Take no more requests, and wait for the answers to all that were sent."""
        with self._lock:
            self._closed, opened = True, self._opened
        if opened is not None:
            opened.finish()

    def close(self) -> None:
        """End the stream; requests that wait for an answer fail. May be called twice."""
        with self._lock:
            self._closed, opened = True, self._opened
        if opened is not None:
            opened.close()

    def _failure(self, error: Exception) -> Exception:
        """What a request fails with, of what the server or the connection failed with."""
        if self._closed:
            return InferenceServerException("the stream was closed before the answer came")
        failure = self._dialect.translate(Call("stream_infer", math.inf), error)
        failure.__cause__ = error
        return failure


class _OpenedStream:
    """One stream, and the thread that receives from it, from the first request until the stream ends.

    Args:
        url: The server.
        lib: ``tritonclient.grpc``.
        headers: Sent at once.
        failure: What a request fails with, of what the server or the connection failed with.
    """

    def __init__(
        self, url: TritonUrl, lib: Any, headers: dict[str, str], failure: Callable[[Exception], Exception]
    ) -> None:
        self._server_error = lib.InferenceServerException
        self._failure = failure
        self._channel = stream_channel(url.without_scheme)
        self._stream = Stream(lib, self._channel, (headers, None))
        self._lock = threading.RLock()
        self._answers: Answers = {}
        self._ended = False
        self._thread = threading.Thread(target=self._receive_all, name="pytriton-infer-stream", daemon=True)

    def send(self, message: Any, answer: Future[GrpcReply]) -> bool:
        """Send a request, unless the stream has ended, which False tells."""
        with self._lock:
            if self._ended:
                return False
            self._answers[message.id] = answer
            self._stream.send(message)
        if self._thread.ident is None:  # from now on there is a request to fail if the server cannot be reached
            self._thread.start()
        return True

    def finish(self) -> None:
        """Take no more requests, and wait for the answers to all that were sent."""
        self._stream.finish()
        self._thread.join()

    def close(self) -> None:
        """Fail the requests that wait."""
        self._stream.close()

    def _receive_all(self) -> None:
        try:
            while True:
                self._hand_out(self._stream.receive_message())
        except Exception as error:
            with self._lock:
                self._ended = True
            for answer in self._answers.values():
                answer.set_exception(self._failure(error))
        finally:
            self._stream.close()
            self._channel.close()

    def _hand_out(self, message: Any) -> None:
        response = message.infer_response
        with self._lock:
            answer = self._pop(response.id)
        if answer is None:  # a later response of a model that gives several
            return
        try:
            if message.error_message:
                raise self._server_error(message.error_message)
            if not response.outputs and response.parameters["triton_final_response"].bool_param:
                raise InferenceServerException("the model gave no response to the request")
            reply = GrpcReply(response)
        except InferenceServerException as error:
            answer.set_exception(error)
        except Exception as error:
            answer.set_exception(self._failure(error))
        else:
            answer.set_result(reply)

    def _pop(self, request_id: str) -> Future[GrpcReply] | None:
        if not request_id and self._answers:  # not of every server, but answers come in the order of the requests
            request_id = next(iter(self._answers))
        return self._answers.pop(request_id, None)
