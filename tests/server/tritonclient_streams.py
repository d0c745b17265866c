"""One face for the streams of tritonclient.grpc (callbacks) and tritonclient.grpc.aio (iterators)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from queue import SimpleQueue
from typing import Any

import grpc
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from tests.server.processes import DEADLINE_S
from tests.server.tritonclients import Answer, Api

Reply = Answer | InferenceServerException | None


class Stream:
    """A stream of its own client.

    Args:
        api: A gRPC client; the stream's is another one like it.
        options: Of ``start_stream`` or ``stream_infer``.
    """

    def __init__(self, api: Api, **options: Any) -> None:
        self._api = api.other()
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        if self._api.loop is None:
            self._api.client.start_stream(self._on_reply, **options)
        else:
            self._api.loop.run(self._start_aio(options))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(cancel_requests=True)
        self._api.__exit__()

    def send(self, model: str, arrays: Mapping[str, NDArray[Any]], **options: Any) -> None:
        """Send a request; options are those of ``async_stream_infer``."""
        self.send_request({"model_name": model, "inputs": self._api.inputs(arrays), **options})

    def send_request(self, request: dict[str, Any]) -> None:
        if self._api.loop is None:
            self._api.client.async_stream_infer(**request)
        else:
            self._api.loop.run(self._requests.put(request))

    def next(self) -> Reply:
        """The next reply: an answer, an error, or None at the end of the stream."""
        return self._replies.get(timeout=DEADLINE_S)

    def answer(self) -> Answer:
        """The next reply, which must be an answer."""
        reply = self.next()
        assert isinstance(reply, Answer), reply
        return reply

    def error(self) -> InferenceServerException:
        """The next reply, which must be an error."""
        reply = self.next()
        assert isinstance(reply, InferenceServerException), reply
        return reply

    def finish(self) -> list[Reply]:
        """Send no more, wait for what is pending, and return the rest of the replies."""
        self.stop()
        replies = []
        while (reply := self.next()) is not None:
            replies.append(reply)
        return replies

    def stop(self, cancel_requests: bool = False) -> None:
        """As ``stop_stream``; returns when the stream has ended."""
        if self._api.loop is None:
            self._api.client.stop_stream(cancel_requests=cancel_requests)
            self._replies.put(None)
        else:
            self._api.loop.run(self._stop_aio(cancel_requests))

    def _on_reply(self, result: Any, error: InferenceServerException | None) -> None:
        self._replies.put(Answer(result) if error is None else error)

    async def _start_aio(self, options: dict[str, Any]) -> None:
        self._requests: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._iterator = self._api.client.stream_infer(self._taken(), **options)
        self._reading = asyncio.ensure_future(self._read_aio())

    async def _taken(self) -> AsyncIterator[dict[str, Any]]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def _read_aio(self) -> None:
        try:
            async for result, error in self._iterator:
                self._on_reply(result, error)
        except grpc.aio.AioRpcError as error:
            self._replies.put(InferenceServerException(error.details(), str(error.code())))
        except asyncio.CancelledError:  # by ourselves; tritonclient.grpc calls back
            self._replies.put(InferenceServerException("cancelled", "StatusCode.CANCELLED"))
        self._replies.put(None)

    async def _stop_aio(self, cancel_requests: bool) -> None:
        if cancel_requests:
            self._iterator.cancel()
        await self._requests.put(None)
        await self._reading
