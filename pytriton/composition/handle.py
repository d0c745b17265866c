"""Handles: models of the same server, which a callable asks for by annotation and calls like functions."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import Any

from pytriton import forks
from pytriton.client.arguments import Parameters, RequestOptions
from pytriton.client.http_transports import CHECK_S
from pytriton.client.threads import LoopThread
from pytriton.composition.call import AsyncAnswer, ModelCall, ModelCallError, Route
from pytriton.composition.connections import Connections
from pytriton.composition.connector import Connector
from pytriton.exceptions import ErrorCode
from pytriton.proxy.types import Request
from pytriton.worker.origin import Origin, current_origin

__all__ = ["ModelCallError", "ModelHandle"]

MOST_IN_MAP = 64
WITH_PARTS = RequestOptions(split_batches=True)


class ModelHandle:
    """A model of the same server, which a callable calls.

    A callable gets one for each parameter that is annotated so; the parameter's name is that of the model::

        def pipeline(image: Image, detector: ModelHandle, tagger: Annotated[ModelHandle, "tagger-v2"]) -> list[str]:
            return tagger.map(detector(image))

    Its call takes and gives Python values if the model is a typed function; else arrays, with a batch axis if the model
    has one, and a dict of arrays by output name. In coroutines, await it. The result of a model that streams is an
    iterator of its values: ``for part in teller(prompt)``, or ``async for``.

    Requests wait in the model's queue and are merged with all others. They have the deadline, the priority and the id
    of the request that they are made for, and are cancelled with it.

    What a callable's own threads call is made for no request: start them with ``contextvars.copy_context().run``.

    In unit tests, pass any function in its place.

    Attributes:
        name: Of the model.
        caller: The model whose callable has the handle.
        options: Of its requests.
    """

    def __init__(
        self,
        name: str,
        caller: str,
        connector: Callable[[], Connector | None] | None,
        *,
        is_async: bool,
        options: RequestOptions = WITH_PARTS,
    ) -> None:
        self.name = name
        self.caller = caller
        self.options = options
        self.connections = Connections(name, connector)
        self._is_async = is_async

    def __repr__(self) -> str:
        return f"<ModelHandle of {self.name!r} in {self.caller!r}>"

    def with_options(self, **options: Any) -> ModelHandle:
        """The same model with other options of :class:`pytriton.client.arguments.RequestOptions`.

        Such as ``priority``, ``inference_timeout_s`` and ``retries``; a deadline of the request comes first.

        Raises:
            PyTritonClientValueError: A value is wrong.
            TypeError: There is no such option.
        """
        view = copy.copy(self)
        view.options = replace(self.options, **options)
        return view

    def __call__(self, /, *inputs: Any, parameters: Parameters = None, **named_inputs: Any) -> Any:
        """Call the model.

        Args:
            inputs: Values in the order of the function's parameters, or arrays in that of the model's inputs.
            parameters: The request's parameters, for callables that read them. If the model has an input of that name,
                and none is given by position, it is that input.
            named_inputs: The same by name.

        Returns:
            What the function returned: a value, or a dict of the fields of an object; else a dict of arrays. Of models
            that stream, an iterator of that. In coroutines, what is awaited or iterated.

        Raises:
            PyTritonClientInputError: A value does not fit the model; nothing was sent.
            ModelCallError: The model failed, or there is none.
        """
        return self._answer(self._call(inputs, named_inputs, parameters))

    def map(self, items: Iterable[Any]) -> Any:
        """Call the model with each item, up to 64 at a time, and return a list of the results in the same order.

        Args:
            items: The first input of each call; or tuples of all inputs.

        Raises:
            ModelCallError: Of the first call that failed; the others are cancelled.
        """
        calls = [self._call(item if isinstance(item, tuple) else (item,), {}) for item in items]
        if self._is_async:
            return _gathered(calls)
        return _waited(_background.submit(_gathered(calls)), current_origin.get())

    def pass_on(self, request: Request) -> Any:
        """Send a request that the calling model got, and return what a call with its arrays would, not their values.

        Args:
            request: As the callable got it. Its parameters travel along.
        """
        parameters = {name: value for name, value in request.parameters.items() if isinstance(value, (str, int, float))}
        return self._answer(self._call((), dict(request), parameters, takes_values=False))

    def submit(self, /, *inputs: Any, parameters: Parameters = None, **named_inputs: Any) -> Future[Any]:
        """As a call, without waiting: for plain functions that call several models at once.

        Returns:
            Its ``result()`` is that of the call; ``cancel()`` cancels the request.
        """
        return _background.submit(_wanted(self._call(inputs, named_inputs, parameters)))

    def _call(
        self,
        inputs: Sequence[Any],
        named_inputs: Mapping[str, Any],
        parameters: Mapping[str, str | int | bool | float] | None = None,
        takes_values: bool = True,
    ) -> ModelCall:
        route = Route(self.caller, self.name, self.connections, self.options)
        return ModelCall(route, inputs, named_inputs, parameters, current_origin.get(), takes_values)

    def _answer(self, call: ModelCall) -> Any:
        return AsyncAnswer(call) if self._is_async else call.answer()


class _Background:
    """The event loop of calls that plain functions do not wait for at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        forks.register(self)

    def after_fork(self) -> None:
        """In a forked child, start another one."""
        self._lock, self._thread = threading.Lock(), None

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine; cancelling the future cancels it."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("pytriton-calls")
        return self._thread.submit(coroutine)


_background = _Background()


async def _wanted(call: ModelCall) -> Any:
    """The result of a call, which is cancelled when no client waits for the requests that it is for."""
    task = asyncio.ensure_future(call.answer_async())
    try:
        while not task.done():
            call.check()
            await asyncio.wait([task], timeout=CHECK_S)
        return task.result()
    finally:
        task.cancel()


async def _gathered(calls: Sequence[ModelCall]) -> list[Any]:
    limit = asyncio.Semaphore(MOST_IN_MAP)

    async def answered(call: ModelCall) -> Any:
        async with limit:
            return await call.answer_async()

    tasks = [asyncio.ensure_future(answered(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _waited(future: Future[Any], origin: Origin | None) -> Any:
    """The result of a future, which is cancelled with the requests that it is for."""
    try:
        while origin is not None:
            try:
                return future.result(CHECK_S)
            except FutureTimeoutError:
                if future.done():  # the call has raised this, or has ended just now
                    return future.result()
                if origin.is_cancelled():
                    raise ModelCallError("no client waits for the answers any more", ErrorCode.CANCELLED) from None
        return future.result()
    finally:
        future.cancel()
