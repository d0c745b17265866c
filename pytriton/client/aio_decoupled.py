"""The client of decoupled models for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pytriton.client.aio import AsyncioClient
from pytriton.client.aio_drive import AsyncTransport
from pytriton.client.aio_grpc_stream import AsyncGrpcStreamTransport, open_async_stream_transport
from pytriton.client.arguments import Parameters
from pytriton.client.codec import Arrays, Codec
from pytriton.client.decoupled import check_streams
from pytriton.client.flows import Call

__all__ = ["AsyncioDecoupledModelClient"]


class AsyncioDecoupledModelClient(AsyncioClient):
    """Calls one decoupled model over gRPC from an asyncio event loop: each request gets any number of responses.

    Any number of requests at once. ``async with`` closes it. The arguments are those of :class:`BaseModelClient`;
    ``inference_timeout_s`` bounds the wait for each response. ::

        async with AsyncioDecoupledModelClient("grpc://localhost", "teller") as client:
            async for words in client.infer_sample(prompt):
                print(words)

    Raises:
        PyTritonClientValueError: The URL is not of gRPC, or another argument is wrong.
    """

    _transport: AsyncGrpcStreamTransport

    def _make_transport(self) -> AsyncTransport:
        check_streams(self._url.scheme)
        return open_async_stream_transport(self._url, self._lib, self._headers, self._tls, self._max_response_bytes)

    def infer_sample(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> AsyncGenerator[Arrays, None]:
        """Stream the responses to one sample; nothing is sent before the iteration starts.

        Arguments, responses and errors, all of which iterating raises, are those of
        :meth:`DecoupledModelClient.infer_sample`. To stop early, close it, as ``contextlib.aclosing`` does: that
        cancels the request. After a mere ``break`` the event loop closes it, once nobody refers to it any more.
        """
        return self._stream(inputs, named_inputs, parameters, headers, sample=True)

    async def call(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> AsyncGenerator[Any, None]:
        """Call a typed function that streams: its values, as they come.

        Arguments are those of :meth:`ModelClient.call`; errors, and how to stop early, those of :meth:`infer_sample`.
        """
        flow = self._session.stream(self._request(inputs, named_inputs, parameters, headers, sample=True))
        codec, call = await self._run(flow)
        async with aclosing(self._responses(codec, call, sample=True)) as responses:
            async for outputs in responses:
                yield codec.result(outputs)

    def infer_batch(
        self, *inputs: Any, parameters: Parameters = None, headers: Parameters = None, **named_inputs: Any
    ) -> AsyncGenerator[Arrays, None]:
        """Stream the responses to a batch of samples, as :meth:`infer_sample`; arrays have a batch axis.

        Raises:
            PyTritonClientModelDoesntSupportBatchingError: The model has no batch axis.
        """
        return self._stream(inputs, named_inputs, parameters, headers, sample=False)

    async def _stream(
        self, inputs: Any, named_inputs: Any, parameters: Parameters, headers: Parameters, *, sample: bool
    ) -> AsyncGenerator[Arrays, None]:
        flow = self._session.stream(self._request(inputs, named_inputs, parameters, headers, sample=sample))
        codec, call = await self._run(flow)
        async with aclosing(self._responses(codec, call, sample)) as responses:
            async for outputs in responses:
                yield outputs

    async def _responses(self, codec: Codec, call: Call, sample: bool) -> AsyncGenerator[Arrays, None]:
        async with aclosing(self._transport.stream(call)) as responses:
            while (result := await self._in_flight.run(anext(responses, None))) is not None:
                yield codec.decode(result, sample=sample)
