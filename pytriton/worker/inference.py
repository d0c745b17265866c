"""Answers the frames of one model instance: from a frame to requests, from the callable's results to a reply."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from numpy.typing import NDArray

from pytriton.exceptions import PyTritonRequestError, PyTritonUnrecoverableError
from pytriton.logs import get_logger
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_config.warmup import ModelWarmup
from pytriton.proxy.types import Request, ResponseBatch, RowErrors
from pytriton.wire.frames import END, ERROR, NO_REGION, RESPONSE, Frame
from pytriton.wire.tensors import Tensor
from pytriton.worker.context import Binding, current_binding
from pytriton.worker.failures import FailureLog, describe, text_of
from pytriton.worker.interfaces import AsyncReplies, BatchObserver, Replies, Reply
from pytriton.worker.observation import Observation, end, observed, observed_async, pause, replied, resume
from pytriton.worker.origin import Origin, current_origin
from pytriton.worker.requests import Cancellation, has_sequences, requests_of, wanting_codes
from pytriton.worker.results import Outputs, Results, each_async

LOGGER = get_logger("pytriton.worker")


@dataclass(frozen=True)
class Options:
    """How a model's callables are called.

    Attributes:
        strict: Check results against the model's outputs in full.
        isolate_errors: When a call with several merged requests raises, call again with each request alone.
        send_traceback: Send clients the traceback too.
        max_batches_in_flight: Maximum number of calls at once, for callables that can work on several.
        warmup: Requests that the callable gets before the server loads the model.
        forwards_headers: Whether the server may put headers among the parameters.
    """

    strict: bool = False
    isolate_errors: bool = True
    send_traceback: bool = False
    max_batches_in_flight: int = 64
    warmup: Sequence[ModelWarmup] = ()
    forwards_headers: bool = False


WholeBatchForm = Callable[[dict[str, NDArray[Any]]], Any]


class Callee(NamedTuple):
    """The callable that answers a frame to its end, even if another callable is bound meanwhile."""

    function: Callable[..., Any]
    whole_batch: WholeBatchForm | None
    binding: Binding | None

    def enter(self, origin: Origin | None = None) -> None:
        """Set the callable's model as the one that the current thread, or task, serves, and what it is called for."""
        if self.binding is not None and current_binding.get() is not self.binding:
            current_binding.set(self.binding)
        current_origin.set(origin)


