"""Streams of responses over gRPC, for synchronous clients."""

from __future__ import annotations

import importlib
import queue
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES
from pytriton.client.dialect import GrpcDialect
from pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
)
from pytriton.client.flows import Call
from pytriton.client.reply import GrpcReply, check_request_id
from pytriton.client.tls import Tls
from pytriton.client.transport import GrpcTransport, grpc_channel_arguments, grpc_connector, grpc_dialect
from pytriton.client.url import TritonUrl
from pytriton.client.watchdog import Watchdog

__all__ = [
    "GrpcStreamTransport",
    "Responses",
    "Stream",
    "open_stream_transport",
    "stream_channel",
    "stream_request",
]


def open_stream_transport(
    url: TritonUrl,
    lib: Any,
    headers: Mapping[str, str],
    tls: Tls | None,
    max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
) -> GrpcStreamTransport:
    """A transport that connects at its first call; the arguments are those of :func:`open_transport`."""
    return GrpcStreamTransport(
        grpc_dialect(url, lib, headers, tls),
        grpc_connector(url, lib, tls, max_response_bytes),
        lambda: stream_channel(url.without_scheme, tls, max_response_bytes),
        lib,
    )


def stream_channel(
    address: str, tls: Tls | None = None, max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES
) -> Any:
    """A channel for :class:`Stream`; the caller closes it."""
    grpc = importlib.import_module("grpc")
    options = grpc_channel_arguments(max_response_bytes)
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    files = (tls.root_certificates, tls.private_key, tls.certificate_chain)
    credentials = grpc.ssl_channel_credentials(*(None if path is None else Path(path).read_bytes() for path in files))
    return grpc.secure_channel(address, credentials, options=options)


class GrpcStreamTransport(GrpcTransport):
    """gRPC over one channel, and over another one a stream for requests with several responses, one after the other.

    The stream stays open from one request to the next: a new one costs 2 ms. It is not tritonclient's, which leaves a
    thread behind when it is cancelled, and takes two threads' turns for each response.

    Args:
        dialect: How calls are put.
        connect: Makes a ``tritonclient.grpc.InferenceServerClient``.
        connect_stream: Makes a channel for the stream.
        lib: The tritonclient module.
    """

    def __init__(
        self, dialect: GrpcDialect, connect: Callable[[], Any], connect_stream: Callable[[], Any], lib: Any
    ) -> None:
        super().__init__(dialect, connect)
        self._connect_stream = connect_stream
        self._lib = lib
        self._watchdog = Watchdog()
        self._channel: Any = None
        self._stream: Stream | None = None
        self._responses: Responses | None = None
        self._closed = False

    def after_fork(self) -> None:
        """As :meth:`GrpcTransport.after_fork`; responses that are under way are the parent's, too."""
        super().after_fork()
        self._channel = self._stream = self._responses = None

    def stream(self, call: Call) -> Responses:
        """Send a request; its responses are received one by one.

        Raises:
            PyTritonClientInferenceServerError: Those of an earlier request have not been received to the end.
            PyTritonClientError: The request could not be sent.
        """
        if self._responses is not None:
            raise PyTritonClientInferenceServerError(
                "the responses to an earlier request have not all been received; take them all, or close() their "
                "iterator, or use one client for each stream"
            )
        arguments = self._dialect.arguments(call)
        opening = (arguments["headers"], call.compression)
        if self._stream is None or self._stream.opening != opening or not self._stream.is_open():
            self._end_stream()
            if self._channel is None:
                self._channel = self._connect_stream()
            self._stream = Stream(self._lib, self._channel, opening)
        self._stream.send(stream_request(self._lib, call))
        self._responses = Responses(self, self._stream, call)
        return self._responses

    def receive(self, stream: Stream, call: Call) -> tuple[GrpcReply, bool]:
        """The next response to a request that was sent with :meth:`stream`, and whether it is the last one.

        Raises:
            PyTritonClientError: There was none in time, it is an error, or the connection failed; none follows then.
        """
        if self._closed:
            raise PyTritonClientClosedError("the client was closed before all responses had been received")
        if stream is not self._stream:
            raise PyTritonClientConnectionError(
                "the request was sent by the process from which this one was forked, which gets the responses; send it "
                "again in this process"
            )
        self._watchdog.start(call.timeout_s, stream.cancel)
        try:
            response, final = stream.receive()
            check_request_id(response, call.arguments["request_id"])
        except Exception as error:
            late = self._watchdog.stop()
            raise self._dialect.timeout(call) if late else self._failure(call, error) from error
        if self._watchdog.stop():
            raise self._dialect.timeout(call)
        return GrpcReply(response), final

    def done(self, responses: Responses, *, keep_stream: bool) -> None:
        """No more responses are wanted to the request that was sent last."""
        if responses is not self._responses:  # but to one that was sent before a fork
            return
        self._responses = None
        if not keep_stream:
            self._end_stream()

    def close(self) -> None:
        """Close the stream and the channels; whoever waits for a response gets PyTritonClientClosedError."""
        self._closed = True
        self._end_stream()
        self._watchdog.close()
        self._end_channel()
        super().close()

    def _failure(self, call: Call, error: Exception) -> PyTritonClientError:
        if self._closed:
            return PyTritonClientClosedError("the client was closed before all responses had been received")
        translated = self._dialect.translate(call, error)
        if isinstance(translated, PyTritonClientConnectionError):
            # As in GrpcTransport: a new channel tries at once.
            self._end_channel()
        return translated

    def _end_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class Stream:
    """One gRPC stream.

    Args:
        lib: The tritonclient module.
        channel: Where it goes.
        opening: Headers and compression, which are those of all its requests.
    """

    def __init__(self, lib: Any, channel: Any, opening: tuple[dict[str, str], str | None]) -> None:
        self.opening = opening
        headers, compression = opening
        grpc = importlib.import_module("grpc")
        stub = lib.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._lib = lib
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._rpc_error = grpc.RpcError
        self._call = stub.ModelStreamInfer(
            iter(self._requests.get, None),
            metadata=tuple(headers.items()),
            compression=grpc.Compression[compression.capitalize()] if compression else None,
        )

    def send(self, request: Any) -> None:
        """Send a ``ModelInferRequest`` as soon as the connection can take it."""
        self._requests.put(request)

    def receive(self) -> tuple[Any, bool]:
        """Wait for the next response, and tell whether it is the last one to its request.

        Raises:
            ConnectionError: The server closed the stream.
            tritonclient.utils.InferenceServerException: The response is an error, or the stream failed.
        """
        received = self.receive_message()
        if received.error_message:
            raise self._lib.InferenceServerException(received.error_message)
        response = received.infer_response
        return response, response.parameters["triton_final_response"].bool_param

    def receive_message(self) -> Any:
        """Wait for the next ``ModelStreamInferResponse``, which may be an error; raises as :meth:`receive`."""
        try:
            return next(self._call)
        except StopIteration as error:
            raise ConnectionError("the server closed the stream") from error
        except self._rpc_error as error:
            # As tritonclient does for all other calls.
            raise self._lib.InferenceServerException(error.details(), str(error.code())) from error

    def is_open(self) -> bool:
        """Whether another request can be sent, as far as is known."""
        return bool(self._call.is_active())

    def cancel(self) -> None:
        """Cancel all requests; whoever waits for a response gets an error."""
        self._call.cancel()

    def finish(self) -> None:
        """Send no more requests; the server closes the stream after its last response."""
        self._requests.put(None)

    def close(self) -> None:
        """Cancel all requests, and end the thread in which gRPC waits for more."""
        self.cancel()
        self.finish()


