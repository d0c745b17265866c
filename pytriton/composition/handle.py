"""Handles: models of the same server, which a callable asks for by annotation and calls like functions."""

from __future__ import annotations

import asyncio
import copy
import math
import re
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any, NamedTuple

from pytriton import forks
from pytriton.client.aio import drive_async
from pytriton.client.arguments import InferRequest, Parameters, RequestOptions
from pytriton.client.codec import Codec
from pytriton.client.conversations import Call, Conversation
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from pytriton.client.http_transports import CHECK_S
from pytriton.client.session import ModelSession
from pytriton.client.sync import drive
from pytriton.client.threads import LoopThread
from pytriton.composition.connector import Connector
from pytriton.constants import CALLERS_PARAMETER
from pytriton.exceptions import ErrorCode, PyTritonInvalidOperationError, PyTritonRequestError
from pytriton.proxy.types import Request
from pytriton.worker.origin import Origin, current_origin

__all__ = ["ModelCallError", "ModelHandle"]

MOST_CALLERS = 16
MOST_IN_MAP = 64
PREPARE_S = 60.0
DOUBT_S = 1.0
STATUS = re.compile(r"^\[[^]]*\] ")  # with which a client's message may begin
WITH_PARTS = RequestOptions(split_batches=True)


class ModelCallError(PyTritonRequestError):
    """A model that a callable has called failed, refused the request, or did not answer in time.

    A callable that does not catch it fails its own request with the same message and code.

    Attributes:
        code: That of the called model; UNAVAILABLE if the time was over, and CANCELLED if no client waits any more.
    """


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

    def __call__(self, *inputs: Any, parameters: Parameters = None, **named_inputs: Any) -> Any:
        """Call the model.

        Args:
            inputs: Values in the order of the function's parameters, or arrays in that of the model's inputs.
            parameters: The request's parameters, for callables that read them.
            named_inputs: The same by name.

        Returns:
            What the function returned: a value, or a dict of the fields of an object; else a dict of arrays. Of models
            that stream, an iterator of that. In coroutines, what is awaited or iterated.

        Raises:
            PyTritonClientInputError: A value does not fit the model; nothing was sent.
            ModelCallError: The model failed, or there is none.
        """
        request = _Request(self, inputs, named_inputs, parameters, current_origin.get())
        return _AsyncAnswer(request) if self._is_async else request.answer()

    def map(self, items: Iterable[Any]) -> Any:
        """Call the model with each item, up to 64 at a time, and return a list of the results in the same order.

        Args:
            items: The first input of each call; or tuples of all inputs.

        Raises:
            ModelCallError: Of the first call that failed; the others are cancelled.
        """
        origin = current_origin.get()
        given = [item if isinstance(item, tuple) else (item,) for item in items]
        requests = [_Request(self, inputs, {}, None, origin) for inputs in given]
        return _gathered(requests) if self._is_async else _waited(_background.submit(_gathered(requests)), origin)

    def pass_on(self, request: Request) -> Any:
        """Send a request that the calling model got, and return what a call with its arrays would, not their values.

        Args:
            request: As the callable got it. Its parameters travel along.
        """
        parameters = {name: value for name, value in request.parameters.items() if isinstance(value, (str, int))}
        sent = _Request(self, (), dict(request), parameters, current_origin.get(), takes_values=False)
        return _AsyncAnswer(sent) if self._is_async else sent.answer()

    def submit(self, *inputs: Any, parameters: Parameters = None, **named_inputs: Any) -> Future[Any]:
        """As a call, without waiting: for plain functions that call several models at once.

        Returns:
            Its ``result()`` is that of the call; ``cancel()`` cancels the request.
        """
        return _background.submit(_Request(self, inputs, named_inputs, parameters, current_origin.get()).answer_async())