class Inference:
    """Answers frames with the results of one callable.

    Args:
        function: The inference callable; gets a list of requests.
        model_config: Of the model it is bound to.
        on_unrecoverable: Called after the callable raised PyTritonUnrecoverableError.
        whole_batch: The callable's form that takes whole-batch inputs by name, and returns such outputs, if it has one.
        binding: What a thread that calls it serves; None leaves that to the thread.
        failures: The model's log of failures, which its instances share; None is one of its own.

    Attributes:
        failures: The log of the callable's failures.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        model_config: TritonModelConfig,
        options: Options,
        on_unrecoverable: Callable[[], None],
        whole_batch: WholeBatchForm | None = None,
        binding: Binding | None = None,
        failures: FailureLog | None = None,
        observation: Observation | None = None,
    ) -> None:
        self.failures = failures or FailureLog(model_config.model_name)
        self._observation = observation or Observation()
        self._version = model_config.model_version
        self._callee = Callee(function, whole_batch, binding)
        self._model = model_config.model_name
        self._process = os.getpid()
        self._decoupled = model_config.decoupled
        self._options = options
        self._on_unrecoverable = on_unrecoverable
        self._results = Results()
        self._input_names = [spec.name for spec in model_config.inputs or ()]
        self._outputs = Outputs(model_config, options.strict, self.failures)

    def rebind(self, binding: Binding, whole_batch: WholeBatchForm | None) -> None:
        """Answer the frames that arrive from now on with another callable. Thread-safe."""
        self.failures.flush(forget=True)
        self._callee = Callee(binding.callable, whole_batch, binding)

    def enter(self) -> None:
        """Set the model that the current thread serves, for the tasks that it creates."""
        self._callee.enter()

    def close(self) -> None:
        """Close the event loop that ran coroutines, if any, and log the failures that were not logged yet."""
        self._results.close()
        self.failures.flush()

    def answer(self, frame: Frame, look: Callable[[Cancellation], None] | None = None) -> Reply:
        """Call the callable with the requests of a frame; any exception becomes an error reply.

        Args:
            look: Asks which of its requests are cancelled, if the callable wants to know.
        """
        if self._observation.is_idle() or not (observers := self._observe(frame)):
            return self._answer(frame, look)
        resume(observers)
        try:
            reply = self._answer(frame, look)
            replied(observers, reply)
            return reply
        finally:
            pause(observers)
            end(observers)

    def _observe(self, frame: Frame) -> Sequence[BatchObserver]:
        if not self._observation.is_idle():
            frame.observers = self._observation.observers(self._model, self._version, frame)
        return frame.observers

    def _answer(self, frame: Frame, look: Callable[[Cancellation], None] | None) -> Reply:
        try:
            returned, requests = self._call(frame, self._callee, look)
            return self._reply(frame, requests, self._results.of(returned))
        except BaseException as error:  # whatever the callable does, the model keeps serving
            return self.failed(frame, error)

    def stream(self, frame: Frame) -> Replies:
        """The replies of a callable that may return several; closing them closes the callable's generator."""
        return observed(self._stream(frame), self._observe(frame))

    def _stream(self, frame: Frame) -> Replies:
        begun = False
        callee, origin = self._callee, Origin(frame)
        replies = self._replies(frame, callee)
        try:
            while True:
                callee.enter(origin)  # generators take turns on this thread; some may belong to the previous callable
                # No "yield" within "try", so that it only catches exceptions of the callable.
                try:
                    reply = next(replies, None)
                except BaseException as error:
                    reply = self.failed(frame, error, begun)
                if reply is None:
                    return
                yield reply
                begun = True
        finally:
            callee.enter()
            replies.close()

    def stream_async(self, frame: Frame) -> AsyncReplies:
        """As :meth:`stream`, on the running event loop; cancelling the task cancels the callable."""
        return observed_async(self._stream_async(frame), self._observe(frame))

    async def _stream_async(self, frame: Frame) -> AsyncReplies:
        begun = False
        async with aclosing(self._replies_async(frame)) as replies:
            while True:
                try:
                    reply = await anext(replies, None)
                except GeneratorExit:  # maybe nothing can be awaited any more; the task's end answers
                    raise
                except BaseException as error:
                    reply = self.failed(frame, error, begun)
                if reply is None:
                    return
                yield reply
                begun = True

    def _replies(self, frame: Frame, callee: Callee) -> Replies:
        returned, requests = self._call(frame, callee)
        more = True
        for value, more in self._results.each(returned, self._decoupled):
            yield self._reply(frame, requests, value, more)
        if more:
            yield Frame(END, frame.number, frame.requests), []

    async def _replies_async(self, frame: Frame) -> AsyncReplies:
        returned, requests = self._call(frame, self._callee)
        more = True
        async with aclosing(each_async(returned, self._decoupled)) as values:
            async for value, more in values:
                yield self._reply(frame, requests, value, more)
        if more:
            yield Frame(END, frame.number, frame.requests), []

    def _call(
        self, frame: Frame, callee: Callee, look: Callable[[Cancellation], None] | None = None
    ) -> tuple[Any, list[Request] | None]:
        """Call the callable; returns its result, and its requests, or None if it got whole-batch arrays."""
        if look is not None:
            frame.cancellation = Cancellation(look)
        callee.enter(Origin(frame))
        if callee.whole_batch is not None and frame.rows is not None and not frame.apart:
            inputs = {self._input_names[item.name]: frame.array(item) for item in frame.tensors}
            return callee.whole_batch(inputs), None
        requests = self._requests(frame)
        for observer in frame.observers:
            observer.begin(requests)
        return callee.function(requests), requests

    def _requests(self, frame: Frame) -> list[Request]:
        return requests_of(frame, self._input_names, self._outputs.names, self._options.forwards_headers)

    def failed(self, frame: Frame, error: BaseException, begun: bool = False) -> Reply:
        """Log an exception of the callable; returns the error reply. After a first reply the call is not repeated.

        A child that the callable has forked ends here: the parent answers the request.
        """
        if self._process != os.getpid():
            self._end_child(error)
        if isinstance(error, RowErrors) and frame.rows is not None:
            try:
                return self._reply(frame, self._requests(frame), error.respond(frame.rows))
            except Exception as other:
                error = other
        if isinstance(error, PyTritonUnrecoverableError):
            LOGGER.error("model %s: unrecoverable error, the server stops", self._model, exc_info=error)
            self._on_unrecoverable()
            return self.error(frame, error)
        cancelled = isinstance(error, asyncio.CancelledError)
        isolate = self._options.isolate_errors and frame.requests > 1 and not begun and not cancelled
        if isolate and has_sequences(frame):  # the call may have changed their states
            isolate = False
        for observer in frame.observers:
            observer.failed(error, again=isolate)
        if cancelled:
            self.failures.add(error, "an inference call was cancelled", level=logging.INFO, with_traceback=False)
        elif isolate:
            self.failures.warn_once(
                "repeated calls",
                f"a call with {frame.requests} merged requests raised {text_of(error)}; calling again with each alone, "
                "now and whenever that happens. If calls have side effects, bind the model with "
                "ModelConfig(isolate_errors=False)",
            )
        else:
            self._log_failure(error, "the inference call failed")
        return self.error(frame, error, isolate=isolate)

    def _end_child(self, error: BaseException) -> NoReturn:
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            LOGGER.error("model %s: a process that the callable has forked failed", self._model, exc_info=error)
            status = 1
        os._exit(status)

    def error(self, frame: Frame, error: BaseException, *, isolate: bool = False) -> Reply:
        """The reply that fails all requests of a frame, or requests them again one by one."""
        wanting = wanting_codes(frame)
        if wanting and len(wanting) < frame.requests and not isolate:  # their messages differ
            metadata = self._errors(frame, dict.fromkeys(range(frame.requests), error))
            return Frame(RESPONSE, frame.number, frame.requests, metadata=metadata), []
        status = {**describe(error, self._options.send_traceback, bool(wanting)), "isolate": isolate}
        return Frame(ERROR, frame.number, frame.requests, metadata=json.dumps(status).encode()), []

    def _errors(self, frame: Frame, errors: Mapping[int, BaseException]) -> bytes:
        """The metadata of a reply in which some requests have failed, by index."""
        wanting, send_traceback = wanting_codes(frame), self._options.send_traceback
        told = {index: describe(error, send_traceback, index in wanting) for index, error in errors.items()}
        return json.dumps({"errors": told}).encode()

    def _log_failure(self, error: BaseException, what: str) -> None:
        if isinstance(error, PyTritonRequestError):  # meant for the client
            text = f"{what}, {error.code.value}: {error.message}"
            self.failures.add(error, what, text=text, level=logging.INFO, with_traceback=False)
        else:
            self.failures.add(error, what)

    def _reply_whole(self, frame: Frame, outputs: Any, more: bool = False) -> Reply:
        rows = frame.rows
        assert rows is not None
        tensors = self._outputs.whole_batch(outputs, sum(rows))
        return Frame(RESPONSE, frame.number, frame.requests, rows, b"", (), NO_REGION, more), tensors

    def _reply(self, frame: Frame, requests: list[Request] | None, responses: Any, more: bool = False) -> Reply:
        if requests is None:
            return self._reply_whole(frame, responses, more)
        if isinstance(responses, ResponseBatch) and not frame.apart and responses.rows == frame.rows:
            outputs = responses.columns()
            if outputs is not None:
                return self._reply_whole(frame, outputs, more)
        wanted = [request.requested_output_names for request in requests] if frame.apart else None
        tensors: list[Tensor] = []
        errors: dict[int, BaseException] = {}
        for index, response in enumerate(self._outputs.each(requests, responses, wanted)):
            if isinstance(response, BaseException):
                self._log_failure(response, "the inference callable failed one request")
                errors[index] = response
                for observer in frame.observers:
                    observer.failed(response, index)
            else:
                tensors += response
        metadata = self._errors(frame, errors) if errors else b""
        return Frame(RESPONSE, frame.number, frame.requests, metadata=metadata, more=more), tensors
