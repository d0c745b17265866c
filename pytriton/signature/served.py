"""The callable that serves a typed function: from a list of requests to Python values, and from results to tensors."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import wrapt
from numpy.typing import NDArray

from pytriton.decorators.function_kinds import call_each, then
from pytriton.decorators.signatures import WRAPPERS, change_of, wrapper_of
from pytriton.exceptions import PyTritonUnrecoverableError, PyTritonValidationError
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.proxy.types import RequestBatch, ResponseBatch, RowErrors
from pytriton.signature.annotations import Annotations, Load
from pytriton.signature.arguments import Arguments, Row
from pytriton.signature.foreign import has_tensors, host_array, tensor_of_array
from pytriton.signature.functions import LISTS, Described, describe
from pytriton.signature.problems import ValueMismatchError
from pytriton.signature.records import UnderivableError
from pytriton.signature.schema import OBJECT, RESULT, VALUES, Schema, Signature, tensor_of
from pytriton.signature.values import encode_rows

__all__ = ["OwnForm", "in_place_of_batch", "members_of", "naming_outputs", "served_form"]

Arrays = dict[str, NDArray[Any]]

Group = tuple[dict[str, Any], list[str], list[int]]
"""Rows of one call with lists: the values that they share, the names of the lists, and the rows' numbers."""


class OwnForm(ABC):
    """A callable for ``bind`` that says itself which tensors its model has, and what serves the model."""

    @abstractmethod
    def derived(self, config: Any) -> Any:
        """The ``Derived`` of a model with this ``ModelConfig``."""

    @abstractmethod
    def served(self) -> Callable[..., Any]:
        """What answers a list of requests."""

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the user's function."""


def served_form(function: Any, config: TritonModelConfig) -> Any:
    """The callable that serves a model: ``function`` itself, unless the model's tensors were derived from it.

    Args:
        function: As it was given to ``bind`` or ``rebind``, or made by a factory.

    Raises:
        PyTritonValidationError: The model's tensors were derived from a callable with another signature.
    """
    if isinstance(function, OwnForm):
        return function.served()
    signature = Signature.of(config)
    if signature is None:
        return function
    found = describe(function)
    if signature.passes != VALUES:
        tensors = tensor_parameters(found)
        names_outputs = signature.result != OBJECT or is_dataclass(found.result) or tensors is not None
        return naming_outputs(function, tensors) if names_outputs else function
    typed = TypedFunction(found, signature, config)
    if found.passes == LISTS:
        return in_place_of_batch(function, typed.form())
    return wrapt.FunctionWrapper(_with_method(function), typed.form())


def in_place_of_batch(function: Any, wrapper: Callable[..., Any]) -> Any:
    """A callable whose ``@batch`` is replaced by another wrapper; decorators above it stay."""
    if isinstance(function, partial):
        return partial(in_place_of_batch(function.func, wrapper), *function.args, **function.keywords)
    function = _with_method(function)
    change = change_of(function)
    if change is not None and change.unpacks:
        return wrapt.FunctionWrapper(function.__wrapped__, wrapper)
    return wrapt.FunctionWrapper(in_place_of_batch(function.__wrapped__, wrapper), wrapper_of(function))


def _with_method(function: Any) -> Any:
    """The function itself, or the method ``__call__`` of an object, which wrapt needs."""
    if type(function) in (FunctionType, MethodType, *WRAPPERS) or hasattr(function, "func"):
        return function
    return function.__call__


def tensor_parameters(found: Described) -> Collection[str] | None:
    """Names of the parameters that are tensors of PyTorch; None if its annotations name no such tensors."""
    names = {name for name, hint in found.hints.items() if has_tensors(hint)}
    return names - {"return"} if names else None


def naming_outputs(function: Any, tensors: Collection[str] | None = None) -> Any:
    """A callable with ``@batch`` or ``@sample`` that may return a bare array, or a dataclass of arrays.

    Args:
        tensors: Names of parameters that get tensors of PyTorch; outputs may be such as well. None if it has none.
    """
    if isinstance(function, WRAPPERS):
        return wrapt.FunctionWrapper(naming_outputs(function.__wrapped__, tensors), wrapper_of(function))
    return wrapt.FunctionWrapper(function, _with_names if tensors is None else _with_tensors(tensors))


