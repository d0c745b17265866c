"""One model instance's answer to a frame: requests out of it, the callable's results back into a reply. No sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.frames import BYTES, END, ERROR, RESPONSE, WHOLE_BATCH, Frame, Tensor, dtype_code, tensor
from pytriton.proxy.types import JoinedInputs, Request, RequestBatch, ResponseBatch
from pytriton.proxy.validators import TritonResultsValidator
from pytriton.worker.messages import sendable
from pytriton.worker.results import Results, each_async

LOGGER = logging.getLogger("pytriton.worker")

RESERVED_PARAMETERS = frozenset(
    ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"]
)

Reply = tuple[Frame, list[Tensor]]
Replies = Generator[Reply, None, None]
AsyncReplies = AsyncGenerator[Reply, None]


@dataclass(frozen=True)
class Options:
    """How a model's callables are called.

    Attributes:
        strict: Check results against the model's outputs in full.
        isolate_errors: When a call with several merged requests raises, have each called again alone.
        send_traceback: Tell clients the traceback too.
        max_batches_in_flight: Most calls at once, for callables that can work on several.
    """

    strict: bool = False
    isolate_errors: bool = True
    send_traceback: bool = False
    max_batches_in_flight: int = 64


class Inference:
    """Answers frames with the results of one callable.

    Args:
        function: The inference callable; gets a list of requests.
        model_config: Of the model it is bound to.
        options: How to call it.
        on_unrecoverable: Called after the callable raised PyTritonUnrecoverableError.
        takes_joined_inputs: Whether the callable also takes JoinedInputs, and returns whole-batch outputs then.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        model_config: TritonModelConfig,
        options: Options,
        on_unrecoverable: Callable[[], None],
        takes_joined_inputs: bool = False,
    ) -> None:
        self._function = function
        self._takes_joined_inputs = takes_joined_inputs
        self._model = model_config.model_name
        self._decoupled = model_config.decoupled
        self._options = options
        self._on_unrecoverable = on_unrecoverable
        self._results = Results()
        self._validator = TritonResultsValidator(model_config, options.strict)
        self._input_names = [spec.name for spec in model_config.inputs or ()]
        self._output_names = [spec.name for spec in model_config.outputs or ()]
        self._outputs = {spec.name: (i, _numpy_dtype(spec)) for i, spec in enumerate(model_config.outputs or ())}

    def close(self) -> None:
        """Close the event loop that ran coroutines, if any did."""
        self._results.close()

    def answer(self, frame: Frame) -> Reply:
        """Call the callable with the requests of a frame; whatever it raises becomes an error reply."""
        try:
            returned, reply = self._call(frame)
            return reply(self._results.of(returned))
        except BaseException as error:  # whatever the callable does, the model keeps serving
            return self._failed(frame, error)

    def stream(self, frame: Frame) -> Replies:
        """The replies of a callable that may give several; closing them closes the callable's generator."""
        begun = False
        with closing(self._replies(frame)) as replies:
            while True:
                # Nothing is yielded within "try": what is raised there must be the callable's.
                try:
                    reply = next(replies, None)
                except BaseException as error:
                    reply = self._failed(frame, error, begun)
                if reply is None:
                    return
                yield reply
                begun = True

    async def stream_async(self, frame: Frame) -> AsyncReplies:
        """As :meth:`stream`, on the event loop that runs; a cancelled task has the callable cancelled."""
        begun = False
        async with aclosing(self._replies_async(frame)) as replies:
            while True:
                try:
                    reply = await anext(replies, None)
                except BaseException as error:
                    reply = self._failed(frame, error, begun)
                if reply is None:
                    return
                yield reply
                begun = True

    def _replies(self, frame: Frame) -> Replies:
        returned, reply = self._call(frame)
        more = True
        for value, more in self._results.each(returned, self._decoupled):
            yield reply(value, more)
        if more:
            yield Frame(END, frame.sequence, frame.requests), []

    async def _replies_async(self, frame: Frame) -> AsyncReplies:
        returned, reply = self._call(frame)
        more = True
        async with aclosing(each_async(returned, self._decoupled)) as values:
            async for value, more in values:
                yield reply(value, more)
        if more:
            yield Frame(END, frame.sequence, frame.requests), []

    def _call(self, frame: Frame) -> tuple[Any, Callable[..., Reply]]:
        """Call the callable; returns what it returned, and what makes a reply of a value."""
        if self._takes_joined_inputs and frame.rows is not None and not frame.metadata:
            inputs = JoinedInputs({self._input_names[item.name]: frame.array(item) for item in frame.tensors})
            return self._function(inputs), partial(self._reply_joined, frame, frame.rows)
        requests = self._requests(frame)
        return self._function(requests), partial(self._reply, frame, requests)

    def _failed(self, frame: Frame, error: BaseException, begun: bool = False) -> Reply:
        """Log what the callable raised; the reply that tells of it. After a first reply no call is made again."""
        if isinstance(error, PyTritonUnrecoverableError):
            LOGGER.error("model %s: unrecoverable error, the server is going to stop", self._model, exc_info=error)
            self._on_unrecoverable()
            return self.error(frame, error)
        cancelled = isinstance(error, asyncio.CancelledError)
        isolate = self._options.isolate_errors and frame.requests > 1 and not begun and not cancelled
        if cancelled:
            LOGGER.info("model %s: an inference call was cancelled", self._model)
        elif isolate:
            LOGGER.warning(
                "model %s: a call with %d merged requests raised %s; calling again with each alone",
                self._model, frame.requests, _text(error),
            )  # fmt: skip
        else:
            LOGGER.warning("model %s: the inference call failed", self._model, exc_info=error)
        return self.error(frame, error, isolate=isolate)

    def error(self, frame: Frame, error: BaseException, *, isolate: bool = False) -> Reply:
        """The reply that fails all requests of a frame, or asks for them one by one."""
        status = {"message": self._message(error), "isolate": isolate}
        return Frame(ERROR, frame.sequence, frame.requests, metadata=json.dumps(status).encode()), []

    def _message(self, error: BaseException) -> str:
        if self._options.send_traceback:
            return sendable("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        return sendable(_text(error))

    def _requests(self, frame: Frame) -> list[Request]:
        requests = [Request(requested_output_names=list(self._output_names)) for _ in range(frame.requests)]
        if frame.metadata:
            for index, entry in json.loads(frame.metadata).items():
                requests[int(index)].parameters = _public(entry["parameters"])
                requests[int(index)].requested_output_names = entry["outputs"]
        if frame.rows is not None:
            inputs = {self._input_names[item.name]: frame.array(item) for item in frame.tensors}
            return RequestBatch(inputs, frame.rows, requests)
        for request in requests:
            request.data = {}
        for item in frame.tensors:
            requests[item.request].data[self._input_names[item.name]] = frame.array(item)
        return requests

    def _reply_joined(self, frame: Frame, rows: Sequence[int], outputs: Any, more: bool = False) -> Reply:
        self._validator.validate_columns(outputs, rows)
        reply = Frame(RESPONSE, frame.sequence, frame.requests, rows, more=more)
        return reply, self._tensors(outputs, WHOLE_BATCH)

    def _reply(self, frame: Frame, requests: list[Request], responses: Any, more: bool = False) -> Reply:
        if isinstance(responses, ResponseBatch) and not frame.metadata and responses.rows == frame.rows:
            outputs = responses.columns()
            if outputs is not None:
                return self._reply_joined(frame, responses.rows, outputs, more)
        self._validator.validate_responses(requests, responses)
        tensors: list[Tensor] = []
        errors = {}
        for index, (request, response) in enumerate(zip(requests, responses, strict=True)):
            if isinstance(response, BaseException):
                LOGGER.warning("model %s: the inference callable failed one request", self._model, exc_info=response)
                errors[index] = self._message(response)
            else:
                tensors += self._tensors(response, index, request.requested_output_names)
        metadata = json.dumps({"errors": errors}).encode() if errors else b""
        return Frame(RESPONSE, frame.sequence, frame.requests, metadata=metadata, more=more), tensors

    def _tensors(
        self, outputs: Mapping[str, NDArray[Any]], request: int, wanted: Sequence[str] | None = None
    ) -> list[Tensor]:
        """The declared (and wanted) ones of the outputs, cast to their declared dtypes."""
        tensors = []
        for name, array in outputs.items():
            if name in self._outputs and (wanted is None or name in wanted):
                index, dtype = self._outputs[name]
                if array.dtype != dtype and not (dtype.kind == "S" and array.dtype.kind in "OSU"):
                    array = array.astype(dtype)
                tensors.append(tensor(index, array, request))
        return tensors


def _numpy_dtype(spec: TensorSpec) -> np.dtype[Any]:
    dtype = np.dtype(spec.dtype)
    return np.dtype(np.bytes_) if dtype_code(dtype) == BYTES else dtype


def _public(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters without those that only the server needs."""
    return {
        name: value
        for name, value in parameters.items()
        if name not in RESERVED_PARAMETERS and not name.startswith("triton_")
    }


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an error's text is the user's code too
        return f"{type(error).__name__}: its text cannot be had"
