"""One call of a model by a callable: a conversation with the server, made for the requests of an origin."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pytriton.client.aio import drive_async
from pytriton.client.arguments import LONGEST_TIMEOUT_S, InferRequest, RequestOptions
from pytriton.client.codec import Codec
from pytriton.client.conversations import Call, Conversation, Shared, Sleep
from pytriton.client.exceptions import (
    PyTritonClientConnectionError,
    PyTritonClientError,
    PyTritonClientModelUnavailableError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from pytriton.client.sync import drive
from pytriton.client.transport import time_limit
from pytriton.composition.connections import Connections
from pytriton.constants import CALLERS_PARAMETER, ERROR_CODE_PARAMETER
from pytriton.exceptions import ErrorCode, PyTritonInvalidOperationError, PyTritonRequestError
from pytriton.worker.origin import Origin

__all__ = ["AsyncAnswer", "ModelCall", "ModelCallError", "Route"]

MOST_CALLERS = 16
DOUBTFUL = (ErrorCode.INVALID_ARG, ErrorCode.NOT_FOUND, ErrorCode.UNSUPPORTED)  # perhaps another model was bound
# A client's message may begin with the rows of a split batch, a status, names of pipelines and, if a callable chose it,
# the code.
BEGIN = re.compile(
    r"((?:rows \d+ to \d+ of the split batch of \d+ failed: )?)(?:\[(?:\d{3}|StatusCode\.\w+)\] )?"
    rf"((?:in ensemble '[^']*', )*)(?:\[({'|'.join(ErrorCode.__members__)})\] )?"
)


class ModelCallError(PyTritonRequestError):
    """A model that a callable has called failed, refused the request, or did not answer in time.

    A callable that does not catch it fails its own request with the same message and code.

    Attributes:
        code: That of the called model; UNAVAILABLE if the time was over, and CANCELLED if no client waits any more.
    """


class Route(NamedTuple):
    """From the model whose callable calls to the model that is called.

    Attributes:
        options: Of the requests.
    """

    caller: str
    model: str
    connections: Connections
    options: RequestOptions


class ModelCall:
    """One call of a model, for the requests of an origin.

    Args:
        takes_values: Whether a typed function gets and returns values; else all models exchange arrays, with a row axis
            if the model has one.
    """

    def __init__(
        self,
        route: Route,
        inputs: Sequence[Any],
        named_inputs: Mapping[str, Any],
        parameters: Mapping[str, str | int | bool | float] | None,
        origin: Origin | None,
        takes_values: bool,
    ) -> None:
        self._route = route
        self._given = inputs, named_inputs, parameters
        self._origin = origin
        self._takes_values = takes_values

    def answer(self) -> Any:
        """Wait for the result; of models that stream, it is an iterator."""
        connections = self._route.connections
        transport = connections.take()
        transport.check = None if self._origin is None else self.check
        try:
            conversation = self._conversation()
            result = drive(conversation if self._left_s() is None else self._in_time(conversation), transport)
        except PyTritonClientError as error:
            raise self._failure(error) from error
        except ValueError:  # a response of other dimensions
            connections.doubt_model()
            raise
        finally:
            connections.give_back(transport)
        return self._values(result) if isinstance(result, _Stream) else result

    async def answer_async(self) -> Any:
        """The result of a model that answers once."""
        result = await self._begin()
        if isinstance(result, _Stream):
            raise PyTritonInvalidOperationError(
                f"model {self._route.model!r} streams its answer: iterate over the result of the call, in coroutines "
                "with 'async for'"
            )
        return result

    async def stream_async(self) -> AsyncGenerator[Any, None]:
        """The values of a model that streams."""
        stream = await self._begin()
        if not isinstance(stream, _Stream):
            raise PyTritonInvalidOperationError(f"model {self._route.model!r} answers once: await the call")
        transport = self._route.connections.of_loops(streams=True)
        try:
            self._bound(stream.call)
            async with aclosing(transport.stream(stream.call)) as responses:
                async for response in responses:
                    yield stream.value(response)
                    self._bound(stream.call)
        except PyTritonClientError as error:
            raise self._failure(error) from error

    def _values(self, stream: _Stream) -> Generator[Any, None, None]:
        connections = self._route.connections
        transport = connections.take(streams=True)
        try:
            self._bound(stream.call)
            with closing(transport.stream(stream.call)) as responses:
                while (response := responses.next()) is not None:
                    self.check()
                    yield stream.value(response)
                    self._bound(stream.call)
        except PyTritonClientError as error:
            raise self._failure(error) from error
        finally:
            connections.give_back(transport, streams=True)

    async def _begin(self) -> Any:
        try:
            async with time_limit(self._left_s() or math.inf):
                return await drive_async(self._conversation(), self._route.connections.of_loops())
        except PyTritonClientError as error:
            raise self._failure(error) from error
        except (TimeoutError, asyncio.TimeoutError) as error:  # two classes before Python 3.11
            raise self._late() from error
        except ValueError:  # a response of other dimensions
            self._route.connections.doubt_model()
            raise

    def _in_time(self, conversation: Conversation[Any]) -> Conversation[Any]:
        """A conversation, each of whose steps ends when no time is left."""
        proceed: Callable[[], Any] = partial(next, conversation)
        while True:
            try:
                step = proceed()
            except StopIteration as end:
                return end.value
            if isinstance(step, Call):
                self._bound(step)
            elif isinstance(step, Sleep):
                step = Sleep(min(step.seconds, self._left_s() or step.seconds))
            else:
                step = Shared(partial(self._in_time, step.start()))
            try:
                proceed = partial(conversation.send, (yield step))
            except PyTritonClientError as error:
                proceed = partial(conversation.throw, error)

    def _left_s(self) -> float | None:
        """As :meth:`Origin.left_s`; ModelCallError if no time is left."""
        left_s = None if self._origin is None else self._origin.left_s()
        if left_s == 0:
            raise self._late()
        return left_s

    def _bound(self, call: Call) -> None:
        """Have a call end when no time is left."""
        call.timeout_s = min(call.timeout_s, self._left_s() or math.inf)

    def _conversation(self) -> Conversation[Any]:
        """Send the request; returns the result, or the stream that is to be opened."""
        inputs, named_inputs, parameters = self._given
        options, callers, request_id = self._route.options, f"1 {self._route.caller}", self._route.options.request_id
        session, secret = self._route.connections.session, self._route.connections.secret
        if self._origin is not None:
            callers, request_id = self._path(self._origin, secret), request_id or self._origin.request_id
        codec = yield from session.start()
        if self._origin is not None:
            options = self._inherited(self._origin, options)
        if self._names_parameters_input(codec):
            named_inputs, parameters = {**named_inputs, "parameters": parameters}, None
        takes_values = self._takes_values and codec.takes_values
        sample = takes_values or not codec.batching
        # Floats come from requests that are passed on: clients send none.
        checked = {name: value for name, value in (parameters or {}).items() if not isinstance(value, float)}
        options = replace(options, split_batches=False) if codec.decoupled else options
        request = InferRequest(inputs, named_inputs, checked, None, sample, options, request_id)
        request.parameters = {
            **(parameters or {}),
            CALLERS_PARAMETER: f"{secret} {callers}",
            ERROR_CODE_PARAMETER: True,
        }
        if codec.decoupled:
            return _Stream(*(yield from session.stream(request)), takes_values)
        return (yield from (session.call if takes_values else session.infer)(request))

    def _names_parameters_input(self, codec: Codec) -> bool:
        """Whether what was given as the request's parameters is an input of that name."""
        inputs, _, parameters = self._given
        is_call = self._takes_values  # a request that is passed on has both apart
        return is_call and parameters is not None and not inputs and codec.has_input("parameters")

    def _inherited(self, origin: Origin, options: RequestOptions) -> RequestOptions:
        """The options of a request that is made for others."""
        inherited: dict[str, Any] = {}
        if (left_s := self._left_s()) is not None:
            inherited["server_timeout_s"] = min(left_s, options.server_timeout_s or left_s, LONGEST_TIMEOUT_S)
            inherited["inference_timeout_s"] = min(left_s, options.inference_timeout_s or left_s)
        if origin.priority and not options.priority:
            inherited["priority"] = origin.priority
        return replace(options, **inherited) if inherited else options

    def _path(self, origin: Origin, secret: str) -> str:
        """How many models wait for the request, one for the other, and their names."""
        depth, callers = origin.callers(secret)
        caller, callee = self._route.caller, self._route.model
        path = [name for name in callers if name != caller] + [caller]
        if callee in path:
            cycle = " → ".join([*path[path.index(callee) :], callee])
            raise self._error(
                f"it waits for this call itself ({cycle}), so that none of its instances might be left to answer; make "
                "a function, or a model, of what both need",
                ErrorCode.INTERNAL,
            )
        if depth >= MOST_CALLERS:
            raise self._error(f"more than {MOST_CALLERS} models wait for each other: {' → '.join(path)}")
        return f"{depth + 1} {' '.join(path)}"

    def check(self) -> None:
        """To be called several times a second while a response is waited for: raises ModelCallError if none need be."""
        if self._origin is not None and self._origin.is_cancelled():
            raise self._error("no client waits for the answer any more", ErrorCode.CANCELLED)

    def _late(self) -> ModelCallError:
        return self._error("no time is left for the call", ErrorCode.UNAVAILABLE)

    def _failure(self, error: PyTritonClientError) -> PyTritonClientError | ModelCallError:
        """What to raise for an error of the client."""
        if isinstance(error, PyTritonClientValueError):
            self._route.connections.doubt_model()
            return error
        begin = BEGIN.match(error.message)
        assert begin is not None  # it may be nothing
        text = begin[1] + begin[2] + error.message[begin.end() :]
        code = getattr(error, "code", None) if begin[3] is None else ErrorCode(begin[3])
        unavailable = isinstance(error, (PyTritonClientTimeoutError, PyTritonClientConnectionError))
        # Without a code, the response does not fit what is known of the model.
        missing = isinstance(error, PyTritonClientModelUnavailableError)
        if code in DOUBTFUL or missing or (code is None and not unavailable):
            self._route.connections.doubt_model()
        if code is None:
            code = ErrorCode.UNAVAILABLE if unavailable else ErrorCode.INTERNAL
        return self._error(text, code)

    def _error(self, text: str, code: ErrorCode = ErrorCode.INTERNAL) -> ModelCallError:
        return ModelCallError(f"model {self._route.model!r}, called by {self._route.caller!r}: {text}", code)


class _Stream(NamedTuple):
    """A stream that is to be opened."""

    codec: Codec
    call: Call
    takes_values: bool

    def value(self, response: Any) -> Any:
        """What a response stands for."""
        outputs = self.codec.decode(response, sample=self.takes_values)
        return self.codec.result(outputs) if self.takes_values else outputs


class AsyncAnswer:
    """What a call in a coroutine returns."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        return self._call.answer_async().__await__()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._call.stream_async()
