"""gRPC over blocking channels, and in event loops: calls, and streams of responses."""

from __future__ import annotations

import importlib
import os
import queue
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from pytriton import forks
from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.conversations import Call
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
)
from pytriton.client.grpc_protocol import GrpcProtocol, compression, open_channel, refusal
from pytriton.client.http_transports import CHECK_S
from pytriton.client.tensors import InferResponse
from pytriton.client.threads import TimeLimit
from pytriton.client.transport import AsyncNetworkTransport, LoopConnection, time_limit
from pytriton.exceptions import PyTritonError
from pytriton.threads import check_threads

__all__ = ["AsyncGrpcTransport", "GrpcStream", "GrpcTransport", "StreamedResponses", "new_stub"]


def new_stub(channel: Any) -> Any:
    """The stub of a channel, whose methods are the remote procedures."""
    return importlib.import_module("tritonclient.grpc.service_pb2_grpc").GRPCInferenceServiceStub(channel)


def _rpc_error() -> type[Exception]:
    error: type[Exception] = importlib.import_module("grpc").RpcError
    return error


class GrpcTransport:
    """A ``Transport`` over one channel. Requests with several responses share a stream, one after the other.

    The stream stays open from one request to the next, because a new one costs 2 ms. tritonclient's stream leaves a
    thread behind when it is cancelled, and its responses pass two threads. A stream of :mod:`grpc.aio` on the loop of
    another thread takes 3.5 times as long for each response.

    Args:
        tls: None does not encrypt.
        max_response_bytes: The longest response to take; None for 2 GiB.
        server_name: The name that the server's certificate has, if it is not the URL's host.

    Attributes:
        check: As that of :class:`pytriton.client.http_transports.HttpTransport`, for calls.
    """

    check: Callable[[], None] | None = None

    def __init__(
        self,
        url: TritonUrl,
        headers: Mapping[str, str],
        tls: Tls | None,
        max_response_bytes: int | None,
        server_name: str = "",
    ) -> None:
        self._protocol = GrpcProtocol(url.with_scheme, headers, secured=tls is not None)
        self._open_channel = partial(open_channel, url.without_scheme, tls, max_response_bytes, server_name=server_name)
        self._rpc_error, self._not_yet = _rpc_error(), importlib.import_module("grpc").FutureTimeoutError
        self._time_limit = TimeLimit()
        self._closed = False
        self._forget()
        forks.register(self)

    def _forget(self) -> None:
        self._channel: Any = None
        self._stub: Any = None
        self._stream: GrpcStream | None = None
        self._responses: StreamedResponses | None = None

    def after_fork(self) -> None:
        """In a forked child, leave channel and stream to the parent: the next call makes new ones."""
        self._forget()

    def call(self, call: Call) -> Any:
        """Perform one call; its timeout bounds connecting, sending and receiving together."""
        try:
            request = self._protocol.request(call)
            try:
                message = self._sent(getattr(self._connected(), request.rpc), request)
            except self._rpc_error as error:
                raise refusal(error) from error
            return self._protocol.answer(call, message)
        except PyTritonError:  # also what the check has raised
            raise
        except Exception as error:
            raise self._failure(call, error) from error

    def _sent(self, method: Any, request: Any) -> Any:
        """The response to a request, which is cancelled if the check raises."""
        if self.check is None:
            return method(request.message, **request.options)
        future = method.future(request.message, **request.options)
        try:
            while True:
                try:
                    return future.result(CHECK_S)
                except self._not_yet:
                    self.check()
        finally:
            future.cancel()

    def stream(self, call: Call) -> StreamedResponses:
        """Send a request and return its responses, which are received one by one.

        Raises:
            PyTritonClientInferenceServerError: The program has not taken all responses to an earlier request.
            PyTritonClientError: The request could not be sent.
        """
        if self._responses is not None:
            raise PyTritonClientInferenceServerError(
                "the responses to an earlier request have not all been received; take them all, or close() their "
                "iterator, or use one client for each stream"
            )
        opening = (self._protocol.metadata(call), call.compression)
        if self._stream is None or self._stream.opening != opening or not self._stream.is_open():
            self._end_stream()
            self._stream = GrpcStream(self._connected(), opening)
        self._stream.send(self._protocol.stream_request(call, marks_end=True))
        self._responses = StreamedResponses(self, self._stream, call)
        return self._responses

    def receive(self, stream: GrpcStream, call: Call) -> tuple[InferResponse, bool]:
        """The next response to the request that :meth:`stream` sent, and whether it is the last one.

        Raises:
            PyTritonClientError: There was none in time, it is an error, or the connection failed; none follows.
        """
        if self._closed:
            raise _closed_early()
        if stream is not self._stream:
            raise PyTritonClientConnectionError(
                "the request was sent by the process from which this one was forked, which gets the responses; send it "
                "again in this process"
            )
        self._time_limit.start(call.timeout_s, stream.cancel)
        try:
            message = stream.receive()
            response = self._protocol.stream_answer(call, message)
        except PyTritonClientError:
            self._time_limit.stop()
            raise
        except Exception as error:
            late = self._time_limit.stop()
            raise self._protocol.timeout(call) if late else self._failure(call, error) from error
        if self._time_limit.stop():
            raise self._protocol.timeout(call)
        return response, message.infer_response.parameters["triton_final_response"].bool_param

    def done(self, responses: StreamedResponses, *, keep_stream: bool) -> None:
        """The program wants no more of these responses."""
        if responses is not self._responses:  # their request was sent before a fork
            return
        self._responses = None
        if not keep_stream:
            self._end_stream()

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)

    def close(self) -> None:
        """Close stream and channel; a thread that waits for a response gets PyTritonClientClosedError."""
        self._closed = True
        self._time_limit.close()
        self._end_channel()

    def _connected(self) -> Any:
        if self._stub is None:
            self._channel = self._open_channel()
            self._stub = new_stub(self._channel)
        return self._stub

    def _failure(self, call: Call, error: Exception) -> PyTritonClientError:
        if self._closed and self._responses is not None:
            return _closed_early()
        failure = self._protocol.translate(call, error)
        if isinstance(failure, PyTritonClientConnectionError):
            # A channel that failed waits longer and longer before it connects again; a new one connects at once.
            self._end_channel()
        return failure

    def _end_channel(self) -> None:
        self._end_stream()
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            channel.close()

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _closed_early() -> PyTritonClientClosedError:
    return PyTritonClientClosedError("the client was closed before all responses had been received")