def _with_tensors(names: Collection[str]) -> Callable[..., Any]:
    def with_tensors(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        given = {
            name: tensor_of_array(value) if name in names and isinstance(value, np.ndarray) else value
            for name, value in kwargs.items()
        }
        return _with_names(wrapped, instance, args, given)

    return with_tensors


def _with_names(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    result = wrapped(*args, **kwargs)
    if isinstance(result, Generator):
        return _names_of_each(result)
    if isinstance(result, AsyncGenerator):
        return _names_of_each_async(result)
    return _names_of_awaited(result) if inspect.isawaitable(result) else _named(result)


def _named(outputs: Any) -> Any:
    outputs = host_array(outputs)
    if isinstance(outputs, np.ndarray):
        return {RESULT: outputs}
    if is_dataclass(outputs) and not isinstance(outputs, type):
        outputs = {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    if isinstance(outputs, Mapping):
        return {name: host_array(value) for name, value in outputs.items()}
    return [*map(host_array, outputs)] if isinstance(outputs, (list, tuple)) else outputs


async def _names_of_awaited(result: Any) -> Any:
    return _named(await result)


def _names_of_each(results: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
    with closing(results):
        for result in results:
            yield _named(result)


async def _names_of_each_async(results: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, None]:
    async with aclosing(results):
        async for result in results:
            yield _named(result)


def members_of(result: Any, schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The outputs of a result with fields, by name; None for one that it lacks."""
    if isinstance(result, Mapping):
        return {name: result.get(name) for name in schemas}
    if hasattr(result, "model_dump") and any("encoding" in schema for schema in schemas.values()):
        dumped = result.model_dump(mode="json")  # pydantic converts dates and similar types
        return {name: (dumped if "encoding" in schema else vars(result))[name] for name, schema in schemas.items()}
    return {name: getattr(result, name) for name in schemas}


class TypedFunction:
    """Calls a function with Python values: once per row, or once with lists of the values of all rows.

    Raises:
        PyTritonValidationError: The function's signature is another one.
    """

    def __init__(self, found: Described, signature: Signature, config: TritonModelConfig) -> None:
        self._found = found
        self._signature = signature
        self._batching = config.batching
        self._outputs = signature.outputs
        self._positional = found.positional
        self._absent = found.absent
        self._listed = frozenset(found.listed)
        inputs = _inputs(found, signature, config.model_name)
        self._arguments = Arguments(inputs, signature.definitions, config.batching)
        if found.streams != config.decoupled:
            form = "a stream" if config.decoupled else "one result"
            raise PyTritonValidationError(f"model {config.model_name!r} answers with {form}, and {found.name} does not")

    def form(self) -> Callable[..., Any]:
        """The wrapper for ``wrapt.FunctionWrapper`` that answers a list of requests; of the function's kind."""
        if self._found.passes == LISTS:
            call: Any = self._call_with_lists
        elif self._found.streams:
            return self._stream_async if self._found.is_async else self._stream
        else:
            call = self._call_each_async if self._found.is_async else self._call_each

        def answer(wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
            requests = args[0]
            rows = self._arguments.of_requests(requests)
            return call(wrapped, rows, kwargs, partial(self._responses, requests))

        def whole_batch(wrapped: Callable[..., Any]) -> Callable[[Arrays], Any]:
            return lambda inputs: call(wrapped, self._arguments.of(inputs), {}, self._whole)

        if self._batching and not self._found.streams:
            vars(answer)["whole_batch"] = whole_batch  # pytriton.decorators.batching looks for it
        return answer

    def _call_each(
        self, wrapped: Callable[..., Any], rows: list[Row], kwargs: dict[str, Any], respond: Callable[[list[Any]], Any]
    ) -> Any:
        results: list[Any] = []
        try:
            for row in rows:
                try:
                    results.append(row if isinstance(row, ValueMismatchError) else self._call(wrapped, row, kwargs))
                except PyTritonUnrecoverableError:
                    raise
                except Exception as error:
                    results.append(error)
            return respond(results)
        finally:
            del results  # the traceback of an error in it holds this frame

    def _call_with_lists(
        self, wrapped: Callable[..., Any], rows: list[Row], kwargs: dict[str, Any], respond: Callable[[list[Any]], Any]
    ) -> Any:
        """Call a function of any kind once for all rows whose other values are the same."""
        groups = self._groups(rows)
        if not groups:
            return respond(list(rows))
        calls = [((), {**shared, **_columns(lists, members, rows)}) for shared, lists, members in groups]

        def placed(results: list[Any]) -> Any:
            values: list[Any] = list(rows)
            for (_, _, members), result in zip(groups, results, strict=True):
                for index, value in zip(members, self._one_per_row(result, len(members)), strict=True):
                    values[index] = value
            return respond(values)

        return then(call_each(lambda **arguments: self._call(wrapped, arguments, kwargs), calls), placed)

    def _groups(self, rows: Sequence[Row]) -> list[Group]:
        """The valid rows that one call may take."""
        groups: list[Group] = []
        for index, row in enumerate(rows):
            if isinstance(row, ValueMismatchError):
                continue
            lists = [name for name in row if name in self._listed]
            shared = {name: value for name, value in row.items() if name not in self._listed}
            for others, names, members in groups:
                if (
                    names == lists
                    and others.keys() == shared.keys()
                    and all(map(_equal, others.values(), shared.values()))
                ):
                    members.append(index)
                    break
            else:
                groups.append((shared, lists, [index]))
        return groups

    def _one_per_row(self, result: Any, rows: int) -> Iterable[Any]:
        if not isinstance(result, (list, tuple, np.ndarray)):
            raise PyTritonValidationError(
                f"{self._found.name} returned {type(result).__name__} for {rows} rows; return a list of one value each"
            )
        if len(result) != rows:
            raise PyTritonValidationError(
                f"{self._found.name} returned {len(result)} values for {rows} rows; return one per row"
            )
        return result

    async def _call_each_async(
        self, wrapped: Callable[..., Any], rows: list[Row], kwargs: dict[str, Any], respond: Callable[[list[Any]], Any]
    ) -> Any:
        async def call(row: Row) -> Any:
            return row if isinstance(row, ValueMismatchError) else await self._call(wrapped, row, kwargs)

        results = (
            [await call(rows[0])] if len(rows) == 1 else await asyncio.gather(*map(call, rows), return_exceptions=True)
        )
        for result in results:
            if isinstance(result, BaseException) and (
                not isinstance(result, Exception) or isinstance(result, PyTritonUnrecoverableError)
            ):
                raise result
        return respond(results)

    def _stream(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> Generator[list[Any], None, None]:
        values = self._call(wrapped, self._only_row(args[0]), kwargs)
        try:
            for value in values:
                yield [self._outputs_of([value])]
        finally:
            if hasattr(values, "close"):
                values.close()

    async def _stream_async(
        self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
    ) -> AsyncGenerator[list[Any], None]:
        values = self._call(wrapped, self._only_row(args[0]), kwargs)
        if inspect.isawaitable(values):
            values = await values
        try:
            async for value in values:
                yield [self._outputs_of([value])]
        finally:
            if hasattr(values, "aclose"):
                await values.aclose()

    def _call(self, wrapped: Callable[..., Any], row: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        if self._absent:
            row = {**self._absent, **row}
        if self._positional:
            args = [row.pop(name) for name in self._positional if name in row]
            return wrapped(*args, **row, **kwargs)
        return wrapped(**row, **kwargs) if kwargs else wrapped(**row)

    def _only_row(self, requests: Sequence[Any]) -> dict[str, Any]:
        (row,) = self._arguments.of_requests(requests)
        if isinstance(row, ValueMismatchError):
            raise row
        return row

    def _whole(self, results: Sequence[Any]) -> Arrays:
        """The outputs of a batch; raises the error of its one row, or RowErrors."""
        (only,) = results if len(results) == 1 else (None,)
        if isinstance(only, Exception):
            raise only
        try:
            if not any(isinstance(result, Exception) for result in results):
                return self._outputs_of(results)
        except ValueError:  # of one request, or lists that differ in length between requests
            if len(results) == 1:
                raise
        raise RowErrors(partial(self._split, results))

    def _responses(self, requests: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """The response to each request, or the error of the first of its rows that has one."""
        if isinstance(requests, RequestBatch):
            try:
                return ResponseBatch(self._whole(results), requests.rows)
            except RowErrors:
                pass
            except Exception as error:
                return [error]
        rows = [len(next(iter(each.values()))) if self._batching and each else 1 for each in requests]
        return self._split(results, rows)

    def _split(self, results: Sequence[Any], rows: Sequence[int]) -> list[Any]:
        responses = []
        begin = 0
        for count in rows:
            responses.append(self._response(results[begin : begin + count]))
            begin += count
        return responses

    def _response(self, results: Sequence[Any]) -> Any:
        for number, result in enumerate(results):
            if isinstance(result, Exception):
                if len(results) > 1 and isinstance(result, ValueMismatchError):
                    found = [each._replace(path=(number, *each.path)) for each in result.problems]
                    return ValueMismatchError(found, result.more)
                return result
        try:
            return self._outputs_of(results)
        except ValueError as error:
            return error

    def _outputs_of(self, results: Sequence[Any]) -> Arrays:
        """The outputs of some rows; ValueError if a result does not fit."""
        try:
            if self._signature.result == OBJECT:
                members = [members_of(result, self._outputs) for result in results]
                outputs = {
                    name: self._encoded(name, schema, [each[name] for each in members])
                    for name, schema in self._outputs.items()
                }
            else:
                outputs = {name: self._encoded(name, schema, results) for name, schema in self._outputs.items()}
        except (ValueMismatchError, AttributeError, KeyError) as error:
            raise ValueError(
                f"{self._found.name} returned a result that does not fit its annotation: {error}"
            ) from error
        return outputs if self._batching else {name: array[0, ...] for name, array in outputs.items()}

    def _encoded(self, name: str, schema: Schema, values: Sequence[Any]) -> NDArray[Any]:
        return encode_rows(schema, values, self._signature.definitions, (name,))


def _columns(names: Sequence[str], members: Sequence[int], rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The arguments of a call with lists of the values of these rows."""
    return {name: [rows[index][name] for index in members] for name in names}


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def _inputs(found: Described, signature: Signature, model: str) -> dict[str, tuple[Schema, Load | None]]:
    """Schema and load of the model's inputs, if the function has such parameters."""
    kinds = Annotations()
    needed = {each.name for each in found.parameters.values() if each.default is each.empty}
    if not signature.inputs.keys() <= found.parameters.keys() or not needed <= signature.inputs.keys():
        raise _other(found, model, f"parameters {_listed(found.parameters)} in place of {_listed(signature.inputs)}")
    inputs = {}
    for name, schema in signature.inputs.items():
        load = None
        if name in found.hints:
            try:
                kind, _ = kinds.of_input(found.hints[name])
            except UnderivableError as error:
                raise _other(found, model, str(error)) from error
            load = kind.load
            if kind.schema.get("shape", ...) is not None and kind.schema.get("dtype", ...) is not None:
                before, now = tensor_of(name, schema), tensor_of(name, kind.schema)
                if (before.dtype, before.shape) != (now.dtype, now.shape):
                    raise _other(found, model, f"{name!r} as {now} in place of {before}")
        inputs[name] = schema, load
    return inputs


def _other(found: Described, model: str, difference: str) -> PyTritonValidationError:
    return PyTritonValidationError(
        f"{found.name} cannot serve model {model!r}, which was derived from another signature: it has {difference}; "
        "use bind(..., replace=True)"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