class Responses:
    """The responses to one request.

    Args:
        transport: Where they come from.
        stream: The stream that the request was sent on.
        call: The request.
    """

    def __init__(self, transport: GrpcStreamTransport, stream: Stream, call: Call) -> None:
        self._transport = transport
        self._stream = stream
        self._call = call
        self._ended = False

    def next(self) -> GrpcReply | None:
        """Wait for the next response; None if there is none.

        Raises:
            PyTritonClientError: It did not come in time, it is an error, or the connection failed.
        """
        if self._ended:
            return None
        try:
            result, final = self._transport.receive(self._stream, self._call)
        except BaseException:
            self.close()
            raise
        if final:
            self._end(keep_stream=True)
        # A last response without outputs only says that it is the last one.
        return None if final and not result.get_response().outputs else result

    def close(self) -> None:
        """Cancel the request, unless its last response has come."""
        if not self._ended:
            self._end(keep_stream=False)

    def _end(self, *, keep_stream: bool) -> None:
        self._ended = True
        self._transport.done(self, keep_stream=keep_stream)


def stream_request(lib: Any, call: Call) -> Any:
    """A request for a stream, as gRPC sends it: a ``ModelInferRequest``."""
    given = call.arguments
    request = lib.service_pb2.ModelInferRequest(
        model_name=given["model_name"], model_version=given["model_version"], id=given["request_id"]
    )
    for tensor in given["inputs"]:
        request.inputs.append(tensor._get_tensor())
        content = tensor._get_content()
        if content is not None:  # it is in shared memory
            request.raw_input_contents.append(content)
    for output in given["outputs"]:
        request.outputs.append(output._get_tensor())
    for name, value in (given["parameters"] or {}).items():
        _set(request.parameters[name], value)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    if "priority" in given:
        request.parameters["priority"].uint64_param = given["priority"]
    if "timeout" in given:
        request.parameters["timeout"].int64_param = given["timeout"]
    return request


def _set(parameter: Any, value: str | int | bool) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    else:
        parameter.string_param = value