class GrpcStream:
    """One stream of requests and responses, on a blocking channel.

    Args:
        opening: Metadata and compression, which all requests of the stream share.
    """

    def __init__(self, stub: Any, opening: tuple[dict[str, str], str | None]) -> None:
        self.opening = opening
        metadata, algorithm = opening
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._rpc_error = _rpc_error()
        self._call = stub.ModelStreamInfer(
            iter(self._requests.get, None), metadata=tuple(metadata.items()), compression=compression(algorithm)
        )

    def send(self, request: Any) -> None:
        """Send a ``ModelInferRequest`` as soon as the connection can take it."""
        self._requests.put(request)

    def receive(self) -> Any:
        """Wait for the next ``ModelStreamInferResponse``, which may be an error.

        Raises:
            ConnectionError: The server closed the stream.
            InferenceServerException: The stream failed.
        """
        try:
            return next(self._call)
        except StopIteration as error:
            raise ConnectionError("the server closed the stream") from error
        except self._rpc_error as error:
            raise refusal(error) from error

    def is_open(self) -> bool:
        """Whether another request can be sent, as far as this side knows."""
        return bool(self._call.is_active())

    def cancel(self) -> None:
        """Cancel all requests; a thread that waits for a response gets an error."""
        self._call.cancel()

    def finish(self) -> None:
        """Send no more requests; the server closes the stream after its last response."""
        self._requests.put(None)

    def close(self) -> None:
        """Cancel all requests, and end the thread of gRPC that waits for more."""
        self.cancel()
        self.finish()