class _Request:
    """One request to a model, for the requests of an origin.

    Args:
        takes_values: Whether a typed function gets and returns values; else all models exchange arrays, with a row axis
            if the model has one.
    """

    def __init__(
        self,
        handle: ModelHandle,
        inputs: Any,
        named_inputs: Any,
        parameters: Parameters,
        origin: Origin | None,
        takes_values: bool = True,
    ) -> None:
        self._handle = handle
        self._given = inputs, named_inputs, parameters
        self._origin = origin
        self._takes_values = takes_values

    def answer(self) -> Any:
        """Wait for the result; of models that stream, it is an iterator."""
        connections = self._handle.connections
        transport = connections.take()
        transport.check = None if self._origin is None else self._check
        try:
            result = drive(self._conversation(), transport)
        except PyTritonClientError as error:
            raise self._failure(error) from error
        finally:
            connections.give_back(transport)
        return self._values(result) if isinstance(result, _Stream) else result

    async def answer_async(self) -> Any:
        """The result of a model that answers once."""
        result = await self._begin()
        if isinstance(result, _Stream):
            raise PyTritonInvalidOperationError(
                f"model {self._handle.name!r} streams its answer: iterate over the result of the call, in coroutines "
                "with 'async for'"
            )
        return result

    async def stream_async(self) -> AsyncGenerator[Any, None]:
        """The values of a model that streams."""
        stream = await self._begin()
        if not isinstance(stream, _Stream):
            raise PyTritonInvalidOperationError(f"model {self._handle.name!r} answers once: await the call")
        transport = self._handle.connections.of_loops(streams=True)
        try:
            async with aclosing(transport.stream(stream.call)) as responses:
                async for response in responses:
                    yield stream.value(response)
        except PyTritonClientError as error:
            raise self._failure(error) from error

    def _values(self, stream: _Stream) -> Generator[Any, None, None]:
        connections = self._handle.connections
        transport = connections.take(streams=True)
        try:
            with closing(transport.stream(stream.call)) as responses:
                while (response := responses.next()) is not None:
                    self._check()
                    yield stream.value(response)
        except PyTritonClientError as error:
            raise self._failure(error) from error
        finally:
            connections.give_back(transport, streams=True)

    async def _begin(self) -> Any:
        try:
            return await drive_async(self._conversation(), self._handle.connections.of_loops())
        except PyTritonClientError as error:
            raise self._failure(error) from error

    def _conversation(self) -> Conversation[Any]:
        """Send the request; returns the result, or the stream that is to be opened."""
        inputs, named_inputs, parameters = self._given
        options, callers, request_id = self._handle.options, self._handle.caller, self._handle.options.request_id
        if self._origin is not None:
            options, callers = self._inherited(self._origin, options), self._path(self._origin)
            request_id = request_id or self._origin.request_id
        session = self._handle.connections.session
        codec = yield from session.start()
        takes_values = self._takes_values and codec.takes_values
        sample = takes_values or not codec.batching
        given = {**(parameters or {}), CALLERS_PARAMETER: callers}
        if codec.decoupled:
            options = replace(options, split_batches=False)
            request = InferRequest(inputs, named_inputs, given, None, sample, options, request_id)
            return _Stream(*(yield from session.stream(request)), takes_values)
        request = InferRequest(inputs, named_inputs, given, None, sample, options, request_id)
        return (yield from (session.call if takes_values else session.infer)(request))

    def _inherited(self, origin: Origin, options: RequestOptions) -> RequestOptions:
        """The options of a request that is made for others."""
        inherited: dict[str, Any] = {}
        if (left_s := origin.left_s()) is not None:
            if not left_s:
                raise self._error("no time is left for the call", ErrorCode.UNAVAILABLE)
            inherited["server_timeout_s"] = min(left_s, options.server_timeout_s or left_s)
            inherited["inference_timeout_s"] = min(left_s, options.inference_timeout_s or left_s)
        if origin.priority and not options.priority:
            inherited["priority"] = origin.priority
        return replace(options, **inherited) if inherited else options

    def _path(self, origin: Origin) -> str:
        """The models that wait for the request."""
        caller, callee = self._handle.caller, self._handle.name
        path = [name for name in origin.callers if name != caller] + [caller]
        if callee in path:
            cycle = " → ".join([*path[path.index(callee) :], callee])
            raise self._error(
                f"it waits for this call itself ({cycle}), so that none of its instances might be left to answer; make "
                "a function, or a model, of what both need",
                ErrorCode.INTERNAL,
            )
        if len(path) > MOST_CALLERS:
            raise self._error(f"more than {MOST_CALLERS} models wait for each other: {' → '.join(path)}")
        return " ".join(path)

    def _check(self) -> None:
        """Called while a response is waited for."""
        if self._origin is not None and self._origin.is_cancelled():
            raise self._error("no client waits for the answer any more", ErrorCode.CANCELLED)

    def _failure(self, error: PyTritonClientError) -> PyTritonClientError | ModelCallError:
        """What to raise for an error of the client."""
        if isinstance(error, PyTritonClientValueError):
            self._handle.connections.doubt_model()
            return error
        code = getattr(error, "code", None)
        if code is None:
            unavailable = isinstance(error, (PyTritonClientTimeoutError, PyTritonClientConnectionError))
            code = ErrorCode.UNAVAILABLE if unavailable else ErrorCode.INTERNAL
        if code in (ErrorCode.INVALID_ARG, ErrorCode.NOT_FOUND):
            self._handle.connections.doubt_model()
        return self._error(STATUS.sub("", error.message), code)

    def _error(self, text: str, code: ErrorCode = ErrorCode.INTERNAL) -> ModelCallError:
        return ModelCallError(f"model {self._handle.name!r}, called by {self._handle.caller!r}: {text}", code)


