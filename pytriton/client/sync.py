"""The synchronous clients: :class:`ModelClient`, and :class:`DecoupledModelClient` for streams of responses."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, TypeVar

from pytriton.client.arguments import DEFAULT_MAX_RESPONSE_BYTES, Parameters
from pytriton.client.auth import Tls, TritonUrl
from pytriton.client.codec import Arrays, Codec
from pytriton.client.conversations import Call, Conversation, Sleep, Transport
from pytriton.client.exceptions import PyTritonClientError, PyTritonClientValueError
from pytriton.client.grpc_transports import GrpcTransport, StreamedResponses
from pytriton.client.http_transports import HttpTransport
from pytriton.client.session import BaseModelClient, ClientT
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.threads import check_threads

__all__ = ["DecoupledModelClient", "ModelClient", "ResponseIterator", "SyncClient", "drive", "open_transport"]

T = TypeVar("T")


def drive(conversation: Conversation[T], transport: Transport) -> T:
    """Run a conversation to its end and return its result."""
    try:
        step = next(conversation)
        while True:
            try:
                answer = None
                if isinstance(step, Call):
                    answer = transport.call(step)
                elif isinstance(step, Sleep):
                    transport.sleep(step.seconds)
                else:
                    answer = drive(step.start(), transport)
            except PyTritonClientError as error:
                step = conversation.throw(error)
            else:
                step = conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def open_transport(
    url: TritonUrl,
    headers: Mapping[str, str],
    tls: Tls | None = None,
    max_response_bytes: int | None = DEFAULT_MAX_RESPONSE_BYTES,
) -> HttpTransport | GrpcTransport:
    """A transport that connects at its first call; the caller closes it.

    Args:
        max_response_bytes: The longest response to take; None for no limit.
    """
    kind = GrpcTransport if url.scheme == "grpc" else HttpTransport
    return kind(url, headers, tls, max_response_bytes)


class SyncClient(BaseModelClient):
    """The base of the synchronous clients: everything but the inference.

    Raises:
        PyTritonClientClosedError: By all methods but :meth:`close`: the client is closed.
    """

    def _open(self) -> None:
        self._transport = self._make_transport()
        if not self._lazy_init:
            try:
                drive(self._session.start(), self._transport)
            except BaseException:
                self.close()
                raise

    def _make_transport(self) -> Transport:
        return open_transport(self._url, self._headers, self._tls, self._max_response_bytes)

    def __enter__(self: ClientT) -> ClientT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; later calls raise ``PyTritonClientClosedError``. May be called twice."""
        self._session.close()
        self._transport.close()

    def wait_for_server(self, timeout_s: float) -> None:
        """Wait until the server is live, and ready with all its models.

        Raises:
            PyTritonClientTimeoutError: It was not within ``timeout_s`` seconds.
        """
        drive(self._session.wait_for_server(timeout_s), self._transport)

    def wait_for_model(self, timeout_s: float) -> None:
        """Wait until the model can serve.

        Raises:
            PyTritonClientModelUnavailableError: The server was reached, but had no such model within ``timeout_s``.
            PyTritonClientTimeoutError: The model was not ready within ``timeout_s`` seconds.
        """
        drive(self._session.wait_for_model(timeout_s), self._transport)

    @property
    def model_config(self) -> TritonModelConfig:
        """The model's configuration; waits for the model and fetches it at first use.

        Raises:
            PyTritonClientModelUnavailableError: The server has no such model.
            PyTritonClientTimeoutError: It took longer than ``init_timeout_s``.
        """
        return drive(self._session.model_config(), self._transport)

    @property
    def is_batching_supported(self) -> bool:
        """Whether the model's tensors have a batch axis; raises as :attr:`model_config`."""
        return self.model_config.max_batch_size > 0

    def load_model(self, config: str | None = None, files: Mapping[str, bytes] | None = None) -> None:
        """Have the server load the model, and return when it has; bounded by ``init_timeout_s``.

        Args:
            config: Configuration to use instead of the repository's, as JSON text. If it has no backend and tensors,
                such as ``{"max_batch_size": 16}``, it is completed from that of the loaded model.
            files: Path to content of files to use instead of the repository's; needs ``config``.

        Raises:
            PyTritonClientInferenceServerError: The server could not load it, or does not allow it.
            PyTritonClientTimeoutError: It took longer than ``init_timeout_s``.
        """
        drive(self._session.load_model(config, files), self._transport)

    def unload_model(self) -> None:
        """Have the server unload the model, which may end after this returns; raises as :meth:`load_model`."""
        drive(self._session.unload_model(), self._transport)