class StreamedResponses:
    """The responses to one request over a stream."""

    def __init__(self, transport: GrpcTransport, stream: GrpcStream, call: Call) -> None:
        self._transport = transport
        self._stream = stream
        self._call = call
        self._ended = False

    def next(self) -> InferResponse | None:
        """Wait for the next response; None after the last one.

        Raises:
            PyTritonClientError: It did not come in time, it is an error, or the connection failed.
        """
        if self._ended:
            return None
        try:
            response, final = self._transport.receive(self._stream, self._call)
        except BaseException:
            self.close()
            raise
        if final:
            self._end(keep_stream=True)
        # A last response without outputs only marks the end.
        return None if final and not response.get_response().outputs else response

    def close(self) -> None:
        """Cancel the request, unless its last response has come."""
        if not self._ended:
            self._end(keep_stream=False)

    def _end(self, *, keep_stream: bool) -> None:
        self._ended = True
        self._transport.done(self, keep_stream=keep_stream)


class AsyncGrpcTransport(AsyncNetworkTransport):
    """gRPC in event loops, over one channel in each. Each request with several responses has a stream of its own.

    The arguments are those of :class:`GrpcTransport`.
    """

    _protocol: GrpcProtocol
    # A channel that failed waits longer and longer before it connects again; a new one connects at once.
    _replaces_failed_connections = True

    def __init__(
        self, url: TritonUrl, headers: Mapping[str, str], tls: Tls | None, max_response_bytes: int | None
    ) -> None:
        check_threads("an asyncio client over gRPC", "threading", instead="use HTTP, or ModelClient in greenlets")
        protocol = GrpcProtocol(url.with_scheme, headers, secured=tls is not None)
        super().__init__(protocol, lambda: _AsyncChannel(url.without_scheme, tls, max_response_bytes))
        self._rpc_error = _rpc_error()

    async def _perform(self, connections: _AsyncChannel, call: Call) -> Any:
        request = self._protocol.request(call)
        try:
            message = await getattr(connections.stub, request.rpc)(request.message, **request.options)
        except self._rpc_error as error:
            raise refusal(error) from error
        return self._protocol.answer(call, message)

    async def stream(self, call: Call) -> AsyncGenerator[InferResponse, None]:
        """Send a request, and yield the responses to it.

        The call's timeout bounds the wait for each response. Closing the generator cancels the request.

        Raises:
            PyTritonClientError: A response did not come in time, it is an error, or the connection failed.
        """
        metadata = tuple(self._protocol.metadata(call).items())
        request = self._protocol.stream_request(call, marks_end=False)
        connection: LoopConnection = await self._begin()
        responses = connection.connections.stub.ModelStreamInfer(
            _single(request), metadata=metadata, compression=compression(call.compression)
        )
        received = aiter(responses)
        try:
            while True:
                async with time_limit(call.timeout_s):
                    try:
                        message = await anext(received)
                    except StopAsyncIteration:
                        return
                    except self._rpc_error as error:
                        raise refusal(error) from error
                yield self._protocol.stream_answer(call, message)
        except PyTritonClientError:
            raise
        except Exception as error:
            raise self._failure(connection, call, error) from error
        finally:
            responses.cancel()
            await self._end(connection)


async def _single(request: Any) -> AsyncIterator[Any]:
    # The stream ends after the last response to the last request.
    yield request


class _AsyncChannel:
    """A channel of the running event loop, and its stub."""

    def __init__(self, address: str, tls: Tls | None, max_response_bytes: int | None) -> None:
        _usage.begin()
        self._channel = open_channel(address, tls, max_response_bytes, library="grpc.aio")
        self.stub = new_stub(self._channel)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


class _AsyncGrpcUsage:
    """Refuses gRPC for asyncio where it would crash or hang.

    One thread serves all its channels. A forked child does not have that thread, and gRPC starts no other.
    """

    def __init__(self) -> None:
        self._process: int | None = None
        self._is_inherited = False
        forks.register(self)

    def begin(self) -> None:
        """Called before a channel is made; raises PyTritonClientClosedError if it would not work."""
        if self._is_inherited:
            raise PyTritonClientClosedError(
                f"gRPC for asyncio was used in process {self._process}, from which this process was forked, and works "
                "there alone; use an http:// URL or ModelClient here, or start this process with the method 'spawn' of "
                "multiprocessing"
            )
        self._process = os.getpid()

    def after_fork(self) -> None:
        """In a forked child, refuse if the parent has used it."""
        self._is_inherited = self._process is not None


_usage = _AsyncGrpcUsage()
