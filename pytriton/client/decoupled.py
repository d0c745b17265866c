"""The synchronous client of decoupled models."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from pytriton.client.arguments import Parameters
from pytriton.client.codec import Arrays, Codec
from pytriton.client.exceptions import PyTritonClientValueError
from pytriton.client.flows import Transport, drive
from pytriton.client.grpc_stream import GrpcStreamTransport, Responses, open_stream_transport
from pytriton.client.sync import SyncClient

__all__ = ["DecoupledModelClient", "ResponseIterator"]


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

    _transport: GrpcStreamTransport

    def _make_transport(self) -> Transport:
        check_streams(self._url.scheme)
        return open_stream_transport(self._url, self._lib, self._headers, self._tls, self._max_response_bytes)

    def infer_sample(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> ResponseIterator:
        """Send one sample; its responses are received as they are iterated over.

        Args:
            inputs: As for :meth:`ModelClient.infer_sample`.
            parameters: The request's parameters.
            headers: The stream's headers; other ones than those of the request before open a new stream.
            named_inputs: The inputs by name, instead of by position.

        Returns:
            An iterator of responses, each from output name to array, without batch axis. Iterating raises
            ``PyTritonClientTimeoutError`` when a response did not come within ``inference_timeout_s``,
            ``PyTritonClientInferenceServerError`` for an error response, which is the last one, and
            ``PyTritonClientConnectionError`` when the server went away. To stop early, break and close it: the request
            is cancelled then, as when nobody refers to the iterator any more.

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
        responses = self._stream(inputs, named_inputs, parameters, headers, sample=True)
        return responses.values()

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
        flow = self._session.stream(self._request(inputs, named_inputs, parameters, headers, sample=sample))
        codec, call = drive(flow, self._transport)
        return ResponseIterator(self._transport.stream(call), codec, sample)


class ResponseIterator(Iterator[Arrays]):
    """The responses to one request, each from output name to array. ``with`` closes it, too.

    Args:
        responses: Encoded.
        codec: Decodes them.
        sample: Take the batch axis away.
    """

    def __init__(self, responses: Responses, codec: Codec, sample: bool) -> None:
        self._responses = responses
        self._codec = codec
        self._sample = sample

    def __next__(self) -> Arrays:
        result = self._responses.next()
        if result is None:
            raise StopIteration
        return self._codec.decode(result, sample=self._sample)

    def values(self) -> Generator[Any, None, None]:
        """What the responses stand for, if the model is a typed function; see :meth:`ModelClient.call`."""
        with self:
            for outputs in self:
                yield self._codec.result(outputs)

    def __enter__(self) -> ResponseIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the request, unless its last response has come; the client can send another one then."""
        self._responses.close()


def check_streams(scheme: str) -> None:
    """Raise PyTritonClientValueError unless streams of responses are possible with a URL's scheme."""
    if scheme != "grpc":
        raise PyTritonClientValueError(
            "decoupled models are called over gRPC; pass a URL such as 'grpc://localhost:8001'. Over HTTP there is the "
            "server's generate_stream endpoint"
        )
