"""Decorators that turn a list of requests into keyword arrays, and the outputs into a list of responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import getattr_static, unwrap
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pytriton.decorators.function_kinds import BATCH_SPAN, in_span, then
from pytriton.decorators.grouping import ConstantPadder
from pytriton.decorators.inputs_and_outputs import (
    batched_inputs,
    batched_outputs,
    convert_output,
    get_inference_request_batch_size,
    replaced,
    requests_in,
    row_count,
    tensors,
)
from pytriton.decorators.signatures import WRAPPERS, Wrapped, decorator, unpacking_decorator, wrapper_of
from pytriton.exceptions import PyTritonValidationError
from pytriton.proxy.telemetry import get_telemetry_tracer
from pytriton.proxy.types import RequestBatch, ResponseBatch
from pytriton.worker.context import get_model_config

__all__ = ["batch", "pad_batch", "sample", "whole_batch_form"]

Arrays = dict[str, NDArray[Any]]


@unpacking_decorator
def batch(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function once, with the inputs of all requests joined.

    The function gets each input as a keyword argument of shape ``(rows, ...)``, where ``rows`` is the sum over the
    requests. It returns a dict from output name to array of shape ``(rows, ...)``, or a list or tuple of arrays in the
    order of the model's outputs; each request gets its rows as views. Inputs that arrived in one block, and those of a
    single request, are not copied. Each value that a generator yields is split in the same way.

    Raises:
        PyTritonRuntimeError: There is no list of requests.
        PyTritonValidationError: The list is empty; the requests have different inputs, or inputs that cannot be joined;
            or an output is missing, is not an array, or does not have ``rows`` rows.
    """
    inputs, rows = _joined(requests_in(args, "batch"))
    total = sum(rows)

    def cut(outputs: Any) -> ResponseBatch:
        return ResponseBatch(batched_outputs(outputs, total, wrapped, instance), rows)

    return then(in_span(BATCH_SPAN, wrapped, *args[1:], **inputs, **kwargs), cut)


def whole_batch_form(function: Any) -> Callable[[Arrays], Any] | None:
    """The function below ``@batch``, from whole-batch inputs by name to outputs, which the caller splits and checks.

    None if ``@batch`` is not the outermost decorator of the function, the bound method, or the object's ``__call__``,
    and the outermost one has no such form of its own, as that of typed functions has.
    """
    decorated = function if isinstance(function, WRAPPERS) else getattr_static(type(function), "__call__", None)
    wrapper = wrapper_of(decorated) if isinstance(decorated, WRAPPERS) else None
    if (form := getattr(wrapper, "whole_batch", None)) is not None:
        return cast(Callable[[Arrays], Any], form(decorated.__wrapped__))
    if wrapper is not unwrap(batch):
        return None
    wrapped = (function if decorated is function else function.__call__).__wrapped__

    def called(inputs: Arrays) -> Any:
        outputs = wrapped(**inputs) if get_telemetry_tracer() is None else in_span(BATCH_SPAN, wrapped, **inputs)
        if type(outputs) is dict:
            return outputs
        return then(outputs, lambda outputs: convert_output(outputs, function, None))

    return called


