"""What a callable returned, resolved: values, coroutines and generators; then checked, as the tensors of a reply."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any, NamedTuple

import numpy as np

from pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from pytriton.proxy.validators import TritonResultsValidator
from pytriton.wire.tensors import BYTES, MAX_RANK, WHOLE_BATCH, Tensor, dtype_code, tensor
from pytriton.worker.failures import FailureLog

__all__ = ["Outputs", "Results", "close_loop", "each_async", "is_async"]

Step = tuple[Any, bool]
"""A value, and whether others may follow."""

_END = object()


def is_async(function: Any) -> bool:
    """Whether a callable, or an object's ``__call__``, is a coroutine function or an async generator function."""
    forms = (function, getattr(type(function), "__call__", None))  # noqa: B004
    return any(inspect.iscoroutinefunction(form) or inspect.isasyncgenfunction(form) for form in forms)


async def each_async(returned: Any, decoupled: bool) -> AsyncGenerator[Step, None]:
    """The values that a call stands for, on the event loop that runs; as :meth:`Results.each`."""
    if not decoupled:
        yield await _one(returned), False
        return
    if inspect.isawaitable(returned):
        returned = await returned
    if inspect.isasyncgen(returned):
        async with aclosing(returned):
            async for value in returned:
                yield value, True
    elif inspect.isgenerator(returned):
        with closing(returned):
            for value in returned:
                yield value, True
    else:
        yield returned, False


class Results:
    """Resolves results on the thread of one model instance; coroutines run on one event loop of its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def of(self, returned: Any) -> Any:
        """The one value that a call stands for.

        Raises:
            ValueError: A generator yielded nothing, or more than once.
        """
        if isinstance(returned, (list, dict)):
            return returned
        if inspect.isasyncgen(returned) or inspect.isawaitable(returned):
            return self._run(_one(returned))
        if inspect.isgenerator(returned):
            return _only(returned)
        return returned

    def each(self, returned: Any, decoupled: bool) -> Generator[Step, None, None]:
        """The values of a call's result, each with whether more may follow, as after each value of a generator.

        Args:
            decoupled: Whether there may be any number of values, which generators yield; else it must be one.

        Raises:
            ValueError: It is not one and must be.
        """
        if not decoupled:
            yield self.of(returned), False
            return
        if inspect.isawaitable(returned):
            returned = self._run(returned)
        if inspect.isasyncgen(returned):
            try:
                while (value := self._run(_next(returned))) is not _END:
                    yield value, True
            finally:
                self._run(returned.aclose())
        elif inspect.isgenerator(returned):
            with closing(returned):
                for value in returned:
                    yield value, True
        else:
            yield returned, False

    def _run(self, awaitable: Awaitable[Any]) -> Any:
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        value, error = self._loop.run_until_complete(_outcome(awaitable))
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame
        return value

    def close(self) -> None:
        """Cancel the tasks that still run on the event loop, and close it."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            close_loop(loop)


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of an event loop that has stopped, and close it."""
    try:
        loop.run_until_complete(_cancel_others())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _outcome(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """A value, or an exception: a task that raises is a cycle, which would keep the inputs until a collection."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


async def _one(returned: Any) -> Any:
    if inspect.isasyncgen(returned):
        return await _only_async(returned)
    if inspect.isawaitable(returned):
        return await _one(await returned)
    return _only(returned) if inspect.isgenerator(returned) else returned


def _only(generator: Iterator[Any]) -> Any:
    try:
        result = next(generator, _END)
        more = result is not _END and next(generator, _END) is not _END
    finally:
        generator.close()  # type: ignore[attr-defined]
    return _checked(result, more)


async def _only_async(generator: AsyncIterator[Any]) -> Any:
    try:
        result = await _next(generator)
        more = result is not _END and await _next(generator) is not _END
    finally:
        await generator.aclose()  # type: ignore[attr-defined]
    return _checked(result, more)


async def _next(generator: AsyncIterator[Any]) -> Any:
    async for value in generator:
        return value
    return _END


def _checked(result: Any, more: bool) -> Any:
    if result is _END:
        raise ValueError("the generator yielded nothing; a model that is not decoupled needs exactly one result")
    if more:
        raise ValueError("the generator yielded more than once; only a decoupled model may answer several times")
    return result


class _Output(NamedTuple):
    """A declared output: its number, its dtype, and the dtype's code in messages. No array has the dtype of BYTES."""

    number: int
    dtype: np.dtype[Any]
    code: int

    @classmethod
    def of(cls, number: int, spec: TensorSpec) -> _Output:
        dtype = np.dtype(spec.dtype)
        code = dtype_code(dtype)
        return cls(number, np.dtype(np.bytes_) if code == BYTES else dtype, code)


