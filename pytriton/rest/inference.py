"""Inferences for the routes: of one row, of several, and as a stream. It does not know how bytes arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pytriton.client.arguments import DEFAULT_OPTIONS, InferRequest
from pytriton.client.codec import Arrays
from pytriton.client.exceptions import PyTritonClientInferenceServerError
from pytriton.client.session import ModelSession
from pytriton.exceptions import ErrorCode, PyTritonError
from pytriton.llm.kinds import Kind
from pytriton.rest.config import RestConfig
from pytriton.rest.conversion import Converter, Group, group_rows
from pytriton.rest.costs import Charges, Unread
from pytriton.rest.errors import RestError, hidden, of_client
from pytriton.rest.models import Model, ModelDirectory
from pytriton.rest.upstream import Upstream
from pytriton.signature.problems import ValueMismatchError, message_of

__all__ = ["CallDetails", "Inference", "Served"]

MOST_AT_ONCE = 64  # requests of one batch
INSTANCES = "instances"


@dataclass(frozen=True)
class Served:
    """What the routes keep of a model.

    Attributes:
        model: The model.
        session: Makes its requests.
        converter: Converts its values.
        streams_texts: Whether it is decoupled and returns texts alone.
    """

    model: Model
    session: ModelSession
    converter: Converter
    streams_texts: bool = False


@dataclass(slots=True)
class CallDetails:
    """What travels with a request beside its inputs.

    Attributes:
        request_id: For the server's log; empty numbers the request.
        headers: Sent on to the server.
        charges: What responses cost that the client has not read; None does not count them.
    """

    request_id: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    charges: Charges | None = None


@dataclass(slots=True)
class Question:
    """The rows of a request.

    Attributes:
        rows: Of shape ``(1, *shape)``.
        is_batch: Whether the client sent a list of them.
        is_bare: Whether it sent values of the only input, in place of objects.
    """

    rows: Sequence[Arrays]
    is_batch: bool = False
    is_bare: bool = False


Read = Callable[[Served], Awaitable[Question]]


class Inference:
    """Calls models by name.

    Attributes:
        models: The models that were called.
    """

    def __init__(self, upstream: Upstream, config: RestConfig) -> None:
        self._upstream = upstream
        self._config = config
        self.models = ModelDirectory(upstream, self._served)

    def _served(self, model: Model) -> Served:
        session = ModelSession(
            model.config.model_name,
            model.version or None,
            init_timeout_s=None,
            inference_timeout_s=self._config.timeout_s,
            model_config=model.config,
            model_ready=True,
        )
        return Served(model, session, Converter(model, self._config.max_depth), Kind.of(model.config) is not None)

    async def answer(self, name: str, version: str, read: Read, details: CallDetails) -> tuple[Served, Question, Any]:
        """Read a request and answer it; once more, if it failed because the model has just been replaced.

        Args:
            version: Of the model; empty for the highest.
            read: Converts the request, and raises ValueMismatchError if it does not fit.

        Returns:
            The model, the request's rows, and either the outputs of each row or, of a decoupled model, the stream of
            outputs, which the caller closes. None of them has a batch axis.

        Raises:
            RestError: The request cannot be answered.
        """
        served: Served = await self.models.find(name, version)
        try:
            return served, *await self._answered(served, read, details)
        except PyTritonError as error:
            if not _may_be_outdated(error) or not await self.models.is_outdated(name, version, served):
                raise self._shown(error, details) from error
        served = await self.models.find(name, version)
        try:
            return served, *await self._answered(served, read, details)
        except PyTritonError as error:
            raise self._shown(error, details) from error

    def _shown(self, error: PyTritonError, details: CallDetails) -> RestError:
        found = of_client(error)
        return hidden(found, details.request_id) if self._config.show_errors is False else found

    async def _answered(self, served: Served, read: Read, details: CallDetails) -> tuple[Question, Any]:
        question = await read(served)
        if not served.model.config.decoupled:
            return question, await self._infer(served, question, details)
        if question.is_batch:
            raise RestError(422, "INVALID_INPUT", "a model that streams takes one object, without instances")
        if not self._upstream.can_stream(texts=served.streams_texts):
            raise RestError(501, ErrorCode.UNSUPPORTED.value, "streams need gRPC, which the server does not offer here")
        return question, self._stream(served, question.rows[0], details)

    async def _infer(self, served: Served, question: Question, details: CallDetails) -> list[Arrays]:
        if not question.is_batch:
            return await self._infer_group(served, Group((0,), question.rows[0]), details)
        groups = group_rows(question.rows, served.model.rows_of_a_request)
        answers: list[Any] = [None] * len(question.rows)
        for start in range(0, len(groups), MOST_AT_ONCE):
            await self._infer_groups(served, groups[start : start + MOST_AT_ONCE], details, answers)
        return answers

    async def _infer_groups(
        self, served: Served, groups: Sequence[Group], details: CallDetails, answers: list[Any]
    ) -> None:
        """Make some requests at the same time, and cancel all if one fails."""
        tasks = [asyncio.ensure_future(self._infer_group(served, group, details)) for group in groups]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for group, task in zip(groups, tasks, strict=True):
                if task.done() and (error := task.exception()) is not None:
                    raise _of_instances(error, group) from error
            for group, task in zip(groups, tasks, strict=True):
                for index, outputs in zip(group.rows, task.result(), strict=True):
                    answers[index] = outputs
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _infer_group(self, served: Served, group: Group, details: CallDetails) -> list[Arrays]:
        """The outputs of each row."""
        is_sample = not served.model.config.batching
        outputs = await self._upstream.infer(served.session, _request(group.arrays, is_sample, details))
        if is_sample:
            return [outputs]
        for name, array in outputs.items():
            if array.shape[:1] != (len(group.rows),):
                text = f"output {name!r} has shape {array.shape} for {len(group.rows)} rows"
                raise RestError(500, ErrorCode.INTERNAL.value, text)
        return [{name: array[index, ...] for name, array in outputs.items()} for index in range(len(group.rows))]

    async def _stream(self, served: Served, row: Arrays, details: CallDetails) -> AsyncGenerator[Arrays, None]:
        request = _request(row, True, details)
        unread = Unread(details.charges) if details.charges else None
        try:
            async with aclosing(
                self._upstream.stream(served.session, request, texts=served.streams_texts, unread=unread)
            ) as responses:
                async for outputs in responses:
                    yield outputs
        except PyTritonError as error:
            raise self._shown(error, details) from error


def _request(arrays: Arrays, is_sample: bool, details: CallDetails) -> InferRequest:
    """A request with rows; as a sample, with the one row that there is."""
    if is_sample:
        arrays = {name: array[0, ...] for name, array in arrays.items()}
    return InferRequest(
        (), arrays, None, details.headers or None, is_sample, DEFAULT_OPTIONS, details.request_id or None
    )


def _may_be_outdated(error: PyTritonError) -> bool:
    """Whether an error can come of another configuration than the model has now."""
    if isinstance(error, PyTritonClientInferenceServerError):
        return error.code in (ErrorCode.INVALID_ARG, ErrorCode.NOT_FOUND, ErrorCode.UNAVAILABLE)
    return isinstance(error, ValueMismatchError)


def _of_instances(error: BaseException, group: Group) -> BaseException:
    """The error of a request with some of the instances, which it names."""
    if not isinstance(error, PyTritonError):
        return error
    found = of_client(error)
    details = []
    for each in found.details:
        is_row = bool(each.path) and isinstance(each.path[0], int)
        row, path = (each.path[0], each.path[1:]) if is_row else (0, each.path)
        details.append(each._replace(path=(INSTANCES, group.rows[int(row)], *path)))
    message = message_of(details, found.more)
    if not details:
        numbers = ", ".join(map(str, group.rows))
        message = f"instance{'s' * (len(group.rows) > 1)} {numbers}: {found.message}"
    return RestError(found.status, found.code, message, details, found.headers, found.more)