class _Stream(NamedTuple):
    """A stream that is to be opened."""

    codec: Codec
    call: Call
    takes_values: bool

    def value(self, response: Any) -> Any:
        """What a response stands for."""
        outputs = self.codec.decode(response, sample=self.takes_values)
        return self.codec.result(outputs) if self.takes_values else outputs


class _AsyncAnswer:
    """What a call in a coroutine returns."""

    def __init__(self, request: _Request) -> None:
        self._request = request

    def __await__(self) -> Generator[Any, None, Any]:
        return self._request.answer_async().__await__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._request.stream_async()


class Connections:
    """The connections to the server that the calls to one model use, and what is known of the model.

    Args:
        connector: Returns what makes them, once the server's address is known, and None when it has gone; or None.
    """

    def __init__(self, model: str, connector: Callable[[], Connector | None] | None) -> None:
        self._model = model
        self._connector = connector
        self._idle: dict[bool, list[Any]] = {False: [], True: []}
        self._of_loops: dict[bool, Any] = {}
        self._doubted_at = -math.inf
        self.session = self._new_session()

    def __del__(self) -> None:
        for transports in self._idle.values():
            for transport in transports:
                transport.close()

    def doubt_model(self) -> None:
        """Ask for the model's configuration again at the next call, at most once a second: it may be another model."""
        now = time.monotonic()
        if now - self._doubted_at > DOUBT_S:
            self._doubted_at, self.session = now, self._new_session()

    def _new_session(self) -> ModelSession:
        return ModelSession(
            self._model,
            None,
            init_timeout_s=PREPARE_S,
            inference_timeout_s=math.inf,
            model_config=None,
            model_ready=False,
        )

    def take(self, *, streams: bool = False) -> Any:
        """A transport for this thread, until :meth:`give_back`."""
        try:
            return self._idle[streams].pop()
        except IndexError:
            return self._connected().transport(streams=streams)

    def give_back(self, transport: Any, *, streams: bool = False) -> None:
        """End the use of a transport."""
        transport.check = None
        self._idle[streams].append(transport)

    def of_loops(self, *, streams: bool = False) -> Any:
        """The transport for event loops."""
        if streams not in self._of_loops:
            self._of_loops[streams] = self._connected().async_transport(streams=streams)
        return self._of_loops[streams]

    def _connected(self) -> Connector:
        connector = None if self._connector is None else self._connector()
        if connector is None:
            raise PyTritonInvalidOperationError(
                f"model {self._model!r} cannot be called: this process does not know the address of the server, or the "
                "server has ended. Workers on other machines have clients for that"
            )
        return connector


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


async def _gathered(requests: Sequence[_Request]) -> list[Any]:
    limit = asyncio.Semaphore(MOST_IN_MAP)

    async def answered(request: _Request) -> Any:
        async with limit:
            return await request.answer_async()

    tasks = [asyncio.ensure_future(answered(request)) for request in requests]
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
                if future.done():
                    raise
                if origin.is_cancelled():
                    raise ModelCallError("no client waits for the answers any more", ErrorCode.CANCELLED) from None
        return future.result()
    finally:
        future.cancel()