class ModelClient(SyncClient):
    """Calls one model over HTTP or gRPC, and waits for each response.

    For one thread at a time; it may be made in one thread and used in another. ``with`` closes it. The arguments are
    those of :class:`BaseModelClient`::

        with ModelClient("localhost", "classifier") as client:
            outputs = client.infer_batch(images)

    Raises:
        PyTritonClientValueError: An argument is wrong; :class:`PyTritonClientInvalidUrlError` for the URL.
        PyTritonClientModelUnavailableError: With ``lazy_init=False``: the server has no such model.
        PyTritonClientTimeoutError: With ``lazy_init=False``: the model was not ready in time.
    """

    def infer_sample(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Arrays:
        """Infer one sample.

        Args:
            inputs: Arrays in the order of the model's inputs, each of exactly the declared dtype and shape, without
                batch axis. BYTES are object arrays of ``bytes``, or bytes arrays such as ``S8``. Of a typed function,
                also Python values.
            parameters: The request's parameters, for callables that read them.
            headers: The request's headers; numbers and booleans become text.
            named_inputs: The same by name, instead of by position.

        Returns:
            Output name to array, without batch axis. BYTES are object arrays of ``bytes``; numbers are read-only.

        Raises:
            PyTritonClientInputError: An input does not fit the model; nothing was sent.
            PyTritonClientValueError: Another argument is wrong; nothing was sent.
            PyTritonClientTimeoutError: There was no response within ``inference_timeout_s``, or at first use the model
                was not ready within ``init_timeout_s``.
            PyTritonClientModelUnavailableError: At first use: the server has no such model.
            PyTritonClientQueueTimeoutError: The request waited in the server's queue for longer than allowed.
            PyTritonClientConnectionError: The server could not be reached, or went away.
            PyTritonClientTlsError: Client and server do not trust each other.
            PyTritonClientServerUnavailableError: The model's queue is full, or the model is not loaded now.
            PyTritonClientInferenceServerError: The model failed, or it is decoupled.
            PyTritonClientClosedError: The client is closed.
        """
        return drive(
            self._session.infer(self._request(inputs, named_inputs, parameters, headers, sample=True)), self._transport
        )

    def call(self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any) -> Any:
        """Call a typed function: Python values in, its result out.

        Args:
            inputs: Values in the order of the function's parameters. None is left out, so that the default counts.
                Dataclasses, models of pydantic, enumerations, images of Pillow and arrays are understood.
            named_inputs: The same by name, instead of by position.

        Returns:
            The function's result: a value, or a dict of the fields of an object. Arrays are read-only.

        Raises:
            PyTritonClientInputError: A value does not fit the function's parameter; nothing was sent.
            PyTritonClientValueError: The model was not made of a typed function.
            PyTritonClientError: As :meth:`infer_sample`.
        """
        return drive(
            self._session.call(self._request(inputs, named_inputs, parameters, headers, sample=True)), self._transport
        )

    def infer_batch(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Arrays:
        """Infer a batch of samples.

        As :meth:`infer_sample`, but arrays have shape ``(batch, *shape)``, with one ``batch`` from 1 to the model's
        ``max_batch_size``; with ``with_options(split_batches=True)`` more, which are sent in parts.

        Raises:
            PyTritonClientModelDoesntSupportBatchingError: The model has no batch axis.
        """
        return drive(
            self._session.infer(self._request(inputs, named_inputs, parameters, headers, sample=False)), self._transport
        )


class DecoupledModelClient(SyncClient):
    """Calls one decoupled model over gRPC: each request gets any number of responses, one by one.

    For one request and one thread at a time. ``with`` closes it. The arguments are those of :class:`BaseModelClient`;
    ``inference_timeout_s`` bounds the wait for each response. ::

        with DecoupledModelClient("grpc://localhost", "teller") as client:
            for words in client.infer_sample(prompt):
                print(words)

    Raises:
        PyTritonClientValueError: The URL is not of gRPC, or another argument is wrong.
        PyTritonClientModelUnavailableError: With ``lazy_init=False``: the server has no such model.
        PyTritonClientTimeoutError: With ``lazy_init=False``: the model was not ready in time.
    """

    _transport: GrpcTransport

    def _make_transport(self) -> Transport:
        check_streams(self._url.scheme)
        check_threads(type(self).__name__, "threading", "queue", instead="call it in a process without that")
        return super()._make_transport()

    def infer_sample(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> ResponseIterator:
        """Send one sample; iterating receives its responses.

        Args:
            headers: The stream's headers; a new stream opens if they differ from those of the request before.
            named_inputs: The inputs by name, instead of by position.

        Returns:
            An iterator of responses, each from output name to array, without batch axis. Iterating raises
            ``PyTritonClientTimeoutError`` when a response did not come within ``inference_timeout_s``,
            ``PyTritonClientInferenceServerError`` for an error response, which is the last one, and
            ``PyTritonClientConnectionError`` when the server went away. To stop early, break and close it: that cancels
            the request, as garbage collection of the iterator does.

        Raises:
            PyTritonClientInferenceServerError: The model is not decoupled, or an earlier request has not ended.
            PyTritonClientError: As :meth:`ModelClient.infer_sample`.
        """
        return self._stream(inputs, named_inputs, parameters, headers, sample=True)

    def call(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> Generator[Any, None, None]:
        """Call a typed function that streams: its values, as they come.

        Arguments are those of :meth:`ModelClient.call`; errors, and how to stop early, those of :meth:`infer_sample`.
        """
        return self._stream(inputs, named_inputs, parameters, headers, sample=True).values()

    def infer_batch(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> ResponseIterator:
        """Send a batch of samples, as :meth:`infer_sample`; arrays have a batch axis, which the model may change.

        Raises:
            PyTritonClientModelDoesntSupportBatchingError: The model has no batch axis.
        """
        return self._stream(inputs, named_inputs, parameters, headers, sample=False)

    def _stream(
        self, inputs: Any, named_inputs: Any, parameters: Parameters, headers: Parameters, *, sample: bool
    ) -> ResponseIterator:
        request = self._request(inputs, named_inputs, parameters, headers, sample=sample)
        codec, call = drive(self._session.stream(request), self._transport)
        return ResponseIterator(self._transport.stream(call), codec, sample, request.options.text_outputs)


class ResponseIterator(Iterator[Arrays]):
    """The responses to one request, each from output name to array. ``with`` closes it, too.

    Args:
        sample: Remove the batch axis.
    """

    def __init__(self, responses: StreamedResponses, codec: Codec, sample: bool, text_outputs: bool = False) -> None:
        self._responses = responses
        self._codec = codec
        self._sample = sample
        self._text_outputs = text_outputs

    def __next__(self) -> Arrays:
        outputs = self._next()
        if outputs is None:
            raise StopIteration
        return self._codec.with_texts(outputs) if self._text_outputs else outputs

    def _next(self) -> Arrays | None:
        response = self._responses.next()
        return None if response is None else self._codec.decode(response, sample=self._sample)

    def values(self) -> Generator[Any, None, None]:
        """What the responses stand for, if the model is a typed function; see :meth:`ModelClient.call`."""
        with self:
            while (outputs := self._next()) is not None:
                yield self._codec.result(outputs)

    def __enter__(self) -> ResponseIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the request, unless its last response has come; then the client can send another one."""
        self._responses.close()


def check_streams(scheme: str) -> None:
    """Raise PyTritonClientValueError unless streams of responses are possible with a URL's scheme."""
    if scheme != "grpc":
        raise PyTritonClientValueError(
            "decoupled models are called over gRPC; pass a URL such as 'grpc://localhost:8001'. Over HTTP there is the "
            "server's generate_stream endpoint"
        )