@unpacking_decorator
def sample(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function with the inputs of the first request; for models without batching.

    The function gets each input as a keyword argument, in the shape that was sent, and returns a dict from output name
    to array, or a list or tuple of arrays in the order of the model's outputs.

    Raises:
        PyTritonRuntimeError: There is no list of requests.
        PyTritonValidationError: The list is empty, or the function returned something else.
    """
    request = requests_in(args, "sample")[0]

    def listed(outputs: Any) -> list[Arrays]:
        return [convert_output(outputs, wrapped, instance)]

    return then(wrapped(*args[1:], **tensors(request), **kwargs), listed)


@decorator
def pad_batch(wrapped: Wrapped, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fill the batch up to a size that the model prefers, by repeating its last row; or pad requests to equal shapes.

    Below ``@batch``, the size is the smallest sufficient one of the model's ``preferred_batch_size`` and
    ``max_batch_size``; a larger batch is not changed. The function returns one row per input row, and the added rows
    are removed.

    Above ``@batch``, the inputs of all requests get the extents of the longest along each axis but the first, with
    zeros or empty texts at the end, so that they can be joined. Requests of different shapes are merged only with a
    ``batch_cost``.

    Raises:
        PyTritonRuntimeError: There are neither requests nor keyword arrays, or arrays that differ in rows, or in dtype
            or rank between requests.
        PyTritonValidationError: The batch has no rows to repeat, or an output has another number of rows than the
            padded batch.
    """
    if args and isinstance(args[0], (list, tuple)):
        return wrapped(_with_equal_shapes(args[0]), *args[1:], **kwargs)
    inputs, rows = batched_inputs(kwargs, "pad_batch")
    padded = _padded_size(rows, wrapped, instance)
    if padded == rows:
        return wrapped(*args, **kwargs)
    if rows == 0:
        raise PyTritonValidationError("@pad_batch got a batch without rows; there is nothing to repeat")

    def trim(outputs: Any) -> Arrays:
        named = batched_outputs(outputs, padded, wrapped, instance)
        return {name: array[:rows] for name, array in named.items()}

    longer = {name: _repeat_last(array, padded - rows) for name, array in inputs.items()}
    return then(wrapped(*args, **{**kwargs, **longer}), trim)


def _with_equal_shapes(requests: Sequence[Any]) -> Sequence[Any]:
    if isinstance(requests, RequestBatch) and requests.columns() is not None:
        return requests
    given = [tensors(request) for request in requests]
    padded = ConstantPadder(0)([dict(inputs) for inputs in given])
    return [
        request if all(longer[name] is inputs[name] for name in longer) else replaced(request, longer)
        for request, inputs, longer in zip(requests, given, padded, strict=True)
    ]


def _joined(requests: Sequence[Any]) -> tuple[Arrays, Sequence[int]]:
    """Whole-batch inputs, and the rows of each request."""
    if isinstance(requests, RequestBatch):
        columns = requests.columns()
        if columns is not None:
            return columns, requests.rows
    data = [tensors(request) for request in requests]
    names = data[0].keys()
    for index, inputs in enumerate(data):
        if inputs.keys() != names:
            raise PyTritonValidationError(
                f"@batch got requests with different inputs: request 0 has {list(names)}, request {index} has "
                f"{list(inputs)}; put @group_by_keys or @fill_optionals above @batch"
            )
    rows = [_rows(inputs, index) for index, inputs in enumerate(data)]
    if len(data) == 1:
        return dict(data[0]), rows
    return {name: _concatenated(name, [inputs[name] for inputs in data]) for name in names}, rows


def _rows(inputs: Any, index: int) -> int:
    rows = get_inference_request_batch_size(inputs)
    for name, array in inputs.items():
        if row_count(name, array) != rows:
            raise PyTritonValidationError(
                f"request {index} has {rows} rows, but its input {name!r} has {array.shape[0]}; send one per row"
            )
    return rows


def _concatenated(name: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    try:
        return np.concatenate(arrays)
    except (TypeError, ValueError) as error:
        raise PyTritonValidationError(
            f"input {name!r} cannot be joined, its requests have shapes {[array.shape for array in arrays]}; give it a "
            "fixed shape, put @pad_batch above @batch, or turn the batcher off"
        ) from error


def _padded_size(rows: int, wrapped: Wrapped, instance: Any) -> int:
    config = get_model_config(wrapped, instance)
    preferred = (config.batcher.preferred_batch_size if config.batcher else None) or ()
    return min((size for size in (*preferred, config.max_batch_size) if size >= rows), default=rows)


def _repeat_last(array: NDArray[Any], count: int) -> NDArray[Any]:
    return np.concatenate([array, np.repeat(array[-1:], count, axis=0)])