_UNDECLARED = _Output(0, np.dtype(np.void), 0)  # no output has this dtype


class Outputs:
    """The declared outputs of one model.

    Args:
        strict: Check dtypes and shapes against the declaration, instead of casting.
        failures: Warns of outputs that are not declared.
    """

    def __init__(self, model_config: TritonModelConfig, strict: bool, failures: FailureLog) -> None:
        specs = model_config.outputs or ()
        self.names = [spec.name for spec in specs]
        self._declared = {spec.name: _Output.of(number, spec) for number, spec in enumerate(specs)}
        self._decoupled = model_config.decoupled
        self._strict = strict
        self._failures = failures
        self._validator = TritonResultsValidator(model_config, strict, encodes_text=True)

    def whole_batch(self, outputs: Any, rows: int) -> list[Tensor]:
        """The tensors of outputs that hold the rows of all requests.

        Args:
            outputs: Name to array of shape ``(rows, ...)``.
            rows: Sum of the requests' rows.

        Raises:
            ValueError: They are wrong, or one is missing.
        """
        tensors = self._tensors(outputs, WHOLE_BATCH, rows)
        if error := self._incomplete(outputs, tensors):
            raise error
        return tensors

    def each(
        self, requests: Sequence[Any], responses: Any, wanted: Sequence[Sequence[str] | None] | None = None
    ) -> list[list[Tensor] | BaseException]:
        """The tensors of each response; an exception for a response that is one, or that lacks outputs.

        Args:
            responses: What it returned: a list of mappings and exceptions, one per request.
            wanted: Names of the outputs that each request wants; None is all, for one or for each.

        Raises:
            ValueError: Some are wrong.
        """
        rows = self._validator.validate_list(requests, responses)
        found: list[list[Tensor] | BaseException] = []
        for index, response in enumerate(responses):
            if isinstance(response, BaseException):  # asyncio.gather() may give a CancelledError
                found.append(response)
                continue
            names = None if wanted is None else wanted[index]
            tensors = self._tensors(response, index, rows[index], names)
            found.append(self._incomplete(response, tensors, names) or tensors)
        return found

    def _tensors(
        self, outputs: Any, request: int, rows: int | None, wanted: Sequence[str] | None = None
    ) -> list[Tensor]:
        """The declared (and wanted) ones of some outputs, cast to their declared dtypes.

        Args:
            outputs: Name to array.
            request: Index of their request, or WHOLE_BATCH.
            rows: Their first extent; None if that is not known, or there is no batch axis.
            wanted: Names; None is all.
        """
        if not isinstance(outputs, dict):
            self._validator.validate_mapping(outputs, _place(request))
        tensors = []
        takes_all = wanted is None and not self._strict
        for name, array in outputs.items():
            declared: _Output = self._declared.get(name, _UNDECLARED)
            number, dtype, code = declared
            if takes_all and type(array) is np.ndarray and array.dtype == dtype and array.flags.c_contiguous:
                shape = array.shape
                if len(shape) <= MAX_RANK and (rows is None or (shape and shape[0] == rows)):  # as nearly all are
                    tensors.append(Tensor(number, request, code, shape, array.nbytes, (array,)))
                    continue
            self._validator.validate_output(name, array, rows, _place(request))
            if name in self._declared and (wanted is None or name in wanted):
                if array.dtype != dtype and not (code == BYTES and array.dtype.kind in "OSU"):
                    array = array.astype(dtype)
                tensors.append(tensor(number, array, request))
        return tensors

    def _incomplete(
        self, outputs: Mapping[str, Any], tensors: Sequence[Tensor], wanted: Sequence[str] | None = None
    ) -> ValueError | None:
        """The error of outputs that lack a declared (and wanted) one; warns of those that are not declared.

        A decoupled model may spread its outputs over the responses to a request, but each response has one of them.
        """
        if len(outputs) == len(tensors) == len(self._declared):
            return None
        if undeclared := [name for name in outputs if name not in self._declared]:
            self._failures.warn_once(
                "undeclared outputs",
                f"its callable returned {_listed(undeclared)}, which is not sent, as the model's outputs are "
                f"{_listed(self._declared)}; declare it in bind, or do not return it",
            )
        expected = self._declared if wanted is None else wanted
        missing = [name for name in expected if name in self._declared and name not in outputs]
        if not missing or (self._decoupled and len(missing) < len(expected)):
            return None
        return ValueError(
            f"the callable returned {_listed(outputs)}, but not {_listed(missing)}; return every output that the model "
            "declares and request.requested_output_names has"
        )


def _place(request: int) -> str:
    return "the batch" if request == WHOLE_BATCH else f"response {request}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "no output"
